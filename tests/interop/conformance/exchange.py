"""Asking a server or the command line, and telling it in a line each way."""

import json
import re
import shlex
from urllib.parse import quote

from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from conformance.core import Told

SHOWN = 64
# What differs from run to run, by what it is shown as. Order counts: addresses before numbers.
VOLATILE = [
    (re.compile(r"\b([a-z]{3})_[0-9a-z]{26}\b"), r"\1_…"),
    (re.compile(r"\b[0-9a-f]{32,64}\b"), "HASH"),
    (re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z"), "TIME"),
    (re.compile(r"(?:127\.0\.0\.1|localhost):\d{4,5}"), "ADDRESS"),
    (re.compile(r"\b\d+(?:\.\d+)? ms\b"), "N ms"),
]


# Folders, by what they are shown as; the world says which.
PLACES = []


def plain(text):
    """The text without what differs from run to run, on one line."""
    for place, name in PLACES:
        text = text.replace(place, name)
    for pattern, name in VOLATILE:
        text = pattern.sub(name, text)
    return " ".join(text.split())


def short(value, limit=SHOWN):
    """A value in a few words: lists by their length, objects by their fields."""
    match value:
        case bool() | None:
            text = json.dumps(value)
        case list():
            text = f"[{len(value)}]"
        case dict():
            text = "{" + ", ".join(value) + "}"
        case _:
            text = str(value)
    text = plain(text)
    return text if len(text) <= limit else text[:limit] + "…"


def look(found, path):
    """The value at a path such as `items.0.name`."""
    for part in path.split("."):
        found = found[int(part)] if isinstance(found, list) else found[part]
    return found


def body_shown(body):
    if body is None:
        return ""
    text = f"({len(body)} bytes)" if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False)
    return " " + (text if len(text) <= 150 else text[:150] + "…")


class Answer:
    """An HTTP answer that knows what was asked."""

    def __init__(self, sent, reply):
        self.sent, self.reply = sent, reply
        self.status, self.headers, self.body = reply.status, reply.headers, reply.body

    @property
    def json(self):
        return self.reply.json

    def __repr__(self):
        return f"{self.sent} -> {self.reply!r}"

    def told(self, *paths, said=None):
        parts = [str(self.status)]
        parts += [f"{path.rsplit('.', 1)[-1]}: {short(look(self.json, path))}" for path in paths]
        return Told(self.sent, " · ".join(parts + ([said] if said else [])))

    def events(self):
        """Server-sent events as (name, id, data)."""
        found = []
        for block in self.body.decode().split("\n\n"):
            fields = dict(line.split(": ", 1) for line in block.splitlines() if ": " in line)
            if "data" in fields:
                found.append((fields.get("event"), fields.get("id"), json.loads(fields["data"])))
        return found

    def problem(self, status, code=None):
        """Asserts that it is a problem document, and tells its code and fix."""
        assert self.status == status, self
        assert self.headers["content-type"].startswith("application/problem+json"), self
        problem = self.json
        assert problem["status"] == status and code in (None, problem["code"]), self
        assert {"type", "title", "detail", "code"} <= set(problem), self
        fix = problem.get("hint") or "; ".join(f"{one['field']}: {one['reason']}" for one in problem.get("errors", []))
        return Told(self.sent, f"{status} {problem['code']} · {short(fix or problem['detail'], 90)}")


class Done:
    """A command that has ended."""

    def __init__(self, sent, process):
        self.sent, self.code, self.out, self.err = sent, process.returncode, process.stdout, process.stderr

    @property
    def json(self):
        return json.loads(self.out)

    def __repr__(self):
        return f"{self.sent} -> exit {self.code}\n{self.out[-2000:]}\n{self.err[-2000:]}"

    def ok(self):
        assert self.code == 0, self
        return self

    def told(self, *paths, said=None):
        parts = [f"exit {self.code}"]
        parts += [f"{path.rsplit('.', 1)[-1]}: {short(look(self.json, path))}" for path in paths]
        return Told(self.sent, " · ".join(parts + ([said] if said else [])))

    def failed(self, code, *words):
        """Asserts the exit code and words on stderr, and tells the last line of it."""
        assert self.code == code and all(word in self.err for word in words), self
        assert "panicked" not in self.err, self
        lines = [line for line in self.err.splitlines() if line.startswith(("error:", "hint:"))]
        return self.told(said=short(" ".join(lines) or self.err.strip().splitlines()[0], 130))


class Heard:
    """What a WebSocket said until it was closed."""

    def __init__(self, sent, messages, code, reason):
        self.sent, self.messages, self.code, self.reason = sent, messages, code, reason

    def __repr__(self):
        return f"{self.sent} -> {self.messages!r} closed {self.code} {self.reason}"

    def kinds(self):
        return [message["type"] for message in self.messages]

    def told(self, said=None):
        kinds = [f"{kind} × {self.kinds().count(kind)}" for kind in dict.fromkeys(self.kinds())]
        parts = [", ".join(kinds)] if kinds else []
        closed = f"closed {self.code}" + (f" {short(self.reason)}" if self.reason else "")
        return Told(self.sent, " · ".join([*parts, *([said] if said else []), closed]))


class Talk:
    """A server, with every question and answer told."""

    def __init__(self, server, headers=None):
        self.server, self.headers = server, headers or {}

    def request(self, method, path, body=None, headers=None, **more):
        reply = self.server.request(method, path, body, self.headers | (headers or {}), **more)
        shown = "".join(f" {name}: {value}" for name, value in (headers or {}).items() if name not in ("content-type", "authorization"))
        return Answer(f"{method} {path}{shown}{body_shown(body)}", reply)

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def delete(self, path, **more):
        return self.request("DELETE", path, **more)

    def cli(self, *arguments, **settings):
        words = [str(argument) for argument in arguments]
        shown = "".join(f"{name}={shlex.quote(value)} " for name, value in settings.items())
        return Done(f"{shown}riverrun {shlex.join(words)}", self.server.cli(*words, **settings))

    def socket(self, path, *first, headers=None, then=None):
        """Opens a WebSocket, says `first` and hears it to its end; `then` is done once the first message has come."""
        messages = []
        sent = f"WS {path}" + "".join(body_shown(one) for one in first)
        with connect(self.server.ws_url + path, max_size=None, additional_headers=self.headers | (headers or {}), open_timeout=30) as stream:
            for one in first:
                stream.send(one.decode() if isinstance(one, bytes) else json.dumps(one))
            try:
                while True:
                    messages.append(json.loads(stream.recv(timeout=90)))
                    if then and len(messages) == 1:
                        then()
            except ConnectionClosed:
                return Heard(sent, messages, stream.close_code, stream.close_reason)

    def run(self, task, **more):
        """A run by `POST /agent/run`, with its end."""
        answer = self.post("/agent/run", {"task": task, **more})
        assert answer.status == 200, answer
        return answer


def has(found, fields):
    """Asserts that an object has these fields; what stands behind `/` may be missing."""
    needed = fields.split("/")[0].split()
    missing = [field for field in needed if field not in found]
    assert not missing, f"{missing} missing in {found}"
    return found


def path_part(text):
    return quote(text, safe="")
