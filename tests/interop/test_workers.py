"""Workers as processes of their own, and read models on a server that several processes share."""

import json
import os
import signal
import subprocess
import urllib.error
import urllib.request

import pytest

from server import BINARY, free_ports, wait_for

DATABASE = os.environ.get("RIVERRUN_TEST_DATABASE_URL")


class Worker:
    """`riverrun worker KIND` on the log of a running server."""

    def __init__(self, server, kind, *arguments, **settings):
        self.port, = free_ports(1)
        self.log_path = server.folder / f"worker-{kind}-{self.port}.log"
        env = server.env | {"RIVERRUN_KAFKA_BROKERS": server.brokers} | settings
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([BINARY, "worker", kind, "--health-port", str(self.port), *arguments], cwd=server.folder,
                                            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            assert self.process.poll() is None, self.log_path.read_text(errors="replace")
            return None, None

    def wait_ready(self):
        return wait_for(lambda: (found := self.ask("/ready"))[0] == 200 and found[1], 90, "the worker to be ready")

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        return self.process.returncode


@pytest.fixture
def worker():
    made = []

    def make(*arguments, **settings):
        made.append(Worker(*arguments, **settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()


@pytest.mark.parametrize(("kind", "settings", "fix"), [
    ("embedder", {"RIVERRUN_KAFKA_BROKERS": ""}, "RIVERRUN_KAFKA_BROKERS"),
    ("projector", {"RIVERRUN_DATABASE_URL": ""}, "RIVERRUN_DATABASE_URL"),
    ("ingester", {}, "riverrun serve"),
    ("indexer", {}, "riverrun serve"),
    ("agent", {}, "riverrun serve"),
    ("tracer", {}, "RIVERRUN_TRACING"),
])
def test_given_a_worker_that_lacks_something_when_it_starts_then_it_refuses_with_the_fix(server, kind, settings, fix):
    done = server.cli("worker", kind, **({"RIVERRUN_KAFKA_BROKERS": server.brokers} | settings))
    assert done.returncode == 2 and fix in done.stderr.split("hint:")[-1], done


SERVERS = {
    "RIVERRUN_KAFKA_BROKERS": "127.0.0.1:1",
    "RIVERRUN_DATABASE_URL": "postgres://127.0.0.1:1/none",
    "RIVERRUN_QDRANT_URL": "http://127.0.0.1:1",
    "RIVERRUN_S3_BUCKET": "blobs",
}


@pytest.mark.parametrize("embedded", [*SERVERS, "RIVERRUN_QDRANT_KEYWORDS"])
def test_given_a_store_that_is_embedded_when_an_api_without_workers_starts_then_it_refuses_and_names_the_setting(server, embedded):
    settings = SERVERS | {embedded: "local" if embedded == "RIVERRUN_QDRANT_KEYWORDS" else ""}
    done = server.cli("serve", "--no-workers", **settings)
    assert done.returncode == 2 and embedded in done.stderr.split("hint:")[-1], done
    others = [name for name in SERVERS if name != embedded and name in done.stderr]
    assert not others, done.stderr


@pytest.mark.parametrize("settings", [
    {"RIVERRUN_QDRANT_URL": "http://127.0.0.1:1", "RIVERRUN_DATABASE_URL": ""},
    {"RIVERRUN_QDRANT_URL": "http://127.0.0.1:1", "RIVERRUN_QDRANT_KEYWORDS": "local"},
])
def test_given_an_indexer_whose_index_or_lock_is_embedded_elsewhere_when_it_starts_then_it_refuses(server, settings):
    done = server.cli("worker", "indexer", **({"RIVERRUN_KAFKA_BROKERS": server.brokers} | settings))
    assert done.returncode == 2 and "riverrun serve" in done.stderr.split("hint:")[-1], done


def test_given_a_server_when_it_is_asked_whether_it_is_ready_then_the_rows_say_why(server):
    found = server.get("/ready")
    assert found.status == 200 and found.json["status"] == "ok", found
    streams = next(row for row in found.json["services"] if row["name"] == "streams")
    assert streams["status"] == "up", streams


def test_given_embedders_beside_a_server_when_documents_come_then_they_are_found_and_all_stop_at_a_signal(server, worker):
    beside = worker(server, "embedder", "--concurrency", "2")
    report = beside.wait_ready()
    assert [one["name"] for one in report["workers"]] == ["embedder", "embedder"] and report["hanging"] == []
    assert beside.ask("/health")[0] == 200
    file = server.folder / "beside.md"
    file.write_text("# Beside\n\nThe quetzal is a bird of the cloud forest.\n")
    server.ingest(file, "beside")
    found = server.post("/rag/search", {"query": "bird of the cloud forest", "collection": "beside"})
    assert "quetzal" in json.dumps(found.json["items"]), found
    assert beside.stop() == 0


@pytest.mark.skipif(not DATABASE, reason="RIVERRUN_TEST_DATABASE_URL is not set: scripts/services.py postgres")
def test_given_a_database_server_when_two_projectors_write_then_rows_are_there_once(new_server, worker):
    own = new_server(RIVERRUN_DATABASE_URL=DATABASE).start()
    beside = worker(own, "projector")
    beside.wait_ready()
    row = next(row for row in own.get("/diagnose").json["services"] if row["name"] == "sql")
    assert row["status"] == "up" and row["kind"] == "postgresql" and row["version"], row
    run_id = own.start_run("say yes")
    own.run_end(run_id)
    listed = wait_for(lambda: own.get("/runs").json["items"], 30, "the run in the list")
    assert [run["run_id"] for run in listed].count(run_id) == 1
    assert beside.ask("/ready")[0] == 200
