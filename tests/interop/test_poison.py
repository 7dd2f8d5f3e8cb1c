"""Records that nobody can read: each becomes one dead letter, and nothing waits behind it."""

import base64
import io
import json
import threading
import tomllib

import fastavro
import pytest
from confluent_kafka import Producer

import log_client
from server import ROOT, wait_for
from stub_model import StubModel, vector_of

SCHEMAS = tomllib.loads((ROOT / "schemas/registry.toml").read_text())["schema"]
PARTITIONS = 6
ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"


def schema_of(record):
    entry = max((entry for entry in SCHEMAS if entry["record"] == record), key=lambda entry: entry["version"])
    return entry["id"], json.loads((ROOT / "schemas" / entry["file"]).read_text())


def encode(schema, value):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return body.getvalue()


def run_id_for(partition, salt):
    """A run id whose key falls into the partition."""
    for number in range(10_000):
        digits, rest = "", number * 1000 + salt
        while rest:
            rest, digit = divmod(rest, 32)
            digits = ALPHABET[digit] + digits
        run_id = "run_01jz" + digits.rjust(22, "0")
        if log_client.murmur2_partition(run_id.encode(), PARTITIONS) == partition:
            return run_id
    raise AssertionError(f"no id for partition {partition}")


def start_run(run_id, task):
    schema_id, schema = schema_of("riverrun.agent.StartRun")
    request = {"task": task, "agent": "react", "namespace": "default", "approval": "never"}
    return log_client.frame(schema_id, encode(schema, {"run_id": run_id, "request": request, "at": 0}))


def newer_version(record):
    """What a producer of a later version would send: one more field, and an id that this build has not heard of."""
    _, schema = schema_of(record)
    newest = max(entry["id"] for entry in SCHEMAS)
    return log_client.frame(newest + 1000, json.dumps(schema).encode())


def cases(record):
    schema_id, _ = schema_of(record)
    return {
        "empty": b"",
        "too short for a frame": b"\x00\x00",
        "another magic byte": b"\x07" + b"not ours at all",
        "text": b'{"task": "what is this doing here?"}',
        "unknown schema id": log_client.frame(999_999, b"\x02\x04"),
        "a newer schema": newer_version(record),
        "a known schema and no body": log_client.frame(schema_id, b""),
        "a known schema and a torn body": log_client.frame(schema_id, b"\x3crun_01"),
        "a length of two gigabytes": log_client.frame(schema_id, b"\xfe\xff\xff\xff\x0f" + b"x" * 16),
        "a negative length": log_client.frame(schema_id, b"\x03" + b"x" * 16),
        "an event of another topic": log_client.frame(schema_of("riverrun.agent.RunFinished")[0], b"\x00" * 40),
        "an id that is none": log_client.frame(schema_id, b"\x08evil" * 8),
    }


def produce(server, topic, partition, value, key=b"poison"):
    failures = []
    producer = Producer({"bootstrap.servers": server.brokers, "acks": "all"})
    producer.produce(topic, value, key=key, partition=partition, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(20) == 0 and not failures, failures


def dead_letters(server, topic):
    """The letters; what was done about them is on the same topic, marked as such."""
    return [record for record in log_client.read_topic(server.brokers, topic + ".dlq")
            if "dlq_mark" not in log_client.headers(record)]


@pytest.mark.parametrize("topic, record", [("riverrun.agent.commands", "riverrun.agent.StartRun"),
                                           ("riverrun.ingest.commands", "riverrun.ingest.SubmitDocument")])
def test_each_unreadable_record_becomes_one_dead_letter(server, topic, record):
    before = len(dead_letters(server, topic))
    sent = cases(record)
    for number, value in enumerate(sent.values()):
        produce(server, topic, number % PARTITIONS, value)
    wait_for(lambda: len(dead_letters(server, topic)) >= before + len(sent), 60, "the dead letters", every_s=0.3)
    server.settle()
    letters = dead_letters(server, topic)[before:]
    assert sorted(letter.value() or b"" for letter in letters) == sorted(sent.values()), "the original bytes, once each"
    for letter in letters:
        found = log_client.headers(letter)
        assert found["dlq_topic"] == topic and found["dlq_group"].startswith("riverrun."), found
        assert int(found["dlq_partition"]) in range(PARTITIONS) and int(found["dlq_offset"]) >= 0
        assert found["dlq_code"] and found["dlq_reason"], "says why"
        assert log_client.lag(server.brokers, found["dlq_group"]) == 0, "a stock client sees no lag either"


def test_good_commands_behind_poison_are_handled_in_every_partition(server):
    for partition in range(PARTITIONS):
        for value in (b"garbage", log_client.frame(999_999, b"?")):
            produce(server, "riverrun.agent.commands", partition, value)
        run_id = run_id_for(partition, salt=1)
        # A command by a stock producer is as good as one by the API.
        produce(server, "riverrun.agent.commands", partition, start_run(run_id, f"[[steps=1 id=poison{partition}]]"), run_id.encode())
        assert server.run_end(run_id)["status"] == "succeeded"
    server.settle()


def test_a_dead_letter_is_listed_and_can_be_handed_in_again(server):
    topic = "riverrun.agent.commands"
    produce(server, topic, 0, b"hand me in again")
    mine = lambda: [letter for letter in dead_letters(server, topic) if letter.value() == b"hand me in again"]  # noqa: E731
    wait_for(mine, 30, "the dead letter", every_s=0.3)
    listed = server.cli("dlq", "ls", "--topic", topic, "--json")
    assert listed.returncode == 0, listed.stderr
    name = json.loads(listed.stdout)["items"][-1]["id"]
    shown = server.cli("dlq", "show", name, "--json")
    assert base64.b64decode(json.loads(shown.stdout)["payload_base64"]) == b"hand me in again", shown
    again = server.cli("dlq", "redrive", name)
    assert again.returncode == 0, again.stderr
    wait_for(lambda: len(mine()) == 2, 30, "the same record to come back as a second dead letter", every_s=0.3)
    server.settle()


def test_the_same_command_twice_is_one_run(server):
    run_id = run_id_for(3, salt=7)
    command = start_run(run_id, "[[steps=2 id=twice]]")
    for _ in range(2):
        produce(server, "riverrun.agent.commands", 3, command, run_id.encode())
    assert server.run_end(run_id)["status"] == "succeeded"
    server.settle()
    kinds = [log_client.headers(record)["ce_type"] for record in log_client.read_topic(server.brokers, "riverrun.agent.events")
             if record.key() == run_id.encode()]
    assert kinds.count("riverrun.agent.RunAccepted") == 1 and kinds.count("riverrun.agent.RunFinished") == 1, kinds


def test_a_record_that_ends_its_process_is_given_up_at_last_and_others_go_on(new_server, tmp_path):
    """Memory that runs out in a model, a crash in native code: here the process is killed while it waits for the vector of one text."""
    asked_for, over = threading.Event(), threading.Event()

    def vectors(texts):
        if any("deadly" in text for text in texts):
            asked_for.set()
            over.wait(120)
        return [vector_of(text) for text in texts]

    model = StubModel(vectors=vectors)
    folder = tmp_path / "documents"
    folder.mkdir()
    server = new_server(**model.settings(), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_INGEST_ROOTS=str(folder)).start()

    def given_up():
        return dead_letters(server, "riverrun.ingest.chunks")

    try:
        for name in ("calm", "deadly"):
            (folder / f"{name}.md").write_text(f"A {name} text of a river.")
        ingest = server.post("/ingest", {"source": str(folder), "collection": "words"})
        assert ingest.status == 202, ingest
        kills = 0
        while wait_for(lambda: asked_for.is_set() or given_up(), 60, "its text or its dead letter") is True:
            # Not before what the record came from is done with: else there would be two of it.
            wait_for(lambda: server.lag().get("riverrun.ingester") == 0, 30, "the ingester's commit")
            server.kill()
            kills += 1
            asked_for.clear()
            server.start()
        found = [log_client.headers(letter) for letter in given_up()]
        assert [one["dlq_code"] for one in found] == ["process_ended"] and "10 processes ended" in found[0]["dlq_reason"], found
        assert kills == 10
        end = server.ingest_end(ingest.json["ingest_id"])
        assert (end["indexed"], end["failed"]) == (1, 1), end
        server.settle()
    finally:
        over.set()
        model.close()
