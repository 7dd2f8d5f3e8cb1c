"""Everything that a data folder has, carried to another one: the same answers there, nothing done again."""

import json
import os
import subprocess
import urllib.request
import uuid

import pytest

import cluster as clusters
import log_client
from cluster import Cluster
from server import BINARY, ROOT, wait_for


def cli(server, *arguments, expect=0):
    done = server.cli(*arguments)
    assert done.returncode == expect, done
    return json.loads(done.stdout) if "--json" in arguments and expect == 0 else done


def runs(server):
    return {run["run_id"]: run["status"] for run in server.get("/runs?limit=100").json["items"]}


def test_what_is_exported_is_imported_with_the_same_counts_and_goes_on(new_server, tmp_path):
    source = new_server("source").start()
    file = source.folder / "notes.md"
    file.write_text("# Notes\n\nThe zanzibar is blue and lies in a drawer.\n")
    source.ingest(file, "notes")
    run_id = source.start_run("say hello")
    source.run_end(run_id)
    turn = source.post("/memory/turns", {"role": "user", "text": "my zanzibar is blue", "session": "talk"})
    assert turn.status == 200, turn
    source.settle()
    before = runs(source)
    cli(source, "export", str(tmp_path / "early"), expect=1)  # a server is at work on the folder
    assert source.stop() == 0

    archive = tmp_path / "archive"
    exported = cli(source, "export", str(archive), "--json")
    assert exported["records"] > 0 and exported["blobs"] > 0
    manifest = json.loads((archive / "manifest.json").read_text())
    assert sum(part["records"] for part in manifest["log"]) == exported["records"]
    again = cli(source, "export", str(archive), "--json")
    assert again["records"] == exported["records"]

    target = new_server("target")
    imported = cli(target, "import", str(archive), "--json")
    assert imported["verified"] and imported["written"] == imported["records"] == exported["records"]
    once_more = cli(target, "import", str(archive), "--json")
    assert once_more["written"] == 0, "a second try finds everything there"

    target.start()
    target.settle()
    assert runs(target) == before
    assert target.run_end(run_id)["answer"] == source_answer(source, run_id)
    found = target.post("/rag/search", {"query": "where is the zanzibar?", "collection": "notes"})
    assert "drawer" in found.json["items"][0]["text"], found
    turns = target.get("/memory/turns?session=talk").json["items"]
    assert [turn["text"] for turn in turns] == ["my zanzibar is blue"]
    assert cli(target, "dlq", "ls", "--json")["items"] == []
    target.start_run("and on it goes")
    assert target.stop() == 0
    refused = cli(target, "import", str(archive), expect=4)
    assert "not empty" in refused.stderr, refused


def source_answer(source, run_id):
    return cli(source, "runs", "show", run_id, "--json")["answer"]


def test_the_example_moves_a_conversation():
    done = subprocess.run([ROOT / "examples/move.sh"], env=os.environ | {"RIVERRUN": str(BINARY)}, capture_output=True, text=True, timeout=300,
                          check=False)
    assert done.returncode == 0 and "my boat is blue" in done.stdout, done


def test_an_archive_that_is_damaged_writes_nothing(new_server, tmp_path):
    source = new_server("source").start()
    source.run_end(source.start_run("say hello"))
    source.settle()
    assert source.stop() == 0
    archive = tmp_path / "archive"
    cli(source, "export", str(archive))
    file = next(path for path in (archive / "log").rglob("*.jsonl") if path.stat().st_size)
    text = file.read_text()
    file.write_text(text.replace('"at_ms":1', '"at_ms":2', 1))
    target = new_server("target")
    done = cli(target, "import", str(archive), expect=1)
    assert "damaged" in done.stderr and "hint:" in done.stderr, done
    assert not (target.folder / "data" / "broker").exists()
    file.write_text(text)
    cli(target, "import", str(archive))
    (archive / "manifest.json").unlink()
    cli(new_server("other"), "import", str(archive), expect=2)


JUDGED = ROOT / "tests/interop/retrieval"


def tunings(server):
    """What is said of tunings, by the ids of events."""
    told = [log_client.headers(record) for record in log_client.read_topic(server.brokers, "riverrun.ingest.events")]
    return sorted((one["ce_type"], one["ce_id"]) for one in told if ".CollectionTun" in one["ce_type"])


def test_given_a_tuned_collection_when_its_log_is_moved_then_it_is_searched_as_before_and_nobody_learns_again(new_server, tmp_path):
    source = new_server("source", RIVERRUN_INGEST_ROOTS=str(ROOT / "examples")).start()
    assert source.ingest(ROOT / "examples/handbook", "handbook")["failed"] == 0
    files = ["--qrels", str(JUDGED / "qrels.tsv"), "--queries", str(JUDGED / "queries.tsv")]
    tuning = cli(source, "collections", "tune", "handbook", *files, "--json")
    source.settle()
    told = tunings(source)
    assert [kind.rpartition(".")[2] for kind, _ in told] == ["CollectionTuned", "CollectionTuning"], told
    assert source.stop() == 0
    cli(source, "export", str(tmp_path / "archive"))
    target = new_server("target")
    cli(target, "import", str(tmp_path / "archive"))
    target.start()
    target.settle()
    assert tunings(target) == told
    assert target.get(f"/tunings/{tuning['tuning_id']}").json == tuning
    found = target.post("/rag/search", {"query": "winch launch", "collection": "handbook", "rerank": False}).json
    assert found.get("tuned", False) == tuning["tuned"] and not found.get("notes"), found


def new_bucket():
    """A bucket of its own: what others keep would be carried, too."""
    name = f"move-{uuid.uuid4().hex[:8]}"
    urllib.request.urlopen(urllib.request.Request(f"{os.environ['RIVERRUN_TEST_S3_ENDPOINT']}/{name}", method="PUT"), timeout=30).close()
    return name


def sums(archive):
    """What proves that two archives carry the same."""
    manifest = json.loads((archive / "manifest.json").read_text())
    return {part: manifest[part] for part in ("log", "blobs", "groups")}


def test_given_a_data_folder_when_it_is_moved_to_servers_and_back_then_counts_and_hashes_stay_and_rows_are_made_again(new_server, model, tmp_path):
    why = clusters.missing()
    if why:
        pytest.skip(why)
    embed = {"RIVERRUN_DEFAULT_EMBED_MODEL": "ollama/stub-embed"}
    source = new_server("source", **embed).start()
    file = source.folder / "notes.md"
    file.write_text("# Notes\n\nThe zanzibar is blue and lies in a drawer.\n")
    source.ingest(file, "moved")
    source.run_end(source.start_run("say hello"))
    source.settle()
    before = runs(source)
    assert source.stop() == 0
    there, back = tmp_path / "there", tmp_path / "back"
    exported = cli(source, "export", str(there), "--json")
    assert exported["records"] > 0 and exported["blobs"] > 0

    moved = Cluster(tmp_path / "cluster", model, RIVERRUN_S3_BUCKET=new_bucket())
    try:
        # The log is a broker elsewhere, blobs are in a bucket, read models in PostgreSQL.
        place = {"RIVERRUN_KAFKA_BROKERS": moved.api.brokers, "RIVERRUN_DATA_DIR": str(tmp_path / "mover")}
        done = moved.api.cli("import", str(there), "--json", **place)
        assert done.returncode == 0, done
        imported = json.loads(done.stdout)
        assert imported["verified"] and imported["written"] == exported["records"], imported
        moved.add_each(["projector"])
        wait_for(lambda: runs(moved.api) == before, 120, "the runs to be made again from the log in PostgreSQL")
        done = moved.api.cli("export", str(back), "--json", **place)
        assert done.returncode == 0, done
    finally:
        moved.stop()
    assert sums(back) == sums(there)

    target = new_server("target", **embed)
    assert cli(target, "import", str(back), "--json")["written"] == exported["records"]
    target.start()
    target.settle()
    assert runs(target) == before
    found = target.post("/rag/search", {"query": "where is the zanzibar?", "collection": "moved"})
    assert "drawer" in found.json["items"][0]["text"], found
