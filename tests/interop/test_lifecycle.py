"""A folder that is ingested again and again: nothing twice, only what changed anew, and nothing of what was removed."""

import pytest

FILES, PARAGRAPHS = 3, 6


def paragraph(file, number, word="plain"):
    """A chunk of its own: two of them are longer than a chunk may be. `word` is in no other."""
    return f"{word}{file}x{number} " + f"River {file} meets brook {number} below the old mill and turns to the sea. " * 8


def write(folder, file, changed=()):
    texts = [paragraph(file, number, "fresh" if number in changed else "plain") for number in range(PARAGRAPHS)]
    (folder / f"{file}.txt").write_text("\n\n".join(texts))


def found(server, query, mode):
    reply = server.post("/rag/search", {"query": query, "collection": "rivers", "k": 50, "mode": mode, "rerank": False})
    assert reply.status == 200, reply
    return reply.json["items"]


def counts(server):
    check = server.get("/collections/rivers/check").json
    assert check["orphans"] == [] and check["chunks"] == check["vectors"] == check["keywords"], check
    return check["chunks"]


@pytest.fixture
def folder(tmp_path):
    place = tmp_path / "docs"
    place.mkdir()
    for file in range(FILES):
        write(place, file)
    return place


def test_only_what_changed_is_embedded_and_what_was_removed_is_nowhere(new_server, model, folder):
    server = new_server(RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_INGEST_ROOTS=str(folder)).start()

    def ingest():
        before = model.embedded
        view = server.ingest(folder, "rivers", chunk_size=800, chunk_overlap=0)
        assert view["status"] == "done" and view["failed"] == 0, view
        server.settle()
        return view, model.embedded - before

    view, embedded = ingest()
    chunks = FILES * PARAGRAPHS
    assert (view["indexed"], view["chunks"], embedded, counts(server)) == (FILES, chunks, chunks, chunks)
    for _ in range(2):
        view, embedded = ingest()
        assert (view["unchanged"], view["indexed"], embedded, counts(server)) == (FILES, 0, 0, chunks)

    # One paragraph; and one chunk that stayed is embedded to see that the model is the same.
    write(folder, 1, changed={2})
    view, embedded = ingest()
    assert (view["unchanged"], view["indexed"], embedded, counts(server)) == (FILES - 1, 1, 2, chunks)
    assert found(server, "plain1x2", "sparse") == [] and len(found(server, "fresh1x2", "sparse")) == 1
    assert len(found(server, "plain1x3", "sparse")) == 1

    # After a restart, too.
    assert server.stop() == 0
    server.start()
    write(folder, 1, changed={2, 4})
    _, embedded = ingest()
    assert (embedded, counts(server)) == (2, chunks)

    gone = next(row for row in server.get("/documents?collection=rivers").json["items"] if row["source"].endswith("/1.txt"))
    receipt = server.request("DELETE", f"/documents/{gone['document_id']}")
    assert receipt.status == 200 and receipt.json["vectors"] == receipt.json["keywords"] == PARAGRAPHS, receipt
    assert counts(server) == chunks - PARAGRAPHS
    for word in ("fresh1x2", "fresh1x4", "plain1x0"):
        assert found(server, word, "sparse") == []
        assert all(item["document_id"] != gone["document_id"] for item in found(server, word, "dense"))

    # A file that went from the folder goes when it is asked for, and only then.
    (folder / "1.txt").unlink()
    (folder / "2.txt").unlink()
    again = ["ingest", str(folder), "-c", "rivers", "--chunk-size", "800", "--chunk-overlap", "0"]
    kept = server.cli(*again)
    assert kept.returncode == 0 and counts(server) == chunks - PARAGRAPHS, kept
    pruned = server.cli(*again, "--prune")
    assert pruned.returncode == 0 and pruned.stderr.count("removed") == 1 and "2.txt" in pruned.stderr, pruned
    assert counts(server) == PARAGRAPHS and found(server, "plain2x0", "sparse") == []
    refused = server.cli("ingest", str(folder / "0.txt"), "-c", "rivers", "--prune")
    assert refused.returncode == 2 and "--prune" in refused.stderr, refused
