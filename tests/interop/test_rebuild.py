"""Keywords and vectors that are lost, damaged or old are made again from the log: real files, a real server, real vectors."""

import json
import os
import shutil
import subprocess

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from server import BINARY, ROOT, Server, wait_for

HANDBOOK = ROOT / "examples/handbook"
QUESTION = {"query": "what does a winch launch cost", "collection": "handbook", "k": 5}
WHOLE_S = 120


@pytest.fixture
def handbook(new_server):
    """A server that has the handbook, and what a search finds there."""
    server = new_server(RIVERRUN_INGEST_ROOTS=str(ROOT / "examples")).start()
    server.ingest(HANDBOOK, "handbook")
    return server, found(server.post("/rag/search", QUESTION).json)


def found(result):
    return {item["chunk_id"] for item in result["items"]}


def index(server, kind):
    return server.folder / "data" / kind / "default__handbook"


def is_whole(server, before):
    """Whether the search finds what it found; until then it says that something may be lacking."""
    reply = server.post("/rag/search", QUESTION)
    if reply.status == 503:
        assert reply.json["code"] == "index_incomplete" and reply.json["hint"], reply
        return False
    assert reply.status == 200, reply
    incomplete = reply.json.get("incomplete")
    if incomplete:
        assert incomplete["code"] == "index_incomplete" and any("index_incomplete" in note for note in reply.json["notes"]), reply
        return False
    assert found(reply.json) == before, reply
    return True


def comes_to_be_whole(server, before):
    wait_for(lambda: is_whole(server, before), WHOLE_S, "the collection to be whole")
    check = server.cli("collections", "check", "handbook", "--json")
    assert check.returncode == 0, check
    counts = json.loads(check.stdout)
    assert counts["chunks"] == counts["vectors"] == counts["keywords"] > 0 and counts["missing"] == counts["surplus"] == 0, counts


@pytest.mark.parametrize("kinds", [["vectors"], ["keywords"], ["vectors", "keywords"]], ids="+".join)
def test_lost_indexes_are_made_again_by_themselves(handbook, kinds):
    server, before = handbook
    assert server.stop() == 0
    for kind in kinds:
        shutil.rmtree(server.folder / "data" / kind)
    server.start()
    comes_to_be_whole(server, before)


@pytest.mark.parametrize("kind, file", [("vectors", "collection.json"), ("keywords", "meta.json")])
@pytest.mark.parametrize("content", [b"", b"\xa5" * 300], ids=["cut", "garbage"])
def test_damaged_indexes_are_set_aside_and_made_again(handbook, kind, file, content):
    server, before = handbook
    assert server.stop() == 0
    (index(server, kind) / file).write_bytes(content)
    server.start()
    comes_to_be_whole(server, before)
    kept = list((server.folder / "data" / kind / ".set-aside").iterdir())
    assert [one.name.rsplit("-", 1)[0] for one in kept] == ["default__handbook"], kept
    assert "panicked" not in server.log_path.read_text(errors="replace")


def test_an_old_copy_is_brought_up_to_date_and_nothing_deleted_comes_back(handbook):
    server, before = handbook
    assert server.stop() == 0
    copy = server.folder / "copy"
    for kind in ("vectors", "keywords"):
        shutil.copytree(server.folder / "data" / kind, copy / kind)
    server.start()
    gone = next(item for item in server.get("/documents?collection=handbook").json["items"] if "charges" in item["source"])
    assert server.cli("docs", "rm", gone["document_id"]).returncode == 0
    assert server.stop() == 0
    for kind in ("vectors", "keywords"):
        shutil.rmtree(server.folder / "data" / kind)
        shutil.copytree(copy / kind, server.folder / "data" / kind)
    server.start()
    done = server.cli("collections", "rebuild", "handbook", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["status"] == "done", done
    items = server.post("/rag/search", QUESTION).json["items"]
    assert items and all(item["document_id"] != gone["document_id"] for item in items), items
    assert server.cli("collections", "check", "handbook").returncode == 0


def test_killed_half_way_it_goes_on(handbook):
    server, before = handbook
    assert server.stop() == 0
    for kind in ("vectors", "keywords"):
        shutil.rmtree(server.folder / "data" / kind)
    for _ in range(3):
        server.start()
        server.kill()
    server.start()
    comes_to_be_whole(server, before)


def test_afresh_and_what_is_no_collection(handbook):
    server, before = handbook
    done = server.cli("collections", "rebuild", "handbook", "--afresh", "--json")
    view = json.loads(done.stdout)
    assert done.returncode == 0 and view["status"] == "done" and view["result"]["vectors"] == view["result"]["chunks"] > 0, done
    assert view["result"]["embedded"] == 0, "vectors come from the log"
    comes_to_be_whole(server, before)
    nowhere = server.cli("collections", "rebuild", "nowhere")
    assert nowhere.returncode == 4 and "does not exist" in nowhere.stderr, nowhere


def cut_chunks(server):
    """Cuts both topics of chunks to their ends, as a retention time does."""
    consumer = Consumer({"bootstrap.servers": server.brokers, "group.id": "none", "enable.auto.commit": False})
    ends = []
    for topic in ("riverrun.ingest.chunks", "riverrun.ingest.embeddings"):
        for partition in consumer.list_topics(topic, timeout=10).topics[topic].partitions:
            _, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
            ends.append(TopicPartition(topic, partition, high))
    consumer.close()
    admin = AdminClient({"bootstrap.servers": server.brokers})
    for done in admin.delete_records(ends).values():
        done.result(30)


def test_chunks_that_are_nowhere_on_the_log_are_made_again_from_what_was_handed_in(handbook):
    server, before = handbook
    server.settle()
    cut_chunks(server)
    assert server.stop() == 0
    for kind in ("vectors", "keywords"):
        shutil.rmtree(server.folder / "data" / kind)
    server.start()
    comes_to_be_whole(server, before)
    # They are on the log again.
    done = server.cli("collections", "rebuild", "handbook", "--afresh", "--json")
    view = json.loads(done.stdout)
    assert done.returncode == 0 and view["status"] == "done" and view["result"]["missing"] == 0 < view["result"]["vectors"], done
    comes_to_be_whole(server, before)


def test_where_what_was_handed_in_is_gone_too_it_says_so_and_the_sources_bring_it_back(handbook):
    server, before = handbook
    server.settle()
    cut_chunks(server)
    assert server.stop() == 0
    for kind in ("vectors", "keywords", "blobs"):
        shutil.rmtree(server.folder / "data" / kind)
    server.start()
    done = server.cli("collections", "rebuild", "handbook", "--json")
    view = json.loads(done.stdout)
    assert view["status"] == "incomplete" and view["result"]["missing"] > 0, done

    def failed():
        rows = server.get("/documents?collection=handbook").json["items"]
        return rows and all(row["status"] == "failed" and row["error"]["code"] == "blob_not_found" for row in rows)
    wait_for(failed, WHOLE_S, "each document to say why")
    reply = server.post("/rag/search", QUESTION)
    assert reply.status == 503 and reply.json["code"] == "index_incomplete" and "remove" in json.dumps(reply.json), reply
    assert server.cli("collections", "rm", "handbook").returncode == 0
    server.ingest(HANDBOOK, "handbook")
    assert server.cli("collections", "rebuild", "handbook").returncode == 0
    comes_to_be_whole(server, before)


def test_the_example_runs(tmp_path):
    place = Server(tmp_path)
    program = tmp_path / "bin"
    program.mkdir()
    (program / "riverrun").symlink_to(BINARY)
    done = subprocess.run([ROOT / "examples/rebuild.sh"], cwd=tmp_path, env=place.env | {"PATH": f"{program}:{os.environ['PATH']}"},
                          capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    before, after = (line for line in done.stdout.splitlines() if line.startswith("1. "))
    assert before == after, done.stdout


def test_an_index_of_yesterday_is_told_by_its_chunks_where_the_numbers_agree_and_repaired(new_server, tmp_path):
    folder, yesterday = tmp_path / "docs", tmp_path / "yesterday"
    folder.mkdir()
    (folder / "river.txt").write_text("The Elbe rises in the Giant Mountains.")
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    server.ingest(folder, "rivers")
    server.settle()
    assert server.stop() == 0
    keywords = server.folder / "data/keywords/default__rivers"
    shutil.copytree(keywords, yesterday)
    server.start()
    (folder / "river.txt").write_text("The Oder rises in the Oder Hills.")
    server.ingest(folder, "rivers")
    server.settle()
    assert server.stop() == 0
    shutil.rmtree(keywords)
    shutil.copytree(yesterday, keywords)
    server.start()

    check = server.cli("collections", "check", "rivers", "--json")
    assert check.returncode == 1, check
    told = json.loads(check.stdout)
    assert told["chunks"] == told["vectors"] == told["keywords"] == 1 and (told["missing"], told["surplus"]) == (1, 1), told
    assert sorted((one["fault"], one["held_by"]) for one in told["differences"]) == [("missing", ["vectors"]), ("surplus", ["keywords"])], told
    assert len({one["chunk_id"] for one in told["differences"]}) == 2 and len(told["orphans"]) == 1, told

    repaired = server.cli("collections", "check", "rivers", "--repair")
    assert repaired.returncode == 0 and "0 orphans · 0 missing · 0 too many" in repaired.stdout, repaired
    words = lambda query: [item["text"] for item in server.post("/rag/search", {
        "query": query, "collection": "rivers", "mode": "sparse", "rerank": False}).json["items"]]
    assert len(words("oder")) == 1 and words("elbe") == []
