"""The load form of `riverrun chaos`, done to LangGraph with its SQLite checkpointer: runs of tool calls in worker processes, a
random one killed again and again, and the same figures counted from its database and a ledger file.

LangGraph has no queue and no supervisor of its own, so the harness is the fairest one that its documentation describes: a
table of runs to do, workers that take one, `invoke` it under its thread id, and resume it with `invoke(None)` when a
worker of the same name died in it.

    chaos_langgraph.py [--runs 200] [--steps 10] [--kill-every 2] [--workers 4] [--tool-ms 20]

Prints one JSON object.
"""

import argparse
import collections
import json
import multiprocessing
import operator
import os
import random
import signal
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Annotated, TypedDict

BUSY_S = 60


class State(TypedDict):
    run: int
    done: Annotated[list, operator.add]


def connect(folder, name):
    connection = sqlite3.connect(Path(folder) / name, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


def graph(folder, calls, pause_s, saver):
    from langgraph.graph import END, START, StateGraph

    def agent(_):
        time.sleep(0.002)  # the scripted model
        return {"done": []}

    def tool(state):
        number = len(state["done"])
        if number == 0:  # the effect outside, by its idempotency key: one write of one line
            time.sleep(pause_s)
            with open(Path(folder) / "ledger", "ab", buffering=0) as ledger:
                ledger.write(b"%d-%d\n" % (state["run"], number))
            time.sleep(pause_s)
        return {"done": [number]}

    built = StateGraph(State)
    built.add_node("agent", agent)
    built.add_node("tool", tool)
    built.add_edge(START, "agent")
    built.add_conditional_edges("agent", lambda state: "tool" if len(state["done"]) < calls else END)
    built.add_edge("tool", "agent")
    return built.compile(checkpointer=saver)


def work(folder, name, calls, pause_s):
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = SqliteSaver(connect(folder, "checkpoints.sqlite"))
    saver.setup()
    app, todo = graph(folder, calls, pause_s, saver), connect(folder, "todo.sqlite")
    while True:
        # A run that a worker of this name died in comes first.
        row = todo.execute("SELECT run FROM todo WHERE state = 'taken' AND worker = ? LIMIT 1", (name,)).fetchone()
        if row is None:
            row = todo.execute("UPDATE todo SET state = 'taken', worker = ? WHERE run = (SELECT run FROM todo WHERE state = 'open' "
                               "LIMIT 1) RETURNING run", (name,)).fetchone()
        if row is None:
            return
        run = row[0]
        config = {"configurable": {"thread_id": str(run)}, "recursion_limit": 1000}
        begun = app.get_state(config).created_at is not None
        app.invoke(None if begun else {"run": run, "done": []}, config, durability="sync")
        todo.execute("INSERT INTO ends (run) VALUES (?)", (run,))
        todo.execute("UPDATE todo SET state = 'done' WHERE run = ?", (run,))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--kill-every", type=float, default=2.0, help="seconds")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--tool-ms", type=float, default=20, help="how long the tool takes before and after its effect")
    parser.add_argument("--patience", type=float, default=1200, help="seconds")
    options = parser.parse_args()
    calls = -(-(options.steps - 2) // 3)
    context, moments = multiprocessing.get_context("spawn"), random.Random(4)
    with tempfile.TemporaryDirectory() as folder:
        todo = connect(folder, "todo.sqlite")
        todo.execute("CREATE TABLE todo (run INTEGER PRIMARY KEY, state TEXT, worker TEXT)")
        todo.execute("CREATE TABLE ends (run INTEGER)")
        todo.executemany("INSERT INTO todo (run, state) VALUES (?, 'open')", [(run,) for run in range(options.runs)])

        def start(name):
            process = context.Process(target=work, args=(folder, name, calls, options.tool_ms / 1000), daemon=True)
            process.start()
            return process

        workers = {f"w{number}": start(f"w{number}") for number in range(options.workers)}
        began, next_kill, killed = time.monotonic(), time.monotonic() + options.kill_every, 0
        done = "SELECT count(*) FROM todo WHERE state = 'done'"
        while todo.execute(done).fetchone()[0] < options.runs and time.monotonic() - began < options.patience:
            if options.kill_every and time.monotonic() > next_kill:
                name = moments.choice(sorted(workers))
                if workers[name].is_alive():
                    os.kill(workers[name].pid, signal.SIGKILL)
                    killed += 1
                workers[name].join()
                next_kill = time.monotonic() + options.kill_every
            for name, process in workers.items():
                if not process.is_alive():
                    workers[name] = start(name)
            time.sleep(0.02)
        seconds = time.monotonic() - began
        for process in workers.values():
            process.kill()
            process.join()
        ends = collections.Counter(run for (run,) in todo.execute("SELECT run FROM ends"))
        ledger = Path(folder) / "ledger"
        effects = collections.Counter(ledger.read_text().split()) if ledger.exists() else {}
        print(json.dumps({
            "runs": options.runs, "steps_per_run": 3 * calls + 2, "broken_processes": killed,
            "lost": options.runs - len(ends), "terminal_events": sum(ends.values()),
            "doubled_effects": sum(count > 1 for count in effects.values()), "effects": len(effects),
            "seconds": round(seconds, 1), "runs_per_second": round(options.runs / seconds, 1),
        }))


if __name__ == "__main__":
    main()
