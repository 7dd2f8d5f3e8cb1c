#!/usr/bin/env python3
"""Watches a run over WebSocket, from any point, live or ended.

    watch_run.py RUN_ID [--after SEQ] [--url http://127.0.0.1:8000]
    watch_run.py --task "What is 12 * 7?" [--agent react]

With --task it starts the run itself, over /ws/agent. Needs `websockets`. RIVERRUN_URL names the server, too, and RIVERRUN_API_TOKEN the
token where it wants one.
"""

import argparse
import json
import os
import re
import sys

from websockets.exceptions import ConnectionClosedError, InvalidStatus
from websockets.sync.client import connect


def describe(step):
    tool = step.get("tool") or {}
    if step["kind"] == "tool_call":
        return f"{tool['name']}({json.dumps(tool['arguments'])})"
    if step["kind"] == "tool_result":
        return f"{tool['name']} -> {tool.get('error') or json.dumps(tool.get('result'))}"
    return step.get("text") or ""


def refusal(error):
    """What the server says of a request that it does not take, and the next thing to do."""
    body = error.response.body
    problem = json.loads(body) if body and body.lstrip().startswith(b"{") else {}
    said = problem.get("detail") or f"HTTP {error.response.status_code}"
    return "\n".join([f"refused: {said}"] + ([f"hint: {problem['hint']}"] if problem.get("hint") else []))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run_id", nargs="?")
    parser.add_argument("--after", type=int, default=0, help="only steps after this one")
    parser.add_argument("--task")
    parser.add_argument("--agent")
    parser.add_argument("--url", default=os.environ.get("RIVERRUN_URL", "http://127.0.0.1:8000"))
    options = parser.parse_args()
    if bool(options.run_id) == bool(options.task):
        parser.error("give either RUN_ID or --task")

    path = "/ws/agent" if options.task else f"/ws/runs/{options.run_id}?after={options.after}"
    token = os.environ.get("RIVERRUN_API_TOKEN")
    headers = {"authorization": f"Bearer {token}"} if token else {}
    # http becomes ws, https wss.
    with connect(re.sub("^http", "ws", options.url) + path, additional_headers=headers) as socket:
        if options.task:
            first = {"task": options.task}
            if options.agent:
                first["agent"] = options.agent
            socket.send(json.dumps(first))
        for text in socket:
            message = json.loads(text)
            if message["type"] == "start":
                print(f"run {message['run_id']}", flush=True)
            elif message["type"] == "step":
                step = message["step"]
                print(f"{step['seq']:>3} {step['kind']:<12} {describe(step)}", flush=True)
            elif message["type"] == "final":
                result = message["result"]
                if message.get("steps_truncated"):  # the message has a limit; the steps were shown one by one
                    print(f"{message['steps_total']} steps; GET {message['steps_rest']} has those left out here")
                print(f"{result['status']}: {result.get('answer') or result.get('error')}")
                return 0 if result["status"] == "succeeded" else 1
    print("the server closed the stream before the run ended", file=sys.stderr)
    return 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except InvalidStatus as error:
        sys.exit(refusal(error))
    except ConnectionClosedError as error:
        sys.exit(f"the server closed the stream: {error.rcvd.reason if error.rcvd else error}")
    except OSError as error:
        sys.exit(f"no server answers: {error}; start one with `riverrun serve`, or name its address with --url")
