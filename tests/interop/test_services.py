"""A service that breaks within a run and comes back: the run goes on, and what the service holds catches up."""

import os
import shutil
import socket
import subprocess
import threading
import uuid
from urllib.parse import urlsplit

import pytest

import log_client
from server import wait_for

DATABASE = os.environ.get("RIVERRUN_TEST_DATABASE_URL")


class Proxy:
    """Hands bytes on between clients and a server, until it is told to cut connections or to hold everything back."""

    def __init__(self, host, port):
        self.target, self.open, self.lock = (host, port), set(), threading.Lock()
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
def test_a_database_that_goes_within_a_run_holds_up_no_run_and_catches_up(new_server, database, how):
    url, proxy = database
    server = new_server(RIVERRUN_DATABASE_URL=url).start()
    assert server.run_end(server.start_run("[[steps=1 id=database-before]]"))["status"] == "succeeded"
    run_id = server.start_run(f"[[steps=4 delay_ms=300 id=database-{how}]]")
    getattr(proxy, how)()
    # Runs live on the log: this one ends while nobody can read it anywhere else.
    wait_for(lambda: (run := log_client.runs(server.brokers, server.url).get(run_id)) and run.end, 120, "the run's end on the log", every_s=0.5)
    proxy.mend()
    assert server.run_end(run_id, 120)["status"] == "succeeded"
    assert server.run_end(server.start_run("[[steps=1 id=database-after]]"), 120)["status"] == "succeeded"
    server.settle(120)
