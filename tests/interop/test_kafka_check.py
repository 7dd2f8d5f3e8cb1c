"""What a stock client (librdkafka) may ask of any broker, and the broker's own tests in Rust do not: odd records, ways to move about, members and
producers that are killed, large records, a topic that comes back."""

import subprocess
import sys
import uuid

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, ConsumerGroupState, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

import log_client
from server import wait_for

# librdkafka's RD_KAFKA_OFFSET_TAIL(n) is this minus n; its Python client has no name for it.
OFFSET_TAIL_BASE = -2000

MEMBER = """
import sys
from confluent_kafka import Consumer
brokers, topic, group = sys.argv[1:]
member = Consumer({"bootstrap.servers": brokers, "group.id": group, "session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
member.subscribe([topic], on_assign=lambda *_: print("assigned", flush=True))
while True:
    member.poll(0.1)
"""

ORPHAN = """
import sys
from confluent_kafka import Producer
brokers, topic, name = sys.argv[1:]
producer = Producer({"bootstrap.servers": brokers, "transactional.id": name, "transaction.timeout.ms": 3000})
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(topic, b"orphan", partition=0)
assert producer.flush(30) == 0
print("written", flush=True)
sys.stdin.read()
"""


def make(server, partitions=1, **settings):
    """A new topic of the test's own."""
    name = f"check-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": server.brokers})
    config = {key.replace("_", "."): str(value) for key, value in settings.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(20)
    return name


def write(server, topic, records, **settings):
    """Writes records, each the arguments of `produce`, and waits until all are acknowledged."""
    failed = []
    producer = Producer({"bootstrap.servers": server.brokers, "acks": "all", "enable.idempotence": True, **settings})
    for record in records:
        producer.produce(topic, on_delivery=lambda error, _: error and failed.append(error), **record)
    assert producer.flush(60) == 0 and not failed, failed


def consumer(server, **settings):
    return Consumer({"bootstrap.servers": server.brokers, "group.id": f"check-{uuid.uuid4().hex}", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", **settings})


def take(one, count):
    """The next records, as many as wanted."""
    found = []
    while len(found) < count:
        record = one.poll(30)
        assert record is not None, f"only {len(found)} of {count} records came"
        if record.error():
            raise KafkaException(record.error())
        found.append(record)
    return found


def ends(server, topic, partition=0):
    one = consumer(server)
    try:
        return one.get_watermark_offsets(TopicPartition(topic, partition), timeout=20, cached=False)
    finally:
        one.close()


def spawned(program, *arguments):
    """A Python program in a process of its own, to be killed."""
    return subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def kill(process):
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


# ---- records -------------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_odd_records_come_back_as_they_were(server, codec):
    topic = make(server)
    odd = [{"key": b"tomb", "value": None}, {"key": None, "value": b"no key", "timestamp": 1_600_000_000_000},
           {"key": b"k", "value": b"v", "headers": [("i", b"1"), ("nothing", None), ("i", b"again")]}]
    write(server, topic, [{**record, "partition": 0} for record in odd], **{"compression.type": codec, "linger.ms": 20})
    read = log_client.read_topic(server.brokers, topic)
    assert [record.offset() for record in read] == [0, 1, 2]
    assert [(record.key(), record.value()) for record in read] == [(record["key"], record["value"]) for record in odd]
    assert read[1].timestamp()[1] == 1_600_000_000_000
    assert read[2].headers() == odd[2]["headers"]


def test_records_up_to_nine_megabytes_come_back_whole(server):
    topic = make(server, max_message_bytes=10_485_760)
    values = [bytes(at * 31 % 251 for at in range(251)) * (kib * 1024 // 251) for kib in (100, 900, 1_100, 2_048, 5_000, 9_000)]
    write(server, topic, [{"value": value, "partition": 0} for value in values], **{"message.max.bytes": 10_000_000})
    # With the sizes that a consumer has by default: a record larger than these comes all the same.
    assert [record.value() for record in log_client.read_topic(server.brokers, topic)] == values


def test_a_record_larger_than_its_topic_takes_is_refused_and_the_next_is_not(server):
    topic, failed = make(server), []
    producer = Producer({"bootstrap.servers": server.brokers, "message.max.bytes": 10_000_000})
    for size in (2_000_000, 10):
        producer.produce(topic, bytes(size), partition=0, on_delivery=lambda error, _: error and failed.append(error.name()))
        assert producer.flush(30) == 0
    assert failed == ["MSG_SIZE_TOO_LARGE"]
    assert [len(record.value()) for record in log_client.read_topic(server.brokers, topic)] == [10]


# ---- moving about --------------------------------------------------------------------------------------------------------

def test_a_reader_moves_about_as_it_likes(server):
    topic = make(server)
    write(server, topic, [{"value": str(number).encode(), "partition": 0} for number in range(100)])
    one = consumer(server)
    try:
        one.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert [record.offset() for record in take(one, 100)] == list(range(100))
        one.seek(TopicPartition(topic, 0, 42))
        assert take(one, 1)[0].offset() == 42
        # Out of range: it begins where `auto.offset.reset` says.
        one.seek(TopicPartition(topic, 0, 100_000))
        assert take(one, 1)[0].offset() == 0
    finally:
        one.close()
    last = consumer(server)
    try:
        last.assign([TopicPartition(topic, 0, OFFSET_TAIL_BASE - 5)])
        assert [record.offset() for record in take(last, 5)] == [95, 96, 97, 98, 99]
    finally:
        last.close()


def test_a_paused_partition_waits_and_no_other_does(server):
    topic = make(server, partitions=2)
    one = consumer(server)
    try:
        one.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(2)])
        write(server, topic, [{"value": b"begin", "partition": partition} for partition in range(2)])
        take(one, 2)
        one.pause([TopicPartition(topic, 0)])
        write(server, topic, [{"value": b"paused", "partition": 0}])
        write(server, topic, [{"value": b"other", "partition": 1}])
        assert take(one, 1)[0].value() == b"other"
        one.resume([TopicPartition(topic, 0)])
        assert take(one, 1)[0].value() == b"paused"
    finally:
        one.close()


# ---- topics --------------------------------------------------------------------------------------------------------------

def test_a_topic_that_comes_back_under_its_name_is_a_new_one(server):
    topic = make(server, partitions=6)
    write(server, topic, [{"value": str(number).encode(), "partition": 0} for number in range(10)])
    admin = AdminClient({"bootstrap.servers": server.brokers})
    [cut] = admin.delete_records([TopicPartition(topic, 0, 4)]).values()
    assert cut.result(20).low_watermark == 4 and ends(server, topic) == (4, 10)
    admin.delete_topics([topic])[topic].result(20)
    wait_for(lambda: topic not in AdminClient({"bootstrap.servers": server.brokers}).list_topics(timeout=20).topics, 20, "the topic to be gone")
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(20)
    listed = AdminClient({"bootstrap.servers": server.brokers}).list_topics(timeout=20).topics[topic]
    assert len(listed.partitions) == 3 and ends(server, topic) == (0, 0)
    write(server, topic, [{"value": b"new", "partition": 0}])
    assert [(record.offset(), record.value()) for record in log_client.read_topic(server.brokers, topic)] == [(0, b"new")]


# ---- groups --------------------------------------------------------------------------------------------------------------

class Members:
    """Members of one group, polled in turn."""

    def __init__(self, server, topic, strategy, partitions):
        self.server, self.topic, self.strategy, self.partitions = server, topic, strategy, partitions
        self.group, self.members, self.seen = f"{topic}-group", [], []

    def join(self):
        member = consumer(self.server, **{"group.id": self.group, "partition.assignment.strategy": self.strategy, "enable.auto.commit": True,
                                          "auto.commit.interval.ms": 200, "session.timeout.ms": 6_000, "heartbeat.interval.ms": 200})
        member.subscribe([self.topic])
        self.members.append(member)

    def poll(self):
        for member in self.members:
            record = member.poll(0.05)
            if record is not None and not record.error():
                self.seen.append((record.partition(), record.offset(), record.value()))

    def is_shared_out(self):
        self.poll()
        owned = [[at.partition for at in member.assignment()] for member in self.members]
        return all(owned) and sorted(sum(owned, [])) == list(range(self.partitions))

    def has_handled(self, count):
        self.poll()
        return len({record[:2] for record in self.seen}) == count and log_client.lag(self.server.brokers, self.group) == 0

    def leave(self):
        self.members.pop().close()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go_and_nothing_committed_comes_again(server, strategy):
    topic = make(server, partitions=6)
    write(server, topic, [{"value": str(number).encode(), "partition": number % 6} for number in range(60)])
    group = Members(server, topic, strategy, 6)
    for count in (1, 2, 3):
        group.join()
        wait_for(group.is_shared_out, 60, f"{count} members to share the topic", every_s=0)
    wait_for(lambda: group.has_handled(60), 60, "every record to be handled and committed", every_s=0)
    admin = AdminClient({"bootstrap.servers": server.brokers})
    assert group.group in {one.group_id for one in admin.list_consumer_groups().result(20).valid}
    told = admin.describe_consumer_groups([group.group])[group.group].result(20)
    assert (told.state, told.partition_assignor, len(told.members)) == (ConsumerGroupState.STABLE, strategy, 3), told
    group.leave()
    wait_for(group.is_shared_out, 60, "two members to share the topic", every_s=0)
    while group.members:
        group.leave()
    write(server, topic, [{"value": b"next", "partition": partition} for partition in range(6)])
    group.seen.clear()
    group.join()
    try:
        wait_for(lambda: group.has_handled(6), 60, "what came meanwhile", every_s=0)
        assert {value for _, _, value in group.seen} == {b"next"}, group.seen
    finally:
        group.leave()


def test_a_member_that_is_killed_leaves_its_partitions_to_the_others(server):
    topic = make(server, partitions=4)
    group = Members(server, topic, "range", 4)
    killed = spawned(MEMBER, server.brokers, topic, group.group)
    owns = lambda: (group.poll(), len(group.members[0].assignment()))[1]  # noqa: E731
    try:
        assert killed.stdout.readline().strip() == "assigned"
        group.join()
        wait_for(lambda: owns() == 2, 60, "half of the partitions", every_s=0)
        kill(killed)
        wait_for(lambda: owns() == 4, 60, "the partitions of the member that was killed", every_s=0)
    finally:
        if killed.poll() is None:
            kill(killed)
        while group.members:
            group.leave()


# ---- transactions --------------------------------------------------------------------------------------------------------

def test_nothing_behind_an_open_transaction_is_committed_until_it_ends(server):
    topic = make(server)
    producer = Producer({"bootstrap.servers": server.brokers, "transactional.id": f"{topic}-tx"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    write(server, topic, [{"value": b"behind", "partition": 0}])
    read = lambda committed: [record.value() for record in log_client.read_topic(server.brokers, topic, committed)]  # noqa: E731
    assert read(True) == [] and read(False) == [b"open", b"behind"]
    producer.commit_transaction(30)
    assert read(True) == [b"open", b"behind"]


def test_the_transaction_of_a_killed_producer_is_aborted_and_holds_nobody_up(server):
    topic = make(server)
    orphan = spawned(ORPHAN, server.brokers, topic, f"{topic}-tx")
    try:
        assert orphan.stdout.readline().strip() == "written"
    finally:
        kill(orphan)
    write(server, topic, [{"value": b"live", "partition": 0}])
    read = lambda committed: [record.value() for record in log_client.read_topic(server.brokers, topic, committed)]  # noqa: E731
    assert wait_for(lambda: read(True), 90, "the transaction to be over", every_s=0.5) == [b"live"]
    assert read(False) == [b"orphan", b"live"]
