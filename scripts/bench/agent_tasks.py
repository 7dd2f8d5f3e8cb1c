#!/usr/bin/env python3
"""How often each agent type finishes a task with a real local model: 50 tasks, each of which needs a tool, a third of which
are to be answered with a citation from examples/handbook. And how often the supervisor chooses the agent that a person would.

    scripts/bench/agent_tasks.py [--model qwen2.5-coder-0.5b-instruct] [--agents react,critic] [--only calc-01,cited-03]
                                 [--every N] [--run-limit SECONDS] [--json FILE [--resume]] [--binary target/debug/riverrun]
    scripts/bench/agent_tasks.py --routing [--no-embeddings] [--json FILE [--resume]]

Needs the models in RIVERRUN_MODELS_DIR; nothing else is asked. A task counts as done when the run succeeded, the tool that
it needs returned a result in it, and the answer holds what is expected; a citation task needs a citation of the right
document too, one whose quote supports the sentence that cites it. Each of these is counted by itself as well, so that a
failure can be told from another; so is whether the model chose the tool, or the agent searched because the model did not.

The file of --json is written anew after each task. With --resume what stands in it is kept and only the rest is run; the
figures printed at the end, also those of a run that is stopped with Ctrl-C, are of all that stands in it.

On two cores with nothing else to do the 200 runs take about an hour, the 40 choices two minutes; how long the rest will take
is printed on the way. On busy cores runs reach their limit of time, and figures are void: the load is printed too.
"""

import argparse
import datetime
import json
import os
import re
import signal
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
AGENTS = ["react", "plan_execute", "reflexion", "critic"]
# A run that is cancelled has so long to end.
CANCEL_S = 30


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="qwen2.5-coder-0.5b-instruct")
    parser.add_argument("--embed-model", default="all-minilm-l6-v2")
    parser.add_argument("--agents", default=",".join(AGENTS))
    parser.add_argument("--only", help="ids of tasks, with commas")
    parser.add_argument("--every", type=int, default=1, help="take every n-th task")
    parser.add_argument("--max-iters", type=int, default=8)
    parser.add_argument("--run-limit", type=int, default=300, metavar="SECONDS", help="longest time for one run")
    parser.add_argument("--json", type=Path, help="write every run's outcome here, after each")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes that the file of --json has")
    parser.add_argument("--binary", type=Path)
    parser.add_argument("--routing", action="store_true", help="measure the supervisor instead")
    parser.add_argument("--no-embeddings", action="store_true", help="with --routing: the rules alone")
    parser.add_argument("--verbose", action="store_true", help="print the steps of tasks that failed")
    chosen = parser.parse_args()
    if chosen.resume and not chosen.json:
        parser.error("--resume needs --json, the file to go on with")
    return chosen


class Outcomes:
    """What was measured, in memory and in the file. Outcomes of other settings are no part of a figure."""

    def __init__(self, chosen):
        self.file = chosen.json
        part = ("routing_rules" if chosen.no_embeddings else "routing") if chosen.routing else "outcomes"
        self.settings = {"model": chosen.model, "embed_model": chosen.embed_model, "max_iters": chosen.max_iters, "run_limit_s": chosen.run_limit}
        self.all = {}
        if self.file and chosen.resume and self.file.exists():
            found = json.loads(self.file.read_text())
            wrong = {name: found.get(name) for name, value in self.settings.items() if found.get(name) != value}
            if wrong:
                sys.exit(f"{self.file} was measured with other settings: {wrong}; take these, or another file")
            self.all = {name: value for name, value in found.items() if name not in self.settings}
        self.mine = self.all.setdefault(part, [])

    def has(self, **of):
        return any(all(one.get(name) == value for name, value in of.items()) for one in self.mine)

    def add(self, outcome):
        self.mine.append(outcome)
        if self.file:
            # A file that is there is whole, whenever this is stopped.
            whole = self.file.with_suffix(f"{self.file.suffix}.new")
            whole.write_text(json.dumps(self.settings | self.all, indent=1))
            whole.replace(self.file)


class Progress:
    """Says how long the rest will take."""

    def __init__(self, total):
        self.total, self.done, self.began = total, 0, time.monotonic()

    def tell(self, line):
        self.done += 1
        left = (time.monotonic() - self.began) / self.done * (self.total - self.done) / 60
        print(f"{line}   [{self.done}/{self.total}, {left:.0f} min left, load {os.getloadavg()[0]:.1f}]", file=sys.stderr, flush=True)


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
    used = {step["tool"]["call_id"] for step in steps
            if step["kind"] == "tool_result" and step.get("tool") and step["tool"]["name"] == task["tool"] and not step["tool"].get("error")}
    # A call that the agent made because the model did not says why.
    chosen = any(step["kind"] == "tool_call" and step["tool"]["call_id"] in used and not step.get("text") for step in steps)
    # The citations' own numbers are no part of what was said.
    answer = re.sub(r" ?\[\d+\]", "", run.get("answer") or "")
    right = all(any(holds(answer, expected(word)) for word in any_of) for any_of in task["expect"])
    cited = None
    if "source" in task:
        cited = any(citation["source"].endswith(task["source"]) and citation["supported"] for citation in run.get("citations") or [])
    succeeded = run["status"] == "succeeded"
    done = succeeded and bool(used) and right and cited is not False
    return {"succeeded": succeeded, "tool_used": bool(used), "tool_chosen": chosen, "right": right, "cited": cited, "done": done}


def run_to_its_end(server, run_id, limit_s):
    """The run; cancelled when it is still going on behind its limit, which it ends at by itself."""
    try:
        return server.run_end(run_id, timeout_s=limit_s + CANCEL_S)
    except AssertionError:
        server.post(f"/runs/{run_id}/cancel", {"reason": "it took too long"})
        return server.run_end(run_id, timeout_s=CANCEL_S)


def drive(server, agent, task, chosen):
    began = time.monotonic()
    body = {"task": task["task"], "agent": agent, "temperature": 0, "max_iters": chosen.max_iters, "budget": {"seconds": chosen.run_limit}}
    if "source" in task:
        body["collections"] = ["handbook"]
    reply = server.post("/runs", body)
    assert reply.status == 202, reply
    run = run_to_its_end(server, reply.json["run_id"], chosen.run_limit)
    return {"id": task["id"], "agent": agent, **judge(task, run), "stop_reason": run["stop_reason"], "answer": run.get("answer"),
            "citations": run.get("citations"), "error": run.get("error"), "usage": run.get("usage"),
            "seconds": round(time.monotonic() - began, 1),
            "steps": [{"kind": step["kind"], "tool": step.get("tool"), "text": step.get("text")} for step in run.get("steps") or []]}


def line_of(outcome):
    mark = "ok  " if outcome["done"] else "FAIL"
    return (f"{mark} {outcome['agent']:13} {outcome['id']:9} {outcome['seconds']:6.1f} s  {outcome['stop_reason']:14} "
            f"{(outcome['answer'] or '')[:90]!r}")


def measure_tasks(server, data, chosen, outcomes):
    only = chosen.only.split(",") if chosen.only else None
    tasks = [task for task in data["tasks"] if only is None or task["id"] in only][::chosen.every]
    pairs = [(agent, task) for agent in chosen.agents.split(",") for task in tasks if not outcomes.has(agent=agent, id=task["id"])]
    if any("source" in task for _, task in pairs):
        view = server.ingest(ROOT / "examples/handbook", "handbook", timeout_s=600)
        assert view["failed"] == 0, view
    # The first run of all would pay for the loading of the model.
    if pairs:
        server.run_end(server.start_run("Say hello.", tools=[], max_iters=1), timeout_s=600)
    progress = Progress(len(pairs))
    for agent, task in pairs:
        outcome = drive(server, agent, task, chosen)
        outcomes.add(outcome)
        progress.tell(line_of(outcome))
        if chosen.verbose and not outcome["done"]:
            for step in outcome["steps"]:
                print(f"      {step['kind']}: {json.dumps(step['tool'] or step['text'])[:300]}", file=sys.stderr)


def share(outcomes, key):
    known = [one[key] for one in outcomes if one.get(key) is not None]
    return f"{sum(known)}/{len(known)}" if known else "–"


def table(outcomes):
    print("| agent | done | run succeeded | tool used | chosen by the model | answer right | cited | ended by choice | median s | tokens a task |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for agent in dict.fromkeys(one["agent"] for one in outcomes):
        mine = [one for one in outcomes if one["agent"] == agent]
        seconds = sorted(one["seconds"] for one in mine)[len(mine) // 2]
        tokens = sum((one["usage"] or {}).get("total_tokens", 0) for one in mine) // len(mine)
        chosen = f"{sum(one['stop_reason'] == 'answered' for one in mine)}/{len(mine)}"
        print(f"| {agent} | {share(mine, 'done')} | {share(mine, 'succeeded')} | {share(mine, 'tool_used')} | {share(mine, 'tool_chosen')} "
              f"| {share(mine, 'right')} | {share(mine, 'cited')} | {chosen} | {seconds} | {tokens} |")


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
            return {"task": case["task"], "wanted": case["agent"], "right": record["agent"] == case["agent"], **record}
        time.sleep(0.05)
    raise AssertionError(f"{run_id} has no first step")


def measure_routing(server, data, chosen, outcomes):
    cases = [case for case in data["routing"][::chosen.every] if not outcomes.has(task=case["task"])]
    progress = Progress(len(cases))
    for case in cases:
        outcome = route(server, case)
        outcomes.add(outcome)
        mark = "ok  " if outcome["right"] else "FAIL"
        progress.tell(f"{mark} {outcome['wanted']:13} {outcome['agent']:13} {outcome['by']:10} {case['task'][:80]}")


def routing_table(outcomes):
    print("| wanted | chosen so | by |\n|---|---|---|")
    for agent in AGENTS:
        mine = [one for one in outcomes if one["wanted"] == agent]
        by = {}
        for one in mine:
            by.setdefault(one["by"], [0, 0])
            by[one["by"]][0] += one["right"]
            by[one["by"]][1] += 1
        print(f"| {agent} | {share(mine, 'right')} | {', '.join(f'{who} {right}/{all_}' for who, (right, all_) in by.items())} |")
    print(f"| all | {share(outcomes, 'right')} | |")


def stop(*_):
    raise KeyboardInterrupt


def main():
    chosen = options()
    if chosen.binary:
        os.environ["RIVERRUN_BIN"] = str(chosen.binary.resolve())
    sys.path.insert(0, str(ROOT / "tests/interop"))
    from server import Server

    signal.signal(signal.SIGTERM, stop)
    data = json.loads((HERE / "agent_tasks.json").read_text())
    outcomes = Outcomes(chosen)
    settings = {"RIVERRUN_DEFAULT_CHAT_MODEL": chosen.model, "RIVERRUN_DEFAULT_EMBED_MODEL": chosen.embed_model,
                "RIVERRUN_INGEST_ROOTS": str(ROOT / "examples")}
    if chosen.no_embeddings:
        settings["RIVERRUN_DEFAULT_EMBED_MODEL"] = "bge-small-en-v1.5"  # known, and not fetched: offline
    began, stopped = time.monotonic(), False
    with tempfile.TemporaryDirectory(prefix="agent-tasks-") as folder:
        server = Server(folder, settings)
        server.start()
        try:
            (measure_routing if chosen.routing else measure_tasks)(server, data, chosen, outcomes)
        except KeyboardInterrupt:
            stopped = True
        finally:
            server.stop()
    (routing_table if chosen.routing else table)(outcomes.mine)
    print(f"\n{len(outcomes.mine)} measured, {'stopped after' if stopped else 'took'} {(time.monotonic() - began) / 60:.0f} min", file=sys.stderr)
    return 130 if stopped else 0


if __name__ == "__main__":
    sys.exit(main())
