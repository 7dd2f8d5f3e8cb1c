#!/usr/bin/env python3
"""Measures the embedded broker by itself beside Apache Kafka and NATS JetStream in one run, and prints a Markdown table.

    cargo build --release -p riverrun-broker --example broker
    ~/.cache/riverrun/bench-python/bin/python scripts/bench/broker.py [--only produce,hop,waiting,start] [--rounds 3] [--quick]
        [--log-gb 2] [--without kafka,nats] [--peer NAME=HOST:PORT[,PID]]... [--json FILE]

`produce`: acknowledged records per second of one client at 100 B, 1 KB and 100 KB, CPU per record, memory afterwards. `hop`: from
produce() to the consumer, beside a bare write and fdatasync. `waiting`: 1,000 consumers without records. `start`: until the end of
a log is told, after kill -9 and after a shutdown; --log-gb says how large it is, and each broker has the disk for itself.

Everything is written with acks=all; a figure is the median of the rounds, in which the brokers take turns. CPU and memory need the
process's id, which a --peer on this machine may be given with. Apache Kafka and a nats-server are taken where they are installed
(`./x interop --kafka` gets the one); what is left out is said with the reason. About ten minutes on two cores with nothing else to
do. `start` needs the disk of its log, the others 2 GB.
"""

import argparse
import contextlib
import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import brokers
import measure
from brokers import ROOT, ApacheKafka, Kafka, Missing, Nats, Ours
from peers import floor

SIZES = {"100 B": (100, 1_000_000), "1 KB": (1_000, 200_000), "100 KB": (100_000, 3_000)}
PARTS = ("produce", "hop", "waiting", "start")
PEERS = {"kafka", "nats"}
WAITING = 1_000
HOPS = 500
IN_MEMORY = Path("/dev/shm")
TANSU = "it writes to PostgreSQL, S3 or SQLite (`cargo install tansu`, some 500 crates), and its SQLite does not sync; give a running one with --peer"


class Bench:
    def __init__(self, options, folder, running):
        self.options, self.folder, self.running = options, folder, running
        self.factor = 0.1 if options.quick else 1
        self.rows, self.notes = [], []

    def row(self, what, broker, unit, value, digits=1):
        value = "-" if value is None else value if isinstance(value, str) else f"{value:,.{digits}f}"
        self.rows.append((what, broker, unit, value))
        print(f"  {what} | {broker}: {value} {unit}", file=sys.stderr, flush=True)

    def left_out(self, who, why):
        note = f"left out: {who}: {why}"
        if note not in self.notes:
            self.notes.append(note)
            print(f"  {note}", file=sys.stderr, flush=True)

    def in_folder(self, name):
        folder = self.folder / name
        folder.mkdir()
        return folder

    def ours(self):
        return Ours(self.options.program, self.in_folder("ours")).start()

    def starters(self):
        """What makes a broker, by the name of what it is beside."""
        return {"riverrun": self.ours, "kafka": lambda: ApacheKafka(self.in_folder("kafka")).start(),
                "nats": lambda: Nats(Nats.find(self.options.nats), self.in_folder("nats"))}

    def all(self):
        """Every broker that there is, started."""
        found = []
        for kind, start in self.starters().items():
            if kind in self.options.without:
                continue
            try:
                one = start()
            except Missing as error:
                self.left_out(kind, error)
                continue
            self.running.callback(one.close)
            found.append(one)
            if kind == "kafka":
                found.append(one.syncing())
        peers = [peer(text) for text in self.options.peer]
        if not any("tansu" in one.name.lower() for one in peers):
            self.left_out("tansu", TANSU)
        return found + peers

    def turns(self, found, work):
        """{broker: what came of each round}; nothing is left to be written back when a turn begins."""
        came = {one.name: [] for one in found}
        for _ in range(self.options.rounds):
            for one in found:
                os.sync()
                came[one.name].append(work(one))
        return came

    # ---- parts -------------------------------------------------------------------------------------------------------

    def produce(self, found):
        for label, (size, count) in SIZES.items():
            count = max(100, int(count * self.factor))
            for name, rounds in self.turns(found, lambda one: one.write(size, count)).items():
                rate = statistics.median(rate for rate, _ in rounds)
                used = [cpu for _, cpu in rounds if cpu is not None]
                self.row(f"produce, {label}", name, "records/s", rate, 0)
                self.row(f"produce, {label}", name, "MB/s", rate * size / 1e6)
                self.row(f"produce, {label}", name, "CPU µs per record", statistics.median(used) * 1e6 if used else None, 2)
        for one in found:
            if one.pid:
                self.row("memory after that", one.name, "MB", measure.memory_bytes(one.pid) / 1e6)

    def hop(self, found):
        count = max(50, int(HOPS * self.factor))
        bare, laid_out = (measure.spread([sample for _ in range(self.options.rounds) for sample in floor(self.folder, 200, count, before)])
                          for before in (False, True))
        self.row("bare append + fdatasync, p50 / p99", "-", "ms", both(bare))
        # What a log would gain whose files are as long before as after.
        self.row("bare overwriting + fdatasync, p50 / p99", "-", "ms", both(laid_out))
        came = self.turns(found, lambda one: one.hops(count))
        with contextlib.ExitStack() as running:
            if IN_MEMORY.is_dir():
                # What is left where a sync costs nothing: client, network and broker.
                folder = running.enter_context(tempfile.TemporaryDirectory(prefix="broker-bench-", dir=IN_MEMORY))
                floating = Ours(self.options.program, folder, "riverrun, its data in memory").start()
                running.callback(floating.close)
                came |= self.turns([floating], lambda one: one.hops(count))
        for name, rounds in came.items():
            spread = measure.spread([sample for samples in rounds for sample in samples])
            self.row("produce to consume, p50 / p99", name, "ms", both(spread))
            if name in (one.name for one in found):
                self.row("produce to consume, p50 above the bare sync", name, "ms", (spread["p50"] - bare["p50"]) * 1e3, 2)

    def waiting(self, found):
        count, seconds = (WAITING // 10, 3) if self.options.quick else (WAITING, 10)
        for one in found:
            if isinstance(one, Kafka) and one.settings:
                continue  # the same process as the one before
            idle = one.waiting(count, seconds)
            what = f"{count:,} waiting consumers"
            self.row(f"{what}: CPU", one.name, "% of a core", idle["cpu_share"] * 100 if "cpu_share" in idle else None, 2)
            self.row(f"{what}: memory", one.name, "MB", idle["memory_bytes"] / 1e6 if "memory_bytes" in idle else None)
            self.row(f"{what}: all have a record", one.name, "s", idle["all_told_s"], 2)

    def start(self):
        size = self.options.log_gb
        free = shutil.disk_usage(self.folder).free / 1e9
        if free < size + 2:
            sys.exit(f"error: {free:.0f} GB of disk are free in {self.folder}, a log of {size:g} GB needs {size + 2:g}\n\nhint: --log-gb, or TMPDIR elsewhere")
        for kind, start in self.starters().items():
            if kind == "nats" or kind in self.options.without:
                continue
            try:
                one = start()
            except Missing as error:
                self.left_out(kind, error)
                continue
            try:
                self.started(one, size)
            finally:
                one.close()
            # The next one has the disk for itself.
            shutil.rmtree(self.folder / {"riverrun": "ours"}.get(kind, kind))

    def started(self, one, size):
        topic, end = one.fill(size)
        for how, ends in {"kill -9": one.kill, "a shutdown": one.stop}.items():
            times = []
            for _ in range(self.options.rounds):
                os.sync()
                ends()
                times.append(one.restart(topic, end))
            self.row(f"start after {how}, {size:g} GB", one.name, "s", statistics.median(times), 2)
        self.row(f"memory after a start, {size:g} GB", one.name, "MB", measure.memory_bytes(one.pid) / 1e6)


def both(spread):
    return f"{spread['p50'] * 1e3:.2f} / {spread['p99'] * 1e3:.2f}"


def peer(text):
    """A Kafka that runs already."""
    name, _, where = text.partition("=")
    address, _, pid = where.partition(",")
    return Kafka(name, address, int(pid) if pid else None)


def program():
    """The newest example of the broker's crate that has been built."""
    targets = [Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target"), brokers.apache_kafka.cache() / "target"]
    built = [target / profile / "examples/broker" for target in targets for profile in ("release", "debug")]
    return next((str(path) for path in built if path.exists()), str(built[0]))


def words(allowed):
    def parse(text):
        found = text.split(",") if text else []
        unknown = [word for word in found if word not in allowed]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]} is none of {', '.join(sorted(allowed))}")
        return found
    return parse


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=program(), help="the example of the broker's crate (default: %(default)s)")
    parser.add_argument("--only", type=words(PARTS), default=list(PARTS), metavar="PART,...", help="of " + ", ".join(PARTS))
    parser.add_argument("--without", type=words(PEERS), default=[], metavar="PEER,...", help="of " + ", ".join(sorted(PEERS)))
    parser.add_argument("--nats", metavar="PROGRAM", help="a nats-server of 2.10 or newer (default: of PATH or ~/go/bin)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records, 100 waiting consumers, to see that it works")
    parser.add_argument("--log-gb", type=float, default=2, help="size of the log for the start (default: 2)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=HOST:PORT[,PID]")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    if not os.access(options.program, os.X_OK):
        sys.exit(f"error: {options.program} is missing\n\nhint: cargo build --release -p riverrun-broker --example broker")
    began = time.monotonic()
    machine = measure.machine() | {"program": options.program}
    with tempfile.TemporaryDirectory(prefix="broker-bench-", ignore_cleanup_errors=True) as folder, contextlib.ExitStack() as running:
        bench = Bench(options, Path(folder), running)
        together = [part for part in PARTS if part in options.only and part != "start"]
        try:
            if together:
                found = bench.all()
                for part in together:
                    getattr(bench, part)(found)
                running.close()
                for name in ("ours", "kafka", "nats"):
                    shutil.rmtree(Path(folder) / name, ignore_errors=True)
            if "start" in options.only:
                bench.start()
        finally:
            # What has been measured before something failed is told too.
            report(bench, machine | {"seconds": round(time.monotonic() - began)}, options.json)


def report(bench, machine, file):
    print("| what | broker | unit | value |\n|---|---|---|---|")
    for row in bench.rows:
        print("| " + " | ".join(row) + " |")
    print("".join(f"\n{note}" for note in bench.notes) + "\n\n" + json.dumps(machine))
    if file:
        Path(file).write_text(json.dumps({"machine": machine, "rows": bench.rows, "notes": bench.notes}, indent=2))


if __name__ == "__main__":
    main()
