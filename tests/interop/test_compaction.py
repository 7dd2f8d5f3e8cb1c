"""Runs that outgrow their model's context: a step says what is left out, and the run goes on. Chats go to the scripted model."""

import base64
import json

import pytest
from websockets.sync.client import connect

from server import wait_for

CONTEXT = 3072
TOOL = """
[[tool]]
name = "numbers"
description = "Lists numbers."
effect = "none"
arguments.first = { type = "string", description = "The first one", maxLength = 6 }
arguments.last = { type = "string", description = "The last one", maxLength = 6 }

[tool.command]
program = "/usr/bin/seq"
args = ["{first}", "{last}"]
"""
PAGES = 5


def says(*words):
    return ",".join(base64.b64encode(word.encode()).decode() for word in words)


def reading(script_id, **script):
    """A task for the scripted model: five calls of the tool, each with about 1,500 characters of result, then an answer."""
    use = [json.dumps({"thought": "on", "tool": "numbers", "arguments": {"first": f"{n}000", "last": f"{n}300"}})
           for n in range(1, PAGES + 1)]
    script = {"id": script_id, "says": says(*use, '{"thought":"enough","tool":"answer","arguments":{}}', "all read"), **script}
    return "[[" + " ".join(f"{name}={value}" for name, value in script.items()) + "]]"


def compactions(run):
    """The line for people and the record of each."""
    texts = [step["text"] for step in run["steps"] if step["kind"] == "compaction"]
    return [(text.split("\n")[0], json.loads(text.split("\n")[1])) for text in texts]


@pytest.fixture
def small(new_server, tmp_path):
    path = tmp_path / "tools.toml"
    path.write_text(TOOL)
    return new_server(RIVERRUN_TOOLS_FILE=str(path), RIVERRUN_MODEL_CONTEXT_TOKENS=str(CONTEXT),
                      RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed").start()


def check(run):
    assert (run["status"], run["answer"]) == ("succeeded", "all read"), run
    assert [step["seq"] for step in run["steps"]] == list(range(1, len(run["steps"]) + 1))
    results = [step["seq"] for step in run["steps"] if step["kind"] == "tool_result"]
    assert len(results) == PAGES
    said = compactions(run)
    assert said, "it outgrew its context"
    for line, record in said:
        assert "does not fit" in line, line
        assert record["tokens_after"] < record["tokens_before"] and record["context_tokens"] == CONTEXT, record
        assert record["dropped_steps"] or record["shortened_steps"], record
        assert results[-1] not in record["dropped_steps"] + record["shortened_steps"], "the newest is never touched"
    dropped = [seq for _, record in said for seq in record["dropped_steps"]]
    assert len(dropped) == len(set(dropped)), "nothing is left out twice"
    # A call and its result go together.
    calls = {step["tool"]["call_id"]: step["seq"] for step in run["steps"] if step["kind"] == "tool_call"}
    pairs = [(calls[step["tool"]["call_id"]], step["seq"]) for step in run["steps"] if step["kind"] == "tool_result"]
    assert all((call in dropped) == (result in dropped) for call, result in pairs), (pairs, dropped)


def test_a_run_that_outgrows_its_context_says_what_it_leaves_out_wherever_it_is_looked_at(small):
    run = small.post("/agent/run", {"task": reading("compacted"), "agent": "react", "tools": ["numbers"]}).json
    check(run)
    assert all(record["tokens_after"] <= CONTEXT - record["reserved_tokens"] for _, record in compactions(run)), run
    assert small.get(f"/runs/{run['run_id']}").json["steps"] == run["steps"], "the same from the read model"
    with connect(f"{small.ws_url}/ws/runs/{run['run_id']}") as socket:
        steps = [message["step"] for message in map(json.loads, socket) if message["type"] == "step"]
    assert steps == run["steps"], "the same from the stream"
    shown = small.cli("runs", "show", run["run_id"])
    assert shown.returncode == 0 and "compaction" in shown.stdout and "does not fit the model's context" in shown.stdout, shown


def test_a_prompt_that_the_models_server_refuses_is_made_smaller(small):
    # The server takes fewer than its context says: only its refusal tells.
    run = small.post("/agent/run", {"task": reading("refused", refuse_over=5500), "agent": "react", "tools": ["numbers"]}).json
    check(run)


def test_a_task_that_is_too_large_by_itself_ends_with_what_to_do(small):
    task = "[[id=too-long refuse_over=4000]] " + "a long task. " * 1000
    run = small.post("/agent/run", {"task": task, "agent": "react", "tools": ["numbers"]}).json
    assert (run["status"], run["error"]["code"]) == ("failed", "context_overflow"), run
    assert "RIVERRUN_MODEL_CONTEXT_TOKENS" in run["error"]["hint"] and not compactions(run), run


def test_a_conversation_that_leaves_no_room_is_shown_in_part(new_server):
    server = new_server(RIVERRUN_MODEL_CONTEXT_TOKENS="2048", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed").start()
    talk = {"namespace": "default", "session": "long"}
    for n in range(3):
        text = f"turn {n}. " + "some words. " * 120
        assert server.post("/memory/turns", {"role": "user", "text": text, **talk}).status == 200
    wait_for(lambda: len(server.get("/memory/turns?session=long").json["items"]) == 3, 30, "the turns to be there")
    run = server.post("/agent/run", {"task": "what was said?", "agent": "react", "tools": ["calculator"], **talk}).json
    assert run["status"] == "succeeded", run
    [(line, record), *_] = compactions(run)
    assert record["dropped_memories"] > 0 and not record["dropped_steps"] and "memories left out" in line, record


def test_the_steps_of_a_run_are_read_page_by_page(small):
    run = small.post("/agent/run", {"task": reading("paged"), "agent": "react", "tools": ["numbers"]}).json
    page = small.get(f"/runs/{run['run_id']}/steps?limit=4").json
    assert page["items"] == run["steps"][:4] and page["next_cursor"] == "4", page
    rest = small.get(f"/runs/{run['run_id']}/steps?cursor={page['next_cursor']}&limit=500").json
    assert page["items"] + rest["items"] == run["steps"] and rest["next_cursor"] is None, rest
