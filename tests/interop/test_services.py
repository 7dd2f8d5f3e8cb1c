"""A service that breaks within a run and comes back: the run goes on, and what the service holds catches up."""

import json
import os
import random
import shutil
import socket
import subprocess
import threading
import time
import uuid
from urllib.parse import urlsplit

import pytest

import log_client
from server import wait_for

DATABASE = os.environ.get("RIVERRUN_TEST_DATABASE_URL")
NOTES = 8


class Proxy:
    """Hands bytes on between clients and a server, late when it is told so, until it is to cut connections or to hold everything back."""

    def __init__(self, host, port):
        self.target, self.open, self.lock = (host, port), set(), threading.Lock()
        # Most seconds that a piece is late; connections that were turned away, and pieces that were held back.
        self.late_s, self.refused, self.held = 0, 0, 0
        self.flows, self.refuses = threading.Event(), False
        self.flows.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            if self.refuses:
                self.refused += 1
                client.close()
                continue
            server = socket.create_connection(self.target)
            with self.lock:
                self.open |= {client, server}
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=self.pump, args=(source, sink), daemon=True).start()

    def pump(self, source, sink):
        try:
            while piece := source.recv(65_536):
                time.sleep(random.random() * self.late_s)
                self.held += not self.flows.is_set()
                self.flows.wait()
                sink.sendall(piece)
        except OSError:
            pass
        for one in (source, sink):
            one.close()
            with self.lock:
                self.open.discard(one)

    def cut(self):
        """Every connection ends, and new ones do not come about."""
        self.refuses = True
        with self.lock:
            ending = list(self.open)
        for one in ending:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def hold(self):
        """Nothing arrives any more, and nobody is told."""
        self.flows.clear()

    def mend(self):
        self.refuses = False
        self.flows.set()

    def close(self):
        self.cut()
        self.flows.set()
        self.listener.close()


@pytest.fixture
def database():
    """A database of its own behind a proxy: the URL, and the proxy."""
    if not DATABASE or not shutil.which("psql"):
        pytest.skip("RIVERRUN_TEST_DATABASE_URL is not set or psql is not installed: ./x services")
    name = f"faults_{uuid.uuid4().hex[:8]}"
    subprocess.run(["psql", DATABASE, "-qc", f"CREATE DATABASE {name}"], check=True, capture_output=True)
    parts = urlsplit(DATABASE)
    proxy = Proxy(parts.hostname, parts.port)
    user = f"{parts.username}@" if parts.username else ""
    yield f"postgres://{user}127.0.0.1:{proxy.port}/{name}", proxy
    proxy.close()


@pytest.mark.parametrize("how", ["cut", "hold"])
def test_a_database_that_goes_within_a_run_holds_up_no_run_and_catches_up(new_server, database, how, scale):
    url, proxy = database
    server = new_server(RIVERRUN_DATABASE_URL=url).start()
    assert server.run_end(server.start_run("[[steps=1 id=database-before]]"))["status"] == "succeeded"
    for number in range(scale):
        run_id = server.start_run(f"[[steps=4 delay_ms=300 id=database-{how}-{number}]]")
        getattr(proxy, how)()
        # Runs live on the log: this one ends while nobody can read it anywhere else.
        wait_for(lambda run_id=run_id: (run := log_client.runs(server.brokers, server.url).get(run_id)) and run.end, 120, "the run's end on the log", every_s=0.5)
        proxy.mend()
        assert server.run_end(run_id, 120)["status"] == "succeeded"
        assert server.run_end(server.start_run(f"[[steps=1 id=database-after-{number}]]"), 120)["status"] == "succeeded"
    server.settle(120)


@pytest.fixture(params=["s3", "mongodb"])
def store(request):
    """A store that answers through a proxy: its settings, the row of `diagnose`, the setting that its fix names, and the proxy."""
    variable, row, names = {"s3": ("RIVERRUN_TEST_S3_ENDPOINT", "blobs", "RIVERRUN_S3_ENDPOINT"),
                            "mongodb": ("RIVERRUN_TEST_MONGODB_URL", "documents", "RIVERRUN_MONGODB_URL")}[request.param]
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set: ./x services")
    parts = urlsplit(os.environ[variable])
    proxy = Proxy(parts.hostname, parts.port)
    address = parts._replace(netloc=f"127.0.0.1:{proxy.port}")
    if request.param == "s3":
        settings = {"RIVERRUN_S3_BUCKET": "riverrun-test", "RIVERRUN_S3_ENDPOINT": address.geturl(), "RIVERRUN_S3_ACCESS_KEY_ID": "test",
                    "RIVERRUN_S3_SECRET_ACCESS_KEY": "s3cret"}
    else:
        settings = {"RIVERRUN_MONGODB_URL": address._replace(path=f"/faults_{uuid.uuid4().hex[:8]}").geturl()}
    yield settings, row, names, proxy
    proxy.close()


@pytest.mark.parametrize("how", ["cut", "hold"])
def test_a_store_that_goes_within_a_run_holds_up_no_run_and_is_told_with_its_fix(new_server, store, how, tmp_path, scale):
    settings, name, names, proxy = store
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path), **settings).start()

    def row(status):
        found = next(one for one in server.get("/diagnose").json["services"] if one["name"] == name)
        return found["status"] == status and found

    wait_for(lambda: row("up"), 30, "the store to answer")
    for number in range(scale):
        run_id = server.start_run(f"[[steps=4 delay_ms=300 id=store-{name}-{how}-{number}]]")
        getattr(proxy, how)()
        assert server.run_end(run_id, 120)["status"] == "succeeded"
        down = wait_for(lambda: row("down"), 60, "the row of a store that is away")
        assert names in down["fix"] and "s3cret" not in json.dumps(down), down
        assert server.get("/ready").status == 503 or not down["required"], down
        proxy.mend()
        wait_for(lambda: row("up"), 60, "the store to answer again")
        note = tmp_path / f"note-{number}.md"
        note.write_text(f"# Note {number}\n\nThe keel is orange.\n")
        assert server.ingest(note, f"after-{name}-{how}")["status"] == "done"
    server.settle(120)


@pytest.fixture
def vectors():
    """A server of vectors that answers through a proxy: its settings, and the proxy. Its key gives it a store of its own, and is found nowhere."""
    address = os.environ.get("RIVERRUN_TEST_QDRANT_WIRE_URL")
    if not address:
        pytest.skip("RIVERRUN_TEST_QDRANT_WIRE_URL is not set: ./x services")
    parts = urlsplit(address)
    proxy = Proxy(parts.hostname, parts.port)
    yield {"RIVERRUN_QDRANT_URL": f"http://127.0.0.1:{proxy.port}", "RIVERRUN_QDRANT_API_KEY": f"s3cret-{uuid.uuid4().hex[:8]}"}, proxy
    proxy.close()


@pytest.mark.parametrize("how", ["cut", "hold"])
def test_a_vector_server_that_goes_within_an_ingest_loses_no_document_and_is_told_with_its_fix(new_server, vectors, tmp_path, how, scale):
    settings, proxy = vectors
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", **settings).start()

    def row(status):
        found = next(one for one in server.get("/diagnose").json["services"] if one["name"] == "vectors")
        return found["status"] == status and found

    def notes(name):
        folder = tmp_path / name
        folder.mkdir()
        for number in range(NOTES):
            (folder / f"{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is {name}{number}.\n")
        return str(folder)

    wait_for(lambda: row("up"), 30, "the vector server to answer")
    assert server.ingest(notes("before"), "kept")["indexed"] == NOTES
    for number in range(scale):
        reply = server.post("/ingest", {"source": notes(f"within{number}x"), "collection": "kept"})
        assert reply.status == 202, reply
        getattr(proxy, how)()
        down = wait_for(lambda: row("down"), 90, "the row of a vector server that is away")
        assert "RIVERRUN_QDRANT_URL" in down["fix"] and "s3cret" not in json.dumps(down), down
        # What needs no vectors goes on, what does waits, and nothing is said to be done that cannot be found.
        assert server.run_end(server.start_run(f"[[steps=1 id=vectors-{how}-{number}]]"), 120)["status"] == "succeeded"
        view = server.get(f"/ingest/{reply.json['ingest_id']}")
        assert view.status == 404 or view.json["status"] in ("queued", "running"), view
        proxy.mend()
        wait_for(lambda: row("up"), 90, "the vector server to answer again")
        view = server.ingest_end(reply.json["ingest_id"], 240)
        assert (view["status"], view["indexed"]) == ("done", NOTES), view
    server.settle(120)
    found = server.post("/rag/search", {"query": "the keyword of this note", "collection": "kept", "k": 100, "rerank": False}).json["items"]
    assert len({item["document_id"] for item in found}) == len(found) == min(NOTES * (1 + scale), 100), len(found)
    assert json.loads(server.cli("dlq", "ls", "--json").stdout)["items"] == []
    assert server.cli("collections", "check", "kept").returncode == 0
