#!/usr/bin/env python3
"""How often each agent type finishes a task with a real local model: 50 tasks, each of which needs a tool, a third of which
are to be answered with a citation from examples/handbook. And how often the supervisor chooses the agent that a person would.

    scripts/bench/agent_tasks.py [--model qwen2.5-coder-0.5b-instruct] [--agents react,critic] [--only calc-01,cited-03]
                                 [--every N] [--json FILE] [--binary target/debug/riverrun]
    scripts/bench/agent_tasks.py --routing [--no-embeddings]

Needs the models in RIVERRUN_MODELS_DIR; nothing else is asked. A task counts as done when the run succeeded, the tool that
it needs returned a result in it, and the answer holds what is expected; a citation task needs a citation of the right
document too. Each of these is counted by itself as well, so that a failure can be told from another.
"""

import argparse
import datetime
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
AGENTS = ["react", "plan_execute", "reflexion", "critic"]
RUN_LIMIT_S = 300


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct")
    parser.add_argument("--embed-model", default="all-minilm-l6-v2")
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--only", help="ids of tasks, with commas")
    parser.add_argument("--every", type=int, default=1, help="take every n-th task")
    parser.add_argument("--max-iters", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write every run's outcome here")
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--routing", action="store_true", help="measure the supervisor instead")
    parser.add_argument("--no-embeddings", action="store_true", help="with --routing: the rules alone")
    parser.add_argument("--verbose", action="store_true", help="print the steps of tasks that failed")
    return parser.parse_args()


def expected(word):
    now = datetime.datetime.now(datetime.timezone.utc)
    return word.format(today=now.strftime("%Y-%m-%d"), weekday=now.strftime("%A"), year=now.year)


def holds(answer, word):
    """The answer has this number or word, whole; 1,024 and 1024 are the same number."""
    answer = re.sub(r"(?<=\d),(?=\d{3}\b)", "", answer.lower())
    return re.search(rf"(?<![\w.]){re.escape(word.lower())}(?!\w|\.\d)", re.sub(r"\.0+\b", "", answer)) is not None or \
        re.search(rf"(?<![\w.]){re.escape(word.lower())}(?!\w|\.\d)", answer) is not None


def judge(task, run):
    """What was achieved, each by itself."""
    steps = run.get("steps") or []
    results = [step["tool"] for step in steps if step["kind"] == "tool_result" and step.get("tool")]
    used = any(tool["name"] == task["tool"] and not tool.get("error") for tool in results)
    answer = run.get("answer") or ""
    right = all(any(holds(answer, expected(word)) for word in any_of) for any_of in task["expect"])
    cited = None
    if "source" in task:
        cited = any(citation["source"].endswith(task["source"]) for citation in run.get("citations") or [])
    succeeded = run["status"] == "succeeded"
    done = succeeded and used and right and cited is not False
    return {"succeeded": succeeded, "tool_used": used, "right": right, "cited": cited, "done": done}


def drive(server, agent, task, options):
    began = time.monotonic()
    body = {"task": task["task"], "agent": agent, "temperature": 0, "max_iters": options.max_iters,
            "budget": {"seconds": RUN_LIMIT_S}}
    if "source" in task:
        body["collections"] = ["handbook"]
    reply = server.post("/runs", body)
    assert reply.status == 202, reply
    run = server.run_end(reply.json["run_id"], timeout_s=RUN_LIMIT_S + 60)
    outcome = {"id": task["id"], "agent": agent, **judge(task, run), "stop_reason": run["stop_reason"], "answer": run.get("answer"),
               "error": run.get("error"), "steps": [step["kind"] for step in run.get("steps") or []], "usage": run.get("usage"),
               "seconds": round(time.monotonic() - began, 1)}
    mark = "ok  " if outcome["done"] else "FAIL"
    print(f"{mark} {agent:13} {task['id']:9} {outcome['seconds']:6.1f} s  {outcome['stop_reason']:14} {(outcome['answer'] or '')[:90]!r}",
          file=sys.stderr, flush=True)
    if options.verbose and not outcome["done"]:
        for step in run.get("steps") or []:
            print(f"      {step['kind']}: {json.dumps(step.get('tool') or step.get('text'))[:300]}", file=sys.stderr)
    return outcome


def share(outcomes, key):
    known = [one[key] for one in outcomes if one[key] is not None]
    return f"{sum(known)}/{len(known)}" if known else "–"


def table(outcomes):
    print("| agent | done | run succeeded | tool used | answer right | cited | ended by choice | median s | tokens a task |")
    print("|---|---|---|---|---|---|---|---|---|")
    for agent in dict.fromkeys(one["agent"] for one in outcomes):
        mine = [one for one in outcomes if one["agent"] == agent]
        seconds = sorted(one["seconds"] for one in mine)[len(mine) // 2]
        tokens = sum((one["usage"] or {}).get("total_tokens", 0) for one in mine) // len(mine)
        chosen = f"{sum(one['stop_reason'] == 'answered' for one in mine)}/{len(mine)}"
        print(f"| {agent} | {share(mine, 'done')} | {share(mine, 'succeeded')} | {share(mine, 'tool_used')} | {share(mine, 'right')} "
              f"| {share(mine, 'cited')} | {chosen} | {seconds} | {tokens} |")


def route(server, case):
    """The first step of a run without an agent; the run is cancelled then."""
    reply = server.post("/runs", {"task": case["task"], "temperature": 0})
    assert reply.status == 202, reply
    run_id = reply.json["run_id"]
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        run = server.get(f"/runs/{run_id}")
        steps = (run.json.get("steps") or []) if run.status == 200 else []
        if steps:
            server.post(f"/runs/{run_id}/cancel", {})
            server.run_end(run_id)
            record = json.loads(steps[0]["text"].splitlines()[1])
            right = record["agent"] == case["agent"]
            print(f"{'ok  ' if right else 'FAIL'} {case['agent']:13} {record['agent']:13} {record['by']:10} {case['task'][:80]}",
                  file=sys.stderr, flush=True)
            return {"task": case["task"], "wanted": case["agent"], "right": right, **record}
        time.sleep(0.05)
    raise AssertionError(f"{run_id} has no first step")


def routing_table(outcomes):
    print("| wanted | chosen so | by |\n|---|---|---|")
    for agent in AGENTS:
        mine = [one for one in outcomes if one["wanted"] == agent]
        by = {}
        for one in mine:
            by.setdefault(one["by"], [0, 0])
            by[one["by"]][0] += one["right"]
            by[one["by"]][1] += 1
        print(f"| {agent} | {share(mine, 'right')} | {', '.join(f'{judge} {right}/{all}' for judge, (right, all) in by.items())} |")
    print(f"| all | {share(outcomes, 'right')} | |")


def main():
    chosen = options()
    if chosen.binary:
        os.environ["RIVERRUN_BIN"] = str(chosen.binary.resolve())
    sys.path.insert(0, str(ROOT / "tests/interop"))
    from server import Server

    data = json.loads((HERE / "agent_tasks.json").read_text())
    only = chosen.only.split(",") if chosen.only else None
    tasks = [task for task in data["tasks"] if only is None or task["id"] in only][::chosen.every]
    settings = {"RIVERRUN_DEFAULT_CHAT_MODEL": chosen.model, "RIVERRUN_DEFAULT_EMBED_MODEL": chosen.embed_model,
                "RIVERRUN_INGEST_ROOTS": str(ROOT / "examples")}
    if chosen.no_embeddings:
        settings["RIVERRUN_DEFAULT_EMBED_MODEL"] = "bge-small-en-v1.5"  # known, and not fetched: offline
    outcomes = []
    with tempfile.TemporaryDirectory(prefix="agent-tasks-") as folder:
        server = Server(folder, settings)
        server.start()
        try:
            if chosen.routing:
                outcomes = [route(server, case) for case in data["routing"][::chosen.every]]
            else:
                if any("source" in task for task in tasks):
                    server.ingest(ROOT / "examples/handbook", "handbook")
                outcomes = [drive(server, agent, task, chosen) for agent in chosen.agents.split(",") for task in tasks]
        finally:
            server.stop()
            if chosen.json:
                chosen.json.write_text(json.dumps({"model": chosen.model, "outcomes": outcomes}, indent=1))
    routing_table(outcomes) if chosen.routing else table(outcomes)


if __name__ == "__main__":
    main()
