"""The agent types and the supervisor, as a client of the HTTP API sees them; chats go to the scripted model."""

import base64
import json

import pytest

AGENTS = ["react", "plan_execute", "reflexion", "critic"]
# What each leaves behind for a task with two calls of a tool.
CALLS = ["thought", "tool_call", "tool_result"] * 2
KINDS = {
    "react": [*CALLS, "thought", "answer"],
    "plan_execute": ["plan", *CALLS, "answer"],
    "reflexion": [*CALLS, "thought", "thought", "critique", "answer"],
    "critic": [*CALLS, "thought", "thought", "critique", "answer"],
}


def run(server, **request):
    reply = server.post("/agent/run", request)
    assert reply.status == 200, reply
    return reply.json


def test_the_catalog_has_the_four_with_what_they_can_do(server):
    items = server.get("/agents").json["items"]
    assert [one["name"] for one in items] == AGENTS
    assert all(one["description"] and one["capabilities"] and one["tags"] for one in items), items


@pytest.mark.parametrize("agent", AGENTS)
def test_every_type_finishes_a_task_with_tools_in_its_own_way(server, agent):
    result = run(server, task=f"count [[steps=2 id=types-{agent}]]", agent=agent)
    assert (result["status"], result["stop_reason"], result["agent"]) == ("succeeded", "answered", agent), result
    assert [step["kind"] for step in result["steps"]] == KINDS[agent], result["steps"]
    assert [step["seq"] for step in result["steps"]] == list(range(1, len(result["steps"]) + 1))
    assert result["answer"] == "done after 2 steps"


@pytest.mark.parametrize("agent", AGENTS)
def test_without_tools_every_type_answers(server, agent):
    result = run(server, task="say something", agent=agent, tools=[])
    assert result["status"] == "succeeded" and result["answer"], result


def test_plans_verdicts_and_critiques_are_data(server):
    def text(agent, kind):
        result = run(server, task=f"count [[steps=1 id=data-{agent}]]", agent=agent)
        return json.loads(next(step["text"] for step in result["steps"] if step["kind"] == kind))

    plan = text("plan_execute", "plan")
    assert plan["plan"] == 1 and plan["steps"][0] == {"id": 1, "description": "add 0", "tool": "calculator"}, plan
    assert text("reflexion", "critique") == {"attempt": 1, "passed": True, "reason": "it fits"}
    critique = text("critic", "critique")
    assert critique["passed"] and [one["criterion"] for one in critique["findings"]] == ["complete", "grounded", "correct", "clear"]


@pytest.mark.parametrize("task, agent", [("Write a letter and improve its wording", "critic"),
                                         ("Solve this puzzle and double-check the result", "reflexion"),
                                         ("Compare both, step by step", "plan_execute"), ("What is 6*7?", "react")])
def test_without_an_agent_the_first_step_says_who_does_it_and_why(server, task, agent):
    results = [run(server, task=task, temperature=0) for _ in range(2)]
    routes = [result["steps"][0] for result in results]
    assert all(step["kind"] == "route" and step["seq"] == 1 for step in routes), routes
    assert routes[0]["text"] == routes[1]["text"], "the same task, the same choice"
    line, record = routes[0]["text"].splitlines()
    record = json.loads(record)
    assert line.startswith(f"{record['agent']}: ") and results[0]["agent"] == record["agent"]
    assert [score["agent"] for score in record["scores"]] == AGENTS
    # The scripted model names the first candidate, which is the rules' own.
    assert record["agent"] == agent, record


@pytest.fixture(scope="module")
def charges(server):
    """What a run needs to be about a document that no other test knows."""
    file = server.folder / "launches.md"
    file.write_text("# Charges\n\nIt is as the handbook says: a winch launch costs 9 crowns.\n")
    assert server.ingest(file, "launches", namespace="grounded")["indexed"] == 1
    return {"namespace": "grounded", "collections": ["launches"]}


@pytest.mark.parametrize("agent", AGENTS)
def test_given_collections_when_the_model_does_not_look_there_then_the_agent_does_and_the_answer_is_cited(server, charges, agent):
    result = run(server, task="what does a winch launch cost?", agent=agent, **charges)
    assert result["status"] == "succeeded", result
    searches = [step for step in result["steps"] if step["kind"] == "tool_call" and step["tool"]["name"] == "knowledge_search"]
    assert len(searches) == 1 and "not searched yet" in searches[0]["text"], result["steps"]
    assert result["answer"] == "It is as the handbook says [1].", result
    [cited] = result["citations"]
    assert (cited["n"], cited["supported"]) == (1, True) and cited["source"].endswith("launches.md"), cited


def test_given_an_answer_that_no_passage_holds_when_it_is_written_then_it_is_written_anew_once(server, charges):
    def says(*words):
        return ",".join(base64.b64encode(each.encode()).decode() for each in words)

    act = json.dumps({"thought": "I know it", "tool": "answer", "arguments": {}})
    invented, backed = "A winch launch costs 1,000 dollars.", "A winch launch costs 9 crowns."
    for name, second, answer, cited in [("found", backed, "A winch launch costs 9 crowns [1].", [(1, True)]), ("lost", invented, invented, [])]:
        task = f"what does a winch launch cost? [[id=anew-{name} says={says(act, act, invented, second)}]]"
        result = run(server, task=task, agent="react", **charges)
        thoughts = [step["text"] for step in result["steps"] if step["kind"] == "thought"]
        assert thoughts[-1] == f"[not in the passages]\n{invented}", result["steps"]
        assert result["answer"] == answer, result
        assert [(each["n"], each["supported"]) for each in result["citations"]] == cited, result
