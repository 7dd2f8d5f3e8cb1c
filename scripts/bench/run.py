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
RESTATE = "restate_peer.py"
FRAMEWORKS = [("LangGraph, SQLite checkpointer, sync", "langgraph_peer.py"), ("DBOS Transact, SQLite, a step each", "dbos_peer.py"),
              ("Restate's server and its Python SDK, a step each", RESTATE)]


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
        ours, per_s, firsts = [], [], []
        theirs = {name: [] for name, _ in FRAMEWORKS}
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
            for name, script in FRAMEWORKS:
                theirs[name] += self.framework(script, runs, turns)
        first = measure.spread(firsts)
        for name, found in theirs.items():
            self.row("CPU per turn (model call + tool call: two durable steps)", "ms", ms(median(ours)), ms(median([one["cpu_s_per_turn"] for one in found])), name,
                     "all call the same model server; riverrun's figure includes its HTTP API, broker, projections and fsyncs")
            self.row("turns per second, one run at a time", "1/s", rounded(median(per_s)), rounded(median([one["turns_per_s"] for one in found])), name)
            peer_first = found and measure.spread([first_step for one in found for first_step in one["first_step_s"]])
            self.row("POST /runs to first step on the WebSocket, p50 / p99", "ms", f"{ms(first['p50'])} / {ms(first['p99'])}",
                     f"{ms(peer_first['p50'])} / {ms(peer_first['p99'])}" if peer_first else None, name, "LangGraph and DBOS run in the caller's process, with no network in between")

    def flat(self, server):
        """Whether a turn and an event of a long run cost at its end what they cost at its beginning."""
        turns = self.options.flat_turns
        pid, run = server.process.pid, {"status": "queued"}
        samples = [(0, measure.cpu_s(pid), peers.records(server))]
        run_id = server.start_run(f"[[steps={turns} numbered=1 id=flat]]", max_iters=turns)
        while run["status"] in {"queued", "running"}:
            time.sleep(0.5)
            newest = server.get("/runs?limit=1").json["items"]
            if newest and newest[0]["run_id"] == run_id:
                run = newest[0]
                samples.append((run["steps"], measure.cpu_s(pid), peers.records(server)))
        if run["steps"] < turns or len(samples) < 4:
            print(f"  the run of {turns:,} turns ended after {run['steps']} steps, {run['stop_reason']}, seen {len(samples)} times: no figures of it", file=sys.stderr)
            return
        beginning, end = measure.window(samples, 0, 0.1), measure.window(samples, 0.9, 1)
        note = f"one run of {turns:,} turns, each a model call and a tool call; includes that it is looked at twice a second"
        tenth = turns / 10
        self.row("CPU per turn, first / last tenth of a long run", "ms", f"{ms(beginning[0] / tenth)} / {ms(end[0] / tenth)}", None, "not comparable", note)
        self.row("CPU per event, first / last tenth of a long run", "ms", f"{ms(beginning[0] / beginning[1])} / {ms(end[0] / end[1])}", None, "not comparable", note)

    def http(self, server):
        """What the API adds to the library that it is made with."""
        hello = peers.Hello.at(self.options.hello, free_ports(1)[0])
        if not hello:
            print(f"  no {self.options.hello}: cargo build -p riverrun-api --example hello", file=sys.stderr)
            return
        hello.start()
        ours, theirs = [], []
        try:
            for _ in range(self.options.rounds):
                ours.append(hello.ask(server.api_port, "/health", server.process.pid, self.options.ask_s))
                theirs.append(hello.ask(hello.port, "/", hello.process.pid, self.options.ask_s))
        except subprocess.CalledProcessError as error:
            print(f"  GET /health was not measured: {error.stderr.strip()}", file=sys.stderr)
            return
        finally:
            hello.stop()
        name, note = "an axum hello world", f"{peers.Hello.CONNECTIONS} connections, each asks again when it is answered; the asking process is on the same cores"
        for what, unit, shown in [("GET /health, requests per second", "1/s", lambda one: rounded(one["per_s"])), ("GET /health, CPU per request", "µs", lambda one: f"{one['cpu_s'] * 1e6:.0f}"),
                                  ("GET /health, p50 / p99", "ms", lambda one: f"{ms(one['p50_s'])} / {ms(one['p99_s'])}")]:
            self.row(what, unit, shown(middle(ours)), shown(middle(theirs)), name, note)

    def first_step(self, server, name):
        from websockets.sync.client import connect
        began = time.perf_counter()
        run_id = server.start_run(f"[[steps=1 id=first-{name}]]")
        with connect(f"{server.ws_url}/ws/runs/{run_id}") as socket:
            for text in socket:
                if json.loads(text)["type"] == "step":
                    return time.perf_counter() - began
        raise RuntimeError(f"{run_id} had no step")

    def framework(self, script, runs, turns):
        """What the script found, or nothing where it did not run."""
        more = []
        if script == RESTATE:
            if not self.options.restate.exists():
                return []
            more = [self.options.restate]
        try:
            done = subprocess.run([sys.executable, HERE / script, self.model.url, str(runs), str(turns), self.folder, *more],
                                  capture_output=True, text=True, timeout=600, check=True)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            said = error.stderr.decode(errors="replace") if isinstance(error.stderr, bytes) else error.stderr or ""
            print(f"  {script} did not run: {said.strip().splitlines()[-1:]}", file=sys.stderr)
            return []
        return [json.loads(done.stdout)]

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


def middle(found):
    """The one with the middle rate."""
    return sorted(found, key=lambda one: one["per_s"])[len(found) // 2]


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
    parser.add_argument("--restate", type=Path, default=Path("restate-server"), help="Restate's server (./x bench fetches and names it)")
    parser.add_argument("--hello", type=Path, default=Path("hello"), help="the bare axum server, an example of the crate api (./x bench names it)")
    options = parser.parse_args()
    options.rounds = 1 if options.quick else options.rounds
    options.runs, options.hops, options.records, options.idle_s = (3, 50, 5_000, 2) if options.quick else (15, 300, 50_000, 10)
    options.flat_turns, options.ask_s = (2_000, 1) if options.quick else (10_000, 5)

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
            bench.flat(server)
            bench.http(server)
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
