"""LangGraph with its SQLite checkpointer on the same shape of run: a model call, then a tool call, again and again.

A program of its own, so that its CPU and memory are its own. Prints one JSON object.
    langgraph_peer.py MODEL_URL RUNS TURNS FOLDER
"""

import http.client
import json
import operator
import os
import resource
import sqlite3
import sys
import time
from typing import Annotated, TypedDict
from urllib.parse import urlsplit

from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import END, START, StateGraph


class State(TypedDict):
    messages: Annotated[list, operator.add]


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def build(model_url, turns, saver):
    connection = http.client.HTTPConnection(urlsplit(model_url).netloc)
    tool = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}

    def agent(state):
        body = {"model": "stub", "messages": state["messages"], "tools": [tool], "stream": True}
        connection.request("POST", "/api/chat", json.dumps(body), {"content-type": "application/json"})
        first = connection.getresponse().read().splitlines()[0]
        return {"messages": [json.loads(first)["message"]]}

    def calculator(state):
        left, right = state["messages"][-1]["tool_calls"][0]["function"]["arguments"]["expression"].split("+")
        return {"messages": [{"role": "tool", "content": str(int(left) + int(right))}]}

    graph = StateGraph(State)
    graph.add_node("agent", agent)
    graph.add_node("tool", calculator)
    graph.add_edge(START, "agent")
    graph.add_conditional_edges("agent", lambda state: "tool" if state["messages"][-1].get("tool_calls") else END)
    graph.add_edge("tool", "agent")
    return graph.compile(checkpointer=saver)


def main():
    model_url, runs, turns, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    path = os.path.join(folder, f"langgraph-{os.getpid()}.sqlite")
    saver = SqliteSaver(sqlite3.connect(path, check_same_thread=False))
    saver.setup()
    app = build(model_url, turns, saver)

    def config(name):
        return {"configurable": {"thread_id": f"{name}-{os.getpid()}"}, "recursion_limit": 1000}

    def task(name):
        return {"messages": [{"role": "user", "content": f"[[steps={turns} id=lg-{name}-{os.getpid()}]]"}]}

    app.invoke(task("warm"), config("warm"), durability="sync")
    firsts = []
    for number in range(runs):
        began = time.perf_counter()
        for _ in app.stream(task(f"f{number}"), config(f"f{number}"), durability="sync", stream_mode="updates"):
            firsts.append(time.perf_counter() - began)
            break
    before, began = cpu(), time.perf_counter()
    for number in range(runs):
        app.invoke(task(number), config(number), durability="sync")
    used, elapsed = cpu() - before, time.perf_counter() - began
    print(json.dumps({"cpu_s_per_turn": used / (runs * turns), "turns_per_s": runs * turns / elapsed, "first_step_s": firsts,
                      "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
