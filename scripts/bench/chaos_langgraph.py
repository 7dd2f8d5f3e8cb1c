"""The load form of `riverrun chaos`, done to LangGraph with its SQLite checkpointer.

LangGraph has no queue and no supervisor of its own, so the harness is the fairest one that its documentation describes: a
table of runs to do, workers that take one, `invoke` it under its thread id, and resume it with `invoke(None)` when a
worker of the same name died in it.

    chaos_langgraph.py [--runs 200] [--steps 10] [--kill-every 2] [--workers 4] [--tool-ms 20] [--seed 4] [--json]
"""

import collections
import importlib.metadata
import operator
import sqlite3
import time
from pathlib import Path
from typing import Annotated, TypedDict

import chaos_peers

BUSY_S = 60


class State(TypedDict):
    run: int
    done: Annotated[list, operator.add]


def connect(folder, name):
    connection = sqlite3.connect(Path(folder) / name, timeout=BUSY_S, check_same_thread=False, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    return connection


def graph(load, saver):
    from langgraph.graph import END, START, StateGraph

    def agent(_):
        chaos_peers.think()
        return {"done": []}

    def tool(state):
        return {"done": [chaos_peers.use_tool(load, state["run"], len(state["done"]))]}

    built = StateGraph(State)
    built.add_node("agent", agent)
    built.add_node("tool", tool)
    built.add_edge(START, "agent")
    built.add_conditional_edges("agent", lambda state: "tool" if len(state["done"]) < load.calls else END)
    built.add_edge("tool", "agent")
    return built.compile(checkpointer=saver)


def work(load, name):
    from langgraph.checkpoint.sqlite import SqliteSaver

    saver = SqliteSaver(connect(load.folder, "checkpoints.sqlite"))
    saver.setup()
    app, todo = graph(load, saver), connect(load.folder, "todo.sqlite")
    while True:
        # A run that a worker of this name died in comes first.
        row = todo.execute("SELECT run FROM todo WHERE state = 'taken' AND worker = ? LIMIT 1", (name,)).fetchone()
        if row is None:
            row = todo.execute("UPDATE todo SET state = 'taken', worker = ? WHERE run = (SELECT run FROM todo WHERE state = 'open' "
                               "LIMIT 1) RETURNING run", (name,)).fetchone()
        if row is None:  # the others' runs are still on their way
            time.sleep(chaos_peers.LOOK_S)
            continue
        run = row[0]
        config = {"configurable": {"thread_id": str(run)}, "recursion_limit": 1000}
        begun = app.get_state(config).created_at is not None
        app.invoke(None if begun else {"run": run, "done": []}, config, durability="sync")
        todo.execute("INSERT INTO ends (run) VALUES (?)", (run,))
        todo.execute("UPDATE todo SET state = 'done' WHERE run = ?", (run,))


class LangGraph(chaos_peers.Peer):
    name, version, store = "LangGraph", importlib.metadata.version("langgraph"), "SQLite"
    limits = ("it has no queue and no supervisor: the table of runs, their taking and their resumption are the harness's",)

    def __init__(self, load, runs):
        self.load, self.todo = load, connect(load.folder, "todo.sqlite")
        self.todo.execute("CREATE TABLE todo (run INTEGER PRIMARY KEY, state TEXT, worker TEXT)")
        self.todo.execute("CREATE TABLE ends (run INTEGER)")
        self.todo.executemany("INSERT INTO todo (run, state) VALUES (?, 'open')", [(run,) for run in range(runs)])

    def worker(self, name):
        return work, (self.load, name)

    def all_ended(self):
        return self.todo.execute("SELECT count(*) FROM todo WHERE state <> 'done'").fetchone()[0] == 0

    def ends(self):
        # A run whose graph fails ends its worker, and has no end.
        ends = collections.Counter(run for (run,) in self.todo.execute("SELECT run FROM ends"))
        return ends, len(ends)

    def close(self):
        self.todo.close()


def main():
    chosen = chaos_peers.options(__doc__).parse_args()
    chaos_peers.run(chosen, lambda load: LangGraph(load, chosen.runs))


if __name__ == "__main__":
    main()
