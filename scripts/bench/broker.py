#!/usr/bin/env python3
"""Measures the embedded broker by itself, and any other Kafka in the same run, and prints a Markdown table.

    cargo build --release -p riverrun-broker --example broker
    python scripts/bench/broker.py [--rounds 3] [--quick] [--log-gb 10] [--peer NAME=HOST:PORT[,PID]] ...

Each figure is the median of the rounds; ours and the peers' take turns. CPU and memory need the process's id, which is known
of ours and given for a peer on this machine. Everything is written with acks=all.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))

import measure  # noqa: E402
from server import free_ports, wait_for  # noqa: E402

SIZES = {"100 B": 100, "1 KB": 1_000, "100 KB": 100_000}
WAITING = 1_000


class Kafka:
    """A broker somewhere."""

    def __init__(self, name, address, pid=None):
        self.name, self.address, self.pid = name, address, pid

    def topic(self, partitions=1):
        name = f"bench-{uuid.uuid4().hex}"
        admin = AdminClient({"bootstrap.servers": self.address})
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)
        return name

    def cpu_s(self):
        return measure.cpu_s(self.pid) if self.pid else None


class Ours(Kafka):
    """The broker of this repository in a process and a folder of its own."""

    def __init__(self, program, folder):
        super().__init__("riverrun", f"127.0.0.1:{free_ports(1)[0]}")
        self.program, self.folder = program, folder
        self.start()

    def start(self):
        """Starts it; seconds until it answers."""
        began = time.perf_counter()
        self.process = subprocess.Popen([self.program, self.address, self.folder], stderr=subprocess.DEVNULL)
        self.pid = self.process.pid
        admin = AdminClient({"bootstrap.servers": self.address, "reconnect.backoff.ms": 5, "log_level": 0})

        def answers():
            try:
                return admin.list_topics(timeout=1)
            except Exception:  # noqa: BLE001 - whatever it is, it does not answer yet
                return None
        wait_for(answers, 600, "the broker to answer", every_s=0.005)
        return time.perf_counter() - began

    def kill(self):
        self.process.kill()
        self.process.wait()


def produce(kafka, size, count):
    """Records and bytes per second from one client, and the broker's CPU for a record."""
    topic, failed = kafka.topic(), []
    producer = Producer({"bootstrap.servers": kafka.address, "acks": "all", "enable.idempotence": True, "linger.ms": 5,
                         "batch.size": 1_000_000, "message.max.bytes": 2_000_000, "queue.buffering.max.kbytes": 1 << 20,
                         "queue.buffering.max.messages": 1_000_000})
    body = b"x" * size
    before, began = kafka.cpu_s(), time.perf_counter()
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, body, partition=0, on_delivery=lambda error, _: error and failed.append(error))
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(300) == 0 and not failed, failed[:3]
    elapsed = time.perf_counter() - began
    used = kafka.cpu_s() - before if before is not None else None
    return count / elapsed, used / count if used is not None else None


def hops(kafka, count):
    """Seconds from produce() of one record to its consumer."""
    topic = kafka.topic()
    consumer = Consumer({"bootstrap.servers": kafka.address, "group.id": topic, "enable.auto.commit": False,
                         "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": kafka.address, "acks": "all", "linger.ms": 0})
    times = []
    for number in range(count + 20):
        began = time.perf_counter()
        producer.produce(topic, b"x" * 100, partition=0)
        producer.poll(0)
        record = None
        while record is None:
            record = consumer.poll(5)
        assert record.error() is None, record.error()
        if number >= 20:
            times.append(time.perf_counter() - began)
    consumer.close()
    return times


def waiting(kafka, count):
    """CPU share and memory of the broker while `count` consumers wait for records, and how long the last one waits for one."""
    topic = kafka.topic()
    consumers = []
    for number in range(count):
        one = Consumer({"bootstrap.servers": kafka.address, "group.id": f"{topic}-{number}", "enable.auto.commit": False,
                        "fetch.wait.max.ms": 60_000, "topic.metadata.refresh.interval.ms": -1})
        one.assign([TopicPartition(topic, 0, 0)])
        consumers.append(one)
    for one in consumers:
        one.poll(0.01)
    idle = measure.idle(kafka.pid, 5) if kafka.pid else {}
    producer = Producer({"bootstrap.servers": kafka.address, "acks": "all", "linger.ms": 0})
    began = time.perf_counter()
    producer.produce(topic, b"x", partition=0)
    producer.flush(30)
    for one in consumers:
        while one.poll(5) is None:
            pass
    idle["all_told_s"] = time.perf_counter() - began
    for one in consumers:
        one.close()
    return idle


def restart(ours, gigabytes):
    """Seconds until the broker answers after kill -9 over a log of so many gigabytes."""
    count = int(gigabytes * 10_000)
    produce(ours, 100_000, count)
    ours.kill()
    return ours.start()


def fmt(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=str(ROOT / "target/release/examples/broker"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 100 waiting consumers")
    parser.add_argument("--log-gb", type=float, default=0, help="size of the log for the start (default: not measured)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=HOST:PORT[,PID]")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    counts = {"100 B": 300_000, "1 KB": 100_000, "100 KB": 3_000}
    factor = 0.1 if options.quick else 1
    rows = []
    with tempfile.TemporaryDirectory(prefix="broker-bench-") as folder:
        ours = Ours(options.program, folder)
        brokers = [ours]
        for peer in options.peer:
            name, _, where = peer.partition("=")
            address, _, pid = where.partition(",")
            brokers.append(Kafka(name, address, int(pid) if pid else None))
        try:
            for label, size in SIZES.items():
                found = {one.name: [] for one in brokers}
                for _ in range(options.rounds):
                    for one in brokers:
                        found[one.name].append(produce(one, size, max(100, int(counts[label] * factor))))
                for name, rounds in found.items():
                    rate = statistics.median(rate for rate, _ in rounds)
                    used = [cpu for _, cpu in rounds if cpu is not None]
                    rows.append((f"produce, {label}", name, "records/s", fmt(rate, 0)))
                    rows.append((f"produce, {label}", name, "MB/s", fmt(rate * size / 1e6)))
                    rows.append((f"produce, {label}", name, "CPU µs per record", fmt(statistics.median(used) * 1e6 if used else None, 2)))
            for one in brokers:
                spread = measure.spread([t for _ in range(options.rounds) for t in hops(one, int(500 * factor) or 50)])
                rows.append(("produce to consume, p50 / p99", one.name, "ms", f"{spread['p50'] * 1e3:.2f} / {spread['p99'] * 1e3:.2f}"))
            for one in brokers:
                idle = waiting(one, 100 if options.quick else WAITING)
                rows.append(("waiting consumers: CPU", one.name, "% of a core", fmt(idle["cpu_share"] * 100 if "cpu_share" in idle else None, 2)))
                rows.append(("waiting consumers: memory", one.name, "MB", fmt(idle["memory_bytes"] / 1e6 if "memory_bytes" in idle else None)))
                rows.append(("waiting consumers: all have a record", one.name, "s", fmt(idle["all_told_s"], 2)))
            if options.log_gb:
                rows.append((f"start after kill -9, {options.log_gb:g} GB", ours.name, "s", fmt(restart(ours, options.log_gb), 2)))
        finally:
            ours.kill()
    print("| what | broker | unit | value |\n|---|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print("\n" + json.dumps(measure.machine()))
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": measure.machine(), "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
