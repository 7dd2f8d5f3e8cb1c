"""Rules of form: names, keys, lists, who may ask, sockets, the command line."""

import functools
import json
import os
import pty
import re
import subprocess
from itertools import pairwise

import log_client
from conformance.core import Told, promised
from conformance.exchange import Talk, has, short
from conformance.rules import rules, tool_steps
from conformance.world import PLAIN, examples, records
from server import BINARY, ROOT, wait_for

# ---- names, keys, lists --------------------------------------------------------------------------------------------------

TYPEID = re.compile(r"[a-z]{3}_[0-7][0-9a-hjkmnp-tv-z]{25}")


@rules.check("rule.names.ids", "ids are a prefix and a UUID in base 32: `run_`, `doc_`, `prj_`, `evt_`")
def _(w):
    document = w.main.get(f"/documents?collection={w.handbook}").json["items"][0]["document_id"]
    events = [log_client.headers(record)["ce_id"] for record in log_client.read_topic(w.main.server.brokers, "riverrun.projects.events")] if w.project else []
    for value, prefix in ((w.ended["run_id"], "run_"), (document, "doc_"), (w.project, "prj_"), (events[0], "evt_")):
        assert TYPEID.fullmatch(value) and value.startswith(prefix), value
    return Told("a run, a document, a project, the header ce_id of a record", f"{w.ended['run_id']}, {document}, {w.project}, {events[0]}")


@rules.check("rule.names.ids.job", "the id of a training begins with `job_`")
def _(w):
    answer, _, _ = w.training
    return promised(answer.json["job_id"].startswith("job_"), answer.told("job_id"))


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
    names = [item["name"] for item in done.json["items"] if not item["foreign"]]
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


@rules.check("rule.idempotency.answers", "a repeat of what is said to a run gets the first answer, too")
def _(w):
    told, same = [], []
    for what in ("approve", "cancel"):
        run_id, step = w.open_run(f"repeated-{what}")
        path, body = (f"/runs/{run_id}/approvals/{step}", {"decision": "approve"}) if what == "approve" else (f"/runs/{run_id}/cancel", {})
        first = w.main.post(path, body, headers={"idempotency-key": f"repeated-{what}"})
        w.main.server.run_end(run_id)
        again = w.main.post(path, body, headers={"idempotency-key": f"repeated-{what}"})
        assert first.status == 202 and first.json["run_id"] == run_id, first
        other = w.main.post(path, body | ({"note": "other"} if what == "approve" else {"reason": "other"}), headers={"idempotency-key": f"repeated-{what}"})
        other.problem(409, "idempotency_key_reused")
        same.append(again.status == 202 and again.json == first.json)
        told += [first.told("run_id"), Told("the same again, once the run has ended", again.told(said="the first answer" if same[-1] else "another answer").came)]
        events = records(w.main.server, "riverrun.agent.events", run_id)
        assert events.count("RunApprovalDecided" if what == "approve" else "RunCancelRequested") == 1, events
    return promised(all(same), *told)


@rules.check("rule.lists", "lists take `limit` and `cursor` and answer `items` and `next_cursor`")
def _(w):
    ran = {w.main.run(f"add [[steps=0 id=list-{n}]]", agent="react", namespace="lists").json["run_id"] for n in range(3)}
    # Lists follow the log: a run's stream may have told its end before they have it.
    wait_for(lambda: ran <= {run["run_id"] for run in w.main.get("/runs?namespace=lists&limit=100").json["items"]}, 60, "the runs to be listed")
    seen, cursor, told = [], None, []
    while cursor or not seen:
        answer = w.main.get("/runs?namespace=lists&limit=2" + (f"&cursor={cursor}" if cursor else ""))
        seen += [run["run_id"] for run in answer.json["items"]]
        cursor = answer.json["next_cursor"]
        told.append(Told(f"GET /runs?namespace=lists&limit=2{'&cursor=…' if len(seen) > 2 else ''}", answer.told("items", "next_cursor" if not cursor else "items").came))
    assert len(seen) == len(set(seen)) and ran <= set(seen), seen
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


@rules.check("rule.websocket.kinds", "each kind of step comes where it belongs: route, plan, thought, tool_call, tool_result, approval, critique, reflection, answer")
def _(w):
    asked, step = w.open_run("kinds-asked")
    w.main.post(f"/runs/{asked}/approvals/{step}", {"decision": "approve"})
    w.main.server.run_end(asked)
    shown = [w.main.run("What is 6*7?", temperature=0), w.main.run("add [[steps=1 id=kinds-planned]]", agent="plan_execute"),
             w.main.run("add [[steps=1 id=kinds-doubted doubts=1]]", agent="reflexion"), w.main.get(f"/runs/{asked}")]
    kinds = [list(dict.fromkeys(step["kind"] for step in answer.json["steps"])) for answer in shown]
    assert [wanted in found for wanted, found in zip(("route", "plan", "reflection", "approval"), kinds, strict=True)] == [True] * 4, kinds
    assert set().union(*kinds) == {"route", "plan", "thought", "tool_call", "tool_result", "approval", "critique", "reflection", "answer"}, kinds
    return [answer.told("agent", said=", ".join(found)) for answer, found in zip(shown, kinds, strict=True)]


@rules.check("rule.websocket.tokens", "pieces of text come only to who asks for them")
def _(w):
    slowly = {"task": "say something [[steps=0 id=tokens pause_ms=500]]", "agent": "react"}
    asked, silent = w.main.socket("/ws/agent", slowly | {"tokens": True}), w.main.socket("/ws/agent", slowly)
    # It waits for a person until somebody follows it: what the model writes behind the answer is heard, however slow the machine is.
    run_id, step = w.open_run("rule-tokens pause_ms=500")
    approve = functools.partial(w.main.post, f"/runs/{run_id}/approvals/{step}", {"decision": "approve"})
    followed = w.main.socket(f"/ws/runs/{run_id}?tokens=true", then=approve)
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


@rules.check("rule.cli.json.work", "so do commands that change or follow something, each with one document; `runs watch` has a message a line, and an error leaves stdout empty")
def _(w):
    told = []

    def tell(*words, field):
        done = w.main.cli(*words, "--json").ok()
        has(done.json, field)
        told.append(done.told(said=f"a document with {field}"))
        return done.json

    tell("ingest", w.file("json/wren.md", "# Wren\n\nA wren sings.\n"), "-c", "json", field="indexed")
    document = tell("docs", "ls", "-c", "json", field="items")["items"][0]["document_id"]
    tell("docs", "show", document, field="versions")
    tell("docs", "rm", document, field="documents")
    tell("finetune", "dataset", "json", "--jsonl", w.file("json.jsonl", examples()), "--format", "sft", field="name")
    w.proposed(PLAIN.replace("return 1", "return 71"), "json-proposal")
    tell("project", "apply", w.project, "--file", "plain.py", "--yes", field="after_sha256")
    tell("project", "revert", w.project, "--file", "plain.py", field="file")
    tell("agent", "run", "add [[steps=0 id=json-run]]", "--agent", "react", field="run_id")
    run_id, step = w.open_run("json-approved")
    tell("runs", "resume", run_id, field="run_id")
    tell("runs", "approve", run_id, step, field="run_id")
    assert w.main.server.run_end(run_id)["status"] == "succeeded"
    stopped, _ = w.open_run("json-cancelled")
    tell("runs", "cancel", stopped, field="run_id")
    w.main.server.run_end(stopped)
    watched = w.main.cli("runs", "watch", run_id, "--json").ok()
    kinds = [json.loads(line)["type"] for line in watched.out.splitlines()]
    assert kinds[0] == "start" and kinds[-1] == "final" and set(kinds[1:-1]) == {"step"}, watched
    refused = w.main.cli("runs", "show", "run_01h455vb4pex5vsknk084sn02q", "--json")
    assert refused.out == "", refused
    return [*told, watched.told(said=f"{len(kinds)} lines: start, steps, final"), refused.failed(4, "error:", "hint:")]


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
    runs = w.alone.cli("runs", "ls", RIVERRUN_DATABASE_URL=f"postgres://{w.nobody}/db")
    return [chat.failed(3, w.nobody, "hint:"), runs.failed(3, "PostgreSQL", "hint:")]
