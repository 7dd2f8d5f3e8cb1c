"""Canvases from the command line: the page's own exchange format, run without the page."""

import json
import subprocess

import pytest

from server import BINARY, ROOT, wait_for

EXAMPLES = ROOT / "examples/canvas"
BAD = sorted((ROOT / "web/fixtures/canvas/bad").iterdir())


def agent(node, task, **data):
    return {"id": node, "kind": "agent", "x": 0, "y": 0, "data": {"agent": "react", "task": task, **data}}


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
    assert second["run"]["task"] == "Shorten: {{input}}"
    assert second["run"]["after"] == [first["run"]["run_id"]]
    assert {step["tool"]["name"] for step in first["run"]["steps"] if step["kind"] == "tool_call"} == {"calculator"}
    assert first["run"]["metadata"] == {"canvas": "Two in a row", "node": "first"}
    known = server.get(f"/runs/{second['run']['run_id']}").json
    assert (known["status"], known["task"]) == ("succeeded", second["run"]["task"])


def test_a_row_goes_on_when_the_command_line_is_killed(server, tmp_path):
    """The chain is on the server's log: nobody needs to watch it."""
    path = two_in_a_row(tmp_path)
    task = "[[steps=4 delay_ms=300 id=canvas-killed]] Count."
    command = subprocess.Popen([BINARY, "canvas", "run", path, "--task", task], cwd=server.folder, env=server.env,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def runs():
        items = server.get("/runs?limit=100").json["items"]
        first = next((run["run_id"] for run in items if run["task"] == task), None)
        views = [server.get(f"/runs/{run['run_id']}").json for run in items if run["task"] == "Shorten: {{input}}"]
        return first, next((view for view in views if first and view.get("after") == [first]), None)

    try:
        wait_for(lambda: runs()[1], 60, "the chain on the log")
    finally:
        command.kill()
        command.wait()
    wait_for(lambda: runs()[1]["status"] == "succeeded", 60, "the end of the chain")
    assert server.get(f"/runs/{runs()[0]}").json["status"] == "succeeded"


def test_a_chain_ends_with_the_run_that_is_cancelled(server):
    def part(name, task, *after):
        return {"name": name, "after": list(after), "run": {"task": task, "agent": "react"}}

    slow = "[[steps=30 delay_ms=300 id=chain-cancelled]] Count."
    started = server.post("/chains", {"runs": [part("c", "{{input}}", "b"), part("b", "{{input}}", "a"), part("a", slow)]})
    assert started.status == 202, started
    ids = {run["name"]: run["run_id"] for run in started.json["runs"]}
    assert list(ids) == ["a", "b", "c"]
    assert server.post(f"/runs/{ids['a']}/cancel", {}).status == 202
    for run in ids.values():
        assert server.run_end(run)["status"] == "cancelled"
    last = server.get(f"/runs/{ids['c']}").json
    assert (last["stop_reason"], last["error"]["code"]) == ("predecessor_cancelled", "predecessor_cancelled")
    assert ids["b"] in last["error"]["message"]


def test_people_get_the_last_answer_and_can_choose_where_to_end(server, tmp_path):
    done = server.cli("canvas", "run", two_in_a_row(tmp_path), "--task", "[[steps=1]] Add.", "--node", "first")
    assert (done.returncode, done.stdout.strip()) == (0, "done after 1 steps"), done
    assert "1 of 1: first" in done.stderr


def test_agents_with_names_are_spoken_of_by_them(server, tmp_path):
    nodes = [agent("a1", "{{input}}", name="Researcher"), agent("a2", "Shorten: {{input}}", name="Критик")]
    path = canvas(tmp_path, nodes, [("a1", "a2")])
    done = server.cli("canvas", "run", path, "--task", "[[steps=0 id=canvas-named]] Go.", "--json")
    assert done.returncode == 0, done
    items = json.loads(done.stdout)["items"]
    assert [(item["node"], item["name"]) for item in items] == [("a1", "Researcher"), ("a2", "Критик")]
    assert [item["run"]["chain"]["name"] for item in items] == ["Researcher", "Критик"]
    one = server.cli("canvas", "run", path, "--task", "[[steps=0]] Go.", "--node", "Researcher")
    assert one.returncode == 0 and "1 of 1: Researcher" in one.stderr, one
    wrong = server.cli("canvas", "run", path, "--task", "x", "--node", "Nobody")
    assert wrong.returncode == 4 and "a1 (Researcher), a2 (Критик)" in wrong.stderr, wrong


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


def test_the_schema_of_the_format_is_published_and_refuses_what_it_does_not_know(server):
    published = server.get("/canvas.schema.json")
    assert published.status == 200, published
    assert published.json == json.loads((ROOT / "web/public/canvas.schema.json").read_text())
    kinds = published.json["properties"]["nodes"]["items"]["oneOf"]
    objects = [published.json, published.json["properties"]["edges"]["items"], *kinds, *(kind["properties"]["data"] for kind in kinds)]
    assert len(objects) == 12 and all(one["additionalProperties"] is False for one in objects)


def test_the_example_runs(server):
    done = subprocess.run([EXAMPLES / "run.sh", "[[steps=1]] 17% of 230"], env=server.env | {"RIVERRUN": str(BINARY)},
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "2 agents" in done.stdout and "2 of 2" in done.stderr, done


def test_canvases_are_kept_on_the_server_and_run_from_there(server, tmp_path):
    path = two_in_a_row(tmp_path)
    kept = server.cli("canvas", "save", path, "--json")
    assert kept.returncode == 0, kept
    assert json.loads(kept.stdout).items() >= {"canvas_id": "two-in-a-row", "revision": 1}.items()
    again = server.cli("canvas", "save", path)
    assert again.returncode == 4 and "revision 1" in again.stderr and "hint" in again.stderr, again
    assert server.cli("canvas", "save", path, "--revision", "1").returncode == 0
    entries = json.loads(server.cli("canvas", "ls", "--json").stdout)["items"]
    assert ("two-in-a-row", 2) in [(entry["canvas_id"], entry["revision"]) for entry in entries]
    assert json.loads(server.cli("canvas", "show", "two-in-a-row").stdout) == json.loads(path.read_text())
    for number, wanted in enumerate(["two-in-a-row", "Two in a row"]):
        done = server.cli("canvas", "run", wanted, "--task", f"[[steps=1 id=canvas-kept-{number}]] Add.", "--json")
        assert done.returncode == 0, done
        assert [item["node"] for item in json.loads(done.stdout)["items"]] == ["first", "second"]
    assert server.cli("canvas", "rm", "two-in-a-row").returncode == 0
    gone = server.cli("canvas", "run", "two-in-a-row", "--task", "x")
    assert gone.returncode == 4 and "no file and no canvas" in gone.stderr, gone
