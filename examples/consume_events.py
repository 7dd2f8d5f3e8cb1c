#!/usr/bin/env python3
"""Prints every event of a run with a stock Avro consumer: confluent-kafka and riverrun's registry endpoint.

    consume_events.py RUN_ID [--brokers 127.0.0.1:9092] [--registry http://127.0.0.1:8000]

Reads `riverrun.agent.events` from its beginning and stops at the run's terminal event, or at the end of the topic.
Needs `confluent-kafka[avro,schemaregistry]`; RIVERRUN_API_TOKEN is the token where the server wants one. Nothing of riverrun is imported: this is how any program reads the log.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

TOPIC = "riverrun.agent.events"
TOKEN = os.environ.get("RIVERRUN_API_TOKEN")


def events(brokers, registry, run_id):
    """Yields (type, event) of the run's records, in their order."""
    token = {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": TOKEN, "bearer.auth.logical.cluster": "", "bearer.auth.identity.pool.id": ""} if TOKEN else {}
    # Without a schema of its own the deserializer takes the writer's from the registry, by the id in each record.
    decode = AvroDeserializer(SchemaRegistryClient({"url": registry} | token))
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "consume-events-example", "enable.auto.commit": False,
                         "enable.partition.eof": True, "isolation.level": "read_committed"})
    try:
        try:
            found = consumer.list_topics(TOPIC, timeout=10).topics[TOPIC]
        except KafkaException as error:
            sys.exit(f"no broker answers at {brokers}: {error.args[0].str()}; start one with `riverrun serve`, or name its address with --brokers")
        if found.error:
            raise KafkaException(found.error)
        open_ends = set(found.partitions)
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in open_ends])
        while open_ends:
            record = consumer.poll(10)
            if record is None:
                return
            if record.error():
                if record.error().code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(record.error())
                open_ends.discard(record.partition())
            elif (record.key() or b"").decode() == run_id:
                kind = dict(record.headers() or []).get("ce_type", b"").decode()
                yield kind, decode(record.value(), SerializationContext(TOPIC, MessageField.VALUE))
                if kind.endswith(".RunFinished"):
                    return
    finally:
        consumer.close()


def must_answer(registry):
    request = urllib.request.Request(f"{registry}/subjects", headers={"authorization": f"Bearer {TOKEN}"} if TOKEN else {})
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        sys.exit(f"the registry at {registry} refuses: HTTP {error.code}" + ("; RIVERRUN_API_TOKEN is its token" if error.code in (401, 403) else ""))
    except OSError as error:
        sys.exit(f"no registry answers at {registry}: {error}; start `riverrun serve`, or name its address with --registry")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_id")
    parser.add_argument("--brokers", default="127.0.0.1:9092")
    parser.add_argument("--registry", default="http://127.0.0.1:8000")
    options = parser.parse_args()
    must_answer(options.registry)
    count = 0
    for kind, event in events(options.brokers, options.registry, options.run_id):
        count += 1
        print(json.dumps({"type": kind, "event": event}, default=str), flush=True)
    print(f"{count} event{'s' * (count != 1)}" if count else f"{TOPIC} has no event of {options.run_id}; `riverrun runs ls` lists runs", file=sys.stderr)
    return 0 if count else 4


if __name__ == "__main__":
    sys.exit(main())
