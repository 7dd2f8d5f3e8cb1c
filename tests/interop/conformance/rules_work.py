"""Rules of behaviour: conversations, projects, trainings, traces, topics, the canvas."""

import json
import re

from conformance.core import Told
from conformance.exchange import has, short
from conformance.rules import rules
from conformance.world import CODE, PLAIN, training
from server import wait_for

# ---- memory --------------------------------------------------------------------------------------------------------------

@rules.check("rule.memory.turns", "turns are kept in order, by namespace and session")
def _(w):
    for n, role in enumerate(("user", "assistant", "user")):
        w.main.post("/memory/turns", {"role": role, "text": f"turn {n}", "namespace": "team", "session": "ordered"})
    answer = w.main.get("/memory/turns?namespace=team&session=ordered")
    assert [turn["seq"] for turn in answer.json["items"]] == [1, 2, 3], answer
    return answer.told("items", "items.0.role", "items.0.text", "items.2.seq")


@rules.check("rule.memory.summary", "what no longer fits the window becomes a running summary")
def _(w):
    for n in range(8):
        turn = w.changed.post("/memory/turns", {"role": ("user", "assistant")[n % 2], "text": f"turn {n}. " + "some words. " * 12, "session": "long"})
        assert turn.status == 200, turn
    wait_for(lambda: w.changed.server.get("/memory/context?session=long").json["summary"], 30, "the summary")
    answer = w.changed.get("/memory/context?session=long")
    assert answer.json["summary"]["through_seq"] >= 1 and len(answer.json["turns"]) < 8, answer
    return answer.told("summary", "summary.text", "turns", "window_tokens")


@rules.check("rule.memory.recall", "past exchanges are recalled by similarity")
def _(w):
    answer = w.changed.get(f"/memory/context?query=what%20is%20my%20dog%20called&session={w.recalled}")
    assert "Rex" in answer.json["episodes"][0]["text"], answer
    return answer.told("episodes.0.kind", "episodes.0.text")


@rules.check("rule.memory.apart", "another session, and the same of another namespace, know nothing of it")
def _(w):
    w.main.post("/memory/turns", {"role": "user", "text": "the code is 4711", "namespace": "team", "session": "secret"})
    told = []
    for namespace, session in (("team", "other"), ("default", "secret")):
        answer = w.main.get(f"/memory/context?query=code&namespace={namespace}&session={session}")
        assert b"4711" not in answer.body and answer.json["turns"] == [], answer
        told.append(answer.told("turns", "episodes"))
    return told


# ---- projects ------------------------------------------------------------------------------------------------------------

@rules.check("rule.project.analyzers", "an analysis has a linter, a type check, the syntax trees, the dependencies and leaks of data")
def _(w):
    _, report = w.analysis
    tools = {tool["name"]: tool for tool in report.json["tools"]}
    wanted = ("ruff", "mypy", "syntax", "dependencies", "leakage", "secrets")
    assert all(tools[name]["status"] == "ran" for name in wanted), tools
    found = {(finding["tool"], finding["rule"], finding["file"], finding["line"]) for finding in report.json["findings"]}
    assert {("ruff", "F401", "train.py", 1), ("mypy", "name-defined", "train.py", 2), ("leakage", "fit-before-split", "train.py", 2)} <= found, found
    return report.told(said=", ".join(f"{name}: ran, {tools[name]['findings']} finding{'s' * (tools[name]['findings'] != 1)}" for name in wanted))


@rules.check("rule.project.no-review", "without a review only what follows from the code alone is reported, the same each time")
def _(w):
    before = len(w.model.chats)
    first, second = (w.main.cli("project", "analyze", w.project, "--no-review", "--json").ok().json["findings"] for _ in range(2))
    assert first == second and len(w.model.chats) == before
    return Told("riverrun project analyze prj_… --no-review --json, twice", f"exit 0 · the same {len(first)} findings · no model was asked")


@rules.check("rule.project.review", "with a review a model says what it makes of the findings")
def _(w):
    done = w.main.cli("project", "analyze", w.project, "--json").ok()
    has(done.json["review"], "text citations model")
    return done.told("findings", "review.model", "review.text")


@rules.check("rule.project.improve-is-preview", "a proposal changes neither the copy nor the original")
def _(w):
    before = w.main.get(f"/projects/{w.project}/file?path=plain.py").json["sha256"]
    asked, proposal = w.proposed(PLAIN.replace("return 1", "return 9"), "rule-preview")
    after = w.main.get(f"/projects/{w.project}/file?path=plain.py")
    assert after.json["sha256"] == before == proposal.json["before_sha256"] and (w.code / "plain.py").read_text() == PLAIN, after
    return [asked.told("proposal_id"), after.told("file", said="as it was")]


@rules.check("rule.project.apply-copy-only", "applying writes the copy, and never the original")
def _(w):
    _, proposal = w.proposed(PLAIN.replace("return 1", "return 11"), "rule-apply")
    answer = w.main.post(f"/projects/{w.project}/apply", {"file": "plain.py", "proposal_id": proposal.json["proposal_id"], "confirm": True})
    copy = w.main.get(f"/projects/{w.project}/file?path=plain.py")
    assert answer.status == 200 and "return 11" in copy.json["text"], copy
    assert (w.code / "plain.py").read_text() == PLAIN and (w.code / "train.py").read_text() == CODE
    w.main.post(f"/projects/{w.project}/revert", {"file": "plain.py", "confirm": True})
    return [answer.told("file"), copy.told("file", said="the copy has the new line, the original has not")]


@rules.check("rule.project.confirm", "nothing is applied that is not confirmed")
def _(w):
    w.proposed(PLAIN.replace("return 1", "return 13"), "rule-confirm")
    http, command = w.main.post(f"/projects/{w.project}/apply", {"file": "plain.py"}), w.main.cli("project", "apply", w.project, "--file", "plain.py")
    return [http.problem(422), command.failed(4, "not confirmed", "--yes")]


# ---- training ------------------------------------------------------------------------------------------------------------

@rules.check("rule.training.sft-lora", "adapters are trained from prompts and completions on the CPU")
def _(w):
    _, _, job = w.training
    assert (job.json["method"], job.json["status"], job.json["step"], job.json["model"]) == ("sft_lora", "succeeded", 6, "numbers@1"), job
    return job.told("method", "status", "step", "model")


@rules.check("rule.training.dpo", "adapters are trained from preferences on the CPU")
def _(w):
    lines = "".join(json.dumps({"prompt": f"Say {n}", "chosen": f"N={n};", "rejected": f"M={n}."}) + "\n" for n in range(24))
    w.hand_in("choices", lines, "dpo").ok()
    answer = w.main.post("/finetune/jobs", training("choices", method="dpo", max_steps=2))
    assert answer.status == 202, answer
    heard = w.main.socket(f"/ws/finetune/{answer.json['job_id']}")
    assert heard.messages[-1]["job"]["status"] == "succeeded", heard
    return [answer.told("stream"), heard.told()]


@rules.check("rule.training.gpu", "quantized adapters and reinforcement learning want a CUDA GPU, and say so where there is none")
def _(w):
    told = [w.main.cli("finetune", "train", "--dataset", "numbers", "--name", "x", "--method", method).failed(4, "CUDA GPU is required") for method in ("qlora", "rlhf")]
    return told + [w.main.post("/finetune/jobs", training("numbers", method="qlora")).problem(422, "cuda_required")]


@rules.check("rule.training.streams", "a training streams its progress while it goes on")
def _(w):
    _, heard, job = w.training
    losses = [message["loss"] for message in heard.messages if message["type"] == "progress"]
    assert len(losses) == 6 and losses[-1] == job.json["loss"], heard
    return heard.told(said=f"{len(losses)} losses")


@rules.check("rule.training.versions", "what is trained is kept as versions that count from 1")
def _(w):
    w.training
    again = w.main.post("/finetune/jobs", training("numbers", max_steps=1))
    w.main.socket(f"/ws/finetune/{again.json['job_id']}")
    answer = w.main.get("/finetune/registry")
    versions = [item["version"] for item in answer.json["items"] if item["model"] == "numbers"]
    assert sorted(versions) == [1, 2], versions
    return answer.told(said=f"numbers: versions {', '.join(map(str, sorted(versions)))}")


# ---- tracing and topics --------------------------------------------------------------------------------------------------

@rules.check("rule.tracing.every-run", "each run is traced, by HTTP, command line and stream alike")
def _(w):
    answer = w.changed.run("add [[steps=1 id=trace-http]]", agent="react")
    done = w.changed.cli("agent", "run", "add [[steps=1 id=trace-cli]]", "--agent", "react", "--json").ok()
    heard = w.changed.socket("/ws/agent", {"task": "add [[steps=1 id=trace-ws]]", "agent": "react"})
    ids = [answer.json["trace_id"], done.json["trace_id"], heard.messages[-1]["result"]["trace_id"]]
    for trace_id in ids:
        wait_for(lambda: any(bytes.fromhex(trace_id) in body for _, _, _, body in w.traces.asked), 30, f"spans of {trace_id}")
    return [answer.told("trace_id"), done.told("trace_id"), heard.told(said="its trace reached the service, too")]


@rules.check("rule.tracing.project-and-keys", "traces are filed under the project, and sent with the service's own keys")
def _(w):
    w.changed.run("add [[steps=0 id=trace-keys]]", agent="react")
    found = wait_for(lambda: [one for one in w.traces.asked if b"invoke_agent" in one[3]], 30, "the spans")
    assert all(b"openinference.project.name" in body and headers["authorization"].startswith("Basic ") for _, _, headers, body in found), found[:1]
    return Told("a run on a server with keys and project of a tracing service", "the spans came with `Basic …` and the project `conformance`")


@rules.check("rule.tracing.id-derived", "a run's trace id follows from its run id")
def _(w):
    answer = w.changed.run("add [[steps=0 id=trace-derived]]", agent="react")
    letters = "0123456789abcdefghjkmnpqrstvwxyz"
    number = 0
    for letter in answer.json["run_id"].removeprefix("run_"):
        number = number * 32 + letters.index(letter)
    assert answer.json["trace_id"] == f"{number:032x}", answer
    return answer.told("run_id", "trace_id", said="the same number, in base 32 and in hex")


@rules.check("rule.tracing.steps-logged", "without a tracing service the steps go to the log")
def _(w):
    answer = w.main.run("add [[steps=1 id=logged]]", agent="react")
    run_id = answer.json["run_id"]
    lines = wait_for(lambda: [line for line in w.main.server.log_path.read_text(errors="replace").splitlines() if run_id in line and "step" in line] or None, 30, "the steps in the log")
    assert answer.json["trace_id"] is None and len(lines) >= len(answer.json["steps"]), lines
    line = re.sub(r"^\S+\s+", "", lines[0])
    return answer.told("trace_id", said=f"log: {short(line, 100)}")


@rules.check("rule.topic.documents", "a topic carries documents: published by a program, read into a collection until it is idle")
def _(w):
    from confluent_kafka import Producer
    w.main.cli("stream", "produce", "The pika is small.", "--topic", "conformance.notes").ok()
    producer = Producer({"bootstrap.servers": w.main.server.brokers})
    producer.produce("conformance.notes", b"The pika gathers hay.")
    assert producer.flush(15) == 0
    done = w.main.cli("stream", "consume", "--topic", "conformance.notes", "--collection", "pikas", "--idle-timeout", "1", "--json").ok()
    found = w.main.post("/rag/search", {"query": "pika", "collection": "pikas"})
    assert done.json["indexed"] == 2 and "pika" in found.json["items"][0]["text"], (done, found)
    return [done.told("documents", "indexed"), found.told("items.0.text")]


# ---- the canvas ----------------------------------------------------------------------------------------------------------

@rules.check("rule.canvas.served", "the pages are part of the server: the canvas, and that of fine-tuning")
def _(w):
    pages = [w.main.get(path) for path in ("/", "/ui/finetuning/")]
    for page in pages:
        assert page.status == 200 and b"<html" in page.body, page
    return [page.told(said="an HTML page") for page in pages]


@rules.check("rule.canvas.exchange", "a canvas is exchanged as JSON of a published format, and runs from it")
def _(w):
    schema = w.main.get("/canvas.schema.json")
    drawn = {"format": "riverrun.canvas", "version": 1, "name": "One", "namespace": "default", "edges": [{"from": "calculator", "to": "a"}],
             "nodes": [{"id": "calculator", "kind": "tool", "x": 0, "y": 0, "data": {"tool": "calculator"}},
                       {"id": "a", "kind": "agent", "x": 0, "y": 0, "data": {"agent": "react", "task": "{{input}}"}}]}
    done = w.main.cli("canvas", "run", w.file("canvas.json", json.dumps(drawn)), "--task", "add [[steps=1 id=canvas]]").ok()
    assert schema.json["$schema"] and done.out.strip() == "done after 1 steps", done
    return [schema.told("title") if "title" in schema.json else schema.told(), done.told(said=short(done.out))]
