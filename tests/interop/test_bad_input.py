"""Bad input gets a clear error with its fix, the same shape everywhere, and nothing is lost by it."""

import json
import re

import pytest

RUN = "/agent/run"
UNKNOWN_RUN = "run_01h455vb4pex5vsknk084sn02q"

REFUSED = [
    # name, method, path, body (bytes go out as they are), headers, statuses
    ("an empty task", "POST", RUN, {"task": ""}, {}, {422}),
    ("a blank task", "POST", RUN, {"task": " \n\t"}, {}, {422}),
    ("no task", "POST", RUN, {}, {}, {422}),
    ("a task of a wrong type", "POST", RUN, {"task": 123}, {}, {422}),
    ("a task that is a list", "POST", RUN, {"task": ["x"]}, {}, {422}),
    ("a body that is a list", "POST", RUN, [], {}, {422}),
    ("a body that is null", "POST", RUN, b"null", {}, {422}),
    ("a torn body", "POST", RUN, b'{"task": "x', {}, {400}),
    ("an empty body", "POST", RUN, b"", {}, {400}),
    ("bytes that are no text", "POST", RUN, b'{"task": "\xff\xfe"}', {}, {400}),
    ("brackets 10,000 deep", "POST", RUN, b"[" * 10_000, {}, {400, 422}),
    ("another content type", "POST", RUN, b"task=x", {"content-type": "application/x-www-form-urlencoded"}, {415}),
    ("text", "POST", RUN, b'{"task": "x"}', {"content-type": "text/plain"}, {415}),
    ("a body over the limit", "POST", RUN, b'{"task": "' + b"x" * (2 << 20) + b'"}', {}, {413}),
    ("an unknown agent", "POST", RUN, {"task": "x", "agent": "root"}, {}, {422}),
    ("an agent of a wrong type", "POST", RUN, {"task": "x", "agent": 1}, {}, {422}),
    ("an unknown tool", "POST", RUN, {"task": "x", "tools": ["rm"]}, {}, {422}),
    ("an unknown provider", "POST", RUN, {"task": "x", "provider": "nobody"}, {}, {422}),
    ("an unknown field", "POST", RUN, {"task": "x", "tsak": "y"}, {}, {422}),
    ("no iterations", "POST", RUN, {"task": "x", "max_iters": 0}, {}, {422}),
    ("a negative budget", "POST", RUN, {"task": "x", "budget": {"tokens": -1}}, {}, {422}),
    ("a temperature of 9", "POST", RUN, {"task": "x", "temperature": 9}, {}, {422}),
    ("a namespace that escapes", "POST", RUN, {"task": "x", "namespace": "../other"}, {}, {422}),
    ("a namespace that collides", "POST", RUN, {"task": "x", "namespace": "a__b"}, {}, {422}),
    ("an empty task for /runs", "POST", "/runs", {"task": ""}, {}, {422}),
    ("an unknown agent for /runs", "POST", "/runs", {"task": "x", "agent": "root"}, {}, {422}),
    ("an unknown run", "GET", f"/runs/{UNKNOWN_RUN}", None, {}, {404}),
    ("a run id that is none", "GET", "/runs/1", None, {}, {404}),
    ("a run id that escapes", "GET", "/runs/..%2f..%2fetc%2fpasswd", None, {}, {404}),
    ("cancelling an unknown run", "POST", f"/runs/{UNKNOWN_RUN}/cancel", {}, {}, {404}),
    ("an empty query", "POST", "/rag/ask", {"query": "", "collection": "handbook"}, {}, {422}),
    ("an unknown collection", "POST", "/rag/ask", {"query": "x", "collection": "no-such"}, {}, {404}),
    ("searching an unknown collection", "POST", "/rag/search", {"query": "x", "collection": "no-such"}, {}, {404}),
    ("a collection name that escapes", "POST", "/rag/search", {"query": "x", "collection": "../x"}, {}, {422}),
    ("no results", "POST", "/rag/search", {"query": "x", "collection": "handbook", "k": 0}, {}, {422}),
    ("a million results", "POST", "/rag/search", {"query": "x", "collection": "handbook", "k": 1_000_000}, {}, {422}),
    ("no source", "POST", "/ingest", {"collection": "c"}, {}, {422}),
    ("an empty source", "POST", "/ingest", {"source": "", "collection": "c"}, {}, {422}),
    ("no collection", "POST", "/ingest", {"source": "/tmp"}, {}, {422}),
    ("a source outside the roots", "POST", "/ingest", {"source": "/etc/passwd", "collection": "c"}, {}, {403, 422}),
    ("a device", "POST", "/ingest", {"source": "/dev/zero", "collection": "c"}, {}, {403, 422}),
    ("a key of no characters", "POST", "/runs", {"task": "x"}, {"idempotency-key": " "}, {422}),
    ("a limit that is no number", "GET", "/runs?limit=many", None, {}, {422}),
    ("a cursor that is none", "GET", "/runs?cursor=%00%ff", None, {}, {400, 422}),
    ("an unknown route", "GET", "/no/such/route", None, {}, {404}),
    ("an unknown method", "DELETE", "/health", None, {}, {405}),
    ("a foreign host", "POST", RUN, {"task": "x"}, {"host": "evil.example"}, {403}),
    ("a foreign page", "POST", RUN, {"task": "x"}, {"origin": "https://evil.example"}, {403}),
]


def check_problem(reply, statuses):
    assert reply.status in statuses, reply
    assert reply.headers["content-type"].startswith("application/problem+json"), reply
    problem = reply.json
    assert problem["status"] == reply.status
    assert re.fullmatch(r"[a-z][a-z0-9_]+", problem["code"]), problem
    assert problem["type"] and problem["title"] and problem["detail"], problem
    assert problem.get("hint") or problem.get("errors") or reply.status in (400, 404), f"no fix: {problem}"
    assert not re.search(r"panicked|RUST_BACKTRACE|src/.*\.rs", reply.body.decode()), problem
    return problem


@pytest.mark.parametrize("method, path, body, headers, statuses", [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_it_is_refused_with_its_fix(server, method, path, body, headers, statuses):
    check_problem(server.request(method, path, body, headers), statuses)


def test_an_unknown_agent_is_answered_with_the_known_ones(server):
    problem = check_problem(server.post(RUN, {"task": "x", "agent": "root"}), {422})
    assert "react" in json.dumps(problem)


def test_a_field_of_a_wrong_type_is_named(server):
    problem = check_problem(server.post(RUN, {"task": "x", "budget": {"tokens": "many"}}), {422})
    assert problem["errors"][0]["field"] == "budget.tokens"


def test_a_key_used_again_with_another_body_is_a_conflict(server):
    first = server.post("/runs", {"task": "[[steps=0 id=k1]]"}, headers={"idempotency-key": "conflict-1"})
    again = server.post("/runs", {"task": "[[steps=0 id=k1]]"}, headers={"idempotency-key": "conflict-1"})
    assert (first.status, again.status) == (202, 202) and first.json["run_id"] == again.json["run_id"]
    check_problem(server.post("/runs", {"task": "another"}, headers={"idempotency-key": "conflict-1"}), {409})
    assert server.run_end(first.json["run_id"])["status"] == "succeeded"


def test_an_ended_run_cannot_be_cancelled(server):
    run_id = server.start_run("[[steps=0 id=ended]]")
    server.run_end(run_id)
    check_problem(server.post(f"/runs/{run_id}/cancel", {}), {409})


SOURCES = {
    "a missing file": lambda folder: folder / "missing.md",
    "an empty folder": lambda folder: made(folder / "empty"),
    "a folder without readable files": lambda folder: made(folder / "binary", "image.png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(range(256))),
    "a binary file named .txt": lambda folder: made(folder / "named", "notes.txt", bytes(range(256)) * 20) / "notes.txt",
    "an empty file": lambda folder: made(folder / "nothing", "empty.txt", b"") / "empty.txt",
}


def made(folder, name=None, content=b""):
    folder.mkdir(parents=True, exist_ok=True)
    if name:
        (folder / name).write_bytes(content)
    return folder


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES.keys())
def test_a_source_without_text_is_never_a_success(server, source, tmp_path_factory):
    path = source(server.folder / "sources")
    reply = server.post("/ingest", {"source": str(path), "collection": "nothing"})
    if reply.status != 202:
        check_problem(reply, {404, 422})
        return
    state = server.ingest_end(reply.json["ingest_id"])
    assert state["indexed"] == 0, state
    told = [state["error"]] if state.get("error") else [failure["error"] for failure in state["failures"]]
    assert told and all(error["code"] and error["message"] for error in told), state


def test_on_the_command_line_too(server, tmp_path):
    binary = tmp_path / "notes.txt"
    binary.write_bytes(bytes(range(256)) * 20)
    for arguments, statuses in [
        (["agent", "run", ""], {1, 2, 4}),
        (["agent", "run", "x", "--agent", "root"], {1, 2, 4}),
        (["ingest", str(tmp_path / "missing.md"), "-c", "c"], {1, 2, 4}),
        (["ingest", str(binary), "-c", "c"], {1, 4}),
        (["rag", "ask", "x", "-c", "no-such"], {4}),
        (["rag", "ask", "x", "-c", "../x"], {1, 2, 4}),
        (["runs", "show", UNKNOWN_RUN], {4}),
        (["no-such-command"], {2}),
        (["ingest"], {2}),
    ]:
        done = server.cli(*arguments)
        assert done.returncode in statuses, (arguments, done.returncode, done.stderr)
        assert done.stdout == "" or "--json" in arguments, (arguments, done.stdout)
        assert done.stderr.strip() and "panicked" not in done.stderr, (arguments, done.stderr)
        assert "hint: " in done.stderr, (arguments, done.stderr)


def test_after_all_that_everything_still_works(server):
    result = server.run_end(server.start_run("[[steps=2 id=after]]"))
    assert result["status"] == "succeeded"
    server.settle()
    assert server.process.poll() is None
