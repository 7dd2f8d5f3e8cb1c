"""Serves the tool `stock` of tools.toml: reads riverrun.tools.calls, answers on riverrun.tools.results.

    pip install confluent-kafka fastavro
    RIVERRUN_TOOLS_FILE=examples/tools/tools.toml riverrun serve
    python examples/tools/kafka_tool.py [brokers [registry]]

RIVERRUN_API_TOKEN is the token where the server wants one.

A call may come twice with the same call_id, for example when a process dies between doing and committing: here the
answer is looked up, so that twice is as good as once. Whatever changes something remembers the call_ids it has done.
"""

import io
import json
import os
import struct
import sys
import time
import urllib.error
import urllib.request

import fastavro
from confluent_kafka import Consumer, Producer

STOCK = {"A7": 12, "B2": 0, "C9": 340}
BROKERS = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
REGISTRY = sys.argv[2] if len(sys.argv) > 2 else "http://127.0.0.1:8000"
TOKEN = os.environ.get("RIVERRUN_API_TOKEN")
ANSWERED = "riverrun.tools.results-riverrun.tools.ToolAnswered"  # the registry's subject: topic and record


def registry(path):
    request = urllib.request.Request(f"{REGISTRY}{path}", headers={"authorization": f"Bearer {TOKEN}"} if TOKEN else {})
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        sys.exit(f"{REGISTRY} refuses {path}: HTTP {error.code}")
    except OSError as error:
        sys.exit(f"no server answers at {REGISTRY}: {error}; start one with `riverrun serve`")


schemas = {}


def schema(schema_id):
    """The schema that a record was written with; asked for once."""
    if schema_id not in schemas:
        schemas[schema_id] = fastavro.parse_schema(json.loads(registry(f"/schemas/ids/{schema_id}")["schema"]))
    return schemas[schema_id]


def decode(frame):
    """A zero byte, the schema's id, and an Avro body: the wire format of schema registries."""
    _, schema_id = struct.unpack(">bI", frame[:5])
    return fastavro.schemaless_reader(io.BytesIO(frame[5:]), schema(schema_id), None)


def encode(schema_id, record):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, schema(schema_id), record)
    return struct.pack(">bI", 0, schema_id) + body.getvalue()


def serve():
    answered = registry(f"/subjects/{ANSWERED}/versions/latest")["id"]
    producer = Producer({"bootstrap.servers": BROKERS})
    consumer = Consumer({"bootstrap.servers": BROKERS, "group.id": "stock", "auto.offset.reset": "earliest",
                         "enable.auto.commit": False})
    consumer.subscribe(["riverrun.tools.calls"])
    print("serving", flush=True)
    while True:
        record = consumer.poll(1.0)
        if record is None or record.error():
            continue
        call = decode(record.value())
        if call["tool"] == "stock" and call["deadline"].timestamp() > time.time():
            part = json.loads(call["arguments_json"])["part"]
            known = part in STOCK
            answer = {"call_id": call["call_id"], "at": int(time.time() * 1000),
                      "result_json": json.dumps({"part": part, "pieces": STOCK[part]}) if known else None,
                      "error": None if known else f"there is no part {part}"}
            producer.produce("riverrun.tools.results", key=call["call_id"], value=encode(answered, answer))
            producer.flush()
            print(call["call_id"], part, flush=True)
        consumer.commit(record)


if __name__ == "__main__":
    serve()
