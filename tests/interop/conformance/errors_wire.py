"""Errors, more closely: sizes at their limits, fields of a wrong type, limits of rate, and commands that are interrupted."""

import json
import os
import signal
import subprocess

from conformance.core import Told
from conformance.errors import errors
from conformance.exchange import Done, short
from server import BINARY, wait_for
from test_sources import multipart

MAX_JSON_BYTES, MAX_FILE_BYTES = 1 << 20, 20 << 20


@errors.check("error.status.413.limits", "a body and a file of an upload are taken at their limits, 1 MiB and 20 MiB, and are 413 with one byte more")
def _(w):
    told = []
    body = json.dumps({"query": "launch", "collection": w.handbook, "k": 1, "rerank": False}).encode()
    for size in (MAX_JSON_BYTES, MAX_JSON_BYTES + 1):
        answer = w.main.post("/rag/search", body.ljust(size))
        told.append(Told(f"POST /rag/search ({size} bytes)", answer.told("items").came if size == MAX_JSON_BYTES else answer.problem(413).came))
        assert answer.status == (200 if size == MAX_JSON_BYTES else 413), answer
    for size in (MAX_FILE_BYTES, MAX_FILE_BYTES + 1):
        # Nothing but spaces: read through and found to have no words in a moment.
        form, headers = multipart([("collection", "large")], [("blank.txt", b" " * size)])
        answer = w.main.request("POST", "/ingest", form, headers)
        if size == MAX_FILE_BYTES:
            assert answer.status == 202, answer
            w.main.server.ingest_end(answer.json["ingest_id"])
        told.append(Told(f"POST /ingest (a file of {size} bytes)", "202" if size == MAX_FILE_BYTES else answer.problem(413).came))
    return told


# Values of another type than the field's, where the field takes one of a few words.
MISTYPED = [("/agent/run", {"task": "x", "approval": 1}, "approval"), ("/agent/run", {"task": "x", "session": "s", "session_policy": []}, "session_policy"),
            ("/runs", {"task": "x", "approval": {}}, "approval"), ("/rag/search", {"query": "x", "collection": "c", "mode": 1}, "mode"),
            ("/rag/ask", {"query": "x", "collection": "c", "mode": []}, "mode")]


@errors.check("error.status.422.types", "422 with the field, not 400, for JSON that can be read and has a value of another type, also where the field takes one of a few words")
def _(w):
    told = []
    for path, body, field in MISTYPED:
        answer = w.main.post(path, body)
        told.append(answer.problem(422))
        assert [one["field"] for one in answer.json["errors"]] == [field] and answer.json["errors"][0]["reason"], answer
    return told


@errors.check("error.status.429.rate", "429 with `Retry-After` where more is asked in a minute than is allowed; probes are not counted")
def _(w):
    place = w.place("limited", RIVERRUN_RATE_PER_TOKEN="3", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    place.server.start()
    # One more comes back each 20 s: the limit is reached however slowly these are asked.
    answers = [place.get("/agents") for _ in range(8)]
    refused = [answer for answer in answers if answer.status != 200]
    assert answers[0].status == 200 and refused and place.get("/health").status == 200, answers
    told = refused[-1].problem(429, "rate_limited")
    assert int(refused[-1].headers["retry-after"]) >= 1, refused[-1].headers
    assert place.server.stop() == 0
    return Told(f"RIVERRUN_RATE_PER_TOKEN=3: {told.sent}, again and again", f"{told.came} · retry-after: {refused[-1].headers['retry-after']}")


@errors.check("error.package-missing.tools", "an analysis names each program that it lacks, and how it is installed")
def _(w):
    programs = w.folder / "no-programs"
    programs.mkdir(exist_ok=True)
    imported = w.alone.cli("project", "import", w.code, "--json").ok()
    done = w.alone.cli("project", "analyze", imported.json["project_id"], "--no-review", "--json", PATH=str(programs)).ok()
    missing = {tool["name"]: tool for tool in done.json["tools"] if tool["status"] == "missing"}
    assert {"ruff", "mypy"} <= set(missing), done.json["tools"]
    for name, tool in missing.items():
        assert name in f"{tool['fix']} {tool['detail']}" and "not installed" in tool["detail"] and tool["fix"], tool
    return Told("PATH=… riverrun project analyze prj_… --no-review --json, without any program there",
                "; ".join(f"{name}: missing · {short(missing[name]['fix'], 90)}" for name in ("ruff", "mypy")))


def interrupted(w, words, begun):
    """A command that gets SIGINT once `begun` holds, and how it ended."""
    process = subprocess.Popen([BINARY, *words], cwd=w.main.server.folder, env=w.main.server.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: begun() or process.poll() is not None, 60, f"riverrun {words[0]} to begin")
        assert process.poll() is None, process.communicate()
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        process.kill()
        process.wait()
    return Done(f"riverrun {' '.join(map(str, words))}; then SIGINT", subprocess.CompletedProcess([], process.returncode, out, err))


@errors.check("error.exit.130.commands", "130 wherever a command is interrupted: while a model writes, and while a run goes on, which goes on without it")
def _(w):
    slowly = "say it [[steps=1 delay_ms=1500 id=interrupted-{}]]"
    # The run has been asked about twice when it is interrupted: by then it is followed.
    chat, run = (interrupted(w, [*words, slowly.format(name), *more], lambda name=name, times=times: len(w.model.chats_of(f"interrupted-{name}")) >= times)
                 for name, times, words, more in (("chat", 1, ["chat"], []), ("run", 2, ["agent", "run"], ["--agent", "react"])))
    told = [chat.failed(130, "interrupted"), run.failed(130, "interrupted", "hint:", "runs watch")]
    [run_id] = {word.strip(":,") for word in run.err.split() if word.startswith("run_")}
    assert w.main.server.run_end(run_id)["status"] == "succeeded", run
    return [*told, w.main.get(f"/runs/{run_id}").told("status")]
