"""Rules of behaviour: what holds whatever is asked."""

import json
import os
import pty
import re
import subprocess
from itertools import pairwise

import log_client
from conformance.core import Group, Told
from conformance.exchange import Talk, has, short
from conformance.world import BASE, CODE, PLAIN, bearer, examples, first_message, says, training
from server import BINARY, ROOT, wait_for

rules = Group("Rules")


def tool_steps(run, kind="tool_result"):
    return [step["tool"] for step in run["steps"] if step["kind"] == kind]


# ---- agents --------------------------------------------------------------------------------------------------------------

@rules.check("rule.agent.omitted", "without an agent the supervisor picks one by capability, and the first step says whom and why")
def _(w):
    told = []
    for task, agent in (("Write a letter and improve its wording", "critic"), ("Compare both, step by step", "plan_execute"), ("What is 6*7?", "react")):
        answer = w.main.run(task, temperature=0)
        route = answer.json["steps"][0]
        assert route["kind"] == "route" and answer.json["agent"] == agent and route["text"].startswith(f"{agent}: "), answer
        told.append(answer.told("agent", "steps.0.kind"))
    return told


@rules.check("rule.agent.named", "the agent that is named runs, and no choice is made")
def _(w):
    told = []
    for agent in ("react", "plan_execute", "reflexion", "critic"):
        answer = w.main.run(f"add [[steps=1 id=named-{agent}]]", agent=agent)
        kinds = [step["kind"] for step in answer.json["steps"]]
        assert answer.json["agent"] == agent and "route" not in kinds and answer.json["answer"], answer
        told.append(answer.told("agent", said=", ".join(dict.fromkeys(kinds))))
    return told


@rules.check("rule.agent.catalog", "there are four agent types with capabilities and tags")
def _(w):
    answer = w.main.get("/agents")
    assert [item["name"] for item in answer.json["items"]] == ["react", "plan_execute", "reflexion", "critic"], answer
    return answer.told("items", "items.0.capabilities", "items.0.tags")


@rules.check("rule.tools.manifests", "tools are described by manifests with a schema of their arguments")
def _(w):
    answer = w.main.get("/tools")
    for item in answer.json["items"]:
        assert item["description"] and item["input_schema"]["type"] == "object", item
    at = next(at for at, item in enumerate(answer.json["items"]) if item["name"] == "calculator")
    return answer.told(f"items.{at}.name", f"items.{at}.effect", f"items.{at}.input_schema")


# ---- namespaces ----------------------------------------------------------------------------------------------------------

TOOLS = """
[[tool]]
name = "team_words"
description = "Says a word of the team."
effect = "none"
namespace = "team"
arguments.x = { type = "string" }

[tool.command]
program = "/bin/echo"
args = ["{x}"]
"""


@rules.check("rule.namespace.run-tools", "a run uses only tools of its namespace")
def _(w):
    place = w.place("tools", RIVERRUN_TOOLS_FILE=str(w.file("tools.toml", TOOLS)), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    place.server.start()
    mine, others = ({item["name"] for item in place.get(f"/tools?namespace={name}").json["items"]} for name in ("team", "default"))
    assert "team_words" in mine and "team_words" not in others, (mine, others)
    script = '[[steps=1 id=tools-{} tool=team_words args={{"x":"ibis"}}]]'
    inside = place.run(script.format("team"), agent="react", namespace="team", approval="never")
    outside = place.run(script.format("other"), agent="react", approval="never")
    place.server.stop()
    assert "ibis" in json.dumps(tool_steps(inside.json)[0]["result"]), inside
    assert all("result" not in tool for tool in tool_steps(outside.json)), outside
    return [inside.told("status", said="the tool gave `ibis`"), outside.told("status", said="there is no such tool")]


@rules.check("rule.namespace.run-memory", "a run reads the conversation of its namespace alone")
def _(w):
    for namespace, word in (("team", "altimeter"), ("default", "windsock")):
        w.main.post("/memory/turns", {"role": "user", "text": f"the {word} is new", "namespace": namespace, "session": "apart"})
    answer = w.main.run("say it [[steps=0 id=apart]]", agent="react", namespace="team", session="apart")
    shown = json.dumps(answer.json["steps"])
    assert "altimeter" in shown and "windsock" not in shown, answer
    return answer.told("namespace", said="`altimeter` of team was read, `windsock` of default was not")


@rules.check("rule.namespace.run-collections", "a run reads collections of its namespace alone")
def _(w):
    w.launches
    answer = w.main.run("what does a winch launch cost? [[steps=0 id=alone]]", agent="react", namespace="team", collections=["launches"])
    shown = json.dumps(answer.json["steps"])
    assert "7 dollars" in shown and "9 crowns" not in shown, answer
    missing = w.main.post("/agent/run", {"task": "x", "namespace": "team", "collections": [w.handbook]})
    return [answer.told("namespace", said="`7 dollars` of team was read, `9 crowns` of default was not"), missing.problem(404)]


@rules.check("rule.namespace.rag", "search and answers with a namespace read its collection alone")
def _(w):
    found = w.main.post("/rag/search", {"query": "winch launch", "collection": w.launches, "namespace": "team"})
    asked = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches, "namespace": "team"})
    for answer in (found, asked):
        assert b"7 dollars" in answer.body and b"9 crowns" not in answer.body, answer
    return [found.told("items", "items.0.text"), asked.told("citations.0.quote")]


@rules.check("rule.namespace.physical-name", "a collection is physically called `<namespace>__<collection>`")
def _(w):
    w.launches
    answer = w.main.get("/collections?namespace=team")
    at = next(at for at, item in enumerate(answer.json["items"]) if item["name"] == "launches")
    assert answer.json["items"][at]["physical_name"] == "team__launches", answer
    return answer.told(f"items.{at}.physical_name")


# ---- documents -----------------------------------------------------------------------------------------------------------

@rules.check("rule.ingest.both-indexes", "what is ingested is chunked, embedded and in both the vectors and the keywords")
def _(w):
    answer = w.main.get(f"/collections/{w.handbook}/check")
    found = [w.main.post("/rag/search", {"query": "winch", "collection": w.handbook, "mode": mode, "rerank": False}) for mode in ("dense", "sparse")]
    assert answer.json["chunks"] == answer.json["vectors"] == answer.json["keywords"] > 0 and all(one.json["items"] for one in found), answer
    return [answer.told("chunks", "vectors", "keywords"), *(one.told("items") for one in found)]


@rules.check("rule.tabular", "a tabular source with a table name is a table of the warehouse, and its rows are found")
def _(w):
    rows = w.main.post("/warehouse/query", {"sql": f"SELECT name FROM {w.people} WHERE fee > 2"})
    found = w.main.post("/rag/search", {"query": "Jane Doe", "collection": w.people})
    assert rows.json["rows"] == [["Al O'Hara"]] and "Jane" in found.json["items"][0]["text"], (rows, found)
    return [rows.told("rows.0.0"), found.told("items.0.text")]


@rules.check("rule.retrieval.hybrid", "search is by meaning and by words, fused by reciprocal rank")
def _(w):
    answer = w.main.post("/rag/search", {"query": "winch launch", "collection": w.handbook, "k": 50, "rerank": False})
    scores = [item["scores"] for item in answer.json["items"]]
    fused = [score["fused"] for score in scores]
    assert fused == sorted(fused, reverse=True) and any(score["dense"] for score in scores) and any(score["sparse"] for score in scores), scores
    ranks = {name: sorted((score[name] for score in scores if score[name] is not None), reverse=True) for name in ("dense", "sparse")}
    best = scores[0]
    wanted = sum(1 / (60 + 1 + ranks[name].index(best[name])) for name in ranks if best[name] is not None)
    assert abs(best["fused"] - wanted) < 0.01, (best, wanted)
    return answer.told("items", "items.0.scores")


@rules.check("rule.retrieval.rerank-local", "without a key of a hosted re-ranker a local cross-encoder orders what was found")
def _(w):
    answer = w.main.post("/rag/search", {"query": "winch launch", "collection": w.handbook, "k": 5})
    ranks = [item["scores"]["rerank"] for item in answer.json["items"]]
    assert None not in ranks and ranks == sorted(ranks, reverse=True) == [item["score"] for item in answer.json["items"]], answer
    return answer.told("items", said="each has a score of the cross-encoder and stands by it")


@rules.check("rule.retrieval.rerank-hosted", "a hosted re-ranker does, once its key is set")
def _(w):
    w.changed.server.ingest(w.file("ranked.txt", "winch. " * 200), "ranked")
    answer = w.changed.post("/rag/search", {"query": "winch", "collection": "ranked", "k": 2})
    method, path, headers, _ = w.ranker.asked[-1]
    assert headers["authorization"] == "Bearer key-of-cohere" and answer.json["items"][0]["scores"]["rerank"], answer
    return answer.told("items", said=f"the service was asked {method} {path} with the key")


@rules.check("rule.answer.cites", "an answer is grounded in chunks and cites them by place, and the cited bytes are the document's")
def _(w):
    answer = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches})
    [citation] = answer.json["citations"]
    span = citation["span"]
    text = w.main.get(f"/documents/{citation['document_id']}/text?start={span['start']}&end={span['end']}")
    assert "[1]" in answer.json["answer"] and citation["quote"] in text.json["text"], (answer, text)
    return [answer.told("answer", "citations.0.quote", "citations.0.supported"), text.told("text")]


# ---- models --------------------------------------------------------------------------------------------------------------

@rules.check("rule.models.providers", "providers are listed with whether they have a key")
def _(w):
    answer = w.changed.get("/providers")
    for item in answer.json["items"]:
        has(item, "name default kind has_key address")
    return answer.told("items", said="openai: true, anthropic: false, local: null")


@rules.check("rule.models.hosted-opt-in", "nothing goes to a hosted provider unless its key is set and a request names it")
def _(w):
    before = len(w.hosted.asked)
    plain_chat = w.changed.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False})
    assert len(w.hosted.asked) == before and plain_chat.json["model"] == "stub", plain_chat
    named = w.changed.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False, "provider": "openai", "model": "hosted"})
    keyless = w.main.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False, "provider": "openai", "model": "hosted"})
    assert named.json["text"] == "hosted words" and keyless.status in (422, 503), keyless
    return [plain_chat.told("model"), named.told("text"), keyless.problem(keyless.status)]


@rules.check("rule.models.temperature", "a chat is streamed unless it is asked for whole, at the temperature that is asked for")
def _(w):
    body = {"messages": [{"role": "user", "content": "hello [[steps=0 id=rule-temperature]]"}], "temperature": 1.5}
    streamed, whole = w.main.post("/chat", body), w.main.post("/chat", body | {"stream": False})
    names = [name for name, _, _ in streamed.events()]
    temperatures = {chat["options"]["temperature"] for chat in w.model.chats_of("rule-temperature")}
    assert names[-1] == "final" and "delta" in names and temperatures == {1.5}, (names, temperatures)
    return [streamed.told(said="delta, final"), whole.told("text", "finish_reason")]


@rules.check("rule.models.default-dimensions", "the default embedding model is local and has 768 dimensions")
def _(w):
    done = w.alone.cli("embed", "a launch", "--json", RIVERRUN_DEFAULT_EMBED_MODEL="").ok()
    assert done.json["dimensions"] == 768 == len(done.json["vectors"][0]), done
    return done.told("model", "dimensions")


@rules.check("rule.models.fetched-at-first-use", "a model that is not here is fetched from the hub when it is first needed")
def _(w):
    hub, told = w.hub("first-use"), []
    fetched = {"RIVERRUN_HUB_BASE_URL": hub.url, "RIVERRUN_MODELS_OFFLINE": "false", "RIVERRUN_MODELS_CACHE_DIR": str(w.folder / "fetched"), "RIVERRUN_MODELS_DIR": ""}
    w.alone.cli("ingest", w.file("first/auk.md", "# Auk\n\nAn auk dives.\n"), "-c", "first").ok()
    ranked = w.alone.cli("search", "auk", "-c", "first", "--json", RIVERRUN_DEFAULT_RERANK_MODEL="someone/tiny", **fetched).ok()
    assert ranked.json["items"][0]["scores"]["rerank"] is not None, ranked
    told.append(ranked.told("items.0.scores", said="the hub was asked for its files"))
    for words in (["finetune", "train", "--dataset", w.file("first.jsonl", examples()), "--name", "first", "--base-model", "other/base"],
                  ["finetune", "eval", w.file("first-samples.jsonl", '{"prediction": "a", "reference": "a"}\n'), "--metrics", "bertscore", "--encoder", "other/encoder"],
                  ["ingest", w.file("first/auk.md", "# Auk\n\nAn auk dives.\n"), "-c", "late", "--strategy", "late", "--embed-backend", "hf"]):
        before = len(hub.asked)
        done = w.alone.cli(*words, RIVERRUN_DEFAULT_EMBED_MODEL="other/late", **fetched)
        new = hub.paths()[before:]
        assert done.code != 0 and new, (done, new)
        told.append(done.told(said=f"the hub was asked for {new[0]}"))
    return told


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
    texts = ["my dog is called Rex and barks", "how nice " * 3, "the winch rope is red " + "and long " * 60, "I see " * 3, "the weather is fine " + "and dry " * 60, "yes " * 3] * 2
    for n, text in enumerate(texts):
        w.changed.post("/memory/turns", {"role": ("user", "assistant")[n % 2], "text": text, "session": "recalled"})
    path = "/memory/context?query=what%20is%20my%20dog%20called&session=recalled"
    wait_for(lambda: w.changed.server.get(path).json["episodes"], 30, "an episode")
    answer = w.changed.get(path)
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
    assert {"syntax", "dependencies", "leakage"} <= {name for name, tool in tools.items() if tool["status"] == "ran"}, tools
    for name in ("ruff", "mypy"):
        assert tools[name]["status"] == "ran" or tools[name]["status"] == "missing" and tools[name]["fix"], tools[name]
    return report.told(said=", ".join(f"{name}: {tool['status']}" for name, tool in sorted(tools.items()) if name in ("ruff", "mypy", "syntax", "dependencies", "leakage", "secrets")))


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
    producer = Producer({"bootstrap.servers": w.main.server.brokers})
    producer.produce("conformance.notes", b"The pika gathers hay.")
    assert producer.flush(15) == 0
    done = w.main.cli("stream", "consume", "--topic", "conformance.notes", "--collection", "pikas", "--idle-timeout", "1", "--json").ok()
    found = w.main.post("/rag/search", {"query": "pika", "collection": "pikas"})
    assert done.json["indexed"] == 1 and "pika" in found.json["items"][0]["text"], (done, found)
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


# ---- names, keys, lists --------------------------------------------------------------------------------------------------

TYPEID = re.compile(r"[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}")


@rules.check("rule.names.ids", "ids are a prefix and a UUID in base 32: `run_`, `doc_`, `prj_`, `evt_`")
def _(w):
    document = w.main.get(f"/documents?collection={w.handbook}").json["items"][0]["document_id"]
    events = [log_client.headers(record)["ce_id"] for record in log_client.read_topic(w.main.server.brokers, "riverrun.projects.events")] if w.project else []
    for value, prefix in ((w.ended["run_id"], "run_"), (document, "doc_"), (w.project, "prj_"), (events[0], "evt_")):
        assert TYPEID.fullmatch(value) and value.startswith(prefix), value
    return Told("a run, a document, a project, the header ce_id of a record", f"{w.ended['run_id']}, {document}, {w.project}, {events[0]}")


@rules.check("rule.names.ids.job", "the id of a training begins with `job_`", differs="it begins with `ftj_`")
def _(w):
    answer, _, _ = w.training
    assert answer.json["job_id"].startswith("job_"), answer
    return answer.told("job_id")


@rules.check("rule.names.derived", "an id that follows from a cause is the same whenever the cause is")
def _(w):
    first = w.main.get(f"/documents?collection={w.handbook}&limit=500").json["items"]
    w.main.server.ingest(ROOT / "examples/handbook", "handbook")
    second = w.main.get(f"/documents?collection={w.handbook}&limit=500")
    ids = [{item["source"]: item["document_id"] for item in items} for items in (first, second.json["items"])]
    assert ids[0] == ids[1] and len(ids[0]) == 8, ids
    return second.told("items", said="the same ids after the folder was ingested again")


@rules.check("rule.names.json", "fields are snake_case, times RFC 3339 in UTC, durations end in `_ms` and sizes in `_bytes`")
def _(w):
    seen = set()

    def walk(found, free=False):
        if isinstance(found, list):
            for one in found:
                walk(one, free)
        elif isinstance(found, dict):
            for name, value in found.items():
                if not free:
                    seen.add(name)
                    if name.endswith("_at") or name == "at":
                        assert value is None or re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", value), (name, value)
                walk(value, free or name in ("metadata", "input_schema", "metrics", "lag", "by_tool", "by_severity", "settings", "arguments", "result"))

    w.analysis, w.training
    paths = ["/health", "/agents", "/tools", "/collections", f"/runs/{w.ended['run_id']}", "/finetune/registry", "/finetune/jobs", f"/projects/{w.project}/report", "/projects"]
    for path in paths:
        walk(w.main.get(path).json)
    wrong = [name for name in seen if not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name)]
    assert not wrong, wrong
    assert {"latency_ms", "duration_ms", "took_ms", "size_bytes"} <= seen, seen
    return Told(", ".join(f"GET {path}" for path in paths), f"{len(seen)} fields, all snake_case; each …_at is such a time")


@rules.check("rule.names.topics", "topics are called `riverrun.<context>.<commands|events>`")
def _(w):
    done = w.main.cli("topics", "--json").ok()
    names = [item["name"] for item in done.json["items"]]
    wanted = {f"riverrun.{context}.{kind}" for context in ("agent", "ingest", "projects", "finetune") for kind in ("commands", "events")}
    assert all(name.startswith("riverrun.") for name in names) and wanted < set(names), names
    return done.told("items", said=", ".join(names[:4]))


@rules.check("rule.idempotency.runs", "the same key again gives the first answer and starts nothing")
def _(w):
    headers, body = {"idempotency-key": "conformance-1"}, {"task": "add [[steps=1 id=idempotent]]", "agent": "react"}
    first, again = (w.main.post("/runs", body, headers=headers) for _ in range(2))
    w.main.server.run_end(first.json["run_id"])
    assert first.json["run_id"] == again.json["run_id"] and len(w.model.chats_of("idempotent")) <= 3, (first, again)
    return [first.told("run_id"), again.told(said="the same run")]


@rules.check("rule.idempotency.writes", "every POST that writes takes a key, and a repeat is the same thing")
def _(w):
    document = w.main.get("/openapi.json").json["paths"]
    writes = ["/agent/run", "/runs", "/ingest", "/memory/turns", "/memory/chat", "/projects/import", "/projects/{id}/analyze", "/projects/{id}/improve",
              "/projects/{id}/apply", "/finetune/jobs", "/runs/{id}/fork"]
    quokka = w.file("keys/quokka.md", "# Quokka\n\nA quokka smiles.\n")
    asked = [("/ingest", {"source": str(quokka), "collection": "keys"}, "ingest_id"), ("/memory/turns", {"role": "user", "text": "once", "session": "keys"}, "turn_id"),
             ("/projects/import", {"source": str(w.code)}, "project_id"), (f"/projects/{w.project}/analyze", {"review": False}, "analysis_id"),
             (f"/projects/{w.project}/improve", {"file": "plain.py", "instruction": "x [[steps=0 id=keys]]"}, "proposal_id"),
             (f"/runs/{w.ended['run_id']}/fork", {"at_seq": 0}, "run_id"), ("/agent/run", {"task": "add [[steps=0 id=keys-run]]", "agent": "react"}, "run_id")]
    told = []
    for path, body, name in asked:
        first, again = (w.main.post(path, body, headers={"idempotency-key": "conformance-2"}) for _ in range(2))
        assert first.json[name] == again.json[name], (first, again)
        told.append(Told(f"POST {path.replace(w.project, '{id}').replace(w.ended['run_id'], '{id}')} twice", f"the same {name}"))
    w.training
    again = w.main.post("/finetune/jobs", training("numbers"), headers={"idempotency-key": "numbers"})
    assert again.json["job_id"] == w.training[0].json["job_id"], again
    named = [path for path in writes if any(one["name"].lower() == "idempotency-key" for one in document[path]["post"].get("parameters", []))]
    assert named, "the document names the header nowhere"
    return [*told, Told("POST /finetune/jobs twice", "the same job_id")]


@rules.check("rule.lists", "lists take `limit` and `cursor` and answer `items` and `next_cursor`")
def _(w):
    for n in range(3):
        w.main.run(f"add [[steps=0 id=list-{n}]]", agent="react", namespace="lists")
    seen, cursor, told = [], None, []
    while cursor or not seen:
        answer = w.main.get("/runs?namespace=lists&limit=2" + (f"&cursor={cursor}" if cursor else ""))
        seen += [run["run_id"] for run in answer.json["items"]]
        cursor = answer.json["next_cursor"]
        told.append(Told(f"GET /runs?namespace=lists&limit=2{'&cursor=…' if len(seen) > 2 else ''}", answer.told("items", "next_cursor" if not cursor else "items").came))
    assert len(seen) == len(set(seen)) == 3, seen
    for path in (f"/documents?collection={w.handbook}&limit=2", "/projects?limit=1", "/finetune/registry?limit=1", "/finetune/jobs?limit=1", "/memory/turns?limit=1"):
        has(w.main.get(path).json, "items next_cursor")
    return told


# ---- who may ask ---------------------------------------------------------------------------------------------------------

@rules.check("rule.access.loopback-open", "on loopback no token is wanted; another address without tokens is refused with the fix")
def _(w):
    answer = w.main.get("/runs?limit=1")
    assert answer.status == 200
    refused = serve_on(w, "0.0.0.0")
    return [answer.told(), Told("RIVERRUN_API_HOST=0.0.0.0 riverrun serve", refused.failed(2, "RIVERRUN_API_HOST is 0.0.0.0", "tokens create").came)]


def serve_on(w, host):
    from conformance.world import serve_refused
    return serve_refused(w.place("open", RIVERRUN_API_HOST=host))


@rules.check("rule.access.tokens", "with tokens every route but health and figures wants one")
def _(w):
    nobody = Talk(w.guarded.server)
    told = [nobody.get("/runs").problem(401), nobody.post("/agent/run", {"task": "x"}).problem(401)]
    opened = [nobody.get(path) for path in ("/health", "/metrics")]
    assert all(answer.status == 200 for answer in opened) and w.guarded.get("/runs").status == 200
    return told + [answer.told() for answer in opened]


@rules.check("rule.access.scopes", "a token does what its scopes say")
def _(w):
    bob = Talk(w.guarded.server, bearer("bob"))
    assert bob.get("/runs").status == 200
    return [bob.get("/runs").told(), bob.post("/runs", {"task": "x"}).problem(403, "scope_missing")]


@rules.check("rule.access.namespaces", "a token that is bound to namespaces gets nothing of others")
def _(w):
    eve = Talk(w.guarded.server, bearer("eve"))
    run_id = w.guarded.server.post("/runs", {"task": "add [[steps=0 id=bound]]", "agent": "react"}, headers=bearer("ann")).json["run_id"]
    wait_for(lambda: w.guarded.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    return [eve.post("/runs", {"task": "x", "namespace": "other"}).problem(403, "namespace_not_allowed"), eve.get(f"/runs/{run_id}").problem(404)]


@rules.check("rule.access.host-origin", "`Host` and `Origin` are checked on what changes something and on WebSockets")
def _(w):
    host = w.main.post("/runs", {"task": "x"}, headers={"host": "evil.example"})
    origin = w.main.post("/runs", {"task": "x"}, headers={"origin": "https://evil.example"})
    socket = w.main.request("GET", "/ws/agent", headers={"origin": "https://evil.example", "upgrade": "websocket", "connection": "Upgrade",
                                                         "sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="})
    return [host.problem(403, "host_not_allowed"), origin.problem(403, "origin_not_allowed"), Told("WS /ws/agent origin: https://evil.example", socket.problem(403, "origin_not_allowed").came)]


# ---- WebSocket -----------------------------------------------------------------------------------------------------------

@rules.check("rule.websocket.order", "start comes first, then steps, then one final")
def _(w):
    heard = w.main.socket("/ws/agent", {"task": "add [[steps=3 id=rule-order]]", "agent": "react"})
    kinds = heard.kinds()
    assert kinds[0] == "start" and kinds[-1] == "final" and set(kinds[1:-1]) == {"step"} and heard.code == 1000, heard
    return heard.told()


@rules.check("rule.websocket.after", "a run is followed from any step, live or ended")
def _(w):
    last, told = w.ended["steps"][-1]["seq"], []
    for after in (0, 3, last):
        heard = w.main.socket(f"/ws/runs/{w.ended['run_id']}?after={after}")
        seqs = [message["step"]["seq"] for message in heard.messages if message["type"] == "step"]
        assert seqs == list(range(after + 1, last + 1)) and heard.kinds()[-1] == "final", heard
        told.append(heard.told())
    run_id = w.main.server.start_run("add [[steps=3 delay_ms=100 id=rule-live]]")
    wait_for(lambda: len((w.main.server.get(f"/runs/{run_id}").json.get("steps") or [])) >= 2, 30, "two steps")
    live = w.main.socket(f"/ws/runs/{run_id}?after=2")
    assert [message["step"]["seq"] for message in live.messages if message["type"] == "step"][0] == 3, live
    return [*told, live.told()]


@rules.check("rule.websocket.steps", "steps have number, kind, agent and time; calls have id, name and arguments, results what they gave; numbers have no gap")
def _(w):
    steps = w.ended["steps"]
    for step in steps:
        has(step, "seq kind agent at")
        assert step["kind"] in ("route", "plan", "thought", "tool_call", "tool_result", "approval", "reflection", "critique", "answer"), step
    for tool in tool_steps(w.ended, "tool_call"):
        has(tool, "call_id name arguments")
    for tool in tool_steps(w.ended):
        has(tool, "call_id name arguments result duration_ms")
    seqs = [step["seq"] for step in steps]
    assert seqs[0] == 1 and all(after - before == 1 for before, after in pairwise(seqs)), seqs
    return w.main.get(f"/runs/{w.ended['run_id']}").told("steps", "steps.1.kind", "steps.1.tool", "steps.2.kind")


@rules.check("rule.websocket.tokens", "pieces of text come only to who asks for them")
def _(w):
    asked = w.main.socket("/ws/agent", {"task": "say something", "agent": "react", "tokens": True})
    silent = w.main.socket("/ws/agent", {"task": "say something", "agent": "react"})
    run_id = w.main.server.start_run("add [[steps=1 delay_ms=500 id=rule-tokens]]")
    wait_for(lambda: w.main.server.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    followed = w.main.socket(f"/ws/runs/{run_id}?tokens=true")
    assert "token" in asked.kinds() and "token" not in silent.kinds() and "token" in followed.kinds(), (asked, silent, followed)
    has(next(message for message in asked.messages if message["type"] == "token"), "seq text")
    return [asked.told(), silent.told(), followed.told()]


# ---- the command line ----------------------------------------------------------------------------------------------------

@rules.check("rule.cli.streams", "data goes to stdout, words for people to stderr")
def _(w):
    done = w.main.cli("agent", "run", "add [[steps=1 id=streams]]", "--agent", "react").ok()
    nothing = w.main.cli("collections", "-n", "empty").ok()
    assert done.out == "done after 1 steps\n" and "tokens" in done.err and nothing.out == "" and "riverrun ingest" in nothing.err, (done, nothing)
    return [done.told(said=f"stdout: {short(done.out)}; stderr: {short(plain_summary(done.err))}"), nothing.told(said=f"stdout: nothing; stderr: {short(nothing.err, 90)}")]


def plain_summary(text):
    return text.strip().splitlines()[-1]


@rules.check("rule.cli.json", "`--json` prints the shapes of the HTTP API, for every command that prints")
def _(w):
    w.people
    same = {"agents": "/agents", "tools": "/tools", "providers": "/providers", "collections": "/collections", "warehouse tables": "/warehouse/tables",
            "finetune jobs": "/finetune/jobs", "finetune registry": "/finetune/registry", "topics": "/topics", "models": "/models", "runs ls": "/runs", "dlq ls": "/dlq"}
    for command, path in same.items():
        done, answer = w.main.cli(*command.split(), "--json").ok(), w.main.get(path)
        assert set(done.json) == set(answer.json) and len(done.json["items"]) == len(answer.json["items"]), (command, done, answer)
    shapes = {"diagnose": "services", "embed x": "vectors", "chat hi": "text", f"search winch -c {w.handbook}": "items", f"rag search winch -c {w.handbook}": "items",
              f"rag ask winch -c {w.launches}": "citations", "memory context": "turns", "memory add user hi": "turn_id", "memory chat hi": "turns_shown",
              "warehouse query SELECT/**/1": "columns", f"runs show {w.ended['run_id']}": "steps", f"project report {w.project}": "findings", "project ls": "items",
              "docs ls -c handbook": "items", "usage": "items", "stream produce words": "offset", "openapi": "paths"}
    w.analysis
    for command, field in shapes.items():
        done = w.main.cli(*command.split(), "--json").ok()
        assert field in done.json, (command, done)
    return [Told(", ".join(f"riverrun {command} --json" for command in same), "as the routes of the same names"),
            Told(", ".join(f"riverrun {command.split()[0]}…" for command in shapes), "JSON objects with the fields of the HTTP answers")]


@rules.check("rule.cli.bars", "bars of progress are on stderr, and only where that is a terminal")
def _(w):
    def ingested(collection, terminal):
        parent, child = pty.openpty()
        process = subprocess.Popen([BINARY, "ingest", ROOT / "examples/handbook", "-c", collection], cwd=w.main.server.folder, env=w.main.server.env | {"TERM": "xterm"},
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=child if terminal else subprocess.PIPE)
        os.close(child)
        written = bytearray()
        if terminal:
            try:
                while piece := os.read(parent, 65_536):
                    written += piece
            except OSError:
                pass  # the other end is closed
        out, err = process.communicate(timeout=120)
        os.close(parent)
        assert process.returncode == 0 and out.startswith(b"indexed 8"), (out, err, written)
        return bytes(written) if terminal else err

    shown, silent = ingested("bars", True), ingested("no-bars", False)
    assert b"documents" in shown and b"\x1b[" in shown and silent == b"", (shown, silent)
    return [Told("riverrun ingest examples/handbook -c bars, stderr a terminal", "a bar with documents and chunks on stderr"),
            Told("the same, stderr a pipe", "nothing on stderr")]


@rules.check("rule.cli.service-down", "a command that needs a service which is down says so, with the fix")
def _(w):
    down = {"RIVERRUN_MODEL_RUNTIME_BASE_URL": f"http://{w.nobody}"}
    chat = w.alone.cli("chat", "hello", **down)
    kafka = w.alone.cli("runs", "ls", RIVERRUN_KAFKA_BROKERS=w.nobody)
    return [chat.failed(3, w.nobody, "hint:"), kafka.failed(3, w.nobody, "hint:")]
