"""Canvases from the command line: the page's own exchange format, run without the page."""

import json
import subprocess

import pytest

from server import BINARY, ROOT

EXAMPLES = ROOT / "examples/canvas"
BAD = sorted((ROOT / "web/fixtures/canvas/bad").iterdir())


def agent(name, task, **data):
    return {"id": name, "kind": "agent", "x": 0, "y": 0, "data": {"agent": "react", "task": task, **data}}


def tool(name):
    return {"id": name, "kind": "tool", "x": 0, "y": 0, "data": {"tool": name}}


def canvas(folder, nodes, edges, namespace="default"):
    path = folder / "canvas.json"
    path.write_text(json.dumps({
        "format": "riverrun.canvas", "version": 1, "name": "Two in a row", "namespace": namespace, "nodes": nodes,
        "edges": [{"from": a, "to": b} for a, b in edges],
    }))
    return path


def two_in_a_row(folder):
    nodes = [tool("calculator"), agent("first", "{{input}}"), agent("second", "Shorten: {{input}}")]
    return canvas(folder, nodes, [("calculator", "first"), ("first", "second")])


def test_agents_in_a_row_hand_on_their_answers(server, tmp_path):
    done = server.cli("canvas", "run", two_in_a_row(tmp_path), "--task", "[[steps=2 id=canvas-row]] Add.", "--json")
    assert done.returncode == 0, done
    first, second = json.loads(done.stdout)["items"]
    assert (first["node"], second["node"]) == ("first", "second")
    assert first["run"]["answer"] == "done after 2 steps"
    assert second["run"]["task"] == "Shorten: done after 2 steps"
    assert {step["tool"]["name"] for step in first["run"]["steps"] if step["kind"] == "tool_call"} == {"calculator"}
    assert first["run"]["metadata"] == {"canvas": "Two in a row", "node": "first"}
    known = server.get(f"/runs/{second['run']['run_id']}").json
    assert (known["status"], known["task"]) == ("succeeded", second["run"]["task"])


def test_people_get_the_last_answer_and_can_choose_where_to_end(server, tmp_path):
    done = server.cli("canvas", "run", two_in_a_row(tmp_path), "--task", "[[steps=1]] Add.", "--node", "first")
    assert (done.returncode, done.stdout.strip()) == (0, "done after 1 steps"), done
    assert "1 of 1: first" in done.stderr


@pytest.mark.parametrize("wrong", ["unknown tool", "no task", "unknown node"])
def test_what_can_not_run_is_refused_before_anything_starts(server, tmp_path, wrong):
    before = server.get("/runs?limit=1").json["items"]
    nodes = [agent("a", "" if wrong == "no task" else "x"), tool("not-a-tool" if wrong == "unknown tool" else "clock")]
    path = canvas(tmp_path, nodes, [(nodes[1]["id"], "a")])
    done = server.cli("canvas", "run", path, *(["--node", "z"] if wrong == "unknown node" else []))
    assert done.returncode == 4 and "hint:" in done.stderr, done
    assert server.get("/runs?limit=1").json["items"] == before


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_file_that_the_page_refuses_is_refused_here_too(server, path):
    done = server.cli("canvas", "check", path)
    assert (done.returncode, done.stdout) == (4, ""), done


def test_the_example_runs(server):
    done = subprocess.run([EXAMPLES / "run.sh", "[[steps=1]] 17% of 230"], env=server.env | {"RIVERRUN_BIN": str(BINARY)},
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "2 agents" in done.stdout and "2 of 2" in done.stderr, done
