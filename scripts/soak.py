#!/usr/bin/env python3
"""A server of its own under mixed load with faults for a long time, and what became of its memory, its file handles and its answers.

    scripts/soak.py [--minutes 30] [--kill-every 120] [--report FILE.json]     `./x soak` has what it needs

Load: runs with tools over HTTP, each under an idempotency key; documents; searches; Kafka records with acks=all; watchers of runs, of whom one of five
does not read and one of five vanishes. Faults: the process is killed with SIGKILL and started again (`--kill-every 0` does not). Measured each few
seconds: resident memory and open file handles of the process, and the time that each request took.

The report says the slope of memory (least squares within each life of the process that lasted long enough, weighted by their lengths, first
fifth left out; where none lasted long enough, within those that there are, which says so and is not judged), handles at the beginning and end of lives, the 99th percentiles of both halves, what was lost, and which bounds were passed. What is
asked within 10 s of a start has percentiles of its own: among a thousand requests those of a few starts would be the whole 99th percentile. Exit
code 1: something that was accepted is not there, something went wrong (a part of the load that ended, a server that did), or a bound was passed in half an
hour and more: a 99th percentile of the second half over 1.1 times that of the first, handles that become more, and, in two hours and more, memory that
grows by a MiB an hour. Shorter ones tell too little to judge.
"""

import argparse
import collections
import json
import os
import random
import resource
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
import uuid
from http.client import HTTPException
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/interop"))
from confluent_kafka import Producer  # noqa: E402
from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402
from websockets.exceptions import WebSocketException  # noqa: E402
from websockets.sync.client import connect  # noqa: E402

import log_client  # noqa: E402
from server import RUN_ENDED, Server  # noqa: E402
from stub_model import StubModel  # noqa: E402

SAMPLE_S = 5
# A life of the process that is shorter tells nothing of a slope.
MIN_LIFE_S = 60
# From how long on a report is judged, and its slope of memory.
JUDGED_MINUTES, SLOPE_MINUTES = 30, 120
MOST_RATIO, MOST_SLOPE_MIB_PER_HOUR = 1.1, 1.0
# So long after a start its requests are told for themselves.
FRESH_S = 10
# Clients come and go: so many more sockets are no leak.
MORE_HANDLES = 32
SCRATCH = "soak.records"
PATIENCE_S = 180


def percentile(times, part):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else None


def slope(samples):
    """Least squares over (seconds, value): value a second."""
    count = len(samples)
    mean_x, mean_y = sum(x for x, _ in samples) / count, sum(y for _, y in samples) / count
    spread = sum((x - mean_x) ** 2 for x, _ in samples)
    return sum((x - mean_x) * (y - mean_y) for x, y in samples) / spread if spread else 0.0


def lasted(life):
    return life[-1][0] - life[0][0] if life else 0


def memory_slope(lives):
    """How memory grew within lives, in MiB an hour, and the seconds of the longest that counts; None and 0 before there is one. Short lives count where there
    is no other: they are mostly what a start takes."""
    measured = [life for life in lives if len(life) > 2]
    counted = [life[len(life) // 5:] for life in [life for life in measured if lasted(life) >= MIN_LIFE_S] or measured]
    weights = [lasted(life) for life in counted]
    if not sum(weights):
        return None, 0
    slopes = [slope([(at, memory) for at, memory, _ in life]) for life in counted]
    return round(sum(one * weight for one, weight in zip(slopes, weights)) / sum(weights) * 3600 / 2**20, 2), round(max(map(lasted, measured)))


class Soak:
    """The load; each part is a method that does one thing and is called over and over."""

    def __init__(self, server, folder):
        self.server, self.folder = server, folder
        self.began, self.done = time.monotonic(), threading.Event()
        # From when until when the process was away, in seconds since the beginning.
        self.away = []
        # kind of request -> [(when, seconds)]
        self.times = collections.defaultdict(list)
        self.runs, self.documents, self.records, self.errors = {}, {}, {}, []
        self.lock = threading.Lock()
        self.producer = Producer({"bootstrap.servers": server.brokers, "acks": "all", "enable.idempotence": True, "linger.ms": 5, "message.timeout.ms": 170_000})

    def ask(self, kind, send):
        """Sends until it is answered, as a client with a key does; the time counts from the first try that found a server."""
        until = time.monotonic() + PATIENCE_S
        while True:
            began = time.monotonic()
            try:
                reply = send()
                if reply.status not in (429, 503):
                    with self.lock:
                        self.times[kind].append((began - self.began, time.monotonic() - began))
                    return reply
            except (OSError, HTTPException):
                pass  # it was killed, and is started again
            if time.monotonic() > until:
                raise AssertionError(f"{kind}: no answer within {PATIENCE_S} s")
            time.sleep(0.05)

    def run(self):
        key = uuid.uuid4().hex[:12]
        body = {"task": f"count [[steps=3 delay_ms=20 id={key}]]", "agent": "react"}
        reply = self.ask("start a run", lambda: self.server.post("/runs", body, headers={"idempotency-key": key}, timeout=30))
        assert reply.status == 202, reply
        self.runs[reply.json["run_id"]] = key

    def document(self):
        number = len(self.documents) + 1
        path = self.folder / f"note-{number % 500}.md"
        path.write_text(f"# Note {number}\n\nThe keyword of this note is zebra{number}. {'Filler words stand here. ' * 20}\n")
        reply = self.ask("hand in a document", lambda: self.server.post("/ingest", {"source": str(path), "collection": "soak"}, headers={"idempotency-key": f"soak-{number}"}, timeout=30))
        assert reply.status == 202, reply
        self.documents[reply.json["ingest_id"]] = number

    def search(self):
        reply = self.ask("search", lambda: self.server.post("/rag/search", {"query": "the keyword of this note", "collection": "soak", "k": 5}, timeout=30))
        assert reply.status in (200, 404), reply

    def read(self):
        reply = self.ask("list runs", lambda: self.server.get("/runs?limit=20", timeout=30))
        assert reply.status == 200, reply

    def produce(self):
        for _ in range(20):
            number = len(self.records)
            self.records[number] = False
            self.producer.produce(SCRATCH, b"%d" % number, key=b"%d" % (number % 7), on_delivery=self.delivered)
        self.producer.poll(0)

    def delivered(self, error, record):
        if error:
            self.errors.append(f"record {record.value()}: {error}")
        else:
            self.records[int(record.value())] = True

    def watch(self):
        if not self.runs:
            return
        run_id = random.choice(list(self.runs))
        how = random.randrange(5)
        try:
            watcher = connect(f"{self.server.ws_url}/ws/runs/{run_id}", open_timeout=10, proxy=None)
        except (OSError, WebSocketException):
            return
        try:
            if how == 0:  # never reads
                self.done.wait(5)
            elif how == 1:  # vanishes
                watcher.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                watcher.socket.shutdown(socket.SHUT_RDWR)
            else:
                for _ in watcher:
                    pass
        except (OSError, WebSocketException):
            pass
        finally:
            watcher.close()

    def over_and_over(self, act, pause_s):
        try:
            while not self.done.wait(pause_s):
                act()
        except Exception as error:  # told in the report
            self.errors.append(f"{act.__name__}: {error}")

    def start(self):
        load = [(self.run, 0.2), (self.run, 0.3), (self.document, 1.0), (self.search, 0.1), (self.read, 0.05), (self.produce, 0.05), (self.watch, 0.1), (self.watch, 0.1), (self.watch, 0.1)]
        self.threads = [threading.Thread(target=self.over_and_over, args=one, daemon=True) for one in load]
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.done.set()
        for thread in self.threads:
            thread.join(PATIENCE_S)
        return self.producer.flush(PATIENCE_S)


def sample(server):
    pid = server.process.pid
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize(), len(os.listdir(f"/proc/{pid}/fd"))


def start_again(server, soak):
    since = time.monotonic() - soak.began
    server.start()
    soak.away.append((since, time.monotonic() - soak.began))


def go_through(server, soak, minutes, kill_every_s, seed):
    """Waits, looks and kills; gives the lives of the process, each a list of (seconds, bytes, handles), and how many kills there were."""
    moments, lives, kills = random.Random(seed), [[]], 0
    end = soak.began + minutes * 60
    next_kill = time.monotonic() + kill_every_s if kill_every_s else end + 1
    told = time.monotonic()
    while time.monotonic() < end:
        time.sleep(SAMPLE_S)
        if server.process.poll() is not None:
            soak.errors.append(f"the server ended by itself with {server.process.returncode}: {server.log_tail(5)}")
            start_again(server, soak)
            lives.append([])
        try:
            memory, handles = sample(server)
        except OSError:
            continue  # it ended just now
        lives[-1].append((time.monotonic() - soak.began, memory, handles))
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(f"{(told - soak.began) / 60:5.1f} min  {memory >> 20} MiB, {slope_text(*memory_slope(lives))}  {handles} handles  {len(soak.runs)} runs  {len(soak.documents)} documents  {kills} kills", file=sys.stderr)
        if time.monotonic() > next_kill:
            server.kill()
            start_again(server, soak)
            kills += 1
            lives.append([])
            next_kill = time.monotonic() + kill_every_s * moments.uniform(0.7, 1.3)
    return lives, kills


def lost(server, soak):
    """What was accepted and is not there."""
    found = []
    until = time.monotonic() + 600
    for run_id in soak.runs:
        while (reply := server.get(f"/runs/{run_id}")).status != 200 or reply.json["status"] not in RUN_ENDED:
            if time.monotonic() > until:
                found.append(f"run {run_id} has not ended: {reply.status}")
                break
            time.sleep(0.1)
    for ingest_id in soak.documents:
        while (reply := server.get(f"/ingest/{ingest_id}")).status != 200 or reply.json["status"] in ("queued", "running"):
            if time.monotonic() > until:
                found.append(f"ingest {ingest_id} has not ended: {reply.status}")
                break
            time.sleep(0.1)
    seen = collections.Counter(int(record.value()) for record in log_client.read_topic(server.brokers, SCRATCH))
    found += [f"record {number} is not there" for number, acknowledged in soak.records.items() if acknowledged and not seen[number]]
    found += [f"record {number} is there {count} times" for number, count in seen.items() if count > 1]
    on_log = log_client.runs(server.brokers, server.url)
    found += [f"run {run_id} has no end on the log" for run_id in soak.runs if run_id not in on_log or not on_log[run_id].end]
    return found


def ms(seconds):
    return None if seconds is None else round(seconds * 1000, 1)


def latency(times, away, half_s):
    """Percentiles of one kind of request, (when it began, how long it took) in seconds: of each half, and of those in or just after a time away."""
    fresh = [any(began + took >= gone and began < back + FRESH_S for gone, back in away) for began, took in times]
    settled = [one for one, is_fresh in zip(times, fresh) if not is_fresh]
    first, second = ([took for began, took in settled if (began < half_s) == early] for early in (True, False))
    p99 = [percentile(first, 0.99), percentile(second, 0.99)]
    return {"count": len(times), "p50_ms": ms(percentile([took for _, took in settled], 0.5)), "p99_first_half_ms": ms(p99[0]), "p99_second_half_ms": ms(p99[1]),
            "ratio": p99[0] and p99[1] and round(p99[1] / p99[0], 3), "after_a_start": sum(fresh),
            "p99_after_a_start_ms": ms(percentile([took for (_, took), is_fresh in zip(times, fresh) if is_fresh], 0.99))}


def summary(soak, lives, kills, missing, minutes):
    long = [life[len(life) // 5:] for life in lives if lasted(life) >= MIN_LIFE_S]
    grown, longest_s = memory_slope(lives)
    latencies = {kind: latency(times, soak.away, minutes * 30) for kind, times in sorted(soak.times.items())}
    every = [one for life in lives for one in life]
    return {
        "minutes": minutes, "kills": kills, "runs": len(soak.runs), "documents": len(soak.documents), "records": sum(soak.records.values()),
        "memory_slope_mib_per_hour": grown, "longest_life_s": longest_s,
        "memory_max_mib": max((memory for _, memory, _ in every), default=0) >> 20,
        "handles_first": long[0][0][2] if long else None, "handles_last": long[-1][-1][2] if long else None, "handles_max": max((handles for _, _, handles in every), default=None),
        "latency": latencies, "lost": missing, "errors": soak.errors,
    }


def over(report):
    """The bounds that a report passes, as lines; none of a soak that is too short."""
    if report["minutes"] < JUDGED_MINUTES:
        return []
    found = [f"{kind} became {one['ratio']} times as slow, at most {MOST_RATIO} is allowed"
             for kind, one in report["latency"].items() if one["ratio"] and one["ratio"] > MOST_RATIO]
    first, last, slope_mib = report["handles_first"], report["handles_last"], report["memory_slope_mib_per_hour"]
    if first is not None and last > first + MORE_HANDLES:
        found.append(f"file handles became {last}, of {first}")
    if report["minutes"] >= SLOPE_MINUTES and report["longest_life_s"] >= MIN_LIFE_S and slope_mib >= MOST_SLOPE_MIB_PER_HOUR:
        found.append(f"memory grew by {slope_mib} MiB an hour, less than {MOST_SLOPE_MIB_PER_HOUR} is allowed")
    return found


def slope_text(slope_mib, longest_s):
    """What is said of the slope in every report, however short it is."""
    if slope_mib is None:
        return "no slope yet"
    return f"{slope_mib} MiB an hour" + ("" if longest_s >= MIN_LIFE_S else f" (within lives of {longest_s} s at most: mostly what a start takes)")


def text(report):
    lines = [f"minutes            {report['minutes']}, {report['kills']} kills",
             f"done               {report['runs']} runs, {report['documents']} documents, {report['records']} records",
             f"lost               {len(report['lost'])}", f"errors             {len(report['errors'])}",
             f"memory             {slope_text(report['memory_slope_mib_per_hour'], report['longest_life_s'])}, at most {report['memory_max_mib']} MiB",
             f"file handles       {report['handles_first']} first, {report['handles_last']} last, {report['handles_max']} at most"]
    for kind, one in report["latency"].items():
        lines.append(f"{kind:18} {one['count']} times, p50 {one['p50_ms']} ms, p99 {one['p99_first_half_ms']} ms then {one['p99_second_half_ms']} ms (x{one['ratio']}), "
                     f"{one['after_a_start']} after a start p99 {one['p99_after_a_start_ms']} ms")
    return "\n".join([*lines, *(f"OVER               {line}" for line in report["over"]), *report["lost"][:10], *report["errors"][:10]])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--kill-every", type=float, default=120, metavar="SECONDS", help="about how often the process is killed; 0: never (default: 120)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON there too")
    wanted = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="riverrun-soak-"))
    notes = folder / "notes"
    notes.mkdir()
    model = StubModel()
    server = Server(folder / "serve", model.settings() | {"RIVERRUN_INGEST_ROOTS": str(notes)})
    try:
        server.start()
        admin = AdminClient({"bootstrap.servers": server.brokers})  # must outlive the answer
        admin.create_topics([NewTopic(SCRATCH, 3, 1)])[SCRATCH].result(20)
        soak = Soak(server, notes)
        soak.start()
        lives, kills = go_through(server, soak, wanted.minutes, wanted.kill_every, wanted.seed)
        left = soak.stop()
        report = summary(soak, lives, kills, lost(server, soak), wanted.minutes)
        if left:
            report["errors"].append(f"{left} records were never acknowledged")
        report["over"] = over(report)
        print(text(report))
        if wanted.report:
            wanted.report.write_text(json.dumps(report, indent=1) + "\n")
        return 1 if report["lost"] or report["over"] or report["errors"] else 0
    finally:
        server.stop()
        model.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
