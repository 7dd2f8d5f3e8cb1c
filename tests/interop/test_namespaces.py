"""Nothing of a namespace shows in another by the command line: tried with every command that `--help` lists, so that a new
one that this test can't ask anything of breaks it. (The HTTP twin is `api/tests/api/namespaces.rs`.)"""

import json
import re

import pytest

WORD = "zanzibar"

# Commands that show or change nothing of a namespace, each with its reason.
NOT_OF_A_NAMESPACE = {
    "serve": "hosts everything", "worker": "works for all", "diagnose": "about this process", "providers": "the same for all", "agents": "the same for all",
    "models": "the same for all", "models ls": "the same for all", "models pull": "the same for all", "models rm": "the same for all",
    "models show": "the same for all", "models probe": "the same for all", "chat": "keeps nothing", "embed": "keeps nothing",
    "topics": "names of topics", "openapi": "the API's description", "completion": "for a shell",
    "stream produce": "to an open topic that the caller names", "stream consume": "from an open topic into the caller's own collection",
    "tokens create": "for operators", "tokens ls": "for operators", "tokens revoke": "for operators",
    "export": "for operators", "import": "for operators",
    "project tools ls": "of the machine", "project tools install": "of the machine", "project tools rm": "of the machine",
    "chaos run": "for operators", "chaos load": "for operators", "tools check": "a file of one's own",
    "canvas check": "a file of one's own",
    "mcp": "asks the routes of one namespace, which the HTTP twin tries", "dlq ls": "for operators", "dlq show": "for operators", "dlq redrive": "for operators", "dlq drop": "for operators", "blobs ls": "for operators", "blobs check": "for operators", "blobs sweep": "for operators",
    "finetune dataset": "of the machine", "finetune datasets": "of the machine", "finetune train": "of the machine", "finetune jobs": "of the machine", "finetune watch": "of the machine", "finetune cancel": "of the machine", "finetune registry": "of the machine", "finetune show": "of the machine", "finetune stage": "of the machine", "finetune export": "of the machine", "finetune eval": "of the machine",
}


def questions(owned):
    """What a stranger asks each command, for things of the owner."""
    return {
        "ingest": ["ingest", owned["file"], "-c", "papers"],
        "collections": ["collections"],
        "collections ls": ["collections", "ls"],
        "collections rm": ["collections", "rm", "papers"],
        "collections check": ["collections", "check", "papers"],
        "collections rebuild": ["collections", "rebuild", "papers"],
        "collections tune": ["collections", "tune", "papers", "--off"],
        "collections reembed": ["collections", "reembed", "papers", "--model", "all-minilm-l6-v2"],
        "search": ["search", "what is blue?", "-c", "papers"],
        "rag search": ["rag", "search", "what is blue?", "-c", "papers"],
        "rag ask": ["rag", "ask", "what is blue?", "-c", "papers"],
        "rag eval": ["rag", "eval", "--qrels", owned["qrels"], "--queries", owned["queries"], "-c", "papers", "--config", "sparse"],
        "tools": ["tools"],
        "tools ls": ["tools", "ls"],
        "agent run": ["agent", "run", "what is blue?", "-c", "papers", "--session", "talk"],
        "canvas run": ["canvas", "run", owned["canvas"], "--task", "what is blue?"],
        "canvas ls": ["canvas", "ls"],
        "canvas show": ["canvas", "show", "board"],
        "canvas save": ["canvas", "save", owned["canvas"], "--id", "mine"],
        "canvas rm": ["canvas", "rm", "board"],
        "runs ls": ["runs", "ls"],
        "runs show": ["runs", "show", owned["run_id"]],
        "runs watch": ["runs", "watch", owned["run_id"]],
        "runs cancel": ["runs", "cancel", owned["run_id"]],
        "runs approve": ["runs", "approve", owned["run_id"], "1"],
        "runs resume": ["runs", "resume", owned["run_id"]],
        "runs fork": ["runs", "fork", owned["run_id"], "--at-seq", "1"],
        "runs tree": ["runs", "tree", owned["run_id"]],
        "runs compare": ["runs", "compare", owned["run_id"], owned["run_id"]],
        "chains show": ["chains", "show", owned["chain_id"]],
        "chains watch": ["chains", "watch", owned["chain_id"]],
        "chains cancel": ["chains", "cancel", owned["chain_id"]],
        "project import": ["project", "import", owned["file"]],
        "project ls": ["project", "ls"],
        "project analyze": ["project", "analyze", owned["project_id"]],
        "project report": ["project", "report", owned["project_id"]],
        "project trend": ["project", "trend", owned["project_id"]],
        "project improve": ["project", "improve", owned["project_id"], "--file", "a.py"],
        "project apply": ["project", "apply", owned["project_id"], "--file", "a.py", "--yes"],
        "project revert": ["project", "revert", owned["project_id"], "--file", "a.py"],
        "project patch": ["project", "patch", owned["project_id"]],
        "project rm": ["project", "rm", owned["project_id"]],
        "docs ls": ["docs", "ls", "-c", "papers"],
        "docs show": ["docs", "show", owned["document_id"]],
        "docs rm": ["docs", "rm", owned["document_id"]],
        "warehouse tables": ["warehouse", "tables"],
        "warehouse query": ["warehouse", "query", "SELECT table_name FROM information_schema.tables"],
        "usage": ["usage"],
        "memory add": ["memory", "add", "user", "mine", "-s", "talk"],
        "memory chat": ["memory", "chat", "what is blue?", "-s", "talk"],
        "memory context": ["memory", "context", "--query", "what is blue?", "-s", "talk"],
        "memory turns": ["memory", "turns", "-s", "talk"],
        "memory why": ["memory", "why", owned["turn_id"], "-s", "talk"],
        "memory forget": ["memory", "forget", owned["turn_id"], "-s", "talk"],
    }


def leaves(server, path=()):
    """Every command that has no subcommands of its own, as `--help` tells."""
    text = server.cli(*path, "--help").stdout
    listed = re.search(r"^Commands:\n(.*?)(?:\n\n|\Z)", text, re.M | re.S)
    names = [name for name in re.findall(r"^  (\S+)", listed.group(1), re.M) if name != "help"] if listed else []
    if not names:
        return [" ".join(path)]
    found = [" ".join(path)] if path in (("models",), ("tools",), ("collections",)) else []  # they list by themselves, too
    for name in names:
        found += leaves(server, (*path, name))
    return found


@pytest.fixture(scope="module")
def owned(server):
    file = server.folder / "owned.md"
    file.write_text(f"# Notes\n\nThe {WORD} of the owner is here and nowhere else.\n")
    other = server.folder / "other.md"  # whoever reads a file of their own may find it: this one has nothing of the owner's
    other.write_text("# Other\n\nNothing of interest is blue.\n")
    server.ingest(file, "papers", namespace="owner")
    document = server.get("/documents?collection=papers&namespace=owner").json["items"][0]["document_id"]
    queries, qrels = server.folder / "queries.tsv", server.folder / "qrels.txt"
    queries.write_text("1\twhat is blue?\n")
    qrels.write_text("1 other 1\n")
    run = server.post("/agent/run", {"task": f"the {WORD}", "namespace": "owner"})
    assert run.status == 200, run
    chain = server.post("/chains", {"namespace": "owner", "runs": [{"name": "one", "run": {"task": f"the {WORD}"}}]})
    assert chain.status == 202, chain
    turn = server.post("/memory/turns", {"role": "user", "text": f"my {WORD} is blue", "namespace": "owner", "session": "talk"})
    canvas = server.folder / "canvas.json"
    data = {"agent": "react", "task": "{{input}}", "session": "talk"}
    canvas.write_text(json.dumps({
        "format": "riverrun.canvas", "version": 1, "name": "", "namespace": "owner", "edges": [{"from": "papers", "to": "a"}],
        "nodes": [{"id": "a", "kind": "agent", "x": 0, "y": 0, "data": data},
                  {"id": "papers", "kind": "collection", "x": 0, "y": 0, "data": {"collection": "papers"}}],
    }))
    code = server.folder / "owned-code"
    code.mkdir(exist_ok=True)
    (code / "a.py").write_text(f"{WORD} = 1\n")
    imported = server.cli("project", "import", str(code), "--name", WORD, "-n", "owner", "--json")
    assert imported.returncode == 0, imported
    project_id = json.loads(imported.stdout)["project_id"]
    analyzed = server.cli("project", "analyze", project_id, "--no-review", "-n", "owner", "--json")
    assert analyzed.returncode == 0, analyzed
    drawn = json.loads(canvas.read_text()) | {"name": WORD}
    assert server.cli("canvas", "save", kept_file(server, drawn), "--id", "board").returncode == 0
    return {"file": str(other), "run_id": run.json["run_id"], "chain_id": chain.json["chain_id"], "turn_id": turn.json["turn_id"], "document_id": document, "project_id": project_id, "queries": str(queries),
            "qrels": str(qrels), "canvas": str(canvas)}


def kept_file(server, drawn):
    path = server.folder / "board.json"
    path.write_text(json.dumps(drawn))
    return str(path)


def test_every_command_is_known_here(server, owned):
    unknown = set(leaves(server)) - set(NOT_OF_A_NAMESPACE) - set(questions(owned))
    assert not unknown, f"teach this test what a stranger asks of: {', '.join(sorted(unknown))}"


def test_a_stranger_finds_nothing_of_the_owner(server, owned):
    for name, words in questions(owned).items():
        # The owner's name is the beginning of the stranger's.
        done = server.cli(*words, "-n", "owner-2", "--json")
        assert done.returncode in (0, 4), f"{name}: {done}"
        assert WORD not in done.stdout + done.stderr, f"{name}: {done}"
        by_id = name.startswith(("runs ", "chains ", "project ")) and name not in ("runs ls", "project ls", "project import")
        assert not by_id or done.returncode == 4, f"{name}: what is found by an id is unknown to a stranger: {done}"
    turns = server.get("/memory/turns?namespace=owner&session=talk").json["items"]
    assert [turn["turn_id"] for turn in turns] == [owned["turn_id"]], "the owner's conversation is as it was"


def test_the_owner_is_answered_in_its_own_namespace(server, owned):
    for name in ("runs show", "runs tree", "runs compare", "chains show", "project report", "project patch"):
        done = server.cli(*questions(owned)[name], "-n", "owner", "--json")
        assert done.returncode == 0, f"{name}: the question was none: {done}"
