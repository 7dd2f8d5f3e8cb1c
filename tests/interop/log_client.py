"""The log as a stock Kafka client sees it: nothing of riverrun is used here."""

import struct

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext


def read_topic(brokers, topic, committed=True):
    """Every record of a topic from its beginning to its end at the time of asking."""
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "interop-reader", "enable.auto.commit": False,
                         "enable.partition.eof": True,
                         "isolation.level": "read_committed" if committed else "read_uncommitted"})
    try:
        found = consumer.list_topics(topic, timeout=15).topics[topic]
        if found.error:
            raise KafkaException(found.error)
        open_ends, records = set(found.partitions), []
        consumer.assign([TopicPartition(topic, partition, 0) for partition in open_ends])
        while open_ends:
            record = consumer.poll(15)
            assert record is not None, f"{topic} did not come to its end"
            if record.error():
                if record.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(record.error())
                open_ends.discard(record.partition())
            else:
                records.append(record)
        return records
    finally:
        consumer.close()


def headers(record):
    return {name: value.decode() for name, value in record.headers() or [] if value is not None}


def decoder(registry_url):
    """Decodes any record's value with the writer's schema from the registry."""
    decode = AvroDeserializer(SchemaRegistryClient({"url": registry_url}))
    return lambda record: decode(record.value(), SerializationContext(record.topic(), MessageField.VALUE))


class Run:
    """The fold of a run's events, by the rule that every reader shares: an event of another epoch than the one claimed
    last is void, and so are steps that do not go on where the last ones stopped, and whatever stands behind the end."""

    def __init__(self):
        self.accepted, self.epoch, self.steps, self.end, self.void = False, 0, [], None, 0

    def apply(self, kind, event):
        counts = self._counts(kind, event)
        self.void += not counts
        if not counts:
            return
        if kind == "RunAccepted":
            self.accepted = True
        elif kind == "RunClaimed":
            self.epoch = event["epoch"]
        elif kind == "RunAdvanced":
            self.steps += event["steps"]
        elif kind == "RunFinished":
            self.end = event

    def _counts(self, kind, event):
        if kind == "RunAccepted":
            return not self.accepted
        if not self.accepted or self.end:
            return False
        if kind == "RunClaimed":
            return event["epoch"] > self.epoch
        if kind == "RunAdvanced":
            expected = range(len(self.steps) + 1, len(self.steps) + 1 + len(event["steps"]))
            return event["epoch"] == self.epoch and [step["seq"] for step in event["steps"]] == list(expected)
        return kind != "RunFinished" or event["epoch"] == self.epoch


def runs(brokers, registry_url):
    """Every run on the log, by id."""
    decode, found = decoder(registry_url), {}
    for record in read_topic(brokers, "riverrun.agent.events"):
        kind = headers(record)["ce_type"].rsplit(".", 1)[1]
        found.setdefault(record.key().decode(), Run()).apply(kind, decode(record))
    return found


def frame(schema_id, body):
    return b"\x00" + struct.pack(">I", schema_id) + body


def lag(brokers, group):
    """Records between a group's committed offsets and the ends, summed; 0 when it has committed none and there are none."""
    admin = AdminClient({"bootstrap.servers": brokers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    offsets = asked[group].result(15).topic_partitions
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "interop-watermarks"})
    try:
        behind = 0
        for at in offsets:
            _, end = consumer.get_watermark_offsets(TopicPartition(at.topic, at.partition), timeout=15)
            behind += max(0, end - max(at.offset, 0))
        return behind
    finally:
        consumer.close()


def murmur2_partition(key, partitions):
    """Where Java clients, and riverrun, put a key."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    length = len(key)
    state = 0x9747B28C ^ length
    for at in range(0, length - length % 4, 4):
        word = int.from_bytes(key[at:at + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        state = state * multiplier & mask ^ word
    rest = key[length - length % 4:]
    if rest:
        state = (state ^ int.from_bytes(rest, "little")) * multiplier & mask
    state = (state ^ state >> 13) * multiplier & mask
    state ^= state >> 15
    return (state & 0x7FFFFFFF) % partitions
