"""Rules of form that hold for whole kinds of routes: every POST that writes takes a key, every list is read in pages."""

from conformance.core import Told
from conformance.exchange import has
from conformance.rules import rules
from conformance.world import PLAIN, examples, says, training
from server import wait_for
from test_sources import multipart

# POSTs that answer a question and write nothing, or say who one is: they take no key.
READING = {"/auth/session", "/chat", "/embed", "/finetune/estimate", "/rag/ask", "/rag/search", "/subjects/{subject}", "/subjects/{subject}/versions",
           "/v1/embeddings", "/warehouse/query"}
# POSTs that take a key by the same code as those that are asked here, and need what another check has at hand.
ELSEWHERE = {"/runs/{id}/cancel", "/runs/{id}/approvals/{step}",  # rule.idempotency.answers
             "/collections/{name}/rebuild",  # test_keys.py
             "/runs/{id}/resume", "/chains/{id}/cancel", "/collections/{name}/reembed", "/collections/{name}/tune", "/dlq/{id}/drop", "/dlq/{id}/redrive",
             "/finetune/jobs/{id}/cancel", "/finetune/registry/{model}/{version}/stage", "/models/probe", "/projects/tools", "/blobs/sweep"}


def takes(operation, header):
    return any(one["in"] == "header" and one["name"].lower() == header for one in operation.get("parameters", []))


def form(name, lines):
    """A form with a dataset, and its headers."""
    return multipart([("name", name), ("format", "sft")], [(f"{name}.jsonl", lines.encode())])


def keyed(w):
    """What is asked with a key: the route, the path, the body, and another body for the same key. A pair is a form and its headers."""
    project, ended = f"/projects/{w.project}", w.ended["run_id"]
    quokka, numbat = (str(w.file(f"keys/{name}.md", f"# {name}\n\nA {name} smiles.\n")) for name in ("quokka", "numbat"))
    w.hand_in("keyed").ok()
    proposal = w.proposed(PLAIN.replace("return 1", "return 51"), "keys-proposal")[1].json["proposal_id"]
    run, chat = {"agent": "react", "task": "add [[steps=0 id=keys-run]]"}, [{"role": "user", "content": "add [[steps=0 id=keys-v1]]"}]
    change, rewrite = {"file": "plain.py", "confirm": True}, says(f"```python\n{PLAIN.replace('return 1', 'return 52')}```\n", "keys-improve")
    yield "/agent/run", "/agent/run", run, run | {"task": "other"}
    yield "/runs", "/runs", run, run | {"agent": "critic"}
    yield "/runs/{id}/fork", f"/runs/{ended}/fork", {"at_seq": 0}, {"at_seq": 3}
    yield "/chains", "/chains", {"runs": [{"name": "one", "run": run}]}, {"runs": [{"name": "two", "run": run}]}
    yield "/v1/chat/completions", "/v1/chat/completions", {"model": "agent/react", "messages": chat}, {"model": "agent/critic", "messages": chat}
    yield "/tools/{name}/call", "/tools/calculator/call", {"arguments": {"expression": "1 + 1"}}, {"arguments": {"expression": "1 + 2"}}
    yield "/memory/turns", "/memory/turns", {"role": "user", "text": "once", "session": "keys"}, {"role": "user", "text": "twice", "session": "keys"}
    yield "/memory/chat", "/memory/chat", {"text": "once", "session": "keys-chat", "stream": False}, {"text": "twice", "session": "keys-chat", "stream": False}
    yield "/ingest", "/ingest", {"source": quokka, "collection": "keys"}, {"source": numbat, "collection": "keys"}
    yield "/finetune/datasets", "/finetune/datasets", form("keys", examples(12)), form("keys", examples(13))
    yield "/finetune/jobs", "/finetune/jobs", training("keyed", max_steps=1), training("keyed", max_steps=2)
    yield "/projects/import", "/projects/import", {"source": str(w.code), "name": "keys"}, {"source": str(w.code), "name": "other keys"}
    yield "/projects/{id}/analyze", f"{project}/analyze", {"review": False}, {"review": True}
    yield "/projects/{id}/improve", f"{project}/improve", {"file": "plain.py", "instruction": rewrite}, {"file": "plain.py", "instruction": "other"}
    yield "/projects/{id}/apply", f"{project}/apply", change | {"proposal_id": proposal}, change
    yield "/projects/{id}/revert", f"{project}/revert", change, change | {"file": "train.py"}


@rules.check("rule.idempotency.writes", "every POST that writes takes a key: a repeat gets the first answer, and the key with another body is 409")
def _(w):
    posts = {path: item["post"] for path, item in w.main.get("/openapi.json").json["paths"].items() if "post" in item}
    taking = {path for path, operation in posts.items() if takes(operation, "idempotency-key")}
    assert taking == set(posts) - READING, taking ^ (set(posts) - READING)

    def ask(path, body):
        body, headers = body if isinstance(body, tuple) else (body, {})
        return w.main.request("POST", path, body, headers | {"idempotency-key": f"of {path}"})

    told, asked = [], set()
    for route, path, body, other in keyed(w):
        first, again, refused = (ask(path, one) for one in (body, body, other))
        assert first.status in (200, 201, 202) and (again.status, again.json) == (first.status, first.json), (first, again)
        if route.startswith("/v1/"):
            assert refused.status == 409 and refused.json["error"]["code"] == "idempotency_key_reused", refused
        else:
            refused.problem(409, "idempotency_key_reused")
        if route == "/finetune/jobs":
            w.main.socket(first.json["stream"])
        asked.add(route)
        told.append(Told(f"POST {route} twice, then another body", f"{first.status}, the same again, 409 idempotency_key_reused"))
    assert not asked & ELSEWHERE and asked | ELSEWHERE == taking, (asked | ELSEWHERE) ^ taking
    assert len(w.model.chats_of("keys-v1")) <= 3, "a repeat started a run"
    w.main.server.settle()
    return told


# ---- lists ---------------------------------------------------------------------------------------------------------------

# What tells the items of each list apart.
NAMES = {
    "/canvases": ("canvas_id",),
    "/documents": ("document_id",),
    "/finetune/datasets": ("name",),
    "/finetune/jobs": ("job_id",),
    "/finetune/registry": ("model", "version"),
    "/memory/turns": ("turn_id",),
    "/projects": ("project_id",),
    "/projects/{id}/analyses": ("analysis_id",),
    "/projects/{id}/files": ("path",),
    "/projects/{id}/proposals": ("proposal_id",),
    "/runs": ("run_id",),
    "/runs/{id}/steps": ("seq",),
}


def filled(w):
    """Something for every list to have in it, two of each at least."""
    ended = w.ended["run_id"]
    w.analysis
    analyzed = w.main.post(f"/projects/{w.project}/analyze", {"review": False}, headers={"prefer": "wait=120"})
    assert analyzed.status == 200, analyzed
    for n in (1, 2):
        drawn = {"format": "riverrun.canvas", "version": 1, "name": f"List {n}", "namespace": "default", "edges": [],
                 "nodes": [{"id": "a", "kind": "agent", "x": 0, "y": 0, "data": {"agent": "react", "task": "add"}}]}
        saved = w.main.request("PUT", f"/canvases/list-{n}", {"revision": 0, "document": drawn})
        assert saved.status in (200, 409), saved
        w.main.post("/memory/turns", {"role": "user", "text": f"turn {n}", "session": "lists"})
        w.hand_in(f"listed-{n}").ok()
        job = w.main.post("/finetune/jobs", training(f"listed-{n}", max_steps=1))
        assert job.status == 202, job
        w.main.socket(f"/ws/finetune/{job.json['job_id']}")
        w.proposed(PLAIN.replace("return 1", f"return 6{n}"), f"lists-{n}")
        imported = w.main.post("/projects/import", {"source": str(w.code), "name": f"List {n}"})
        w.imported(imported.json["project_id"])
        ran = w.main.run(f"add [[steps=0 id=lists-{n}]]", agent="react").json["run_id"]
        wait_for(lambda ran=ran: w.main.server.get(f"/runs/{ran}").status == 200, 60, "the run to be listed")
    return {"/documents": f"/documents?collection={w.handbook}", "/memory/turns": "/memory/turns?session=lists", "/runs/{id}/steps": f"/runs/{ended}/steps"}


@rules.check("rule.lists.cursors", "every list with a cursor is read by it from page to page: each entry comes once, in the order of the whole")
def _(w):
    paths = w.main.get("/openapi.json").json["paths"]
    lists = {path for path, item in paths.items() if any(one["name"] == "cursor" for one in item.get("get", {}).get("parameters", []))}
    assert lists == set(NAMES), lists ^ set(NAMES)
    places, told = filled(w), []

    def pages(route, limit):
        path = places.get(route, route.replace("{id}", w.project))
        path, found, count, cursor = path + ("&" if "?" in path else "?") + f"limit={limit}", [], 0, None
        while cursor or not count:
            answer = w.main.get(path + (f"&cursor={cursor}" if cursor else ""))
            assert answer.status == 200 and len(has(answer.json, "items next_cursor")["items"]) <= limit, answer
            found += [tuple(item[name] for name in NAMES[route]) for item in answer.json["items"]]
            count, cursor = count + 1, answer.json["next_cursor"]
            assert count <= 100, f"{path} does not come to its end"
        return found, count

    for route in sorted(lists):
        whole, _ = pages(route, 500)
        found, count = pages(route, max(1, len(whole) // 3))
        assert len(whole) >= 2 and len(set(whole)) == len(whole) and found == whole and count >= 2, (route, whole, found)
        told.append(Told(f"GET {route}?limit=…&cursor=…", "a few pages: each entry once, as in one page"))
    return told
