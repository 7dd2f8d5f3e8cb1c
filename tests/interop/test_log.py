"""Kafka is a public interface: what other people's programs see of a bare `riverrun serve`."""

import hashlib
import json
import os
import re
import subprocess
import sys
import tomllib

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError

import log_client
from server import BINARY, ROOT

EXAMPLES = ROOT / "examples"
TOPICS = tomllib.loads((ROOT / "deploy/topics.toml").read_text())["topic"]
SCHEMAS = tomllib.loads((ROOT / "schemas/registry.toml").read_text())["schema"]


@pytest.fixture(scope="module")
def run(server):
    """A run that has ended, with three tool calls."""
    return server.run_end(server.start_run("add up [[steps=3 id=log]]"))


def test_kcat_lists_every_topic(server):
    done = subprocess.run(["kcat", "-b", server.brokers, "-L", "-J"], capture_output=True, text=True, timeout=30, check=True)
    found = {topic["topic"]: len(topic["partitions"]) for topic in json.loads(done.stdout)["topics"]}
    expected = {topic["name"]: topic["partitions"] for topic in TOPICS} | {topic["name"] + ".dlq": 1 for topic in TOPICS}
    assert expected.items() <= found.items()


def test_kcat_reads_the_events_of_a_run(server, run):
    done = subprocess.run(["kcat", "-b", server.brokers, "-C", "-t", "riverrun.agent.events", "-e", "-q", "-f", "%k %h\\n"],
                          capture_output=True, text=True, timeout=60, check=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith(run["run_id"])]
    assert lines and all("ce_id=evt_" in line and "ce_type=riverrun.agent." in line for line in lines), done.stdout
    parents = {re.search(r"traceparent=([0-9a-f-]+)", line).group(1) for line in lines}
    assert len(parents) == 1 and re.fullmatch(r"00-[0-9a-f]{32}-[0-9a-f]{16}-01", parents.pop()), "one trace a run"


@pytest.mark.parametrize("entry", SCHEMAS, ids=lambda entry: f"{entry['id']}-{entry['record']}")
def test_the_registry_gives_every_schema(server, entry):
    client = SchemaRegistryClient({"url": server.url})
    subject = f"{entry['topic']}-{entry['record']}"
    by_id = json.loads(client.get_schema(entry["id"]).schema_str)
    assert by_id == json.loads((ROOT / "schemas" / entry["file"]).read_text())
    assert entry["version"] in client.get_versions(subject)
    assert client.get_version(subject, entry["version"]).schema_id == entry["id"]


def test_the_registry_says_what_it_does_not_have(server):
    client = SchemaRegistryClient({"url": server.url, "max.retries": 0})
    assert {f"{entry['topic']}-{entry['record']}" for entry in SCHEMAS} <= set(client.get_subjects())
    for ask, code in [(lambda: client.get_schema(999_999), 40403), (lambda: client.get_versions("no-such-subject"), 40401)]:
        with pytest.raises(SchemaRegistryError) as refused:
            ask()
        assert (refused.value.http_status_code, refused.value.error_code) == (404, code)


def test_a_stock_avro_consumer_decodes_every_event_of_a_run(server, run):
    decode = log_client.decoder(server.url)
    records = [record for record in log_client.read_topic(server.brokers, "riverrun.agent.events")
               if record.key() == run["run_id"].encode()]
    events = [decode(record) for record in records]
    kinds = [log_client.headers(record)["ce_type"].rsplit(".", 1)[1] for record in records]
    assert kinds[0] == "RunAccepted" and kinds[-1] == "RunFinished" and kinds.count("RunFinished") == 1
    assert len({record.partition() for record in records}) == 1, "a run is one ordered partition"
    assert records[0].partition() == log_client.murmur2_partition(run["run_id"].encode(), 6), "where Java clients put the key"
    steps = [step for event in events for step in event.get("steps", [])]
    assert [step["seq"] for step in steps] == [step["seq"] for step in run["steps"]]
    assert [step["kind"] for step in steps] == [step["kind"] for step in run["steps"]]
    assert events[-1]["answer"] == run["answer"]


def test_headers_follow_the_cloudevents_binding(server, run):
    for record in log_client.read_topic(server.brokers, "riverrun.agent.events"):
        if record.key() == run["run_id"].encode():
            found = log_client.headers(record)
            assert found["ce_specversion"] == "1.0" and found["content-type"] == "application/avro"
            assert found["ce_id"].startswith("evt_") and found["ce_source"].startswith("/riverrun/")
            assert found["ce_subject"] == run["run_id"] and found["ce_time"].endswith("Z")


def test_the_consumer_example_prints_every_event(server, run):
    done = subprocess.run([sys.executable, EXAMPLES / "consume_events.py", run["run_id"], "--brokers", server.brokers,
                           "--registry", server.url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert printed[0]["type"].endswith("RunAccepted") and printed[-1]["type"].endswith("RunFinished")


def test_the_watch_example_joins_an_ended_run_at_any_point(server, run):
    last = run["steps"][-1]["seq"]
    for after in (0, 1, last - 1, last):
        done = subprocess.run([sys.executable, EXAMPLES / "watch_run.py", run["run_id"], "--after", str(after),
                               "--url", server.ws_url], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        lines = [line for line in done.stdout.splitlines() if line.strip()[:1].isdigit()]
        assert [int(line.split()[0]) for line in lines] == list(range(after + 1, last + 1))
        assert done.stdout.splitlines()[-1] == f"succeeded: {run['answer']}"


def test_the_watch_example_starts_a_run_and_follows_it(server):
    done = subprocess.run([sys.executable, EXAMPLES / "watch_run.py", "--task", "[[steps=2 delay_ms=50 id=watch]]",
                           "--agent", "react", "--url", server.ws_url], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("run run_") and lines[-1] == "succeeded: done after 2 steps"
    assert sum("calculator(" in line for line in lines) == 2


def test_the_examples_say_what_is_wrong_with_what_was_typed(server):
    def said(script, *arguments):
        done = subprocess.run([sys.executable, EXAMPLES / script, *arguments], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode in (1, 4) and "Traceback" not in done.stderr, done
        return done.stderr

    unknown = "run_01h455vb4pex5vsknk084sn02q"
    assert f"there is no run {unknown}\nhint: riverrun runs ls" in said("watch_run.py", unknown, "--url", server.ws_url)
    assert '"RUN_ID" is no run id' in said("watch_run.py", "RUN_ID", "--url", server.ws_url)
    assert '"nobody" is not there; choose one of: react' in said("watch_run.py", "--task", "x", "--agent", "nobody", "--url", server.ws_url)
    assert "no server answers" in said("watch_run.py", unknown, "--url", "ws://127.0.0.1:1")
    assert f"there is no run {unknown}" in said("watch_run.py", unknown, "--url", server.url), "the address of the API does as well"
    assert f"has no event of {unknown}" in said("consume_events.py", unknown, "--brokers", server.brokers, "--registry", server.url)


SHELL_EXAMPLES = (("ask.sh", "Who?", "no-such"), ("quickstart.sh",), ("chain.sh",), ("approvals.sh",), ("memory.sh",))


@pytest.mark.parametrize("example", SHELL_EXAMPLES, ids=lambda example: example[0])
def test_an_example_of_the_shell_says_what_the_server_says_or_that_there_is_none(new_server, example):
    def said(url, **settings):
        done = subprocess.run(["bash", EXAMPLES / example[0], *example[1:]], env=os.environ | {"RIVERRUN_URL": url, "RIVERRUN": str(BINARY)} | settings,
                              capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 1 and "Traceback" not in done.stderr and "curl" not in done.stderr, done
        return done.stderr

    assert "no server answers at http://127.0.0.1:1: start one with `riverrun serve`" in said("http://127.0.0.1:1")
    token = "rr_examples"
    digest = hashlib.sha256(token.encode()).hexdigest()
    server = new_server(RIVERRUN_API_TOKENS=f"ann:{digest}:read").start()
    assert said(server.url).startswith("refused: the request has no valid token")
    # It is sent: what is refused is something else.
    other = said(server.url, RIVERRUN_API_TOKEN=token)
    assert other.startswith("refused: ") and "no valid token" not in other and "hint: " in other, other


def test_the_quickstart_examples_run(server):
    done = subprocess.run(["bash", EXAMPLES / "quickstart.sh"], env={**server.env, "RIVERRUN_URL": server.url},
                          capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ".md bytes " in done.stdout, "the answer names its source"
    assert "succeeded" in done.stdout
