"""The load form of `riverrun chaos`, done to other platforms: runs of tool calls in worker processes, a random one killed again and
again, and the same figures counted. Here is what every peer has in common: the options, the scripted model, the ledger, the
processes and the report. What is a peer's own stands in `chaos_<peer>.py`.
"""

import argparse
import collections
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

LOOK_S = 0.02
"""How often the harness looks at its processes, and asks the peer whether all runs have ended."""

MODEL_S = 0.002


@dataclass(frozen=True)
class Load:
    """What a worker needs to know about a run."""

    folder: str
    calls: int
    pause_s: float

    @property
    def steps(self):
        """As riverrun counts them: a tool call is three, the answer two."""
        return 3 * self.calls + 2


class Peer:
    """What the harness asks of a platform. `limits` says in sentences what it has not, and what its figures do not show."""

    name = version = store = None
    runs_in_hand = 1
    limits = ()

    def worker(self, name):
        """The function of the worker process of that name, and its arguments."""
        raise NotImplementedError

    def all_ended(self):
        raise NotImplementedError

    def ends(self):
        """How many ends each ended run has, by its number, and how many runs succeeded."""
        raise NotImplementedError

    def close(self):
        """Frees what outlives the folder."""


def think():
    """The scripted model."""
    time.sleep(MODEL_S)


def use_tool(load, run, number):
    """The first call of a run has an effect outside: one write of one line with its idempotency key, which outlives every process. A
    process can die on either side of it. The other calls calculate."""
    if number == 0:
        time.sleep(load.pause_s)
        with open(Path(load.folder) / "ledger", "ab", buffering=0) as ledger:
            ledger.write(b"%d-%d\n" % (run, number))
        time.sleep(load.pause_s)
    return number


def options(description):
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10, help="rounded up to what tool calls of three and an answer of two give")
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds; 0 kills none")
    parser.add_argument("--workers", type=int, default=4, help="worker processes")
    parser.add_argument("--tool-ms", type=float, default=20, help="how long the tool takes before and after its effect")
    parser.add_argument("--patience", type=float, default=1200, help="seconds after which what has not ended is lost")
    parser.add_argument("--seed", type=int, default=4, help="of the choice of the processes that are killed")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of lines for people")
    return parser


def run(chosen, make):
    """Measures the peer that `make` makes of a `Load`, and prints the report."""
    with tempfile.TemporaryDirectory() as folder:
        load = Load(folder, -(-(chosen.steps - 2) // 3), chosen.tool_ms / 1000)
        peer = make(load)
        try:
            killed, seconds = break_workers(chosen, peer)
            figures = report(chosen, load, peer, killed, seconds)
        finally:
            peer.close()
    print(json.dumps(figures) if chosen.json else people(figures))


def break_workers(chosen, peer):
    """Kills a random worker every so often until all runs have ended. Each that is gone is replaced by one of its name. Gives how many were
    killed, and the seconds."""
    context, moments = multiprocessing.get_context("spawn"), random.Random(chosen.seed)

    def start(name):
        target, arguments = peer.worker(name)
        process = context.Process(target=target, args=arguments, daemon=True)
        process.start()
        return process

    workers = {f"w{number}": start(f"w{number}") for number in range(chosen.workers)}
    began, killed = time.monotonic(), 0
    next_kill = began + chosen.kill_every
    try:
        while not peer.all_ended() and time.monotonic() - began < chosen.patience:
            if chosen.kill_every and time.monotonic() > next_kill:
                victim = workers[moments.choice(sorted(workers))]
                if victim.is_alive():
                    os.kill(victim.pid, signal.SIGKILL)
                    killed += 1
                victim.join()
                next_kill = time.monotonic() + chosen.kill_every
            for name, process in workers.items():
                if not process.is_alive():
                    workers[name] = start(name)
            time.sleep(LOOK_S)
        return killed, time.monotonic() - began
    finally:
        for process in workers.values():
            process.kill()
            process.join()


def report(chosen, load, peer, killed, seconds):
    ends, succeeded = peer.ends()
    ledger = Path(load.folder) / "ledger"
    effects = collections.Counter(ledger.read_text().split()) if ledger.exists() else {}
    return {
        "peer": peer.name, "version": peer.version, "store": peer.store, "workers": chosen.workers,
        "runs_in_hand": peer.runs_in_hand, "seed": chosen.seed,
        "runs": chosen.runs, "steps_per_run": load.steps, "broken_processes": killed,
        "lost": chosen.runs - len(ends), "out_of_patience": seconds >= chosen.patience,
        "succeeded": succeeded, "terminal_events": sum(ends.values()),
        "doubled_effects": sum(count > 1 for count in effects.values()), "effects": len(effects),
        "seconds": round(seconds, 1), "runs_per_second": round(chosen.runs / seconds, 1), "limits": list(peer.limits),
    }


def notes(figures):
    if figures["out_of_patience"]:
        yield "not all runs had ended when patience was: those that are lost here may have been on their way"
    yield from figures["limits"]


def people(figures):
    lines = [
        ("peer", f"{figures['peer']} {figures['version']} on {figures['store']}"),
        ("runs", f"{figures['runs']} of {figures['steps_per_run']} steps"),
        ("workers", f"{figures['workers']}, each with {figures['runs_in_hand']} runs in hand at most"),
        ("processes broken", figures["broken_processes"]),
        ("lost", figures["lost"]),
        ("doubled effects", figures["doubled_effects"]),
        ("terminal events", figures["terminal_events"]),
        ("succeeded", figures["succeeded"]),
        ("effects", figures["effects"]),
        ("took", f"{figures['seconds']} s, {figures['runs_per_second']} runs/s"),
        *(("note", note) for note in notes(figures)),
    ]
    return "\n".join(f"{label:<20} {value}" for label, value in lines)
