"""A worker, or an API, whose link to the broker is late, is cut and falls silent: what it has to do is done once, and nothing is given up."""

import json
import threading
import time
import uuid
from collections import Counter
from http.server import BaseHTTPRequestHandler

import pytest

import cluster as clusters
import log_client
from cluster import Beside, Cluster, Worker
from server import RUN_ENDED, free_ports, wait_for
from stub_model import Listener
from test_kill import persistently
from test_services import Proxy
from test_tools import uses, written

NOTES = 10
# As far as a piece is late in the fault matrix.
LATE_S = 0.2


@pytest.fixture
def link(tmp_path):
    """A proxy before a broker's second listener, the broker's settings for that, and the settings of whoever comes that way."""
    users = tmp_path / "users"
    users.write_text("ann=correct horse\n")
    [port] = free_ports(1)
    proxy = Proxy("127.0.0.1", port)
    listener = {"RIVERRUN_BROKER_SECURE_LISTEN": f"127.0.0.1:{port}", "RIVERRUN_BROKER_SECURE_ADVERTISED": f"127.0.0.1:{proxy.port}",
                "RIVERRUN_BROKER_SECURE_USERS": str(users)}
    client = {"RIVERRUN_KAFKA_BROKERS": f"127.0.0.1:{proxy.port}", "RIVERRUN_KAFKA_SECURITY_PROTOCOL": "sasl_plaintext",
              "RIVERRUN_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "RIVERRUN_KAFKA_SASL_USERNAME": "ann", "RIVERRUN_KAFKA_SASL_PASSWORD": "correct horse"}
    yield proxy, listener, client
    proxy.close()


@pytest.fixture
def books():
    """What a service outside has written down of each call, and the definition of a tool `book` that calls it: an effect that nobody takes back."""
    booked, lock = Counter(), threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def do_GET(self):
            with lock:
                booked[self.path.rsplit("/", 1)[-1]] += 1
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    service = Listener(("127.0.0.1", 0), Handler)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    definition = f"""
[[tool]]
name = "book"
description = "d"
effect = "external"
arguments.id = {{ type = "string" }}
http = {{ url = "http://127.0.0.1:{service.server_address[1]}/books/{{id}}" }}
"""
    yield booked, definition
    service.shutdown()
    service.server_close()


@pytest.fixture
def far(new_server, link, tmp_path):
    """A server whose second listener is found behind a proxy, that proxy, and the settings of a worker that comes that way."""
    proxy, listener, client = link
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", **listener).start()
    return server, proxy, client | {"RIVERRUN_DATA_DIR": str(tmp_path / "worker")}


def notes(folder, name):
    place = folder / name
    place.mkdir()
    for number in range(NOTES):
        (place / f"{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is {name}{number}.\n")
    return place


def test_given_a_link_that_is_late_cut_and_silent_when_a_worker_works_over_it_then_every_document_is_found_once(far, tmp_path):
    server, proxy, settings = far
    worker = Worker(server, "embedder", **settings)
    try:
        worker.wait_ready()
        wait_for(lambda: worker.partitions("embedder") >= 2, 60, "the worker behind the link to have partitions")
        proxy.late_s = LATE_S
        for number, how in enumerate(["cut", "hold", "cut"]):
            refused, held = proxy.refused, proxy.held
            getattr(proxy, how)()
            reply = server.post("/ingest", {"source": str(notes(tmp_path, f"{how}{number}")), "collection": "far"})
            assert reply.status == 202, reply
            wait_for(lambda: proxy.refused >= refused + 2 or proxy.held > held, 60, "the worker to meet the fault")
            proxy.mend()
            view = server.ingest_end(reply.json["ingest_id"], 180)
            assert view["indexed"] == NOTES, view
        server.settle(120)
        found = server.post("/rag/search", {"query": "the keyword of this note", "collection": "far", "k": 100, "rerank": False}).json["items"]
        assert len(found) == len({item["document_id"] for item in found}) == 3 * NOTES, len(found)
        assert json.loads(server.cli("dlq", "ls", "--json").stdout)["items"] == []
        assert server.cli("collections", "check", "far").returncode == 0
    finally:
        proxy.mend()
        assert worker.stop() == 0, worker.log_path.read_text(errors="replace")


# The matrix has half a minute, in which a group of a cluster misses its member: the short form is over before that.
HELD_S, HELD_FULL_S = 4, 30


def booking(number):
    """The key of a request and its body: one run with one effect outside, and a moment's time for the link to go within it."""
    key = f"{number}x{uuid.uuid4().hex[:8]}"
    return key, {"task": uses("book", {"id": key}, id=key, delay_ms=300), "agent": "react", "approval": "never"}


def send(api, key, body, timeout=10):
    """What becomes of one try: None where there is no answer, or one that says to come again."""
    try:
        reply = api.post("/runs", body, headers={"idempotency-key": key}, timeout=timeout)
    except OSError:
        return None
    assert reply.status in (202, 429, 503, 504), reply
    return reply.json["run_id"] if reply.status == 202 else None


def through_a_silence(api, proxy, count, held_s):
    """Runs that are started before the link falls silent and while it is silent, each request repeated under its key all the while and once more afterwards: the
    run of each key."""
    asked = dict(booking(number) for number in range(count))
    early = list(asked)[: count // 2]
    found = {key: {send(api, key, asked[key], 60)} for key in early}
    held = proxy.held
    proxy.hold()
    try:
        until = time.monotonic() + held_s
        while time.monotonic() < until:
            for key in asked:
                found.setdefault(key, set()).add(send(api, key, asked[key], 1))
                if time.monotonic() > until:
                    break
        wait_for(lambda: proxy.held > held, 60, "something to be held back")
    finally:
        proxy.mend()
    for key, body in asked.items():
        reply = persistently(lambda key=key, body=body: api.post("/runs", body, headers={"idempotency-key": key}, timeout=30))
        assert reply.status == 202, reply
        found.setdefault(key, set()).add(reply.json["run_id"])
    runs = {key: run_ids - {None} for key, run_ids in found.items()}
    assert all(len(run_ids) == 1 for run_ids in runs.values()), runs
    return {key: run_id for key, [run_id] in runs.items()}


def end_of(api, run_id, times, answered):
    """The run's result, if it has one. A worker that was missed within a call outside cannot know what became of it and asks: the answer is that of a careful
    person, who has it made again only where the books do not have it."""
    run = api.get(f"/runs/{run_id}").json
    for asked in run.get("pending_approvals") or []:
        if asked["step"] not in answered:
            reply = api.post(f"/runs/{run_id}/approvals/{asked['step']}", {"decision": "deny" if times() else "approve", "note": "as the books have it"})
            assert reply.status == 202, reply
            answered.add(asked["step"])
    return run if run.get("status") in RUN_ENDED else None


def check_done_once(api, brokers, runs, booked):
    for key, run_id in runs.items():
        answered = set()
        result = wait_for(lambda key=key, run_id=run_id, answered=answered: end_of(api, run_id, lambda: booked[key], answered), 180, f"{run_id} to end", every_s=0.1)
        assert result["status"] == "succeeded", result
        assert [step["seq"] for step in result["steps"]] == list(range(1, len(result["steps"]) + 1)), result
    assert {key: booked[key] for key in runs} == dict.fromkeys(runs, 1), "each effect once"
    kinds = Counter((record.key().decode(), log_client.headers(record)["ce_type"].rsplit(".", 1)[1]) for record in log_client.read_topic(brokers, "riverrun.agent.events"))
    for run_id in runs.values():
        assert (kinds[run_id, "RunAccepted"], kinds[run_id, "RunFinished"]) == (1, 1), (run_id, kinds)


@pytest.mark.parametrize("who", ["worker", "api"])
def test_given_a_link_that_falls_silent_when_requests_are_repeated_then_each_is_one_run_that_ends_once(link, books, model, tmp_path, who, scale):
    if why := clusters.missing():
        pytest.skip(why)
    proxy, listener, client = link
    tools = written(tmp_path, books[1]) | {"RIVERRUN_WEB_ALLOW": "127.0.0.1"}
    cluster = Cluster(tmp_path, model, **listener, **tools)
    try:
        cluster.add("agent", **(client if who == "worker" else {}))
        cluster.add("projector")
        for worker in cluster.workers:
            worker.wait_ready()
        api = cluster.api
        if who == "api":
            # Beside the one that hosts the log.
            api = Beside(tmp_path / "far", cluster.settings | client)
            cluster.apis.append(api)
            api.start()
        runs = through_a_silence(api, proxy, min(12 * scale, 2_000), HELD_S if scale == 1 else HELD_FULL_S)
        check_done_once(api, cluster.api.brokers, runs, books[0])
    finally:
        proxy.mend()
        cluster.stop()
