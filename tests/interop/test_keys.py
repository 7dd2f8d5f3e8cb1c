"""Idempotency keys behind a restart: the answers that were kept in memory are gone, and a key still stands for what was asked first."""

from server import wait_for

ASYNC = {"prefer": "respond-async"}


def form(collection, name, content):
    part = lambda head, text: f"--XX\r\ncontent-disposition: form-data; name={head}\r\n\r\n{text}\r\n"  # noqa: E731
    return (part('"collection"', collection) + part(f'"file"; filename="{name}"', content) + "--XX--\r\n").encode()


def test_given_keys_of_requests_when_the_server_starts_again_then_repeats_find_the_first_and_other_bodies_are_refused(new_server, tmp_path):
    code, text = tmp_path / "files/code", tmp_path / "files/a.md"
    code.mkdir(parents=True)
    (code / "a.py").write_text("def f():\n    return 1\n")
    text.write_text("# Birds\n\nThe wandering albatross.\n")
    server = new_server(RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_INGEST_ROOTS=str(tmp_path / "files")).start()

    def ask(path, body):
        headers = {"idempotency-key": f"of {path}"} | ASYNC
        if isinstance(body, bytes):
            headers |= {"content-type": "multipart/form-data; boundary=XX", "idempotency-key": "of a form"}
        return server.post(path, body, headers=headers)

    imported = ask("/projects/import", {"source": str(code)})
    assert imported.status == 202, imported
    project = f"/projects/{imported.json['project_id']}"
    wait_for(lambda: (known := server.get(project)).status == 200 and known.json["status"] == "imported", 60, "the project to be imported")
    ingest = {"source": str(text), "collection": "keyed"}
    # Where it is asked, what, the id in the answer, and what else the key is used for then.
    asked = [
        ("/ingest", ingest, "ingest_id", [ingest | {"metadata": {"a": 1}}, ingest | {"chunk_size": 200}, ingest | {"collection": "other"}]),
        ("/ingest", form("handed", "b.md", "# One"), "ingest_id", [form("handed", "b.md", "# Two"), form("handed", "c.md", "# One")]),
        ("/projects/import", {"source": str(code)}, "project_id", [{"source": str(code), "name": "another"}]),
        (f"{project}/analyze", {"review": False}, "analysis_id", [{"review": False, "model": "another"}, {}]),
        (f"{project}/improve", {"file": "a.py", "instruction": "better"}, "proposal_id",
         [{"file": "a.py", "instruction": "worse"}, {"file": "a.py", "instruction": "better", "candidates": 2}]),
    ]
    first = []
    for path, body, name, _ in asked:
        reply = ask(path, body)
        assert reply.status == 202, (path, reply)
        first.append(reply.json[name])
    for ingest_id in first[:2]:
        assert server.ingest_end(ingest_id)["status"] == "done"
    rebuilt = ask("/collections/keyed/rebuild", {"afresh": True})
    assert rebuilt.status in (200, 202), rebuilt
    asked.append(("/collections/keyed/rebuild", {"afresh": True}, "rebuild_id", [{}]))
    first.append(rebuilt.json["rebuild_id"])
    server.settle()
    assert server.stop() == 0
    server.start()
    for (path, body, name, others), known in zip(asked, first, strict=True):
        for other in others:
            refused = ask(path, other)
            assert (refused.status, refused.json.get("code")) == (409, "idempotency_key_reused"), (path, refused)
        again = ask(path, body)
        assert again.status in (200, 202) and again.json[name] == known, (path, again)
    assert len(server.get(f"{project}/proposals").json["items"]) == 1
