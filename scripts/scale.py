#!/usr/bin/env python3
"""How throughput grows with worker processes, and how long an event takes to the last of many watchers.

    scripts/scale.py [agents] [ingest] [watchers] [--report FILE.json]       all three without a name

Prints Markdown tables, then everything as JSON; `--report` writes that into a file, too. `./x scale` has what it needs: tests/interop/requirements.txt, the
program (RIVERRUN_BIN, else target/debug/riverrun), psql, and PostgreSQL, Redis, S3 and what stands for Qdrant, which it starts by scripts/services.py where
the environment names none. It starts one `riverrun serve --no-workers --host-log`, and worker processes of every kind that is asked for beside it.

Work is made of waiting, so that few cores do for many processes: what is measured is whether processes stand in each other's way, not how fast
a core is.
- agents: runs of one tool call and an answer, both by a model that takes --delay-ms. A process drives --parallel runs at a time. Which partition a run
  is in is drawn by its id: so many runs are needed that half of the partitions have about half of them.
- ingest: documents of one chunk. Each embedder process has a model of its own that takes --embed-ms for a text, one text after the other, as
  the models within a process do.
- watchers: sockets on one run over two APIs; each has to see every step once and the end. Counted is the time from an event, as its own time
  says, until a watcher has it, on one machine with one clock.

What it says nothing of: Apache Kafka and Qdrant (the log is riverrun's broker; vectors lie in memory of a Python process), and networks.
"""

import argparse
import asyncio
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import uuid
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/interop"))
from websockets.asyncio.client import connect  # noqa: E402
from websockets.exceptions import WebSocketException  # noqa: E402

from cluster import Cluster, missing  # noqa: E402
from server import BINARY, wait_for  # noqa: E402
from stub_model import StubModel  # noqa: E402

PARTITIONS = 6
# Handles besides those of watchers.
OTHER_FILES = 500
# Sockets that are opened at a time: more wait for a place at the listener.
OPENING = 100
SERVICES = ("postgres", "redis", "s3", "vectors")
PATIENCE_S = 900


class Services:
    """Those of scripts/services.py, whose addresses it puts into the environment; none where it names them already."""

    def __init__(self):
        self.process = None
        if missing() is None:
            return
        if not importlib.util.find_spec("qdrant_client"):
            raise SystemExit("error: what stands for Qdrant is not installed\n\nhint: ./x scale, or pip install -r scripts/services-requirements.txt")
        self.process = subprocess.Popen([sys.executable, ROOT / "scripts/services.py", *SERVICES], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            if line.strip() == "ready":
                return
            name, _, address = line.strip().partition("=")
            os.environ[name] = address
        raise SystemExit("error: the services did not start\n\nhint: scripts/services.py says why")

    def stop(self):
        if self.process:
            self.process.stdin.close()
            self.process.wait(30)


def log(text):
    print(text, file=sys.stderr, flush=True)


def started(cluster, kind, count, settings=lambda number: {}):
    """So many processes of a kind, once each has its share of partitions."""
    workers = [cluster.add(kind, **settings(number)) for number in range(count)]
    for worker in workers:
        worker.wait_ready()

    def shared():
        shares = [worker.partitions(kind) for worker in workers]
        return sum(shares) == PARTITIONS and min(shares) >= PARTITIONS // count
    wait_for(shared, 120, f"partitions to be shared between {count} processes")
    return workers


def line(processes, done, seconds, first):
    rate = done / seconds
    return {"processes": processes, "done": done, "seconds": round(seconds, 2), "per_second": round(rate, 2),
            "times": round(rate / first, 2) if first else 1.0}


def rates(counts, measure):
    """Measures with each number of processes; `measure` gives what was done and the seconds that it took."""
    lines = []
    for count in counts:
        done, seconds = measure(count)
        lines.append(line(count, done, seconds, lines[0]["per_second"] if lines else None))
        log(f"{count} processes: {lines[-1]}")
    return lines


def agents(wanted, folder):
    model = StubModel(at_once=True)
    cluster = Cluster(folder / "agents", model, RIVERRUN_AGENT_MAX_RUNS=str(wanted.parallel))
    try:
        cluster.add_each(["projector"])
        return rates(wanted.processes, lambda count: agent_runs(wanted, cluster, count))
    finally:
        cluster.stop()
        model.close()


def agent_runs(wanted, cluster, count):
    workers = started(cluster, "agent", count)
    mark = uuid.uuid4().hex[:6]
    began = time.monotonic()

    def start(number):
        return cluster.api.start_run(f"[[steps=1 delay_ms={wanted.delay_ms} id={mark}-{number}]]")
    with ThreadPoolExecutor(16) as pool:
        run_ids = list(pool.map(start, range(wanted.runs)))
    for run_id in run_ids:
        run = cluster.api.run_end(run_id, PATIENCE_S)
        assert run["status"] == "succeeded", run
    took = time.monotonic() - began
    for worker in workers:
        cluster.end(worker)
    return len(run_ids), took


def ingest(wanted, folder):
    usual = StubModel(at_once=True)
    own = [StubModel(wanted.embed_ms, at_once=True) for _ in range(max(wanted.processes))]
    cluster = Cluster(folder / "ingest", usual)
    try:
        cluster.add_each(["projector", "ingester", "indexer"])
        return rates(wanted.processes, lambda count: documents(wanted, cluster, own, count))
    finally:
        cluster.stop()
        for model in [usual, *own]:
            model.close()


def documents(wanted, cluster, models, count):
    workers = started(cluster, "embedder", count, lambda number: models[number].settings())
    mark = f"scale{uuid.uuid4().hex[:6]}"
    notes = cluster.folder / mark
    notes.mkdir()
    for number in range(wanted.documents):
        (notes / f"note-{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is {mark}x{number}.\n")
    began = time.monotonic()
    view = cluster.api.ingest(notes, mark, PATIENCE_S)
    took = time.monotonic() - began
    assert view["indexed"] == wanted.documents, view
    for worker in workers:
        cluster.end(worker)
    return view["indexed"], took


def watchers(wanted, folder):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = hard - OTHER_FILES if hard != resource.RLIM_INFINITY else wanted.watchers
    count = min(wanted.watchers, possible)
    if count < wanted.watchers:
        log(f"{count} watchers instead of {wanted.watchers}: a process may have {hard} files open (ulimit -Hn)")
    # For what is started from here, too.
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + OTHER_FILES)), hard))
    model = StubModel(at_once=True)
    # The model that holds up the run is silent for half of that time.
    cluster = Cluster(folder / "watchers", model, RIVERRUN_API_MAX_STREAMS=str(count + OTHER_FILES),
                      RIVERRUN_MODEL_IDLE_TIMEOUT_MS=str(max(120, wanted.gate_s) * 1000))
    try:
        apis = [cluster.api, cluster.add_api()]
        cluster.add_each(["projector", "agent"])
        return asyncio.run(watch(wanted, apis, count))
    finally:
        cluster.stop()
        model.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def watch(wanted, apis, count):
    # A run before it, which holds up this one until every socket is open: both are of one conversation.
    talk = {"session": f"watched-{uuid.uuid4().hex[:6]}", "namespace": "scale"}
    gate = await asyncio.to_thread(apis[0].start_run, f"[[steps=1 delay_ms={wanted.gate_s * 500} id=gate-{talk['session']}]]", **talk)
    task = f"[[steps={wanted.steps} delay_ms={wanted.step_ms} id={talk['session']}]]"
    run_id = await asyncio.to_thread(apis[0].start_run, task, **talk)
    opening, opened = asyncio.Semaphore(OPENING), []
    began = time.monotonic()
    seeing = [asyncio.create_task(see(apis[number % len(apis)], run_id, opening, opened)) for number in range(count)]
    while len(opened) < count and not any(one.done() for one in seeing):
        await asyncio.sleep(0.1)
    open_s = time.monotonic() - began
    before = (await asyncio.to_thread(apis[0].get, f"/runs/{run_id}")).json["status"]
    log(f"{len(opened)} of {count} sockets are open after {open_s:.1f} s; the run is {before}")
    seen = await asyncio.gather(*seeing)
    assert (await asyncio.to_thread(apis[0].run_end, gate, PATIENCE_S))["status"] == "succeeded"
    run = await asyncio.to_thread(apis[0].run_end, run_id, PATIENCE_S)
    return fan_out(run, seen, count, open_s) | {"open_before_the_first_event": before == "queued"}


async def see(api, run_id, opening, opened):
    """The steps that a watcher saw, each with the seconds since its event, and whether it saw the end."""
    steps, ended = {}, False
    async with opening:
        socket = await connect(f"{api.ws_url}/ws/runs/{run_id}", open_timeout=120, ping_interval=None, compression=None, proxy=None)
    opened.append(run_id)
    try:
        async for text in socket:
            now, message = time.time(), json.loads(text)
            if message["type"] == "step":
                step = message["step"]
                assert step["seq"] not in steps, f"step {step['seq']} came twice"
                steps[step["seq"]] = now - at(step)
            elif message["type"] == "final":
                ended = True
                break
    except WebSocketException as error:
        log(f"a watcher was cut off: {error}")
    finally:
        await socket.close()
    return steps, ended


def at(step):
    return datetime.fromisoformat(step["at"].replace("Z", "+00:00")).timestamp()


def fan_out(run, seen, count, open_s):
    wanted = {step["seq"] for step in run["steps"]}
    whole = sum(ended and set(steps) == wanted for steps, ended in seen)
    # For each event the watcher that has it last, then over the events.
    last = sorted(max((steps[seq] for steps, _ in seen if seq in steps), default=float("nan")) for seq in wanted)
    every = sorted(took for steps, _ in seen for took in steps.values())
    return {"watchers": count, "apis": 2, "events": len(wanted), "saw_everything": whole, "opened_in_s": round(open_s, 1),
            "median_ms": round(every[len(every) // 2] * 1000, 1), "p99_ms": round(every[int(len(every) * 0.99)] * 1000, 1),
            "last_median_ms": round(last[len(last) // 2] * 1000, 1), "last_max_ms": round(last[-1] * 1000, 1)}


def table(report):
    parts = []
    for name, what in (("agents", "runs"), ("ingest", "documents")):
        if name in report:
            parts.append(f"| worker processes ({name}) | {what} | seconds | {what} a second | times |\n|---|---|---|---|---|\n" + "\n".join(
                f"| {one['processes']} | {one['done']} | {one['seconds']} | {one['per_second']} | {one['times']} |" for one in report[name]))
    if "watchers" in report:
        one = report["watchers"]
        parts.append("| watchers | APIs | events | saw every event once, and the end | median of all | 99th percentile | last watcher, median event | last watcher, worst event |\n"
                     "|---|---|---|---|---|---|---|---|\n"
                     f"| {one['watchers']} | {one['apis']} | {one['events']} | {one['saw_everything']} | {one['median_ms']} ms | {one['p99_ms']} ms | {one['last_median_ms']} ms | {one['last_max_ms']} ms |")
    return "\n\n".join(parts)


def failures(report, least):
    found = []
    for name in ("agents", "ingest"):
        two = next((one for one in report.get(name, []) if one["processes"] == 2), None)
        if two and two["times"] < least:
            found.append(f"{name}: two processes did {two['times']} times as much as one, less than {least}")
    watched = report.get("watchers")
    if watched and not watched["open_before_the_first_event"]:
        found.append("watchers: the run began before all of them were there, and their times say nothing: raise --gate-s")
    if watched and watched["saw_everything"] < watched["watchers"]:
        found.append(f"watchers: {watched['watchers'] - watched['saw_everything']} did not see everything")
    return found


MEASURES = {"agents": agents, "ingest": ingest, "watchers": watchers}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"some of {', '.join(MEASURES)}")
    parser.add_argument("--processes", type=lambda text: [int(one) for one in text.split(",")], default=[1, 2, 4], metavar="1,2,4")
    parser.add_argument("--runs", type=int, default=960)
    parser.add_argument("--parallel", type=int, default=8, help="runs that a process drives at a time")
    parser.add_argument("--delay-ms", type=int, default=500, help="how long the chat model takes")
    parser.add_argument("--documents", type=int, default=800)
    parser.add_argument("--embed-ms", type=int, default=100, help="how long an embedding model takes for a text")
    parser.add_argument("--watchers", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=5, help="tool calls of the run that is watched")
    parser.add_argument("--step-ms", type=int, default=4000, help="pause between them, in which this process has read what came for all watchers")
    parser.add_argument("--gate-s", type=int, default=120, help="how long the watched run is held up while sockets open")
    parser.add_argument("--least", type=float, default=1.8, help="exit code 1 when two processes do less than so many times as much as one")
    parser.add_argument("--report", type=Path, metavar="FILE", help="write the report as JSON there")
    wanted = parser.parse_args()
    unknown = [name for name in wanted.what if name not in MEASURES]
    if unknown:
        parser.error(f"no measure {unknown[0]}: one of {', '.join(MEASURES)}")
    services = Services()
    folder = Path(tempfile.mkdtemp(prefix="riverrun-scale-"))
    try:
        why = missing()
        if why:
            sys.exit(f"error: {why}")
        report, broken = {"program": str(BINARY), "cores": os.cpu_count()}, []
        for name in wanted.what or MEASURES:
            log(f"{name} …")
            try:
                report[name] = MEASURES[name](wanted, folder)
            except Exception as error:  # the others are measured nevertheless
                broken.append(f"{name} was not measured: {type(error).__name__}: {error}")
                log(traceback.format_exc())
        print(table(report))
        print(f"\n{json.dumps(report)}")
        if wanted.report:
            wanted.report.write_text(json.dumps(report, indent=1) + "\n")
        found = broken + failures(report, wanted.least)
        for one in found:
            log(f"error: {one}")
        return 1 if found else 0
    finally:
        services.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
