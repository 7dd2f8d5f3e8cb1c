#!/usr/bin/env python3
"""Runs the same random program of client calls against two Kafkas and compares them answer by answer.

    python scripts/bench/kafka_diff.py HOST:PORT HOST:PORT [--seeds 20] [--first 0] [--steps 60] [--verbose]

The first is usually ours (`cargo run -p riverrun-broker --example broker -- 127.0.0.1:9092 DIR`), the second an Apache Kafka.
What may differ by nature (ids, times, texts of errors) is not compared; error codes, offsets, records, settings and the states
of groups are. After every change of topics or their settings each side is asked until it shows it: Apache Kafka answers when its
controller knows, and its broker follows a moment later, a long one on a busy machine. Exit status 1 if something differs.
"""

import argparse
import random
import socket
import struct
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import (OFFSET_BEGINNING, Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaError, KafkaException,
                             Producer, TopicPartition)
from confluent_kafka.admin import (AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource, NewPartitions,
                                   NewTopic, OffsetSpec, ResourceType)

TIMEOUT_S = 20
UNKNOWN_PARTITION = 3
NOT_LEADER = 6
UNKNOWN_GROUP = 69
# What librdkafka makes of a commit whose records it could not deliver: which one depends on which of its timers ends first.
UNDELIVERED = {"error _TIMED_OUT", "error _INCONSISTENT"}
GROUPS = ["g", "h"]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SETTINGS = [("retention.ms", "259200000"), ("retention.ms", "-2"), ("cleanup.policy", "compact"), ("cleanup.policy", "compact,delete"),
            ("cleanup.policy", "nonsense"), ("max.message.bytes", "2000"), ("segment.bytes", "1048576"), ("no.such.setting", "1"),
            ("min.cleanable.dirty.ratio", "1.5"), ("compression.type", "lz4"), ("message.timestamp.before.max.ms", "1000"), ("message.timestamp.type", "LogAppendTime"), ("delete.retention.ms", "0")]
# Recent, or retention would take the records at a time of its own.
BASE_MS = int(time.time() * 1_000) - 60_000


def outcome(work):
    """What a call comes to: its value, or the name of its error."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return work()
        except KafkaException as error:
            name = error.args[0].name()
            # A partition that has only just been made has no leader yet.
            if name != "NOT_LEADER_FOR_PARTITION" or time.monotonic() > deadline:
                return f"error {name}"
            time.sleep(0.2)


def shows_change(settings, operation, setting, value):
    """Whether described settings, or the error instead of them, can be those after a change that was taken."""
    if not isinstance(settings, dict):
        return True
    entries = settings.get(setting, "").split(",")
    if operation == AlterConfigOpType.SET:
        return settings.get(setting) == value
    if operation == AlterConfigOpType.DELETE:
        return setting not in settings
    return (value in entries) == (operation == AlterConfigOpType.APPEND)


def text(value):
    """A string as the older requests have it."""
    value = value.encode()
    return struct.pack(">h", len(value)) + value


class Side:
    """One Kafka and the clients of the program. Topics, groups and ids have a suffix of the side's own."""

    def __init__(self, address, suffix):
        self.address = address
        self.config = {"bootstrap.servers": address, "log_level": 0}
        self.suffix = suffix
        self.admin = AdminClient(self.config)
        self.transactional = {}

    def name(self, name):
        return f"diff-{name}-{self.suffix}"

    # ---- topics ------------------------------------------------------------------------------------------------------

    def create(self, topic, partitions, settings, validate_only):
        new = NewTopic(self.name(topic), partitions, 1, config=dict(settings))
        made = outcome(lambda: self.admin.create_topics([new], validate_only=validate_only)[new.topic].result(TIMEOUT_S))
        if made is None and not validate_only:
            self.settle(lambda: self.led(topic) == partitions and self.settings(topic) == dict(settings))
        return made

    def delete(self, topic):
        deleted = outcome(lambda: self.admin.delete_topics([self.name(topic)])[self.name(topic)].result(TIMEOUT_S))
        if deleted is None:
            # The offsets committed for it go last.
            self.settle(lambda: self.layout(topic) is None and not any(self.remembers(group, topic) for group in GROUPS))
        return deleted

    def settle(self, shows):
        """Waits until the broker shows what it was told; if it never does, what comes next will differ."""
        deadline = time.monotonic() + TIMEOUT_S
        while not shows() and time.monotonic() < deadline:
            time.sleep(0.05)

    def led(self, topic):
        """How many partitions of a topic have a leader."""
        found = outcome(lambda: self.admin.list_topics(timeout=TIMEOUT_S).topics.get(self.name(topic)))
        partitions = getattr(found, "partitions", {}).values()
        return sum(one.error is None and one.leader >= 0 for one in partitions)

    def remembers(self, group, topic):
        found = self.committed(group)
        return isinstance(found, list) and any(one[0] == f"diff-{topic}-" for one in found)

    def grow(self, topic, count):
        grown = outcome(lambda: self.admin.create_partitions([NewPartitions(self.name(topic), count)])[self.name(topic)].result(TIMEOUT_S))
        if grown is None:
            self.settle(lambda: self.led(topic) == count)
        return grown

    def set(self, topic, setting, value):
        return self.change(topic, AlterConfigOpType.SET, setting, value)

    def settings(self, topic):
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic))

        def ask():
            found = self.admin.describe_configs([resource])[resource].result(TIMEOUT_S)
            return {name: entry.value for name, entry in found.items() if entry.source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value}
        return outcome(ask)

    def change(self, topic, operation, setting, value):
        entry = ConfigEntry(setting, value, incremental_operation=operation)
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic), incremental_configs=[entry])
        changed = outcome(lambda: self.admin.incremental_alter_configs([resource])[resource].result(TIMEOUT_S))
        if changed is None:
            self.settle(lambda: shows_change(self.settings(topic), operation, setting, value))
        return changed

    def replace(self, topic, settings):
        resource = ConfigResource(ResourceType.TOPIC, self.name(topic), set_config=dict(settings))
        replaced = outcome(lambda: self.admin.alter_configs([resource])[resource].result(TIMEOUT_S))
        if replaced is None:
            self.settle(lambda: self.settings(topic) == dict(settings))
        return replaced

    def odd_name(self, name, validate_only):
        """A topic that may not be called so; without the suffix, which would be part of it."""
        new = NewTopic(name, 1, 1)
        return outcome(lambda: self.admin.create_topics([new], validate_only=validate_only)[name].result(TIMEOUT_S))

    def replicated(self, topic, replicas):
        new = NewTopic(self.name(topic), 1, replicas)
        return outcome(lambda: self.admin.create_topics([new], validate_only=True)[new.topic].result(TIMEOUT_S))

    def layout(self, topic):
        def ask():
            found = self.admin.list_topics(timeout=TIMEOUT_S).topics.get(self.name(topic))
            return None if found is None else sorted(found.partitions)
        return outcome(ask)

    # ---- records -----------------------------------------------------------------------------------------------------

    def produce(self, topic, partition, records, codec, idempotent):
        producer = Producer({**self.config, "compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 20,
                             "message.timeout.ms": 5_000, "batch.num.messages": 10_000, "acks": "all"})
        answers = []
        for key, value, at in records:
            producer.produce(self.name(topic), value, key, partition, timestamp=BASE_MS + at,
                             on_delivery=lambda error, record: answers.append(error.name() if error else record.offset()))
        producer.flush(TIMEOUT_S)
        return answers

    def transaction(self, who, topic, partitions, values, commit):
        def run():
            producer = self.transactional.get(who)
            if producer is None:
                producer = Producer({**self.config, "transactional.id": self.name(who), "message.timeout.ms": 5_000})
                producer.init_transactions(TIMEOUT_S)
                self.transactional[who] = producer
            producer.begin_transaction()
            for partition in partitions:
                for value in values:
                    producer.produce(self.name(topic), value, b"k", partition, timestamp=BASE_MS)
            if commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.flush(TIMEOUT_S)
                producer.abort_transaction(TIMEOUT_S)
            return "ended"
        found = outcome(run)
        if found != "ended":
            self.transactional.pop(who, None)
        return "error undelivered" if found in UNDELIVERED else found

    def fence(self, who, topic, commit):
        """A second producer of the same transactional id takes over from a first one in the middle of a transaction."""
        settings = {**self.config, "transactional.id": self.name(who), "message.timeout.ms": 5_000}

        def run():
            first, second = Producer(settings), Producer(settings)
            first.init_transactions(TIMEOUT_S)
            first.begin_transaction()
            first.produce(self.name(topic), b"of the first", partition=0, timestamp=BASE_MS)
            first.flush(TIMEOUT_S)
            second.init_transactions(TIMEOUT_S)
            try:
                first.commit_transaction(TIMEOUT_S) if commit else first.abort_transaction(TIMEOUT_S)
                found = "not fenced"
            except KafkaException as error:
                found = "fatal" if error.args[0].fatal() else error.args[0].name()
            second.begin_transaction()
            second.commit_transaction(TIMEOUT_S)
            return found
        self.transactional.pop(who, None)
        return outcome(run)

    def large(self, topic, size, codec):
        producer = Producer({**self.config, "compression.type": codec, "message.max.bytes": 10_000_000, "message.timeout.ms": 5_000})
        answers = []
        producer.produce(self.name(topic), b"x" * size, b"k", 0, timestamp=BASE_MS,
                         on_delivery=lambda error, record: answers.append(error.name() if error else record.offset()))
        producer.flush(TIMEOUT_S)
        return answers

    def read(self, topic, partition, isolation):
        consumer = Consumer({**self.config, "group.id": self.name("reader"), "enable.auto.commit": False,
                             "enable.partition.eof": True, "isolation.level": isolation})
        consumer.assign([TopicPartition(self.name(topic), partition, OFFSET_BEGINNING)])
        read = []
        try:
            while True:
                record = consumer.poll(TIMEOUT_S)
                if record is None:
                    return [*read, "nothing comes"]
                if record.error():
                    end = record.error().code() == KafkaError._PARTITION_EOF
                    return read if end else [*read, record.error().name()]
                read.append((record.offset(), record.key(), record.value(), record.timestamp()[0]))
        finally:
            consumer.close()

    def offsets(self, topic, partition, what, isolation):
        at = TopicPartition(self.name(topic), partition)
        spec = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest, "max": OffsetSpec.max_timestamp}.get(what)
        spec = spec() if spec else OffsetSpec.for_timestamp(BASE_MS + what)
        level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
        return outcome(lambda: self.admin.list_offsets({at: spec}, isolation_level=level)[at].result(TIMEOUT_S).offset)

    def delete_before(self, topic, partition, offset):
        at = TopicPartition(self.name(topic), partition, offset)
        return outcome(lambda: self.admin.delete_records([at])[at].result(TIMEOUT_S).low_watermark)

    # ---- requests that this client does not have: bytes, in their last form without tagged fields --------------------------

    def ask(self, key, version, body):
        with socket.create_connection(tuple(self.address.rsplit(":", 1)), timeout=TIMEOUT_S) as one:
            request = struct.pack(">hhi", key, version, 7) + text("diff") + body
            one.sendall(struct.pack(">i", len(request)) + request)
            stream = one.makefile("rb")
            [length] = struct.unpack(">i", stream.read(4))
            return stream.read(length)[4:]

    def epoch_end(self, topic, partition, current, epoch):
        """OffsetForLeaderEpoch version 3 of a consumer: (error, epoch, end)."""
        asked = struct.pack(">iiii", 1, partition, current, epoch)
        answer = self.ask(23, 3, struct.pack(">ii", -1, 1) + text(self.name(topic)) + asked)
        error, _, found, end = struct.unpack(">hiiq", answer[-18:])
        if error == NOT_LEADER:  # of a partition that has only just been made
            time.sleep(0.2)
            return self.epoch_end(topic, partition, current, epoch)
        return error, found, end

    def offset_in_epoch(self, topic, partition, current, timestamp):
        """ListOffsets version 5: (error, offset, epoch); the time of the record is that of the program."""
        asked = struct.pack(">iiiq", 1, partition, current, timestamp)
        answer = self.ask(2, 5, struct.pack(">ibi", -1, 0, 1) + text(self.name(topic)) + asked)
        error, _, offset, epoch = struct.unpack(">hqqi", answer[-22:])
        return error, offset, epoch

    def forget_offset(self, group, topic, partition):
        """OffsetDelete version 0: the error of the group, then that of the partition."""
        known = self.committed(group)
        body = text(self.name(group)) + struct.pack(">i", 1) + text(self.name(topic)) + struct.pack(">ii", 1, partition)
        answer = self.ask(47, 0, body)
        [error] = struct.unpack(">h", answer[:2])
        error = error or struct.unpack(">h", answer[-2:])[0]
        # A group without members and offsets may or may not be remembered, and its partitions are looked at only if it is.
        return "nothing to forget" if known == [] and error in (0, UNKNOWN_PARTITION, UNKNOWN_GROUP) else error

    # ---- groups ------------------------------------------------------------------------------------------------------

    def commit(self, group, topic, partition, offset):
        consumer = Consumer({**self.config, "group.id": self.name(group), "enable.auto.commit": False})
        at = TopicPartition(self.name(topic), partition, offset)
        try:
            return outcome(lambda: [(one.partition, one.offset, one.error and one.error.name())
                                    for one in consumer.commit(offsets=[at], asynchronous=False)])
        finally:
            consumer.close()

    def committed(self, group):
        def ask():
            asked = self.admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(self.name(group))])
            found = asked[self.name(group)].result(TIMEOUT_S).topic_partitions
            return sorted((one.topic.removesuffix(self.suffix), one.partition, one.offset) for one in found)
        return outcome(ask)

    def set_offset(self, group, topic, partition, offset):
        wanted = ConsumerGroupTopicPartitions(self.name(group), [TopicPartition(self.name(topic), partition, offset)])

        def ask():
            found = self.admin.alter_consumer_group_offsets([wanted])[self.name(group)].result(TIMEOUT_S).topic_partitions
            return [(one.partition, one.error and one.error.name()) for one in found]
        return outcome(ask)

    def described(self, group):
        def ask():
            found = self.admin.describe_consumer_groups([self.name(group)])[self.name(group)].result(TIMEOUT_S)
            return found.state.name.replace("DEAD", "EMPTY"), len(found.members)  # as with `forget_offset`
        return outcome(ask)

    def consume(self, group, topic):
        """A member joins, reads what there is, commits and leaves."""
        consumer = Consumer({**self.config, "group.id": self.name(group), "auto.offset.reset": "earliest",
                             "enable.auto.commit": False, "enable.partition.eof": True, "session.timeout.ms": 6_000})
        consumer.subscribe([self.name(topic)])
        count = 0
        try:
            found = self.admin.list_topics(timeout=TIMEOUT_S).topics.get(self.name(topic))
            ends = set()
            while found is not None and len(ends) < len(found.partitions):
                record = consumer.poll(TIMEOUT_S)
                if record is None:
                    return "nothing comes"
                if record.error():
                    if record.error().code() != KafkaError._PARTITION_EOF:
                        return record.error().name()
                    ends.add(record.partition())
                else:
                    count += 1
            if count:
                consumer.commit(asynchronous=False)
            return count
        finally:
            consumer.close()

    def forget_in_use(self, group, topic, other):
        """OffsetDelete beside a member: of the topic that it consumes, and of one that may be another."""
        if not self.led(topic):
            return "no such topic"
        consumer = Consumer({**self.config, "group.id": self.name(group), "enable.auto.commit": False, "session.timeout.ms": 6_000})
        consumer.subscribe([self.name(topic)])
        deadline = time.monotonic() + TIMEOUT_S
        try:
            while not consumer.assignment():
                if time.monotonic() > deadline:
                    return "nothing is assigned"
                consumer.poll(0.1)
            return [self.forget_offset(group, one, 0) for one in (topic, other)]
        finally:
            consumer.close()

    def delete_group(self, group):
        found = outcome(lambda: self.admin.delete_consumer_groups([self.name(group)])[self.name(group)].result(TIMEOUT_S))
        return None if found == "error GROUP_ID_NOT_FOUND" else found  # as with `forget_offset`

    def clean_up(self):
        self.transactional.clear()
        for topic in ("a", "b"):
            self.delete(topic)


def step(dice):
    """A call as (method, arguments); the same for both sides."""
    topic, partition, group = dice.choice("ab"), dice.randrange(3), dice.choice(GROUPS)
    isolation = dice.choice(["read_committed", "read_uncommitted"])
    records = [(dice.choice([None, b"k1", b"k2"]), bytes(dice.choices(b"abc", k=dice.choice([1, 50, 3_000]))), dice.randrange(10_000))
               for _ in range(dice.randrange(1, 6))]
    return dice.choice([
        ("create", (topic, dice.choice([1, 2, 3, 0]), dice.sample(SETTINGS, dice.randrange(2)), dice.random() < 0.2)),
        ("create", (topic, 3, [], False)),
        ("delete", (topic,)),
        ("grow", (topic, dice.randrange(1, 5))),
        ("set", (topic, *dice.choice(SETTINGS))),
        ("settings", (topic,)),
        ("layout", (topic,)),
        ("produce", (topic, partition, records, dice.choice(CODECS), dice.random() < 0.5)),
        ("produce", (topic, partition, records, "none", True)),
        ("transaction", (dice.choice(["x", "y"]), topic, sorted({partition, 0}), [b"t1", b"t2"], dice.random() < 0.6)),
        ("read", (topic, partition, isolation)),
        ("read", (topic, 0, isolation)),
        ("offsets", (topic, partition, dice.choice(["earliest", "latest", "max", 0, 5_000, 20_000]), isolation)),
        ("delete_before", (topic, partition, dice.choice([-1, 0, 1, 3, 1_000]))),
        ("commit", (group, topic, partition, dice.randrange(10))),
        ("committed", (group,)),
        ("consume", (group, topic)),
        ("delete_group", (group,)),
        ("change", (topic, dice.choice([AlterConfigOpType.APPEND, AlterConfigOpType.SUBTRACT, AlterConfigOpType.DELETE]),
                    *dice.choice([("cleanup.policy", "compact"), ("cleanup.policy", "delete"), ("retention.ms", "60000000")]))),
        ("replace", (topic, dice.sample(SETTINGS, dice.randrange(3)))),
        ("odd_name", (dice.choice(["no such", ".", "..", "x" * 250, "a+b", ""]), dice.random() < 0.5)),
        ("replicated", (topic, dice.choice([1, 2, 0, -1]))),
        ("fence", (dice.choice(["x", "z"]), topic, dice.random() < 0.5)),
        ("large", (topic, dice.choice([1_500, 900_000, 1_200_000]), dice.choice(["none", "gzip"]))),
        ("epoch_end", (topic, partition, dice.choice([-1, 0, 7]), dice.choice([-1, 0, 7]))),
        ("offset_in_epoch", (topic, partition, dice.choice([-1, 0, 7]), dice.choice([-1, -2, -3, -9, BASE_MS + 5_000]))),
        ("forget_offset", (group, topic, partition)),
        ("forget_in_use", (group, topic, dice.choice("ab"))),
        ("set_offset", (group, topic, partition, dice.choice([0, 3, 1_000]))),
        ("described", (group,)),
    ])


def compare(addresses, seed, steps, verbose=False):
    """Differences of one program, as text."""
    dice = random.Random(seed)
    sides = [Side(address, uuid.uuid4().hex[:8]) for address in addresses]
    differences = []
    pool = ThreadPoolExecutor(len(sides))  # the two need not wait for each other
    try:
        for number in range(steps):
            method, arguments = step(dice)
            ours, theirs = pool.map(lambda side: getattr(side, method)(*arguments), sides)
            if verbose:
                print(f"seed {seed} step {number}: {method}{arguments!r}: {ours!r}"[:400], file=sys.stderr, flush=True)
            if ours != theirs:
                differences.append(f"seed {seed} step {number}: {method}{arguments!r}\n  {addresses[0]}: {ours!r}\n  {addresses[1]}: {theirs!r}")
    finally:
        for side in sides:
            side.clean_up()
        pool.shutdown()
    return differences


def await_groups(address):
    """Until somebody answers for groups, which an Apache Kafka that has just started finds first: told that nobody does yet,
    librdkafka's admin client ends its process."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": f"diff-{uuid.uuid4().hex[:8]}", "log_level": 0})
    deadline = time.monotonic() + 10 * TIMEOUT_S
    try:
        while True:
            try:
                consumer.committed([TopicPartition("diff", 0)], timeout=TIMEOUT_S)
                return
            except KafkaException:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)
    finally:
        consumer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("addresses", nargs=2, metavar="HOST:PORT")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--verbose", action="store_true", help="print every call and the first one's answer on stderr")
    options = parser.parse_args()
    for address in options.addresses:
        await_groups(address)
    total = 0
    for seed in range(options.first, options.first + options.seeds):
        for difference in compare(options.addresses, seed, options.steps, options.verbose):
            total += 1
            print(difference, flush=True)
    print(f"{options.seeds} programs of {options.steps} calls: {total} differences", file=sys.stderr)
    sys.exit(1 if total else 0)


if __name__ == "__main__":
    main()
