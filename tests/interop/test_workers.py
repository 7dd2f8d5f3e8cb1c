"""Workers as processes of their own, and read models on a server that several processes share."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest

from cluster import KINDS, Worker
from server import BINARY, wait_for
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
        assert beside.ask("/health")[0] == 200 and beside.ask("/live") == (200, {"live": True, "hanging": []}), "nobody has to end it yet"
        # A minute longer, which is how long tries may pause.
        status, report = wait_for(lambda: (found := beside.ask("/live"))[0] == 503 and found, 110, "the worker not to be live", every_s=1)
        assert not report["live"] and report["hanging"] and all(name.startswith("embedder riverrun.ingest.chunks") for name in report["hanging"]), report
        goes_on.set()
        assert server.ingest_end(reply.json["ingest_id"])["indexed"] == 24
        assert beside.wait_ready()["hanging"] == []
        assert beside.ask("/live") == (200, {"live": True, "hanging": []})
    finally:
        goes_on.set()
        model.close()


def test_given_a_worker_whose_broker_is_away_when_it_is_asked_then_it_is_not_ready_and_stays_live(new_server, worker):
    server = new_server().start()
    beside = worker(server, "embedder", "--hangs-after", "1")
    beside.wait_ready()
    server.kill()
    wait_for(lambda: beside.ask("/ready")[0] == 503, 60, "the worker not to be ready")
    # Longer than the minute and two seconds after which one that hangs is not live.
    until, answers = time.monotonic() + 75, set()
    while time.monotonic() < until:
        answers.add(beside.ask("/live")[0])
        assert answers == {200}, answers
        time.sleep(1)
    server.start()
    beside.wait_ready()


def with_few_files(limit, *arguments):
    """The command line of a process that may have so many files open and can't change that."""
    return ["bash", "-c", f'ulimit -n {limit} && exec "$0" "$@"', BINARY, *arguments]


@pytest.mark.parametrize(("limit", "arguments", "needed"), [
    (64, ["serve"], 512), (128, ["serve"], 512), (64, ["worker", "embedder"], 136), (128, ["worker", "embedder", "--concurrency", "8"], 192),
], ids=str)
def test_given_fewer_open_files_than_a_start_needs_when_a_process_starts_then_it_refuses_with_the_limit_and_the_fix(new_server, limit, arguments, needed):
    server = new_server()
    log = {"RIVERRUN_KAFKA_BROKERS": server.brokers} if arguments[0] == "worker" else {}
    done = subprocess.run(with_few_files(limit, *arguments), cwd=server.folder, env=server.env | log, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    said, hint = done.stderr.split("hint:")
    assert done.returncode == 1 and f"needs {needed} open files" in said and f"may have {limit}" in said, done
    assert "ulimit -n" in hint and "LimitNOFILE" in hint and "Too many open files" not in done.stderr, done


def test_given_as_many_open_files_as_a_start_needs_when_a_server_and_a_worker_start_then_both_work(new_server):
    server, started = new_server(), []
    try:
        with open(server.log_path, "ab") as log:
            server.process = subprocess.Popen(with_few_files(512, "serve"), cwd=server.folder, env=server.env, stdin=subprocess.DEVNULL,
                                              stdout=log, stderr=log)
        wait_for(server.answers, 60, "the server to answer")
        assert server.run_end(server.start_run("[[steps=1 id=few-files]]"))["status"] == "succeeded"
        path = server.folder / "worker.log"
        with open(path, "ab") as log:
            settings = server.env | {"RIVERRUN_KAFKA_BROKERS": server.brokers}
            started.append(subprocess.Popen(with_few_files(136, "worker", "embedder"), cwd=server.folder, env=settings, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log))
        wait_for(lambda: "partitions assigned" in path.read_text(errors="replace"), 60, "the worker to have partitions")
        assert "Too many open files" not in path.read_text(errors="replace") + server.log_path.read_text(errors="replace")
    finally:
        for one in started:
            one.terminate()
            one.wait(30)


@pytest.mark.parametrize("times", [1, 2])
def test_given_a_terminal_that_closes_when_a_server_and_a_worker_run_in_it_then_both_drain_however_often_they_are_told(new_server, worker, times):
    server = new_server().start()
    beside = worker(server, "embedder")
    beside.wait_ready()
    run_id = server.start_run(f"[[steps=4 delay_ms=150 id=closed-{times}]]")
    for process in (beside.process, server.process):
        for _ in range(times):
            process.send_signal(signal.SIGHUP)
        # 10 s for the workers, one to close the rest.
        assert process.wait(15) == 0, beside.log_path.read_text(errors="replace") + server.log_tail()
    server.start()
    assert server.run_end(run_id)["status"] == "succeeded"


def test_given_a_hang_up_that_is_ignored_when_it_comes_then_a_server_goes_on_as_under_nohup(new_server):
    server = new_server()
    with open(server.log_path, "ab") as log:
        server.process = subprocess.Popen(["bash", "-c", 'trap "" HUP; exec "$0" serve', BINARY], cwd=server.folder, env=server.env, stdin=subprocess.DEVNULL,
                                          stdout=log, stderr=log)
    wait_for(server.answers, 60, "the server to answer")
    server.process.send_signal(signal.SIGHUP)
    assert server.run_end(server.start_run("[[steps=1 id=nohup]]"))["status"] == "succeeded"
    assert server.stop() == 0


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
