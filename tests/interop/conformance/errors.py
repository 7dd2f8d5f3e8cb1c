"""Errors: what goes wrong, and what is said of it."""

import json
import re
import shlex
import signal
import subprocess
import urllib.request

from conformance.core import Group, Told
from conformance.exchange import Done, Talk, short
from conformance.world import bearer, training
from server import BINARY, wait_for

errors = Group("Errors")
UNKNOWN_RUN = "run_01h455vb4pex5vsknk084sn02q"


# ---- what may be down ----------------------------------------------------------------------------------------------------

@errors.check("error.tracing-down", "a tracing service that is away is no error: the run succeeds, its trace id is null, its steps are logged")
def _(w):
    answer = w.guarded.run("add [[steps=1 id=tracing-down]]", agent="react")
    row = next(row for row in w.guarded.get("/diagnose").json["services"] if row["name"] == "tracing")
    logged = wait_for(lambda: answer.json["run_id"] in w.guarded.server.log_path.read_text(errors="replace"), 30, "the steps in the log")
    assert answer.json["status"] == "succeeded" and answer.json["trace_id"] is None and (row["status"], row["required"]) == ("down", False) and logged, row
    return [answer.told("status", "trace_id", said="its steps are in the log"), Told("GET /diagnose", f"tracing · down · optional · {short(row['fix'])}")]


@errors.check("error.tracing-misconfigured", "a setting of tracing that cannot be is no error either; `diagnose` says what is wrong")
def _(w):
    wrong = {"RIVERRUN_TRACING_ENDPOINT": "no address"}
    done = w.alone.cli("agent", "run", "add [[steps=0 id=tracing-wrong]]", "--agent", "react", "--json", **wrong).ok()
    row = next(row for row in w.alone.cli("diagnose", "--json", **wrong).json["services"] if row["name"] == "tracing")
    assert done.json["status"] == "succeeded" and done.json["trace_id"] is None and row["status"] == "down" and row["fix"], row
    return [done.told("status", "trace_id"), Told("riverrun diagnose --json", f"tracing · down · {short(row['detail'])} · {short(row['fix'])}")]


@errors.check("error.model-runtime-down", "500 where the model runtime is down during `POST /agent/run`, with the fix")
def _(w):
    answer = w.bare.post("/agent/run", {"task": "add", "agent": "react"}, timeout=180)
    told = answer.problem(500, "model_runtime_down")
    assert answer.json["hint"], answer
    return told


@errors.check("error.service-down", "`diagnose` marks a required service that is down as DOWN, says how to start it, and ends with 3")
def _(w):
    done = w.bare.cli("diagnose")
    row = next(line for line in done.out.splitlines() if line.startswith("model runtime"))
    assert "DOWN" in row and "required" in row, done
    return [done.told(said=short(row, 100)), done.failed(3, "not there:", "hint:")]


@errors.check("error.model-missing", "`diagnose` marks a default model that is not here as MISSING, and says how to get it")
def _(w):
    done = w.alone.cli("diagnose", RIVERRUN_MODEL_RUNTIME_BASE_URL="", RIVERRUN_DEFAULT_CHAT_MODEL="qwen2.5-3b-instruct", RIVERRUN_DEFAULT_EMBED_MODEL="nomic-embed-text-v1.5",
                       RIVERRUN_MODELS_DIR="", RIVERRUN_MODELS_CACHE_DIR=str(w.folder / "none"))
    rows = [line for line in done.out.splitlines() if line.startswith(("chat model", "embed model"))]
    assert len(rows) == 2 and all("MISSING" in row and "riverrun models pull" in row for row in rows), done
    return [done.told(said=short(row, 100)) for row in rows] + [done.failed(3, "chat model, embed model")]


@errors.check("error.no-tool-action", "a model that names no tool answers without one: no error")
def _(w):
    from conformance.world import says
    told = []
    for agent in ("react", "plan_execute", "reflexion", "critic"):
        answer = w.main.run(says("It is simply so.", f"no-action-{agent}"), agent=agent, tools=["calculator"])
        kinds = {step["kind"] for step in answer.json["steps"]}
        assert answer.json["status"] == "succeeded" and answer.json["answer"] and "tool_call" not in kinds, answer
        told.append(Told(f'POST /agent/run {{"agent": "{agent}", …}} with a model that only talks', answer.told("status", "answer").came))
    return told


@errors.check("error.gpu-needed", "a method of training that needs a GPU says that a CUDA GPU is required")
def _(w):
    answer = w.main.post("/finetune/jobs", training("numbers", method="qlora"))
    assert "CUDA GPU is required" in answer.json["detail"] + str(answer.json.get("hint")), answer
    return [answer.problem(422, "cuda_required"), w.main.cli("finetune", "train", "--dataset", "numbers", "--name", "x", "--method", "rlhf").failed(4, "CUDA GPU is required")]


@errors.check("error.package-missing", "a feature whose model is not here names it")
def _(w):
    model = w.main.cli("chat", "hello", "--provider", "local", "--model", "qwen2.5-3b-instruct")
    return model.failed(3, "qwen2.5-3b-instruct", "hint:")


# ---- statuses ------------------------------------------------------------------------------------------------------------

@errors.check("error.problem-document", "errors are problem documents with type, title, status, detail, a stable code, a fix, and the fields of a rejected body")
def _(w):
    answer = w.main.post("/agent/run", {"task": "", "budget": {"tokens": "many"}})
    told, wrong = answer.problem(422), w.main.post("/agent/run", {"task": ""})
    problem = wrong.json
    assert wrong.headers["content-type"] == "application/problem+json" and set(problem["errors"][0]) == {"field", "reason"}, wrong
    return [told, wrong.told("type", "title", "status", "code", "errors.0.field", "errors.0.reason")]


@errors.check("error.status.400", "400 for a body that is no JSON")
def _(w):
    answer = w.main.post("/agent/run", b'{"task": "x')
    return Told('POST /agent/run {"task": "x', answer.problem(400).came)


@errors.check("error.status.401", "401 without a token that holds")
def _(w):
    return Told("GET /runs authorization: Bearer wrong", Talk(w.guarded.server).get("/runs", headers={"authorization": "Bearer wrong"}).problem(401).came)


@errors.check("error.status.403", "403 for what a token may not do")
def _(w):
    return Talk(w.guarded.server, bearer("bob")).post("/ingest", {"source": "/x", "collection": "c"}).problem(403)


@errors.check("error.status.404", "404 for what is not there, also for a route")
def _(w):
    return [w.main.get(path).problem(404) for path in (f"/runs/{UNKNOWN_RUN}", "/no/such/route")] + [w.main.post("/rag/search", {"query": "x", "collection": "no-such"}).problem(404)]


@errors.check("error.status.409.embedding", "409 where a collection has another embedding model")
def _(w):
    path = w.file("other.md", "# Newt\n\nA newt swims.\n")
    w.alone.cli("ingest", path, "-c", "newts").ok()
    place = w.place("alone", RIVERRUN_DEFAULT_EMBED_MODEL="all-minilm-l6-v2", RIVERRUN_INGEST_ROOTS=str(w.folder))
    place.server.start()
    answer = place.post("/ingest", {"source": str(path), "collection": "newts"})
    told = answer.problem(409)
    assert place.server.stop() == 0
    return told


@errors.check("error.status.409.key", "409 where a key is used again with another body")
def _(w):
    first, other = (w.main.post("/runs", {"task": f"{word} [[steps=0 id=conflict]]", "agent": "react"}, headers={"idempotency-key": "conflict"}) for word in ("one", "two"))
    assert first.status == 202, first
    return other.problem(409, "idempotency_key_reused")


@errors.check("error.status.409.ended", "409 for a run that has ended already")
def _(w):
    return [w.main.post(f"/runs/{w.ended['run_id']}/{what}", {}).problem(409, "run_ended") for what in ("cancel", "resume")]


@errors.check("error.status.413", "413 for a body over the limit")
def _(w):
    answer = w.main.post("/agent/run", json.dumps({"task": "x" * (2 << 20)}).encode())
    return Told("POST /agent/run (2 MiB)", answer.problem(413).came)


@errors.check("error.status.415", "415 for another content type")
def _(w):
    answer = w.main.request("POST", "/agent/run", b"task=x", {"content-type": "text/plain"})
    return Told("POST /agent/run content-type: text/plain", answer.problem(415).came)


@errors.check("error.status.422", "422 for what can be read and is refused, with the field")
def _(w):
    bodies = [{"task": ""}, {"task": "x", "agent": "root"}, {"task": "x", "temperature": 9}, {"task": "x", "tsak": "y"}]
    return [w.main.post("/agent/run", body).problem(422) for body in bodies]


@errors.check("error.status.429", "429 with `Retry-After` where a limit is reached for now")
def _(w):
    run_id = w.guarded.server.post("/runs", {"task": "count [[steps=1 id=busy]]", "agent": "react", "approval": "always"}, headers=bearer("ann")).json["run_id"]
    path = f"/runs/{run_id}/events"
    wait_for(lambda: w.guarded.server.get(f"/runs/{run_id}", headers=bearer("ann")).status == 200, 30, "the run to be known")
    streams = [urllib.request.urlopen(urllib.request.Request(w.guarded.server.url + path, headers=bearer("ann")), timeout=30) for _ in range(2)]
    answer = w.guarded.get(path)
    for stream in streams:
        stream.close()
    w.guarded.post(f"/runs/{run_id}/cancel", {})
    assert int(answer.headers["retry-after"]) >= 1, answer.headers
    told = answer.problem(429)
    return Told(f"two streams are open, which is the limit: {told.sent}", f"{told.came} · retry-after: {answer.headers['retry-after']}")


@errors.check("error.status.503", "503 with the service's name and the fix where another dependency is down")
def _(w):
    told = []
    for path, body in (("/embed", {"inputs": ["x"]}), ("/chat", {"messages": [{"role": "user", "content": "x"}], "stream": False})):
        answer = w.bare.post(path, body)
        assert answer.json["hint"] and "ollama" in answer.json["detail"].lower(), answer
        told.append(answer.problem(503, "model_runtime_down"))
    return told


# ---- WebSocket -----------------------------------------------------------------------------------------------------------

@errors.check("error.socket.1007", "1007 with the reason for a first message that cannot be read")
def _(w):
    heard = [w.main.socket("/ws/agent", first) for first in (b"no json", {"agent": "react"})]
    assert all(one.code == 1007 and one.reason for one in heard), heard
    return [Told("WS /ws/agent no json", heard[0].told().came), heard[1].told()]


@errors.check("error.socket.1008", "1008 with the reason for a first message that is refused")
def _(w):
    heard = w.main.socket("/ws/agent", {"task": "x", "agent": "root"})
    assert heard.code == 1008 and "root" in heard.reason, heard
    return heard.told()


# ---- exit codes ----------------------------------------------------------------------------------------------------------

@errors.check("error.exit.0", "0: done")
def _(w):
    return w.main.cli("agents").ok().told()


@errors.check("error.exit.1", "1: it was tried and failed")
def _(w):
    path = w.folder / "files/notes.txt"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(bytes(range(256)) * 20)
    return w.main.cli("ingest", path, "-c", "broken").failed(1, "hint:")


@errors.check("error.exit.2", "2: the command line or a setting is wrong, with a `hint:`")
def _(w):
    told = [w.main.cli(*words).failed(2, "\nhint: ") for words in (["no-such-command"], ["ingest"], ["agents", "--no-such-option"], ["search", "x", "-k", "many"])]
    return [*told, w.main.cli("agents", RIVERRUN_RAG_TOP_K="many").failed(2, "RIVERRUN_RAG_TOP_K", "\nhint: ")]


@errors.check("error.exit.3", "3: a service that is needed is down")
def _(w):
    return w.bare.cli("chat", "hello").failed(3, "hint:")


@errors.check("error.exit.4", "4: refused, or not found")
def _(w):
    return [w.main.cli("runs", "show", UNKNOWN_RUN).failed(4, "hint:"), w.main.cli("agent", "run", "x", "--agent", "root").failed(4, "hint:"), w.main.cli("rag", "ask", "x", "-c", "no-such").failed(4, "hint:")]


@errors.check("error.exit.130", "130: interrupted")
def _(w):
    run_id, _ = w.open_run("exit-interrupted")
    process = subprocess.Popen([BINARY, "runs", "watch", run_id], cwd=w.main.server.folder, env=w.main.server.env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.readline(), "it watches"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    w.main.post(f"/runs/{run_id}/cancel", {})
    done = Done(f"riverrun runs watch {run_id}; then SIGINT", subprocess.CompletedProcess([], process.returncode, out, err))
    return done.failed(130, "interrupted")


@errors.check("error.hint", "an error says what failed, the value, and behind `hint:` the next command")
def _(w):
    done = w.main.cli("agent", "run", "x", "--agent", "root")
    lines = done.err.strip().splitlines()
    assert lines[0].startswith("error: ") and "root" in lines[0] and lines[1] == "" and lines[2].startswith("hint: "), done
    return done.failed(4, "root", "react")


# Each refused by another part of the product: an argument, a name, a number, a file, an address, an id, a setting.
REFUSED = """
chat ''
chat hi -t 9
chat hi --max-tokens 0
chat hi --provider nope
chat hi --file /nope
embed ''
models --provider nope
models rm nope
models show nope
ingest /nope -c a
ingest ftp://a/b -c a
ingest TMP/voice.csv -c 'A B'
ingest TMP/voice.csv -c a -n 'Team X'
ingest TMP/voice.csv -c a --type nope
ingest TMP/voice.csv -c a --strategy nope
ingest TMP/voice.csv -c a --embed-backend nope
ingest TMP/voice.csv -c a --chunk-size 0
ingest TMP/voice.csv -c a --chunk-size 100 --chunk-overlap 100
ingest TMP/voice.csv -c a --metadata nope
ingest TMP/voice.csv -c a --depth 9
stream produce ''
stream produce x --topic riverrun.agent.commands
collections rm nope
collections check nope
search x -c nope
search x -k 0
search x --filter nope
rag ask x -c nope
tools check /nope
agent run ''
agent run x --agent nope
agent run x --tool nope
agent run x --collection nope
agent run x --max-iters 0
agent run x --budget-tokens 0
agent run x --metadata 3
canvas check /nope
canvas show nope
chains show chn_01h455vb4pex5vsknk084sn02q
runs show nope
runs show run_01h455vb4pex5vsknk084sn02q
runs ls --status nope
runs ls --limit 0
runs ls --cursor nope
memory add nobody x
memory why nope
memory context -k 0
finetune dataset 'A B' --jsonl TMP/voice.jsonl
finetune dataset ab --jsonl /nope
finetune dataset ab --jsonl TMP/voice.jsonl
finetune train --dataset nope --name x
finetune train --dataset nope --name x --method nope
finetune jobs --status nope
finetune watch job_01h455vb4pex5vsknk084sn02q
finetune show nope
finetune stage nope@1 nope
finetune eval /nope
docs ls -c nope
docs show nope
project import /nope
project analyze nope
project report prj_01h455vb4pex5vsknk084sn02q
project tools rm nope
warehouse query ''
warehouse query 'drop table x'
dlq show nope
dlq show riverrun.agent.commands.dlq:999
dlq ls --topic nope
dlq ls --limit 501
blobs ls --limit 0
blobs sweep --grace 0
usage -n A
import /nope
tokens create 'A B' --scope read
tokens revoke nope
""".strip().splitlines()


@errors.check("error.voice", "whatever refuses a command, it says so in one way: `error:` in lower case with the value and no full stop, an empty line, `hint:` with what to do")
def _(w):
    w.file("voice.csv", "a,b\n1,2\n")
    w.file("voice.jsonl", "nope\n")
    ended = {}
    for line in REFUSED:
        done = w.main.cli(*shlex.split(line.replace("TMP", str(w.folder / "files"))))
        said = re.search(r"^error: (.+?)\n\nhint: (\S.*)", done.err, re.M | re.S)
        assert done.code in (1, 2, 3, 4) and said, (line, done)
        what, hint = said.groups()
        assert not re.match(r"[A-Z][a-z]", what) and not what.rstrip().endswith("."), (line, done)
        assert not re.search(r"\b[A-Z][a-z]+Id\b|'\{\w|<command>|Some\(|None\b", done.err), (line, done)
        if "--help shows what it takes" in hint:
            command = hint.split(" --help")[0].removeprefix("riverrun ")
            assert line.startswith(command), (line, done)
        ended[done.code] = ended.get(done.code, 0) + 1
    return Told(f"{len(REFUSED)} commands that are refused, from `riverrun {REFUSED[1]}` to `riverrun {REFUSED[-1]}`",
                "each with error: and hint: · " + ", ".join(f"exit {code} × {ended[code]}" for code in sorted(ended)))
