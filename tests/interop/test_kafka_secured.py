"""A real Apache Kafka behind TLS and passwords, whose authorizer lets nobody to anything without a rule: the rules are those of docs/security.md,
as they stand there. Only by `./x interop --kafka`: it starts a Java machine for each."""

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer

from server import ROOT, Server, wait_for

sys.path.insert(0, str(ROOT / "scripts"))
import apache_kafka
from kafka_nodes import Node

TEXT = "The lock of the harbour is opened with a brass key."


@pytest.fixture(scope="module")
def node(request, tmp_path_factory):
    if not request.config.getoption("--kafka"):
        pytest.skip("only by ./x interop --kafka: it starts a real Kafka")
    folder = tmp_path_factory.mktemp("secured")
    node = Node("--secured", str(folder))
    yield node.address, folder
    node.stop()


@pytest.fixture(scope="module")
def ruled(node):
    """The node once the rules of docs/security.md count there."""
    address, folder = node
    recipe = re.search(r"^```\n(acl\(\) \{.*?)^```", (ROOT / "docs/security.md").read_text(), re.M | re.S)[1]
    tool = f'kafka-acls.sh() {{ java -cp "{apache_kafka.class_path()}" org.apache.kafka.tools.AclCommand "$@"; }}\n'
    done = subprocess.run(["bash", "-euc", tool + recipe], cwd=folder, env=os.environ | {"KAFKA": address}, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and recipe.count("--allow-principal") == done.stdout.count("Adding ACLs"), done
    return node


def settings(node, user, password=None):
    """As docs/security.md names them."""
    address, folder = node
    return {"RIVERRUN_KAFKA_BROKERS": address, "RIVERRUN_KAFKA_SECURITY_PROTOCOL": "sasl_ssl", "RIVERRUN_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
            "RIVERRUN_KAFKA_SASL_USERNAME": user, "RIVERRUN_KAFKA_SASL_PASSWORD": password or apache_kafka.USERS[user],
            "RIVERRUN_KAFKA_SSL_CA_LOCATION": str(folder / "ca.pem")}


def client(node, user, **more):
    address, folder = node
    return {"bootstrap.servers": address, "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user,
            "sasl.password": apache_kafka.USERS[user], "ssl.ca.location": str(folder / "ca.pem"), "log_level": 0, **more}


@pytest.fixture(scope="module")
def served(ruled, model, tmp_path_factory):
    """riverrun as the user of that name, with no right beyond the rules."""
    folder = tmp_path_factory.mktemp("served")
    server = Server(folder, model.settings() | settings(ruled, "riverrun") | {"RIVERRUN_INGEST_ROOTS": str(folder)}).start()
    yield server
    server.stop()


def test_given_the_rules_of_the_page_when_riverrun_is_let_in_then_runs_and_documents_come_to_their_ends(served):
    note = Path(served.folder) / "note.md"
    note.write_text(f"# Note\n\n{TEXT}\n")
    assert served.ingest(note, "notes")["status"] == "done"
    found = served.post("/rag/search", {"query": "brass key", "collection": "notes", "k": 1}).json["items"]
    assert TEXT in found[0]["text"], found
    assert served.run_end(served.start_run("[[steps=2 id=secured]]"))["status"] == "succeeded"
    served.settle()
    row = next(one for one in served.get("/diagnose").json["services"] if one["name"] == "broker")
    assert row["status"] == "up", row


def refused(producer, topic):
    errors = []
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    return errors[0] is not None and errors[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_given_the_rules_of_the_page_when_a_reader_and_a_tool_server_come_then_they_may_do_that_and_no_more(ruled, served):
    served.run_end(served.start_run("[[steps=1 id=read]]"))
    reader = Consumer(client(ruled, "dashboard", **{"group.id": "dashboard", "auto.offset.reset": "earliest"}))
    reader.subscribe(["riverrun.agent.events"])
    record = wait_for(lambda: reader.poll(1), 60, "an event for who may read it")
    assert record.error() is None and record.value(), record.error()
    reader.close()
    other = Consumer(client(ruled, "dashboard", **{"group.id": "dashboard", "auto.offset.reset": "earliest"}))
    other.subscribe(["riverrun.agent.commands"])
    record = wait_for(lambda: other.poll(1), 60, "the refusal of a topic that no rule names")
    assert record.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, record.error()
    other.close()
    tools = Producer(client(ruled, "tools"))
    assert not refused(tools, "riverrun.tools.results")
    assert refused(tools, "riverrun.agent.commands") and refused(Producer(client(ruled, "dashboard")), "riverrun.agent.events")


def test_given_a_password_that_is_wrong_when_served_then_it_says_so_and_never_the_password(ruled, new_server):
    canary = f"canary-{uuid.uuid4().hex}"
    server = new_server(**settings(ruled, "riverrun", canary))
    done = server.cli("diagnose", "--json")
    assert canary not in done.stdout + done.stderr
    row = next(one for one in json.loads(done.stdout)["services"] if one["name"] == "broker")
    assert row["status"] == "down" and row["fix"], row
