"""Documents that are kept whole (canvases, metadata of sources, reports of projects): in MongoDB the same answers as embedded, and made
again from the log when the store has lost them."""

import contextlib
import hashlib
import json
import os
import sqlite3
import uuid

import pytest

from server import wait_for

MONGODB = os.environ.get("RIVERRUN_TEST_MONGODB_URL")


@pytest.fixture
def mongodb():
    if not MONGODB:
        pytest.skip("RIVERRUN_TEST_MONGODB_URL is not set: scripts/services.py mongodb")
    return lambda: MONGODB.replace("/?", f"/documents_{uuid.uuid4().hex[:8]}?", 1)


def test_a_store_that_is_lost_is_made_again_from_the_log(new_server, mongodb, tmp_path):
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"format": "riverrun.canvas", "version": 1, "name": "Board", "namespace": "default",
                                "nodes": [], "edges": []}))
    server = new_server(RIVERRUN_MONGODB_URL=mongodb()).start()
    for revision in range(3):
        done = server.cli("canvas", "save", path, "--revision", str(revision))
        assert done.returncode == 0, done
    row = next(row for row in server.get("/diagnose").json["services"] if row["name"] == "documents")
    assert (row["kind"], row["status"]) == ("mongodb", "up") and row["version"], row
    before = server.get("/canvases/board").json
    server.stop()
    # Another, empty database, and then the embedded store: both become what the log says.
    for url in [mongodb(), ""]:
        server.env["RIVERRUN_MONGODB_URL"] = url
        server.start()
        wait_for(lambda: server.get("/canvases/board").json == before, 60, "the canvas to be made again from the log")
        server.stop()


NOTE = "---\ntitle: Gliding\nauthor: Ann Author\n---\n\n# Gliding\n\nA winch launch costs nine.\n"
LATIN = "Ein Flug \xfcber die Stra\xdfe kostet neun.\n".encode("latin-1")


@pytest.fixture
def places(tmp_path):
    """Sources of a test: a folder of documents, and one with code."""
    notes, code = tmp_path / "notes", tmp_path / "code"
    notes.mkdir()
    (notes / "gliding.md").write_text(NOTE)
    (notes / "flug.txt").write_bytes(LATIN)
    code.mkdir()
    (code / "app.py").write_text("import os\nx = eval(input())\n")
    return notes, code


def sources(server, namespace="default"):
    """What is known of the bytes of each document, by the name of its file."""
    items = server.get(f"/documents?collection=notes&namespace={namespace}").json["items"]
    found = {}
    for item in items:
        detail = server.get(f"/documents/{item['document_id']}?namespace={namespace}").json
        found[item["source"].rsplit("/", 1)[-1]] = detail.get("source_versions", [])
    return found


def analyzed(server, code):
    project = json.loads(server.cli("project", "import", str(code), "--json").stdout)["project_id"]
    done = server.cli("project", "analyze", project, "--no-review", "--json")
    assert done.returncode == 0, done
    return project


def kept(server, kind):
    """Ids of a kind in the embedded store."""
    with contextlib.closing(sqlite3.connect(f"file:{database(server)}?mode=ro", uri=True)) as connection:
        return sorted(row[0] for row in connection.execute("SELECT id FROM json_documents WHERE kind = ?", (kind,)))


def database(server):
    return server.folder / "data" / "read.db"


def filled(server, notes):
    server.ingest(notes, "notes")
    full = lambda: all(sources(server).values()) and len(sources(server)) == 2  # noqa: E731
    wait_for(full, 30, "the document store to have read of the documents")


def test_what_is_known_of_sources_is_shown_version_by_version_and_goes_with_them(new_server, places, tmp_path):
    notes, _ = places
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    filled(server, notes)
    (note,), (text,) = sources(server)["gliding.md"], sources(server)["flug.txt"]
    told = {name: note.get(name) for name in ("media_type", "size_bytes", "sha256", "encoding", "title", "author", "pages")}
    assert told == {"media_type": "text/markdown", "size_bytes": len(NOTE), "sha256": hashlib.sha256(NOTE.encode()).hexdigest(),
                    "encoding": "UTF-8", "title": "Gliding", "author": "Ann Author", "pages": None}, note
    assert (text["encoding"], text["size_bytes"]) == ("windows-1252", len(LATIN)), text

    server.ingest(notes, "notes")
    wait_for(lambda: sources(server)["gliding.md"][0]["seen_at"] > note["seen_at"], 30, "the same bytes to be seen again")
    assert sources(server)["gliding.md"][0]["fetched_at"] == note["fetched_at"]
    (notes / "gliding.md").write_text(NOTE + "More.\n")
    server.ingest(notes, "notes")
    wait_for(lambda: len(sources(server)["gliding.md"]) == 2, 30, "the second version")
    old, new = sources(server)["gliding.md"]
    assert (old["version"], new["size_bytes"]) == (note["version"], len(NOTE) + 6)

    document = next(item for item in server.get("/documents?collection=notes").json["items"] if item["source"].endswith(".md"))
    shown = server.cli("docs", "show", document["document_id"])
    assert all(word in shown.stdout for word in ("source of", "text/markdown", "by Ann Author", "UTF-8", new["sha256"][:12])), shown
    as_json = json.loads(server.cli("docs", "show", document["document_id"], "--json").stdout)
    assert as_json["source_versions"] == [old, new]
    assert server.get(f"/documents/{document['document_id']}?namespace=other").status == 404

    assert len(kept(server, "source")) == 2
    assert server.cli("docs", "rm", document["document_id"]).returncode == 0
    wait_for(lambda: document["document_id"] not in kept(server, "source"), 30, "the metadata to go with its document")
    assert server.cli("collections", "rm", "notes").returncode == 0
    wait_for(lambda: kept(server, "source") == [], 30, "the metadata to go with its collection")


def test_reports_are_kept_and_go_with_their_project(new_server, places, tmp_path):
    _, code = places
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    project, other = analyzed(server, code), analyzed(server, code)
    wait_for(lambda: len(kept(server, "report")) == 2, 30, "both reports to be kept")
    report = server.get(f"/projects/{project}/report").json
    assert report["findings"], report
    # The store has it, also where the blob is lost.
    for blob in (server.folder / "data" / "blobs").rglob("*"):
        if blob.is_file() and b'"findings_truncated"' in blob.read_bytes():
            blob.unlink()
    assert server.get(f"/projects/{project}/report").json == report
    assert server.get(f"/projects/{project}/report?namespace=other").status == 404
    assert server.cli("project", "rm", project).returncode == 0
    wait_for(lambda: [one.split(".")[0] for one in kept(server, "report")] == [other], 30, "one report to be left")


def test_sources_and_reports_are_made_again_from_the_log(new_server, places, tmp_path):
    notes, code = places
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    filled(server, notes)
    analyzed(server, code)
    wait_for(lambda: kept(server, "report"), 30, "the report to be kept")
    before = sources(server), kept(server, "source"), kept(server, "report")
    server.stop()
    # As an older copy that has nothing.
    with contextlib.closing(sqlite3.connect(database(server))) as connection:
        connection.execute("DELETE FROM json_documents")
        connection.execute("DELETE FROM json_document_positions")
        connection.commit()
    server.start()
    wait_for(lambda: (sources(server), kept(server, "source"), kept(server, "report")) == before, 60, "all to be made again")


def test_sources_and_reports_are_the_same_in_mongodb(new_server, mongodb, places, tmp_path):
    notes, code = places
    server = new_server(RIVERRUN_MONGODB_URL=mongodb(), RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    filled(server, notes)
    project = analyzed(server, code)
    before = sources(server), server.get(f"/projects/{project}/report").json
    assert kept(server, "source") == [] and kept(server, "report") == [], "they are in MongoDB"
    server.stop()
    for url in [mongodb(), ""]:
        server.env["RIVERRUN_MONGODB_URL"] = url
        server.start()
        same = lambda: (sources(server), server.get(f"/projects/{project}/report").json) == before  # noqa: E731
        wait_for(same, 60, "the same to be made again from the log")
        server.stop()
