"""`kill -9` of the whole process, again and again, under load. Ten times here; `./x interop -k test_kill --kills 100` by hand.

What was acknowledged is there, once (LOG-1); a run ends exactly once (RUN-1), its steps count from 1 without gaps (RUN-2), and
neither a finished model call nor a finished tool call is repeated; a document is indexed once.
"""

import collections
import random
import threading
import time
import uuid

from confluent_kafka import Producer

import log_client
from server import RUN_ENDED, wait_for

SCRATCH = "interop.acknowledged"
STEPS = 4


class Load(threading.Thread):
    """Something that is done over and over until it is told to stop; a server that is away is waited for."""

    def __init__(self, act, pause_s):
        super().__init__(daemon=True)
        self.act, self.pause_s, self.done, self.error = act, pause_s, threading.Event(), None
        self.start()

    def run(self):
        try:
            while not self.done.wait(self.pause_s):
                self.act()
        except BaseException as error:  # told by `finish`, in the test's own thread
            self.error = error

    def finish(self):
        self.done.set()
        self.join(120)
        assert not self.is_alive(), "the load did not end"
        if self.error:
            raise self.error


def persistently(ask, give_up_s=120):
    """Asks until it is answered, as a client with an idempotency key does."""
    deadline = time.monotonic() + give_up_s
    while True:
        try:
            reply = ask()
            if reply.status in (429, 503):
                raise OSError(f"{reply.status}")
            return reply
        except OSError:
            assert time.monotonic() < deadline, "the server stayed away"
            time.sleep(0.05)


class Runs:
    """Starts runs; each under a key that is repeated until it is accepted."""

    def __init__(self, server):
        self.server, self.accepted = server, {}

    def __call__(self):
        key = uuid.uuid4().hex[:12]
        body = {"task": f"count [[steps={STEPS} delay_ms=30 id={key}]]", "agent": "react"}
        reply = persistently(lambda: self.server.post("/runs", body, headers={"idempotency-key": key}, timeout=10))
        assert reply.status == 202, reply
        self.accepted[reply.json["run_id"]] = key


class Records:
    """Produces numbered records with acks=all and notes what was acknowledged."""

    def __init__(self, server):
        self.producer = Producer({"bootstrap.servers": server.brokers, "acks": "all", "enable.idempotence": True,
                                  "linger.ms": 2, "message.timeout.ms": 120_000, "reconnect.backoff.max.ms": 200})
        self.number, self.acknowledged, self.failed = 0, {}, []

    def __call__(self):
        for _ in range(50):
            self.number += 1
            self.producer.produce(SCRATCH, b"%d" % self.number, key=b"%d" % (self.number % 7), on_delivery=self.delivered)
        self.producer.poll(0)

    def delivered(self, error, record):
        if error:
            self.failed.append(str(error))
        else:
            self.acknowledged[int(record.value())] = (record.partition(), record.offset())


class Documents:
    """Ingests small files, each under a key."""

    def __init__(self, server, folder):
        self.server, self.folder, self.accepted = server, folder, {}
        folder.mkdir()

    def __call__(self):
        number = len(self.accepted) + 1
        path = self.folder / f"note-{number}.md"
        path.write_text(f"# Note {number}\n\nThe keyword of this note is zebra{number}.\n")
        key = f"note-{number}"
        body = {"source": str(path), "collection": "notes"}
        reply = persistently(lambda: self.server.post("/ingest", body, headers={"idempotency-key": key}, timeout=10))
        assert reply.status == 202, reply
        self.accepted[reply.json["ingest_id"]] = number


def test_nothing_is_lost_and_nothing_doubled(new_server, model, tmp_path, request):
    server = new_server(RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
    from confluent_kafka.admin import AdminClient, NewTopic
    admin = AdminClient({"bootstrap.servers": server.brokers})  # must outlive the answer
    admin.create_topics([NewTopic(SCRATCH, 3, 1)])[SCRATCH].result(20)

    runs, records, documents = Runs(server), Records(server), Documents(server, tmp_path / "notes")
    load = [Load(runs, 0.15), Load(records, 0.02), Load(documents, 0.5)]
    moments = random.Random(4)
    starts = []
    for _ in range(request.config.getoption("--kills")):
        time.sleep(moments.uniform(0.1, 1.5))
        server.kill()
        began = time.monotonic()
        server.start()
        starts.append(time.monotonic() - began)
        assert not any(one.error for one in load), [one.error for one in load]
    for one in load:
        one.finish()
    assert records.producer.flush(60) == 0
    print(f"measured: {len(starts)} kills, {len(runs.accepted)} runs, {len(records.acknowledged)} records, {len(documents.accepted)} documents; "
          f"ready again after {sorted(starts)[len(starts) // 2]:.2f} s (median), {max(starts):.2f} s at most")

    check_records(server, records)
    check_runs(server, model, runs)
    check_documents(server, documents)
    server.settle()


def check_records(server, records):
    assert not records.failed, records.failed[:3]
    found = collections.defaultdict(list)
    for record in log_client.read_topic(server.brokers, SCRATCH):
        found[int(record.value())].append((record.partition(), record.offset()))
    lost = {number for number in records.acknowledged if number not in found}
    moved = {number for number, place in records.acknowledged.items() if number in found and place not in found[number]}
    doubled = {number for number, places in found.items() if len(places) > 1}
    assert not lost and not moved and not doubled, (len(lost), len(moved), len(doubled))


def check_runs(server, model, runs):
    waiting = set(runs.accepted)

    def all_ended():
        for run_id in sorted(waiting):
            reply = server.get(f"/runs/{run_id}")
            if reply.status == 200 and reply.json["status"] in RUN_ENDED:
                waiting.discard(run_id)
        return not waiting
    wait_for(all_ended, 180, "every accepted run to end", every_s=0.5)

    on_log = log_client.runs(server.brokers, server.url)
    assert set(runs.accepted) == set(on_log), "every run on the log was accepted, and every accepted run is there"
    assert len(set(runs.accepted.values())) == len(runs.accepted), "a key is one run"
    for run_id, key in runs.accepted.items():
        folded = on_log[run_id]
        result = server.get(f"/runs/{run_id}").json
        assert folded.end and folded.end["answer"] == f"done after {STEPS} steps", (run_id, folded.end)
        assert result["status"] == "succeeded" and result["answer"] == folded.end["answer"], result
        assert [step["seq"] for step in folded.steps] == list(range(1, len(folded.steps) + 1))
        assert [step["kind"] for step in result["steps"]] == [step["kind"] for step in folded.steps], "the read model is the log's"
        for kind in ("tool_call", "tool_result"):
            calls = [step["tool"]["call_id"] for step in folded.steps if step["kind"] == kind]
            assert len(calls) == len(set(calls)) == STEPS, (run_id, kind, calls)
        asked = model.requests[key]
        assert asked == sorted(asked) and set(asked) == set(range(STEPS + 2)), (run_id, asked, "a finished call was repeated")


def check_documents(server, documents):
    for ingest_id, number in documents.accepted.items():
        state = server.ingest_end(ingest_id)
        assert state["status"] == "done" and state["failed"] == 0, state
        assert state["indexed"] + state["unchanged"] == 1, state
        found = server.post("/rag/search", {"query": f"zebra{number}", "collection": "notes", "k": 5}).json["items"]
        hits = [item for item in found if f"zebra{number}." in item["text"]]
        assert len(hits) == 1, (number, found)
    notes = [one for one in server.get("/collections").json["items"] if one["name"] == "notes"]
    if documents.accepted:
        assert notes[0]["documents"] == notes[0]["chunks"] == len(documents.accepted), notes


def test_a_run_goes_on_after_a_kill_in_its_middle(new_server, model):
    server = new_server().start()
    run_id = server.start_run("[[steps=6 delay_ms=250 id=middle]]")
    wait_for(lambda: len(model.requests.get("middle", [])) >= 3, 30, "the run to be in its middle")
    server.kill()
    before = list(model.requests["middle"])
    server.start()
    result = server.run_end(run_id)
    assert result["status"] == "succeeded" and result["answer"] == "done after 6 steps"
    after = model.requests["middle"][len(before):]
    assert after[0] >= before[-1], f"went on with call {after[0]} although call {before[-1]} was on its way already"


def test_a_second_server_on_the_same_data_is_refused(new_server):
    first = new_server().start()
    second = new_server("second", RIVERRUN_DATA_DIR=first.env["RIVERRUN_DATA_DIR"])
    done = second.cli("serve", timeout=60)
    assert done.returncode not in (0, None)
    assert "hint:" in done.stderr and first.env["RIVERRUN_DATA_DIR"] in done.stderr, done.stderr
    assert first.run_end(first.start_run("[[steps=1 id=still-there]]"))["status"] == "succeeded"
