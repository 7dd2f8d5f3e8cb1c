"""A schema registry outside: it knows every schema under riverrun's own ids, and stock clients read by it."""

import io
import json
import struct
import subprocess
import tomllib

import fastavro
import pytest
from confluent_kafka import Producer

import log_client
from schema_registry import SchemaRegistry
from server import BINARY, ROOT, free_ports, wait_for

SCHEMAS = tomllib.loads((ROOT / "schemas/registry.toml").read_text())["schema"]
EXIT_USAGE, EXIT_DOWN = 2, 3
# An id that no version of riverrun has.
STRANGE = 999_999
COMMANDS = "riverrun.agent.commands"


def row(server):
    return next(row for row in server.get("/diagnose").json["services"] if row["name"] == "schema registry")


def refused(server):
    """Starts a server that has to refuse; what it said."""
    done = subprocess.run([BINARY, "serve"], cwd=server.folder, env=server.env, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stderr


def test_every_schema_is_registered_under_its_id_and_once(new_server):
    with SchemaRegistry() as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url).start()
        expected = {(f"{entry['topic']}-{entry['record']}", entry["version"]): entry["id"] for entry in SCHEMAS}
        assert {place: id for place, (id, _) in registry.versions.items()} == expected
        assert sorted({subject for subject, _ in registry.versions}) == server.get("/subjects").json
        assert not registry.modes, "subjects are left in another mode"
        writes = registry.writes
        assert server.stop() == 0
        server.start()
        assert registry.writes == writes, "what is there already is left alone"


def test_a_stock_avro_consumer_with_that_registry_decodes_every_record(new_server):
    with SchemaRegistry() as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url).start()
        run = server.run_end(server.start_run("add up [[steps=3 id=registry]]"))
        assert run["status"] == "succeeded"
        decode = log_client.decoder(registry.url)
        for topic in (COMMANDS, "riverrun.agent.events", "riverrun.memory.events"):
            events = [decode(record) for record in log_client.read_topic(server.brokers, topic)]
            assert all(isinstance(event, dict) for event in events)
            if topic == "riverrun.agent.events":
                assert events[-1]["answer"] == run["answer"]


def test_what_was_written_before_the_setting_is_read_with_it(new_server):
    server = new_server().start()
    before = server.start_run("add up [[steps=2 id=before]]")
    server.run_end(before)
    assert server.stop() == 0
    with SchemaRegistry() as registry:
        server.env["RIVERRUN_SCHEMA_REGISTRY_URL"] = registry.url
        server.start()
        after = server.run_end(server.start_run("add up [[steps=2 id=after]]"))
        assert after["status"] == "succeeded"
        assert log_client.runs(server.brokers, registry.url).keys() >= {before, after["run_id"]}


def test_another_riverrun_is_a_registry_too(server, new_server):
    other = new_server("other", RIVERRUN_SCHEMA_REGISTRY_URL=server.url).start()
    assert row(other)["status"] == "up" and row(other)["address"] == server.url


def test_diagnose_tells_of_the_registry_and_the_process_gets_on_without_it(new_server):
    port = free_ports(1)[0]
    with SchemaRegistry(user="ann:s3cret", port=port) as registry:
        server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url, RIVERRUN_SCHEMA_REGISTRY_USER="ann",
                            RIVERRUN_SCHEMA_REGISTRY_PASSWORD="s3cret").start()
        found = row(server)
        assert found["status"] == "up" and found["version"] == "7.9.1-test" and found["address"] == registry.url, found
        assert "latency_ms" in found
    found = row(server)
    assert found["status"] == "down" and "RIVERRUN_SCHEMA_REGISTRY_URL" in found["fix"], found
    assert server.get("/ready").status == 200
    assert server.run_end(server.start_run("add up [[steps=2 id=alone]]"))["status"] == "succeeded"
    assert "s3cret" not in server.log_path.read_text() + json.dumps(server.get("/diagnose").json)


def test_a_registry_that_refuses_is_named_with_the_fix(new_server):
    shop = json.dumps({"type": "record", "name": "Order", "namespace": "shop", "fields": []})
    for name, registry, prepare, said in [
        ("taken", SchemaRegistry(), lambda it: it.versions.update({("shop-Order", 1): (SCHEMAS[0]["id"], shop)}), ["shop.Order", "/contexts/"]),
        ("modes", SchemaRegistry(modes=False), lambda it: None, ["IMPORT"]),
        ("key", SchemaRegistry(user="ann:s3cret"), lambda it: None, ["credentials", "RIVERRUN_SCHEMA_REGISTRY_USER"]),
    ]:
        with registry:
            prepare(registry)
            server = new_server(name, RIVERRUN_SCHEMA_REGISTRY_URL=registry.url, RIVERRUN_SCHEMA_REGISTRY_TOKEN="an0ther")
            status, told = refused(server)
            assert status == EXIT_DOWN and all(word in told for word in said), told
            assert "an0ther" not in told and registry.writes == 0


def test_a_registry_that_is_away_at_the_start_is_named_and_so_is_half_a_setting(new_server):
    url = f"http://127.0.0.1:{free_ports(1)[0]}"
    status, told = refused(new_server("away", RIVERRUN_SCHEMA_REGISTRY_URL=url))
    assert status == EXIT_DOWN and url in told and "RIVERRUN_SCHEMA_REGISTRY_URL" in told, told
    status, told = refused(new_server("half", RIVERRUN_SCHEMA_REGISTRY_PASSWORD="s3cret"))
    assert status == EXIT_USAGE and "RIVERRUN_SCHEMA_REGISTRY_URL" in told and "s3cret" not in told, told


@pytest.fixture
def upgrade(new_server):
    """A server beside which a newer version writes a command under an id that only the registry has: server, registry, the
    command's run, and what makes the registry know the id."""
    registry = SchemaRegistry(port=free_ports(1)[0])
    server = new_server(RIVERRUN_SCHEMA_REGISTRY_URL=registry.url).start()
    first = server.start_run("add up [[steps=2 id=first]]")
    server.run_end(first)
    record = next(record for record in log_client.read_topic(server.brokers, COMMANDS) if record.key() == first.encode())
    id = struct.unpack(">I", record.value()[1:5])[0]
    text = next(schema for known, schema in registry.versions.values() if known == id)
    schema = fastavro.parse_schema(json.loads(text))
    command = fastavro.schemaless_reader(io.BytesIO(record.value()[5:]), schema, None)
    # Another run: an id differs from its neighbour in its last places, which are random.
    run = first[:-6] + ("0" * 6 if first[-6:] != "0" * 6 else "1" * 6)
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema, command | {"run_id": run})
    producer = Producer({"bootstrap.servers": server.brokers})
    headers = [(name, value) for name, value in record.headers() if name in {"ce_type", "ce_specversion", "content-type"}]

    def write():
        producer.produce(COMMANDS, key=run.encode(), value=log_client.frame(STRANGE, body.getvalue()), headers=headers,
                         partition=record.partition())
        producer.flush(15)

    def publish():
        registry.versions["riverrun.agent.commands-riverrun.agent.StartRun", 99] = (STRANGE, text)

    yield server, registry, run, write, publish
    registry.close()


def letters(server):
    return log_client.read_topic(server.brokers, COMMANDS + ".dlq")


def test_a_schema_of_a_newer_version_is_asked_for(upgrade):
    server, _, run, write, publish = upgrade
    publish()
    write()
    assert server.run_end(run)["status"] == "succeeded"
    assert not letters(server)


def test_an_id_that_nobody_has_is_a_dead_letter(upgrade):
    server, _, _, write, _ = upgrade
    write()
    wait_for(lambda: len(letters(server)) == 1, 30, "the dead letter")


def test_while_the_registry_is_away_unknown_ids_wait_and_known_ones_go_on(upgrade):
    server, registry, run, write, publish = upgrade
    publish()
    registry.close()
    write()
    # Runs of every partition but the one that waits: of 24, some lie elsewhere.
    others = [server.start_run(f"add up [[steps=1 id=other{number}]]") for number in range(24)]
    wait_for(lambda: any(server.get(f"/runs/{other}").json.get("status") == "succeeded" for other in others), 60,
             "a run of another partition")
    assert not letters(server)
    with SchemaRegistry(port=registry.port, like=registry):
        assert server.run_end(run)["status"] == "succeeded"
        assert all(server.run_end(other)["status"] == "succeeded" for other in others)
        assert not letters(server)
