"""Rules of form: what a token may do, in which namespaces, and from which pages. Routes come from the OpenAPI document: a new one is asked, too."""

import re

from conformance.core import Told
from conformance.exchange import Talk
from conformance.rules import rules
from conformance.world import SCOPES, bearer
from server import wait_for
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

METHODS = ("get", "post", "put", "patch", "delete")
SOCKETS = ("/ws/agent", "/ws/runs/{id}", "/ws/ingest/{id}", "/ws/finetune/{id}")
UPGRADE = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13", "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}
FOREIGN = {"origin": "https://evil.example"}


def operations(w):
    """Each operation: its method, its path with something in the place of each name, and the scope that it wants."""
    for path, item in w.guarded.get("/openapi.json").json["paths"].items():
        for method in METHODS:
            if operation := item.get(method):
                scopes = [scope for one in operation.get("security") or [] for scope in one.get("bearer", [])]
                yield method.upper(), re.sub(r"\{[^}]*\}", "x", path), scopes[0] if scopes else None


def refused(answer, code):
    """Asserts 403 with that code, in whatever shape the route tells errors."""
    assert answer.status == 403 and (code.encode() in answer.body or answer.sent.split()[1].startswith(("/subjects", "/schemas", "/config", "/mode"))), answer
    return answer


@rules.check("rule.access.scopes", "every operation wants the scope that the OpenAPI document names: without it a token is refused before anything is done, `admin` has all")
def _(w):
    counts = dict.fromkeys(SCOPES, 0)
    for method, path, scope in operations(w):
        if scope is None:
            continue
        for other in ("read", "run", "ingest", "train"):
            if other != scope:
                body = {} if method in ("POST", "PUT", "PATCH") else None
                refused(Talk(w.guarded.server, bearer(other)).request(method, path, body), "scope_missing")
        counts[scope] += 1
    assert all(counts.values()), counts
    return Told("each operation, with tokens of every other scope", "403 scope_missing · " + ", ".join(f"{scope}: {count} operations" for scope, count in counts.items()))


# With its scope each of these is let in, and without it none is.
ALLOWED = {
    "read": ("GET", "/runs?limit=1", None),
    "run": ("POST", "/tools/calculator/call", {"arguments": {"expression": "1 + 1"}}),
    "ingest": ("DELETE", "/collections/no-such", None),
    "train": ("POST", "/finetune/jobs", {"name": "no-such", "dataset": "no-such", "method": "sft_lora"}),
    "admin": ("GET", "/dlq?limit=1", None),
}


def scope_row(scope):
    @rules.check(f"rule.access.scope.{scope}", f"a token with `{scope}` may do what wants it, as one with `admin` may; one without may not")
    def _(w):
        method, path, body = ALLOWED[scope]
        others = [other for other in SCOPES if other not in (scope, "admin")]
        told = []
        for holder in dict.fromkeys((scope, "admin")):
            answer = Talk(w.guarded.server, bearer(holder)).request(method, path, body)
            assert answer.status in (200, 202, 404, 422), answer
            told.append(Told(f"{answer.sent}, with {holder}", str(answer.status)))
        for other in others:
            answer = Talk(w.guarded.server, bearer(other)).request(method, path, body)
            told.append(Told(f"the same with {other}", answer.problem(403, "scope_missing").came))
        return told


for one in SCOPES:
    scope_row(one)


def turned_away(talk, path):
    """How a WebSocket is answered that is not opened."""
    try:
        with connect(talk.server.ws_url + path, additional_headers=talk.headers, open_timeout=30):
            raise AssertionError(f"{path} was opened")
    except InvalidStatus as refusal:
        return refusal.response


@rules.check("rule.access.namespaces", "a token that is bound to namespaces gets nothing of others, by HTTP and on WebSockets alike")
def _(w):
    eve = Talk(w.guarded.server, bearer("eve"))
    run_id = w.guarded.server.post("/runs", {"task": "add [[steps=0 id=bound]]", "agent": "react"}, headers=bearer("ann")).json["run_id"]
    wait_for(lambda: w.guarded.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    told = [eve.post("/runs", {"task": "x", "namespace": "other"}).problem(403, "namespace_not_allowed"), eve.get(f"/runs/{run_id}").problem(404)]
    for path, status in ((f"/ws/runs/{run_id}", 404), ("/ws/finetune/x", 403)):
        answer = turned_away(eve, path)
        assert answer.status_code == status, (path, answer)
        told.append(Told(f"WS {path}", str(status)))
    heard = eve.socket("/ws/agent", {"task": "x", "agent": "react", "namespace": "other"})
    assert heard.code == 1008 and heard.messages == [] and "other" in heard.reason, heard
    mine = eve.socket("/ws/agent", {"task": "add [[steps=0 id=bound-mine]]", "agent": "react"})
    assert mine.kinds()[-1] == "final" and mine.messages[-1]["result"]["namespace"] == "team", mine
    return [*told, heard.told(), mine.told(said="in its namespace, team")]


@rules.check("rule.access.sockets", "a WebSocket wants a token with the scope of its route")
def _(w):
    told = []
    for path in SOCKETS:
        place = path.replace("{id}", "x")
        nobody, other = Talk(w.guarded.server), Talk(w.guarded.server, bearer("train"))
        for talk, status, code, who in ((nobody, 401, "unauthorized", "nobody"), (other, 403, "scope_missing", "train")):
            told.append(Told(f"WS {path} as {who}", talk.request("GET", place, headers=UPGRADE).problem(status, code).came))
    return told


@rules.check("rule.access.host-origin", "`Host` and `Origin` are checked on every route that changes something and on every WebSocket, and nothing is done")
def _(w):
    count = 0
    for method, path, _ in operations(w):
        if method != "GET":
            body = {} if method != "DELETE" else None
            refused(w.main.request(method, path, body, headers=FOREIGN), "origin_not_allowed")
            refused(w.main.request(method, path, body, headers={"host": "evil.example"}), "host_not_allowed")
            count += 1
    sockets = [w.main.request("GET", path.replace("{id}", "x"), headers=UPGRADE | bad) for path in SOCKETS for bad in (FOREIGN, {"host": "evil.example"})]
    for at, answer in enumerate(sockets):
        answer.problem(403, ("origin_not_allowed", "host_not_allowed")[at % 2])
    started = {"task": "x", "namespace": "foreign"}
    told = [w.main.post("/runs", started, headers=bad).problem(403, code) for bad, code in (({"host": "evil.example"}, "host_not_allowed"), (FOREIGN, "origin_not_allowed"))]
    w.main.server.settle()
    assert w.main.get("/runs?namespace=foreign").json["items"] == [], "a run was started"
    return [*told, Told(f"each of {count} routes that change something, with such a host and such an origin", "403"),
            Told(f"WS {', '.join(SOCKETS)}, with such a host and such an origin", "403")]
