"""Restate's server on the same shape of run: a handler with a durable step for each model call and each tool call.

The server syncs what it keeps, as it does without a setting; the handler is served by a process of its own, as its SDK is used. Its CPU is
that of both. Prints one JSON object.
    restate_peer.py MODEL_URL RUNS TURNS FOLDER PROGRAM
"""

import asyncio
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import time
from urllib.parse import urlsplit

from measure import cpu_s, memory_bytes, until

TOOL = {"type": "function", "function": {"name": "calculator", "parameters": {"type": "object"}}}
SERVICE, HANDLER = "agent", "run"


# ---- the process of the handler --------------------------------------------------------------------------------------


def model(connection, messages):
    body = {"model": "stub", "messages": messages, "tools": [TOOL], "stream": True}
    connection.request("POST", "/api/chat", json.dumps(body), {"content-type": "application/json"})
    return json.loads(connection.getresponse().read().splitlines()[0])["message"]


def calculator(expression):
    left, right = expression.split("+")
    return str(int(left) + int(right))


def application(model_url):
    import restate

    connection = http.client.HTTPConnection(urlsplit(model_url).netloc)
    agent = restate.Service(SERVICE)

    @agent.handler(HANDLER)
    async def run(ctx: restate.Context, task: str) -> dict:
        messages, first = [{"role": "user", "content": task}], None
        while True:
            messages.append(await ctx.run_typed("model", lambda: model(connection, messages)))
            # When its first step has been kept; one clock serves all processes of a machine.
            first = first or time.perf_counter()
            calls = messages[-1].get("tool_calls")
            if not calls:
                return {"answer": messages[-1]["content"], "first_step_at": first}
            expression = calls[0]["function"]["arguments"]["expression"]
            messages.append({"role": "tool", "content": await ctx.run_typed("calculator", lambda: calculator(expression))})

    return restate.app([agent])


def serve(port, model_url):
    from hypercorn.asyncio import serve as answer
    from hypercorn.config import Config

    config = Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.accesslog = config.errorlog = None
    asyncio.run(answer(application(model_url), config))


# ---- the one that asks -----------------------------------------------------------------------------------------------


def free_ports(count):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def post(connection, path, body):
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    reply = connection.getresponse()
    text = reply.read()
    if reply.status >= 300:
        raise RuntimeError(f"{path} was answered with {reply.status}: {text[:500]!r}")
    return json.loads(text)


def is_well(port):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def accepts(port):
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextlib.contextmanager
def process(command, **more):
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, **more) as started:
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()


def measured(runs, turns, ingress, pids):
    connection = http.client.HTTPConnection("127.0.0.1", ingress)

    def run(name):
        began = time.perf_counter()
        found = post(connection, f"/{SERVICE}/{HANDLER}", f"[[steps={turns} id=restate-{name}-{os.getpid()}]]")
        return found["first_step_at"] - began

    run("warm")
    before, began = sum(map(cpu_s, pids)), time.perf_counter()
    firsts = [run(number) for number in range(runs)]
    used, elapsed = sum(map(cpu_s, pids)) - before, time.perf_counter() - began
    return {"cpu_s_per_turn": used / (runs * turns), "turns_per_s": runs * turns / elapsed, "first_step_s": firsts,
            "memory_bytes": sum(map(memory_bytes, pids))}


def main():
    if sys.argv[1] == "serve":
        serve(int(sys.argv[2]), sys.argv[3])
        return
    model_url, runs, turns, folder, program = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    ingress, admin, node, service = free_ports(4)
    settings = {"RESTATE_BIND_IP": "127.0.0.1", "RESTATE_BIND_PORT": str(node), "RESTATE_LISTEN_MODE": "tcp", "RESTATE_DISABLE_TELEMETRY": "true",
                "RESTATE_INGRESS__BIND_PORT": str(ingress), "RESTATE_ADMIN__BIND_PORT": str(admin), "RESTATE_LOG_FILTER": "error"}
    base = os.path.join(folder, f"restate-{os.getpid()}")
    with process([program, "--base-dir", base, "--no-logo"], env=os.environ | settings) as server, \
            process([sys.executable, __file__, "serve", str(service), model_url]) as handler:
        until(lambda: is_well(admin) and accepts(ingress) and accepts(service))
        post(http.client.HTTPConnection("127.0.0.1", admin), "/deployments", {"uri": f"http://127.0.0.1:{service}"})
        print(json.dumps(measured(runs, turns, ingress, [server.pid, handler.pid])))


if __name__ == "__main__":
    main()
