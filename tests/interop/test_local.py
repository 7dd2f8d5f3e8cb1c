"""Without a server: a command hosts the whole stack for its own duration, with real models in the process."""

import json

import pytest

from server import ROOT, Server

HANDBOOK = ROOT / "examples/handbook"


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Settings and a data folder, and no server."""
    return Server(tmp_path_factory.mktemp("alone"))


@pytest.fixture(scope="module")
def handbook(alone):
    done = alone.cli("ingest", str(HANDBOOK), "-c", "handbook", "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_folder_is_ingested(alone, handbook):
    files = [path for path in HANDBOOK.iterdir() if path.is_file()]
    assert handbook["status"] == "done" and handbook["indexed"] == len(files) and handbook["failed"] == 0, handbook
    listed = json.loads(alone.cli("collections", "--json").stdout)["items"]
    assert [(one["name"], one["documents"], one["chunks"]) for one in listed] == [("handbook", len(files), handbook["chunks"])]


def test_the_same_folder_again_is_no_work(alone, handbook):
    done = alone.cli("ingest", str(HANDBOOK), "-c", "handbook", "--json")
    assert done.returncode == 0, done.stderr
    again = json.loads(done.stdout)
    assert again["unchanged"] == handbook["indexed"] and again["indexed"] == 0, again


def test_search_finds_the_page_and_its_bytes(alone, handbook):
    done = alone.cli("rag", "search", "what does a winch launch cost", "-c", "handbook", "-k", "3", "--json")
    assert done.returncode == 0, done.stderr
    items = json.loads(done.stdout)["items"]
    assert any(item["source"].endswith("charges.md") for item in items), items
    for item in items:
        start, end = item["span"]["start"], item["span"]["end"]
        assert (HANDBOOK / item["source"].rsplit("/", 1)[-1]).read_bytes()[start:end].decode() == item["text"]


QUESTIONS = [("What does a winch launch cost?", "12"), ("What does the two-seater cost per minute?", "0.60"),
             ("What does an aerotow to 600 metres cost?", "38")]


def test_answers_cite_what_was_found(alone, handbook):
    """A model of half a billion parameters may refuse one question or another; what it cites must be there all the same."""
    right = 0
    for question, fact in QUESTIONS:
        done = alone.cli("rag", "ask", question, "-c", "handbook", "--json",
                         RIVERRUN_DEFAULT_CHAT_MODEL="qwen2.5-coder-0.5b-instruct")
        assert done.returncode == 0, done.stderr
        reply = json.loads(done.stdout)
        assert reply["usage"]["completion_tokens"] > 0
        assert reply["found"] or not reply["citations"], reply
        for citation in reply["citations"]:
            start, end = citation["span"]["start"], citation["span"]["end"]
            page = HANDBOOK / citation["source"].rsplit("/", 1)[-1]
            assert citation["quote"] in page.read_bytes()[start:end].decode(), citation
        right += fact in reply["answer"] and bool(reply["citations"])
    assert right > 0, "no question was answered with its fact and a source"


def test_an_agent_runs_to_its_end(alone):
    done = alone.cli("agent", "run", "What is 12 * 7? Use the calculator.", "--agent", "react", "--json",
                     RIVERRUN_DEFAULT_CHAT_MODEL="qwen2.5-coder-0.5b-instruct", RIVERRUN_AGENT_TEMPERATURE="0")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["status"] == "succeeded" and "84" in result["answer"], result
    assert "calculator" in [step["tool"]["name"] for step in result["steps"] if step["kind"] == "tool_call"], result


@pytest.fixture(scope="module")
def grounded(alone, handbook):
    """What each agent type makes of a question about documents, with the real model."""
    def asked(agent):
        done = alone.cli("agent", "run", QUESTIONS[0][0], "--agent", agent, "--collection", "handbook", "--json", timeout=900,
                         RIVERRUN_DEFAULT_CHAT_MODEL="qwen2.5-coder-0.5b-instruct", RIVERRUN_AGENT_TEMPERATURE="0")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)
    return {agent: asked(agent) for agent in ("react", "plan_execute", "reflexion", "critic")}


def test_every_agent_type_searches_the_documents_it_is_given_and_cites_only_what_is_there(grounded):
    for agent, run in grounded.items():
        found = [step["tool"] for step in run["steps"] if step["kind"] == "tool_result" and step["tool"]["name"] == "knowledge_search"]
        assert run["status"] == "succeeded" and any(tool.get("result") for tool in found), (agent, run)
        for citation in run["citations"]:
            start, end = citation["span"]["start"], citation["span"]["end"]
            page = HANDBOOK / citation["source"].rsplit("/", 1)[-1]
            assert page.read_bytes()[start:end].decode() == citation["quote"], (agent, citation)
            assert f"[{citation['n']}]" in run["answer"], (agent, run)


def test_an_agents_answer_has_its_fact_and_a_citation_that_supports_it(grounded):
    """A small model may fail with one type or another."""
    fact = QUESTIONS[0][1]
    right = [agent for agent, run in grounded.items() if fact in (run["answer"] or "") and any(one["supported"] for one in run["citations"])]
    assert right, {agent: (run["answer"], run["citations"]) for agent, run in grounded.items()}
