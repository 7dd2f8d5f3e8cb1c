"""Apache Kafka's own client and console tools, unmodified, against the embedded broker. The client's cases run wherever Java
and Kafka's jars are; `./x interop --kafka` gets them, and runs the console tools and a comparison with a real Kafka too."""

import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import apache_kafka  # noqa: E402
from services import Missing  # noqa: E402

CLIENT = Path(__file__).resolve().parent / "java/StockClient.java"
CASES = ["compressions", "idempotence", "transactions", "epochs", "fencing", "cooperative", "static", "topics", "offsets", "groups", "refusals"]
FLAGS = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
TOOLS = "org.apache.kafka.tools."


@pytest.fixture(scope="session")
def java(request):
    """The command that runs a class of Kafka's jars."""
    if not (request.config.getoption("--kafka") or apache_kafka.folder().is_dir()):
        pytest.skip("Apache Kafka's jars are not there: ./x interop --kafka gets them")
    try:
        return [apache_kafka.java(), *FLAGS, "-cp", apache_kafka.class_path()]
    except Missing as error:
        pytest.skip(f"Java or Maven is not there: {error}")


@pytest.fixture(scope="session")
def outcomes(java, server):
    """{case: what was printed}; one process for all of them, since its start costs more than most."""
    done = subprocess.run([*java, CLIENT, server.brokers], capture_output=True, text=True, timeout=400, check=False)
    lines = (line.split(" ", 1) for line in done.stdout.splitlines() if line.startswith(("ok ", "failed ")))
    found = {rest.split(":")[0]: (verdict, rest) for verdict, rest in lines}
    assert found, done.stdout[-2_000:] + done.stderr[-2_000:]
    return found


@pytest.mark.parametrize("case", CASES)
def test_kafkas_own_client_is_at_home(outcomes, case):
    verdict, text = outcomes.get(case, ("nothing", "the program ended before it"))
    assert verdict == "ok", text


@pytest.fixture
def tool(request, java, server):
    if not request.config.getoption("--kafka"):
        pytest.skip("only by ./x interop --kafka: each tool starts a Java machine")

    def run(main_class, *arguments, stdin=None, server_flag="--bootstrap-server"):
        done = subprocess.run([*java, main_class, server_flag, server.brokers, *arguments], input=stdin, capture_output=True, text=True,
                              timeout=90, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    return run


def test_kafkas_console_tools_do_their_work(tool, tmp_path):
    topic, group = f"tools-{uuid.uuid4().hex}", f"tools-{uuid.uuid4().hex}"
    tool(TOOLS + "TopicCommand", "--create", "--topic", topic, "--partitions", "1", "--config", "retention.ms=7200000")
    assert "PartitionCount: 1" in tool(TOOLS + "TopicCommand", "--describe", "--topic", topic)
    tool(TOOLS + "ConsoleProducer", "--topic", topic, "--property", "parse.key=true", "--property", "key.separator=:",
         "--compression-codec", "lz4", stdin="k:one\nk:two\nk:three\n")
    read = tool(TOOLS + "consumer.ConsoleConsumer", "--topic", topic, "--from-beginning", "--max-messages", "3", "--group", group)
    assert read.split() == ["one", "two", "three"]
    assert f"{topic}:0:3" in tool(TOOLS + "GetOffsetShell", "--topic", topic)
    described = tool(TOOLS + "consumer.group.ConsumerGroupCommand", "--describe", "--group", group)
    assert [line.split()[3:6] for line in described.splitlines() if topic in line] == [["3", "3", "0"]]
    tool(TOOLS + "consumer.group.ConsumerGroupCommand", "--group", group, "--topic", topic, "--reset-offsets", "--to-offset", "1", "--execute")
    tool("kafka.admin.ConfigCommand", "--alter", "--topic", topic, "--add-config", "compression.type=gzip,cleanup.policy=[compact,delete]")
    settings = tool("kafka.admin.ConfigCommand", "--describe", "--topic", topic)
    assert "compression.type=gzip" in settings and "cleanup.policy=compact,delete" in settings and "retention.ms=7200000" in settings
    tool(TOOLS + "VerifiableProducer", "--topic", topic, "--max-messages", "50", "--acks", "-1", "--repeating-keys", "5")
    before = tmp_path / "before.json"
    before.write_text(f'{{"partitions": [{{"topic": "{topic}", "partition": 0, "offset": 2}}], "version": 1}}')
    assert "low_watermark: 2" in tool(TOOLS + "DeleteRecordsCommand", "--offset-json-file", str(before))
    assert "TransactionalId" in tool(TOOLS + "TransactionsCommand", "list")
    assert "Produce(0)" in tool(TOOLS + "BrokerApiVersionsCommand")
    tool(TOOLS + "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)
    tool(TOOLS + "TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool(TOOLS + "TopicCommand", "--list")


def test_a_random_program_comes_to_the_same_answers_as_with_apache_kafka(request, java, server, tmp_path):
    if not request.config.getoption("--kafka"):
        pytest.skip("only by ./x interop --kafka: it starts a real Kafka")
    node = apache_kafka.Kafka(tmp_path).start()
    try:
        done = subprocess.run([sys.executable, ROOT / "scripts/bench/kafka_diff.py", server.brokers, node.address, "--seeds", "2",
                               "--steps", "60"], capture_output=True, text=True, timeout=1_500, check=False)
    finally:
        node.stop()
    assert done.returncode == 0, done.stdout + done.stderr
