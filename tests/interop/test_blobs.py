"""What nothing names any more leaves the blob store, and nothing else does: a real server, real files, real documents. Time passes by
setting the times of files back."""

import hashlib
import json
import os

import pytest

HOURS_25 = 25 * 3600


@pytest.fixture
def served(new_server, tmp_path):
    folder = tmp_path / "papers"
    folder.mkdir()
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    return server, folder


def store(server):
    return server.folder / "data" / "blobs"


def in_place(server, text):
    name = hashlib.sha256(text.encode()).hexdigest()
    return store(server) / name[:2] / name[2:]


def grow_old(server):
    """As if a day had passed for all that lies in the store, in its place and aside."""
    for path in [path for path in store(server).rglob("*") if path.is_file()]:
        place = path.relative_to(store(server)).parts
        if place[0] == "aside":
            path.rename(path.with_name(str(int(path.name) - HOURS_25 * 1000)))
        elif place[0] != "logs":
            old = path.stat().st_mtime - HOURS_25
            os.utime(path, (old, old))


def blobs(server, *words):
    done = server.cli("blobs", *words, "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def sweep_twice(server):
    grow_old(server)
    first = blobs(server, "sweep")
    grow_old(server)
    return first, blobs(server, "sweep")


def document(server, name):
    items = server.get("/documents?collection=papers").json["items"]
    return next(item for item in items if item["source"].endswith(name))


def text_of(server, name):
    return server.get(f"/documents/{document(server, name)['document_id']}/text")


def test_what_was_removed_goes_and_what_is_named_stays(served):
    server, folder = served
    texts = {"a.md": "# A\n\nThe walrus sleeps on ice.\n", "b.md": "# B\n\nThe heron waits in reeds.\n", "c.md": "# B\n\nThe heron waits in reeds.\n"}
    for name, text in texts.items():
        (folder / name).write_text(text)
    server.ingest(folder, "papers")
    assert server.cli("docs", "rm", document(server, "a.md")["document_id"]).returncode == 0
    assert server.cli("docs", "rm", document(server, "b.md")["document_id"]).returncode == 0  # c.md has the same bytes
    young = blobs(server, "sweep")
    assert young["set_aside"]["blobs"] == 0 < young["waiting"]["blobs"], young

    grow_old(server)
    told = blobs(server, "check")
    assert told["dry_run"] and told["set_aside"]["blobs"] > 0 and in_place(server, texts["a.md"]).exists(), told
    first = blobs(server, "sweep")
    assert first == told | {"dry_run": False, "records": first["records"]}
    assert not in_place(server, texts["a.md"]).exists()
    grow_old(server)
    second = blobs(server, "sweep")
    assert second["removed"] == first["set_aside"] and second["set_aside"]["blobs"] == 0, second
    assert list(store(server).glob("aside/*/*")) == []
    assert in_place(server, texts["b.md"]).exists(), "the other document has the same bytes"
    reply = text_of(server, "c.md")
    assert reply.status == 200 and "heron" in reply.json["text"], reply
    assert server.cli("collections", "check", "papers").returncode == 0

    again = server.ingest(folder, "papers")
    assert again["status"] == "done" and in_place(server, texts["a.md"]).exists(), again
    assert "walrus" in text_of(server, "a.md").json["text"]


def test_handed_in_again_while_it_is_set_aside_it_is_there(served):
    server, folder = served
    text = "# A\n\nThe walrus sleeps on ice.\n"
    (folder / "a.md").write_text(text)
    server.ingest(folder, "papers")
    assert server.cli("collections", "rm", "papers").returncode == 0
    grow_old(server)
    assert blobs(server, "sweep")["set_aside"]["blobs"] > 0
    server.ingest(folder, "papers")
    first, second = sweep_twice(server)
    assert first["set_aside"]["blobs"] == second["set_aside"]["blobs"] == 0, (first, second)
    assert "walrus" in text_of(server, "a.md").json["text"] and in_place(server, text).exists()


def test_the_bytes_of_an_older_version_go_and_its_text_stays(served):
    server, folder = served
    old, new = "<h1>A</h1><p>The walrus sleeps on ice.</p>", "<h1>A</h1><p>The walrus swims.</p>"
    (folder / "a.html").write_text(old)
    server.ingest(folder, "papers")
    before = document(server, "a.html")
    (folder / "a.html").write_text(new)
    server.ingest(folder, "papers")
    sweep_twice(server)
    assert not in_place(server, old).exists() and in_place(server, new).exists()
    version = before["indexed_version"]
    reply = server.get(f"/documents/{before['document_id']}/text?version={version}")
    assert reply.status == 200 and "sleeps" in reply.json["text"], "citations of earlier answers count in it"
    rebuilt = server.cli("collections", "rebuild", "papers", "--afresh", "--json")
    assert rebuilt.returncode == 0, rebuilt
    assert "swims" in text_of(server, "a.html").json["text"]


def test_a_store_that_another_log_names_blobs_of_is_not_swept(served):
    server, _ = served
    (store(server) / "logs").mkdir(exist_ok=True)
    (store(server) / "logs" / "another").write_text("another")
    refused = server.post("/blobs/sweep", {})
    assert refused.status == 409 and refused.json["code"] == "blobs_shared" and "another" in refused.json["detail"], refused
    done = server.cli("blobs", "check")
    assert done.returncode != 0 and "logs/<id>" in done.stderr, done
    (store(server) / "logs" / "another").unlink()
    assert server.post("/blobs/sweep", {}).status == 200


def test_a_grace_that_is_none_is_refused(served):
    server, _ = served
    for hours in ("0", "9000", "x"):
        assert server.cli("blobs", "sweep", "--grace", hours).returncode != 0
    listed = blobs(server, "ls")
    assert listed["aside"] == {"blobs": 0, "bytes": 0}, listed
