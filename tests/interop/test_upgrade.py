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


def later(text):
    """The schema as a later version may change it: one more field, and one more in the record within."""
    schema = json.loads(text)
    request = next(field for field in schema["fields"] if field["name"] == "request")
    request["type"]["fields"].insert(0, {"name": "priority", "type": ["null", "long"], "default": None})
    schema["fields"].insert(1, {"name": "cluster", "type": "string", "default": "none"})
    return json.dumps(schema)


def parsed(text):
    return fastavro.parse_schema(json.loads(text))


@pytest.mark.parametrize("topic", sorted(WRITTEN))
def test_given_programs_of_every_version_beside_this_one_when_they_write_then_each_run_ends_once_here(new_server, topic, scale):
    with SchemaRegistry() as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url).start()
        first = server.start_run("add up [[steps=2 id=versions]]")
        steps = len(server.run_end(first)["steps"])
        record = next(found for found in log_client.read_topic(server.brokers, topic) if found.key() == first.encode())
        subject = f"{topic}-{WRITTEN[topic]}"
        stored = {version: kept for (of, version), kept in registry.versions.items() if of == subject}
        newest = max(stored)
        assert newest > 1 and struct.unpack(">I", record.value()[1:5])[0] == stored[newest][0], "what is written is of the newest version"
        event = fastavro.schemaless_reader(io.BytesIO(record.value()[5:]), parsed(stored[newest][1]), None)
        event = event | {"cluster": "blue", "request": event["request"] | {"priority": 7}}
        stored[newest + 1] = registry.versions[subject, newest + 1] = (NEWER_ID, later(stored[newest][1]))
        # An id differs from its neighbours in its last places, which are random.
        runs = {(version, number): f"{first[:-6]}{100 * number + version:06d}" for number in range(scale) for version in stored}
        headers = [(name, value) for name, value in record.headers() if name in {"ce_type", "ce_specversion", "content-type"}]
        producer = Producer({"bootstrap.servers": server.brokers})
        schemas = {version: (id, parsed(text)) for version, (id, text) in stored.items()}
        for (version, _), run_id in runs.items():
            id, schema = schemas[version]
            body = io.BytesIO()
            fastavro.schemaless_writer(body, schema, event | {"run_id": run_id})
            producer.produce(topic, key=run_id.encode(), value=log_client.frame(id, body.getvalue()), headers=headers, partition=record.partition())
        assert producer.flush(15 + scale) == 0
        for (version, _), run_id in runs.items():
            run = server.run_end(run_id, 120 + scale)
            assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, steps + 1)), (version, run)
        on_log = log_client.runs(server.brokers, registry.url)
        assert all(on_log[run_id].end and not on_log[run_id].void for run_id in runs.values())
        assert not log_client.read_topic(server.brokers, "riverrun.agent.commands.dlq")
