"""Stock Kafka clients of other makers, unmodified, against the embedded broker: kafka-python, aiokafka, kafkajs; and the
secure listener by confluent-kafka."""

import asyncio
import json
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from cluster import Worker
from server import ROOT, free_ports, wait_for

HERE = Path(__file__).resolve().parent
DATA = ROOT / "broker/tests/data"


@pytest.fixture
def topic(server):
    """A topic of the test's own with three partitions."""
    name = f"interop-{uuid.uuid4().hex}"
    admin = KafkaAdminClient(bootstrap_servers=server.brokers)
    admin.create_topics([NewTopic(name, num_partitions=3, replication_factor=1)])
    yield name
    admin.delete_topics([name])
    admin.close()


def recent_ms():
    """A time of records that retention leaves alone: it looks every few seconds."""
    return int(time.time() * 1_000) - 3_600_000


def python_consumer(server, topic, group, **more):
    return KafkaConsumer(topic, bootstrap_servers=server.brokers, group_id=group, auto_offset_reset="earliest",
                         enable_auto_commit=False, consumer_timeout_ms=10_000, session_timeout_ms=6_000, **more)


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_reads_what_it_wrote(server, topic, codec):
    producer = KafkaProducer(bootstrap_servers=server.brokers, acks="all", compression_type=codec, linger_ms=5)
    sent = [producer.send(topic, key=f"k{i}".encode(), value=f"value {i}".encode(), headers=[("i", str(i).encode())])
            for i in range(100)]
    producer.flush(30)
    written = {(one.get(10).partition, one.get(10).offset) for one in sent}
    assert len(written) == 100
    producer.close()
    consumer = python_consumer(server, topic, f"{topic}-group")
    read = []
    for record in consumer:
        read.append(record)
        if len(read) == 100:
            break
    consumer.commit()
    consumer.close()
    assert {(record.partition, record.offset) for record in read} == written
    assert sorted(record.value for record in read) == sorted(f"value {i}".encode() for i in range(100))
    again = python_consumer(server, topic, f"{topic}-group")
    assert sum(again.committed(TopicPartition(topic, partition)) or 0 for partition in range(3)) == 100
    again.close()


def test_kafka_python_seeks_by_time_and_to_the_ends(server, topic):
    producer = KafkaProducer(bootstrap_servers=server.brokers, acks="all")
    base = recent_ms()
    for i in range(10):
        producer.send(topic, value=b"x", partition=0, timestamp_ms=base + i * 1_000).get(10)
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=server.brokers)
    at = TopicPartition(topic, 0)
    assert consumer.offsets_for_times({at: base + 4_500})[at].offset == 5
    assert consumer.beginning_offsets([at])[at] == 0 and consumer.end_offsets([at])[at] == 10
    consumer.close()


def test_aiokafka_writes_transactions_and_reads_what_was_committed(server, topic):
    async def talk():
        producer = AIOKafkaProducer(bootstrap_servers=server.brokers, transactional_id=f"{topic}-tx")
        await producer.start()
        async with producer.transaction():
            for i in range(10):
                await producer.send_and_wait(topic, f"kept {i}".encode(), partition=i % 3)
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"lost", partition=0)
        await producer.abort_transaction()
        await producer.stop()
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=server.brokers, group_id=f"{topic}-aio",
                                    auto_offset_reset="earliest", isolation_level="read_committed",
                                    enable_auto_commit=False)
        await consumer.start()
        try:
            values = [(await asyncio.wait_for(consumer.getone(), 20)).value for _ in range(10)]
            await consumer.commit()
            return values
        finally:
            await consumer.stop()

    assert sorted(asyncio.run(talk())) == sorted(f"kept {i}".encode() for i in range(10))


def test_aiokafka_members_share_a_group(server, topic):
    async def share():
        consumers = []
        for _ in range(3):
            one = AIOKafkaConsumer(topic, bootstrap_servers=server.brokers, group_id=f"{topic}-shared",
                                   session_timeout_ms=6_000, heartbeat_interval_ms=300)
            await one.start()
            consumers.append(one)
        try:
            async def owned():
                for one in consumers:
                    await one.getmany(timeout_ms=50)
                return [one.assignment() for one in consumers]
            deadline = asyncio.get_running_loop().time() + 40
            while True:
                shares = await owned()
                if all(len(share) == 1 for share in shares) and len(set.union(*map(set, shares))) == 3:
                    return True
                assert asyncio.get_running_loop().time() < deadline, f"not shared out: {shares}"
        finally:
            for one in consumers:
                await one.stop()

    assert asyncio.run(share())


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory):
    if not shutil.which("npm"):
        pytest.skip("npm is not there")
    folder = tmp_path_factory.mktemp("kafkajs")
    for name in ("package.json", "client.mjs"):
        shutil.copy(HERE / "kafkajs" / name, folder)
    subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=folder, check=True, timeout=300)
    return folder / "client.mjs"


def test_kafkajs_does_what_programs_do(server, kafkajs):
    topic = f"interop-{uuid.uuid4().hex}"
    done = subprocess.run(["node", kafkajs, server.brokers, topic], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["created"] and seen["deleted"] and seen["state"] == "Stable"
    assert seen["seen"] == [[value, "kafkajs"] for value in "abcd"]
    # Four records, and a marker for each partition of the committed transaction; those of the aborted one come on top.
    assert sum(seen["ends"]) >= 4 + 1


def secure_settings(server, **more):
    return {"bootstrap.servers": server.secure, "security.protocol": "SASL_SSL", "ssl.ca.location": str(DATA / "server.pem"),
            "sasl.mechanisms": "SCRAM-SHA-512", "sasl.username": "ann", "sasl.password": "correct horse", **more}


@pytest.fixture
def secure_server(new_server, tmp_path):
    users = tmp_path / "users"
    users.write_text("ann=correct horse\n")
    [port] = free_ports(1)
    server = new_server(RIVERRUN_BROKER_SECURE_LISTEN=f"127.0.0.1:{port}", RIVERRUN_BROKER_SECURE_USERS=str(users),
                        RIVERRUN_BROKER_SECURE_CERTIFICATE=str(DATA / "server.pem"),
                        RIVERRUN_BROKER_SECURE_KEY=str(DATA / "server-key.pem"))
    server.secure = f"127.0.0.1:{port}"
    return server.start()


def test_the_secure_listener_lets_users_in_and_nobody_else(secure_server):
    topics = AdminClient(secure_settings(secure_server)).list_topics(timeout=15).topics
    assert "riverrun.agent.events" in topics
    for wrong in [{"sasl.password": "wrong"}, {"sasl.username": "eve"}, {"security.protocol": "SSL"},
                  {"security.protocol": "PLAINTEXT"}]:
        with pytest.raises(KafkaException):
            AdminClient(secure_settings(secure_server, **wrong)).list_topics(timeout=4)
    delivered = []
    producer = Producer(secure_settings(secure_server))
    producer.produce("riverrun.agent.events.dlq", b"through TLS", callback=lambda error, _: delivered.append(error))
    producer.flush(15)
    assert delivered == [None]
    consumer = Consumer(secure_settings(secure_server, **{"group.id": "secure", "auto.offset.reset": "earliest"}))
    consumer.subscribe(["riverrun.agent.events.dlq"])
    record = wait_for(lambda: consumer.poll(1), 20, "the record through TLS")
    assert record.value() == b"through TLS"
    consumer.close()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_the_kcat_of_this_system_is_let_in_whatever_its_librdkafka(secure_server, mechanism):
    settings = secure_settings(secure_server, **{"sasl.mechanisms": mechanism})
    del settings["bootstrap.servers"]
    options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
    listed = subprocess.run(["kcat", "-b", secure_server.secure, *options, "-L", "-m", "15"], capture_output=True, text=True, timeout=60, check=False)
    assert listed.returncode == 0 and "riverrun.agent.events" in listed.stdout, listed


def test_given_a_log_behind_tls_and_a_password_when_a_worker_comes_then_it_works_and_one_with_a_wrong_password_does_not_start(secure_server, tmp_path):
    (tmp_path / "right").write_text("correct horse\n")
    (tmp_path / "wrong").write_text("canary\n")
    settings = {"RIVERRUN_KAFKA_BROKERS": secure_server.secure, "RIVERRUN_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
                "RIVERRUN_KAFKA_SSL_CA_LOCATION": str(DATA / "server.pem"), "RIVERRUN_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
                "RIVERRUN_KAFKA_SASL_USERNAME": "ann"}
    worker = Worker(secure_server, "embedder", **settings, RIVERRUN_KAFKA_SASL_PASSWORD_FILE=str(tmp_path / "right"))
    try:
        assert worker.wait_ready()["hanging"] == []
    finally:
        assert worker.stop() == 0
    refused = secure_server.cli("worker", "embedder", **settings, RIVERRUN_KAFKA_SASL_PASSWORD_FILE=str(tmp_path / "wrong"))
    assert refused.returncode == 3 and "canary" not in refused.stderr, refused


def test_metrics_and_diagnose_tell_of_the_broker(server, topic):
    producer = Producer({"bootstrap.servers": server.brokers})
    producer.produce(topic, b"x", partition=0)
    producer.flush(15)
    page = server.get("/metrics").body.decode()
    assert f'riverrun_broker_log_end_offset{{topic="{topic}",partition="0"}} 1' in page
    assert "riverrun_broker_connections" in page and 'riverrun_broker_log_damaged{topic=' in page
    rows = {row["name"]: row for row in server.get("/diagnose").json["services"]}
    assert "partitions" in rows["broker"]["detail"] and "MiB" in rows["broker"]["detail"]


def test_given_a_group_that_is_behind_when_asked_then_its_lag_and_the_size_of_its_topic_are_told(server, topic):
    producer = Producer({"bootstrap.servers": server.brokers})
    for value in (b"one", b"two", b"three"):
        producer.produce(topic, value, partition=1)
    assert producer.flush(15) == 0
    group = f"behind-{uuid.uuid4().hex}"
    consumer = Consumer({"bootstrap.servers": server.brokers, "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[Place(topic, 1, 1)], asynchronous=False)
    consumer.close()
    page = server.get("/metrics").body.decode()
    assert f'riverrun_broker_group_lag{{group="{group}",topic="{topic}",partition="1"}} 2' in page
    rows = {row["name"]: row for row in json.loads(server.cli("topics", "--json").stdout)["items"]}
    assert (rows[topic]["foreign"], rows[topic]["partitions"], rows[topic]["record_count"]) == (True, 3, 3), rows[topic]
    assert f'riverrun_broker_log_bytes{{topic="{topic}",partition="1"}} {rows[topic]["size_bytes"]}' in page
    assert topic in server.cli("topics").stdout and "riverrun.agent.events" in rows


def test_a_secure_listener_that_protects_nothing_is_refused(new_server):
    server = new_server(RIVERRUN_BROKER_SECURE_LISTEN="127.0.0.1:0")
    done = server.cli("runs", "ls")
    assert done.returncode == 2 and "RIVERRUN_BROKER_SECURE_LISTEN" in done.stderr and "hint" in done.stderr


def test_the_same_random_program_comes_to_the_same_answers_twice(server):
    """The differential test against itself: what it compares is repeatable. docs/broker.md says how to run it against Kafka."""
    done = subprocess.run([sys.executable, ROOT / "scripts/bench/kafka_diff.py", server.brokers, server.brokers, "--seeds", "1",
                           "--steps", "15"], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
