"""A fleet of several versions, as it is in the middle of a rolling upgrade: what older and newer programs write is driven to its end by
this one, and an older program and this one drive the runs of one log."""

import io
import json
import os
import struct
from pathlib import Path

import fastavro
import pytest
from confluent_kafka import Producer

import log_client
from schema_registry import SchemaRegistry
from server import BINARY, Server, wait_for

# An id that no version of riverrun has.
NEWER_ID = 999_998
# What a process that takes commands writes, and what one leaves behind that has accepted a run and is replaced.
WRITTEN = {"riverrun.agent.commands": "riverrun.agent.StartRun", "riverrun.agent.events": "riverrun.agent.RunAccepted"}

OLDER = os.environ.get("RIVERRUN_TEST_OLD_BIN")


class Older(Server):
    binary = Path(OLDER or BINARY)


@pytest.mark.skipif(not OLDER, reason="RIVERRUN_TEST_OLD_BIN names no older riverrun: build one of an earlier commit")
@pytest.mark.parametrize("host", ["older", "this"])
def test_given_an_older_program_beside_this_one_when_either_leaves_then_every_run_ends_once_for_the_other(tmp_path, model, host):
    kinds = [Older, Server] if host == "older" else [Server, Older]
    stays = kinds[0](tmp_path / "stays", model.settings())
    # Each has stores of its own, and both the whole log: runs share nothing else.
    leaves = kinds[1](tmp_path / "leaves", model.settings() | {"RIVERRUN_KAFKA_BROKERS": stays.brokers})
    try:
        stays.start()
        leaves.start()
        run_ids = [one.start_run(f"[[steps=2 delay_ms=50 id=both-{host}-{number}-{at}]]") for number in range(6) for at, one in enumerate((stays, leaves))]
        for run_id in run_ids:
            assert stays.run_end(run_id, 120)["steps"] == leaves.run_end(run_id, 120)["steps"]
        run_ids = [one.start_run(f"[[steps=4 delay_ms=300 id=left-{host}-{number}-{at}]]") for number in range(6) for at, one in enumerate((stays, leaves))]
        wait_for(lambda: any((reply := stays.get(f"/runs/{run_id}")).status == 200 and reply.json["steps"] for run_id in run_ids), 60, "a step")
        assert leaves.stop() == 0
        for run_id in run_ids:
            run = stays.run_end(run_id, 180)
            assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, len(run["steps"]) + 1)), run
    finally:
        leaves.stop()
        stays.stop()


def later(text, within="request"):
    """The schema as a later version may change it: one more field, and one more in the record within."""
    schema = json.loads(text)
    field = next((field for field in schema["fields"] if field["name"] == within), None)
    if field:
        inner = field["type"]["items"] if field["type"]["type"] == "array" else field["type"]
        inner["fields"].insert(0, {"name": "priority", "type": ["null", "long"], "default": None})
    schema["fields"].insert(1, {"name": "cluster", "type": "string", "default": "none"})
    return json.dumps(schema)


def parsed(text):
    return fastavro.parse_schema(json.loads(text))


class Versions:
    """The schemas of a kind of event: those that the server has put into the registry, and a later one that only the registry knows."""

    def __init__(self, registry, topic, kind, **more):
        subject = f"{topic}-{kind}"
        self.stored = {version: kept for (of, version), kept in registry.versions.items() if of == subject}
        self.newest = max(self.stored)
        self.stored[self.newest + 1] = registry.versions[subject, self.newest + 1] = (NEWER_ID, later(self.stored[self.newest][1], **more))
        self.topic, self.parsed = topic, {version: parsed(text) for version, (_, text) in self.stored.items()}

    def read(self, record):
        assert self.newest > 1 and struct.unpack(">I", record.value()[1:5])[0] == self.stored[self.newest][0], "what is written is of the newest version"
        return fastavro.schemaless_reader(io.BytesIO(record.value()[5:]), self.parsed[self.newest], None)

    def write(self, producer, like, events):
        """One event for each version, where a record like it lies."""
        headers = [(name, value) for name, value in like.headers() if name in {"ce_type", "ce_specversion", "content-type"}]
        for version, event in events.items():
            body = io.BytesIO()
            fastavro.schemaless_writer(body, self.parsed[version], event | {"cluster": "blue"})
            key = next(event[name] for name in ("run_id", "document_id", "ingest_id") if name in event).encode()
            producer.produce(self.topic, key=key, value=log_client.frame(self.stored[version][0], body.getvalue()), headers=headers, partition=like.partition())
        assert producer.flush(30) == 0


def note(folder, name):
    (folder / f"{name}.md").write_text(f"# Note\n\nThe keyword of this note is {name}.\n")
    return folder / f"{name}.md"


def found(server, word):
    reply = server.post("/rag/search", {"query": word, "collection": "fleet", "mode": "sparse", "k": 50, "rerank": False})
    return [item for item in reply.json.get("items", []) if word in item["text"]]


@pytest.mark.parametrize(("topic", "kind"), [
    ("riverrun.ingest.commands", "riverrun.ingest.StartIngest"), ("riverrun.ingest.chunks", "riverrun.ingest.ChunksReady"),
    ("riverrun.ingest.embeddings", "riverrun.ingest.ChunksEmbedded"),
])
def test_given_ingesters_and_embedders_of_every_version_beside_this_one_when_they_write_then_each_document_is_found_once(new_server, tmp_path, topic, kind):
    with SchemaRegistry() as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url, RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_INGEST_ROOTS=str(tmp_path)).start()
        assert server.ingest(note(tmp_path, "heron"), "fleet")["indexed"] == 1
        record = next(one for one in log_client.read_topic(server.brokers, topic) if log_client.headers(one)["ce_type"] == kind)
        versions = Versions(registry, topic, kind, within="chunks")
        event = versions.read(record)
        events, words = {}, {version: f"heron{'abcdefgh'[version]}" for version in versions.stored}
        for version, word in words.items():
            ids = {name: f"{event[name][:-6]}{version:06d}" for name in ("ingest_id", "document_id") if name in event}
            text = json.dumps({name: value for name, value in event.items() if name == "source"}).replace("heron", word)
            own = event | ids | json.loads(text)
            if "chunks" in event:
                own["chunks"] = [one | {"chunk_id": f"{one['chunk_id'][:-6]}{version:06d}", "text": one["text"].replace("heron", word)} for one in event["chunks"]]
            note(tmp_path, word)
            events[version] = own
        versions.write(Producer({"bootstrap.servers": server.brokers}), record, events)
        for version, word in words.items():
            wait_for(lambda word=word: found(server, word), 60, f"what was written as version {version} to be found")
        server.settle()
        assert {word: len(found(server, word)) for word in words.values()} == dict.fromkeys(words.values(), 1)
        for letters in ("ingest.commands", "ingest.chunks", "ingest.embeddings"):
            assert not log_client.read_topic(server.brokers, f"riverrun.{letters}.dlq"), letters


@pytest.mark.parametrize("topic", sorted(WRITTEN))
def test_given_programs_of_every_version_beside_this_one_when_they_write_then_each_run_ends_once_here(new_server, topic, scale):
    with SchemaRegistry() as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url).start()
        first = server.start_run("add up [[steps=2 id=versions]]")
        steps = len(server.run_end(first)["steps"])
        record = next(found for found in log_client.read_topic(server.brokers, topic) if found.key() == first.encode())
        versions = Versions(registry, topic, WRITTEN[topic])
        event = versions.read(record)
        event = event | {"request": event["request"] | {"priority": 7}}
        # An id differs from its neighbours in its last places, which are random.
        runs = {(version, number): f"{first[:-6]}{100 * number + version:06d}" for number in range(scale) for version in versions.stored}
        producer = Producer({"bootstrap.servers": server.brokers})
        for number in range(scale):
            versions.write(producer, record, {version: event | {"run_id": runs[version, number]} for version in versions.stored})
        for (version, _), run_id in runs.items():
            run = server.run_end(run_id, 120 + scale)
            assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, steps + 1)), (version, run)
        on_log = log_client.runs(server.brokers, registry.url)
        assert all(on_log[run_id].end and not on_log[run_id].void for run_id in runs.values())
        assert not log_client.read_topic(server.brokers, "riverrun.agent.commands.dlq")
