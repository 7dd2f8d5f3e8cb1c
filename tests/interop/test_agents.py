"""The agent types and the supervisor, as a client of the HTTP API sees them; chats go to the scripted model."""

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
