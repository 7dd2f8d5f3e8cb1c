"""DBOS Transact with SQLite on the same shape of run: a workflow with a step for each model call and each tool call.

A program of its own, so that its CPU and memory are its own. Prints one JSON object.
    dbos_peer.py MODEL_URL RUNS TURNS FOLDER
"""

import http.client
import json
import os
import resource
import sys
import time
from urllib.parse import urlsplit

from dbos import DBOS, SetWorkflowID

TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}


def cpu():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def workflow(model_url, firsts):
    """The run. When the first step of one has been kept is noted in `firsts`: the next begins then."""
    connection = http.client.HTTPConnection(urlsplit(model_url).netloc)

    @DBOS.step()
    def model(messages):
        body = {"model": "stub", "messages": messages, "tools": [TOOL], "stream": True}
        connection.request("POST", "/api/chat", json.dumps(body), {"content-type": "application/json"})
        return json.loads(connection.getresponse().read().splitlines()[0])["message"]

    @DBOS.step()
    def calculator(expression):
        left, right = expression.split("+")
        return str(int(left) + int(right))

    @DBOS.workflow(name="agent")
    def agent(task):
        began, messages = time.perf_counter(), [{"role": "user", "content": task}]
        while True:
            messages.append(model(messages))
            if len(messages) == 2:
                firsts.append(time.perf_counter() - began)
            calls = messages[-1].get("tool_calls")
            if not calls:
                return messages[-1]["content"]
            result = calculator(calls[0]["function"]["arguments"]["expression"])
            messages.append({"role": "tool", "content": result})

    return agent


def main():
    model_url, runs, turns, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    path = os.path.join(folder, f"dbos-{os.getpid()}.sqlite")
    DBOS(config={"name": "bench", "application_version": "1", "log_level": "ERROR", "system_database_url": f"sqlite:///{path}"})
    firsts = []
    agent = workflow(model_url, firsts)
    DBOS.launch()

    def run(name):
        with SetWorkflowID(f"{name}-{os.getpid()}"):
            agent(f"[[steps={turns} id=dbos-{name}-{os.getpid()}]]")

    run("warm")
    firsts.clear()
    before, began = cpu(), time.perf_counter()
    for number in range(runs):
        run(number)
    used, elapsed = cpu() - before, time.perf_counter() - began
    print(json.dumps({"cpu_s_per_turn": used / (runs * turns), "turns_per_s": runs * turns / elapsed, "first_step_s": firsts,
                      "memory_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
    DBOS.destroy()


if __name__ == "__main__":
    main()
