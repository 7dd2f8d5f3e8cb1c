#!/usr/bin/env python3
"""Measures riverrun, each figure beside a bare peer in the same run, and prints a Markdown table.

    ./x bench [--rounds 5] [--quick] [--json FILE]

Ours and the peers' take turns (A B A B) and medians are given, so that a busy machine is busy for both.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
import peers  # noqa: E402
from server import Server, free_ports  # noqa: E402
from stub_model import StubModel  # noqa: E402

BODY = b"x" * 512
# What a server still does right after its start is not idleness.
SETTLING_S = 3


class Bench:
    def __init__(self, folder, options):
        self.folder, self.options = folder, options
        self.model = StubModel(at_once=True)
        self.rows = []

    def row(self, what, unit, ours, peer, peer_name, note=""):
        self.rows.append({"what": what, "unit": unit, "riverrun": ours, "peer": peer, "peer_name": peer_name, "note": note})
        print(f"  {what}: {ours} | {peer_name}: {peer}", file=sys.stderr, flush=True)

    # ---- runs --------------------------------------------------------------------------------------------------------

    def turns(self, server):
        """CPU of a turn: one model call and one tool call, both durable before the next begins."""
        ours, peer, per_s, peer_per_s, firsts, peer_firsts = [], [], [], [], [], []
        runs, turns = self.options.runs, 10
        server.run_end(server.start_run("[[steps=2 id=warm]]"))
        for number in range(self.options.rounds):
            before, began = measure.cpu_s(server.process.pid), time.perf_counter()
            for one in range(runs):
                # One after the other and without a poll, as the peer's are.
                reply = server.post("/agent/run", {"task": f"[[steps={turns} id=b{number}-{one}]]", "agent": "react", "max_iters": 50})
                assert reply.status == 200 and reply.json["status"] == "succeeded", reply
            used, elapsed = measure.cpu_s(server.process.pid) - before, time.perf_counter() - began
            ours.append(used / (runs * turns))
            per_s.append(runs * turns / elapsed)
            firsts += [self.first_step(server, f"{number}-{one}") for one in range(runs)]
            found = self.langgraph(runs, turns)
            if found:
                peer.append(found["cpu_s_per_turn"])
                peer_per_s.append(found["turns_per_s"])
                peer_firsts += found["first_step_s"]
        name = "LangGraph, SQLite checkpointer, sync"
        self.row("CPU per turn (model call + tool call: two durable steps)", "ms", ms(median(ours)), ms(median(peer)), name,
                 "both call the same model server; riverrun's figure includes its HTTP API, broker, projections and fsyncs")
        self.row("turns per second, one run at a time", "1/s", rounded(median(per_s)), rounded(median(peer_per_s)), name)
        first, peer_first = measure.spread(firsts), measure.spread(peer_firsts) if peer_firsts else None
        self.row("POST /runs to first step on the WebSocket, p50 / p99", "ms", f"{ms(first['p50'])} / {ms(first['p99'])}",
                 peer_first and f"{ms(peer_first['p50'])} / {ms(peer_first['p99'])}", "LangGraph, stream() in the caller's process",
                 "the peer has no network in between")

    def first_step(self, server, name):
        from websockets.sync.client import connect
        began = time.perf_counter()
        run_id = server.start_run(f"[[steps=1 id=first-{name}]]")
        with connect(f"{server.ws_url}/ws/runs/{run_id}") as socket:
            for text in socket:
                if json.loads(text)["type"] == "step":
                    return time.perf_counter() - began
        raise RuntimeError(f"{run_id} had no step")

    def langgraph(self, runs, turns):
        try:
            done = subprocess.run([sys.executable, HERE / "langgraph_peer.py", self.model.url, str(runs), str(turns), self.folder],
                                  capture_output=True, text=True, timeout=600, check=True)
        except subprocess.CalledProcessError as error:
            print(f"  langgraph did not run: {error.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
            return None
        return json.loads(done.stdout)

    # ---- the log -----------------------------------------------------------------------------------------------------

    def log(self, server, others):
        parties = [peers.Embedded(server), *others]
        hops, rates, floors = {p.name: [] for p in parties}, {p.name: [] for p in parties}, []
        for _ in range(self.options.rounds):
            floors += peers.floor(self.folder)
            for party in parties:
                hops[party.name] += party.hops(self.options.hops, BODY)
                rates[party.name].append(party.rate(self.options.records, BODY))
        floor = measure.spread(floors)
        ours = measure.spread(hops.pop(parties[0].name))
        our_rate = rounded(median(rates.pop(parties[0].name)))
        self.row("produce → acknowledged → consumed, 512 bytes, p50 / p99", "ms", f"{ms(ours['p50'])} / {ms(ours['p99'])}",
                 f"{ms(floor['p50'])} / {ms(floor['p99'])}", "bare write + fdatasync of 512 bytes", "the floor of anything durable")
        for name, samples in hops.items():
            found = measure.spread(samples)
            self.row("the same", "ms", f"{ms(ours['p50'])} / {ms(ours['p99'])}", f"{ms(found['p50'])} / {ms(found['p99'])}", name)
        for name, found in rates.items():
            self.row("acknowledged records per second, 512 bytes, one producer", "1/s", our_rate, rounded(median(found)), name,
                     "each with its usual Python client, which is part of the figure")
        if not rates:
            self.row("acknowledged records per second, 512 bytes, one producer", "1/s", our_rate, None, "none installed")

    # ---- the process -------------------------------------------------------------------------------------------------

    def idle(self, server, others):
        """Each alone and fresh, before there is any load: what a peer keeps in memory of the load is not what it takes when idle."""
        ours = self.idle_alone(server)
        for one, name in [(one, one.name) for one in others] or [(None, "none installed")]:
            theirs = one and self.idle_alone(one)
            self.row("idle memory (PSS), fresh", "MiB", mib(ours["memory_bytes"]), theirs and mib(theirs["memory_bytes"]), name)
            self.row("idle CPU, share of one core, fresh", "%", percent(ours["cpu_share"]), theirs and percent(theirs["cpu_share"]), name)

    def idle_alone(self, one):
        one.start()
        time.sleep(SETTLING_S)
        found = measure.idle(one.process.pid, self.options.idle_s)
        one.stop()
        return found

    def starts(self, server, others):
        starts = {"riverrun": [], **{one.name: [] for one in others}}
        server.stop()
        for one in others:
            one.stop()
        for _ in range(self.options.rounds):
            server.spawn()
            starts["riverrun"].append(measure.until(server.answers))
            server.stop()
            for one in others:
                starts[one.name].append(one.start())
                one.stop()
        for name in [one.name for one in others] or [None]:
            self.row("start to ready, with this run's data", "ms", ms(median(starts["riverrun"])), name and ms(median(starts[name])),
                     name or "none installed", "riverrun: to the first 200 of /health; peers: to an open port")


def median(samples):
    return statistics.median(samples) if samples else None


def ms(seconds):
    return None if seconds is None else f"{seconds * 1000:.2f}"


def rounded(number):
    return None if number is None else f"{number:,.0f}"


def mib(size):
    return f"{size / 2**20:.0f}"


def percent(share):
    return f"{share * 100:.1f}"


def table(rows):
    yield "| what | unit | riverrun | peer | which peer | remark |"
    yield "|---|---|---|---|---|---|"
    for row in rows:
        peer = "not measured" if row["peer"] is None else row["peer"]
        yield f"| {row['what']} | {row['unit']} | {row['riverrun']} | {peer} | {row['peer_name']} | {row['note']} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="one short round, to see that it works")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    options.rounds = 1 if options.quick else options.rounds
    options.runs, options.hops, options.records, options.idle_s = (3, 50, 5_000, 2) if options.quick else (15, 300, 50_000, 10)

    with tempfile.TemporaryDirectory(prefix="riverrun-bench-") as folder:
        folder = Path(folder)
        bench = Bench(folder, options)
        server = Server(folder / "serve", bench.model.settings())
        redis_port, nats_port = free_ports(2)
        others = [one for one in (peers.Redis.find(folder / "redis", redis_port), peers.Nats.find(folder / "nats", nats_port)) if one]
        try:
            bench.idle(server, others)
            server.start()
            for one in others:
                one.start()
            bench.turns(server)
            bench.log(server, others)
            bench.starts(server, others)
        finally:
            server.stop()
            for one in others:
                one.stop()
            bench.model.close()
    where = measure.machine()
    binary = os.environ.get("RIVERRUN_BIN", "")
    build = "own crates at opt-level 3, dependencies as in every build" if binary.endswith("riverrun-to-measure") else binary
    print(f"\n{options.rounds} rounds on {where['cores']} cores of {where['cpu']}, load {where['load']:.1f}, {build}.\n")
    print("\n".join(table(bench.rows)))
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "build": build, "rounds": options.rounds, "rows": bench.rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
