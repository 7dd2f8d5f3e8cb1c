"""Workers as processes of their own, and read models on a server that several processes share."""

import json
import os
import threading

import pytest

from cluster import KINDS, Worker
from server import wait_for
from stub_model import StubModel, vector_of

DATABASE = os.environ.get("RIVERRUN_TEST_DATABASE_URL")


@pytest.fixture
def worker():
    made = []

    def make(*arguments, **settings):
        made.append(Worker(*arguments, **settings))
        return made[-1]

    yield make
    for one in made:
        one.stop()


STORES = {
    "RIVERRUN_DATABASE_URL": "postgres://127.0.0.1:1/none",
    "RIVERRUN_QDRANT_URL": "http://127.0.0.1:1",
    "RIVERRUN_S3_BUCKET": "blobs",
    "RIVERRUN_S3_ENDPOINT": "http://127.0.0.1:1",
    "RIVERRUN_MODELS_CACHE_DIR": "models",
    "RIVERRUN_TRACING_ENDPOINT": "http://127.0.0.1:1",
}
# What each kind can't do without; the log all of them can't.
NEEDED = {
    "embedder": [], "projector": ["RIVERRUN_DATABASE_URL"], "tracer": ["RIVERRUN_TRACING_ENDPOINT"],
    "ingester": ["RIVERRUN_S3_BUCKET"], "analyzer": ["RIVERRUN_S3_BUCKET"], "trainer": ["RIVERRUN_S3_BUCKET", "RIVERRUN_MODELS_CACHE_DIR"],
    "indexer": ["RIVERRUN_DATABASE_URL", "RIVERRUN_QDRANT_URL", "RIVERRUN_S3_BUCKET"],
    "agent": ["RIVERRUN_DATABASE_URL", "RIVERRUN_QDRANT_URL", "RIVERRUN_S3_BUCKET"],
}


@pytest.mark.parametrize(("kind", "lacks"), [(kind, lacks) for kind in KINDS for lacks in ["RIVERRUN_KAFKA_BROKERS", *NEEDED[kind]]])
def test_given_a_worker_that_lacks_something_when_it_starts_then_it_refuses_and_names_the_setting(server, kind, lacks):
    settings = STORES | {"RIVERRUN_KAFKA_BROKERS": server.brokers, lacks: ""}
    if lacks == "RIVERRUN_S3_BUCKET":
        settings["RIVERRUN_S3_ENDPOINT"] = ""  # alone it is refused for itself
    done = server.cli("worker", kind, **settings)
    hint = done.stderr.split("hint:")[-1]
    assert done.returncode == 2 and lacks.rpartition("_")[0] in hint, done
    assert not [name for name in NEEDED[kind] if name != lacks and name in hint], done


def test_given_a_second_projector_in_a_process_when_it_starts_then_it_refuses(server):
    done = server.cli("worker", "projector", "--concurrency", "2", **STORES, RIVERRUN_KAFKA_BROKERS=server.brokers)
    assert done.returncode == 2 and "--concurrency" in done.stderr.split("hint:")[-1], done


@pytest.mark.parametrize("kind", ["projector", "ingester"])
def test_given_a_server_that_is_down_when_a_worker_starts_then_it_says_so_with_the_address(server, kind):
    done = server.cli("worker", kind, **STORES, RIVERRUN_KAFKA_BROKERS=server.brokers, timeout=150)
    assert done.returncode == 3 and "127.0.0.1:1" in done.stderr and "hint:" in done.stderr, done


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


def test_given_a_log_elsewhere_when_an_api_is_to_host_one_then_it_refuses_and_names_the_setting(server):
    done = server.cli("serve", "--no-workers", "--host-log", **SERVERS)
    assert done.returncode == 2 and "RIVERRUN_KAFKA_BROKERS" in done.stderr.split("hint:")[-1], done
    done = server.cli("serve", "--host-log")
    assert done.returncode == 2 and "--no-workers" in done.stderr, done


@pytest.mark.parametrize("kind", ["indexer", "agent"])
def test_given_keywords_that_are_embedded_elsewhere_when_a_worker_of_them_starts_then_it_refuses(server, kind):
    done = server.cli("worker", kind, **STORES, RIVERRUN_KAFKA_BROKERS=server.brokers, RIVERRUN_QDRANT_KEYWORDS="local")
    assert done.returncode == 2 and "RIVERRUN_QDRANT_KEYWORDS" in done.stderr.split("hint:")[-1], done


def test_given_a_server_when_it_is_asked_whether_it_is_ready_then_the_rows_say_why(server):
    found = server.get("/ready")
    assert found.status == 200 and found.json["status"] == "ok", found
    streams = next(row for row in found.json["services"] if row["name"] == "streams")
    assert streams["status"] == "up", streams


def test_given_embedders_beside_a_server_when_documents_come_then_they_are_found_and_all_stop_at_a_signal(server, worker):
    beside = worker(server, "embedder", "--concurrency", "2")
    report = beside.wait_ready()
    assert [(one["name"], one["status"]) for one in report["workers"]] == [("embedder", "running")] * 2 and report["hanging"] == []
    assert beside.ask("/health")[0] == 200
    file = server.folder / "beside.md"
    file.write_text("# Beside\n\nThe quetzal is a bird of the cloud forest.\n")
    server.ingest(file, "beside")
    found = server.post("/rag/search", {"query": "bird of the cloud forest", "collection": "beside"})
    assert "quetzal" in json.dumps(found.json["items"]), found
    # Two of a name in a process are one series, and what they did is in it.
    figures = beside.figures()
    assert figures['riverrun_worker_up{worker="embedder"}'] == 1, figures
    assert 'riverrun_worker_records_total{worker="embedder",what="dead_letters"}' in figures, figures
    # Of partitions that it has, which may be none yet when another has handled the document.
    lag = 'riverrun_consumer_lag{group="riverrun.embedder"'
    wait_for(lambda: any(name.startswith(lag) for name in beside.figures()), 60, "the lag of a partition of its own")
    assert beside.stop() == 0


def test_given_a_worker_whose_work_stands_still_when_it_is_asked_then_it_lives_and_is_ready_again_only_once_it_gets_on(new_server, worker, tmp_path):
    goes_on, asked = threading.Event(), threading.Event()

    def vectors(texts):
        asked.set()
        assert goes_on.wait(240), "the test has ended"
        return [vector_of(text) for text in texts]

    notes = tmp_path / "notes"
    notes.mkdir()
    # Those of all partitions: half of them are the server's own embedder's, whose model answers.
    for number in range(24):
        (notes / f"note-{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is quokka{number}.\n")
    model = StubModel(vectors=vectors)
    try:
        server = new_server(RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
        beside = worker(server, "embedder", "--hangs-after", "4", **model.settings())
        beside.wait_ready()
        wait_for(lambda: beside.partitions("embedder") >= 2, 60, "the worker to have partitions")
        reply = server.post("/ingest", {"source": str(notes), "collection": "slow"})
        assert reply.status == 202, reply
        assert asked.wait(60), "its model is asked"
        status, report = wait_for(lambda: (found := beside.ask("/ready"))[0] == 503 and found, 60, "the worker not to be ready")
        assert report["hanging"] and all(name.startswith("embedder riverrun.ingest.chunks") for name in report["hanging"]), report
        assert beside.ask("/health")[0] == 200, "it lives: nobody has to end it"
        goes_on.set()
        assert server.ingest_end(reply.json["ingest_id"])["indexed"] == 24
        assert beside.wait_ready()["hanging"] == []
    finally:
        goes_on.set()
        model.close()


def test_given_a_limit_without_a_port_to_ask_when_a_worker_starts_then_it_is_refused(server):
    for arguments in (["--hangs-after", "4"], ["--health-port", "0", "--hangs-after", "0"]):
        done = server.cli("worker", "embedder", *arguments, RIVERRUN_KAFKA_BROKERS=server.brokers)
        assert done.returncode == 2 and ("--health-port" if len(arguments) == 2 else "--hangs-after") in done.stderr, done


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
