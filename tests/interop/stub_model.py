"""A model server that speaks Ollama's API and answers by script, so that a run is fast and its calls can be counted.

The script stands in the task: `[[steps=3 delay_ms=20 id=a1]]` asks for three calculator calls, one a turn, then an answer;
`[[steps=1 tool=stock args={"part":"A7"}]]` for a call of another tool, with JSON that has no spaces;
with `numbered=1` it counts its own replies instead of the results that a conversation carries, which may have lost the first ones;
`[[id=a2 says=QQ==,Qg==]]` answers in these words (base64), the first time with the first, and so on; the last one stays.
With `refuse_over=2000` a longer conversation is refused as Ollama refuses one that its context can't hold.
As a re-ranker (Jina's API) it scores texts by the words that they share with the query, and refuses a query with `refuse` in it.
An action is JSON where the caller gives a schema (`format`), a tool call where it gives `tools`. Without a script, the
answer is a sentence with a citation mark.
"""

import base64
import hashlib
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

DIMENSIONS = 64
SCRIPT = re.compile(r"\[\[((?:\w+=\S+\s*)+)\]\]")


def script_of(messages):
    """The script of a conversation; empty when there is none."""
    for message in messages:
        found = SCRIPT.search(message.get("content") or "")
        if found:
            return dict(pair.split("=", 1) for pair in found.group(1).split())
    return {}


def too_long(messages):
    """Whether the script wants a conversation of this length to be refused."""
    limit = script_of(messages).get("refuse_over")
    return limit is not None and sum(len(message.get("content") or "") for message in messages) > int(limit)


def vector_of(text):
    """The same text gives the same direction; texts that share words lie closer."""
    vector = [0.0] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        vector[hashlib.sha256(word.encode()).digest()[0] % DIMENSIONS] += 1.0
    norm = sum(x * x for x in vector) ** 0.5
    return [x / norm for x in vector] if norm else [1.0] + [0.0] * (DIMENSIONS - 1)


def scored(query, documents):
    """Each text with how near it is to the query, as the API of re-rankers has it."""
    near = [sum(a * b for a, b in zip(vector_of(query), vector_of(text), strict=True)) for text in documents]
    return [{"index": at, "relevance_score": score} for at, score in enumerate(near)]


def tool_results(message):
    """How many results of tools a message carries, in either of the two ways that conversations carry them."""
    return 1 if message["role"] == "tool" else (message.get("content") or "").count("<observation tool=")


def shaped(schema, steps):
    """The reply to what is no action: a plan, a verdict, a critique, the choice of an agent."""
    properties = (schema if isinstance(schema, dict) else {}).get("properties", {})
    if "steps" in properties:
        return {"steps": [{"description": f"add {one}", "tool": "calculator"} for one in range(max(1, steps))]}
    if "complete" in properties:
        return {name: {"note": "checked", "verdict": "pass"} for name in properties}
    if "verdict" in properties:
        return {"reason": "it fits", "verdict": "pass"}
    if "agent" in properties:
        return {"reason": "the first", "agent": properties["agent"]["enum"][0]}
    return None


class Listener(ThreadingHTTPServer):
    """Takes as many connections at a time as come: one that finds no place is tried again a second later, which a run would wait for."""

    daemon_threads, request_queue_size = True, 512

    def handle_error(self, request, client_address):
        # That the caller was killed is what some tests do.
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class StubModel:
    """`requests` maps a script's id to how far the run was at each chat request: the number of tool results that it
    carried, one more for the answer."""

    def __init__(self, embed_ms=0, at_once=False, vectors=None):
        # Texts to vectors, where others are wanted than made-up ones.
        self.vectors = vectors or (lambda texts: [vector_of(text) for text in texts])
        # One after the other, each text so long: as a model of one process does it.
        self.embed_ms, self.embedding = embed_ms, threading.Lock()
        # Else a kept connection waits 40 ms for each answer (Nagle's algorithm here, the delayed acknowledgement there), which
        # is time for tests to come between.
        self.at_once = at_once
        self.requests = {}
        # How many drafts of a script were found wanting, where it says how many are: `doubts`.
        self.doubted = {}
        # Texts that it was asked for vectors of.
        self.embedded = 0
        self.lock = threading.Lock()
        self.server = Listener(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def settings(self):
        return {"RIVERRUN_MODEL_RUNTIME_BASE_URL": self.url, "RIVERRUN_DEFAULT_CHAT_MODEL": "stub"}

    def reply_to(self, body):
        script = script_of(body["messages"])
        steps = int(script.get("steps", 0))
        results = sum(tool_results(message) for message in body["messages"])
        acts = "format" in body or "tools" in body
        with self.lock:
            # 0, 1, ... for the actions, and one more for the answer.
            asked = self.requests.setdefault(script.get("id", ""), [])
            asked.append(results if acts else results + 1)
            turn = len(asked) - 1
        if "numbered" in script:
            results = turn
        time.sleep(int(script.get("delay_ms", 0)) / 1000)
        if "says" in script:
            words = script["says"].split(",")
            return {"role": "assistant", "content": base64.b64decode(words[min(turn, len(words) - 1)]).decode()}
        tool = script.get("tool", "calculator")
        arguments = json.loads(script["args"]) if "args" in script else {"expression": f"{results} + 1"}
        other = shaped(body.get("format"), steps)
        if other and "verdict" in other:
            with self.lock:
                doubted = self.doubted.setdefault(script.get("id", ""), 0)
                if doubted < int(script.get("doubts", 0)):
                    self.doubted[script["id"]] += 1
                    other["verdict"] = "fail"
        if other:
            return {"role": "assistant", "content": json.dumps(other)}
        if "format" in body:
            name, arguments = (tool, arguments) if results < steps else ("answer", {})
            return {"role": "assistant", "content": json.dumps({"thought": "next", "tool": name, "arguments": arguments})}
        if acts and results < steps:
            return {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": tool, "arguments": arguments}}]}
        return {"role": "assistant", "content": f"done after {results} steps" if script else "It is as the handbook says [1]."}

    def handler(stub):  # noqa: N805 the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = stub.at_once

            def log_message(self, *_):
                pass

            def answer(self, *lines, status=200, pause_ms=0):
                """Sends lines of JSON; `pause_ms` stands between the first and the others."""
                first, *more = (json.dumps(line).encode() + b"\n" for line in lines)
                rest = b"".join(more)
                body = first + rest
                self.send_response(status)
                self.send_header("content-type", "application/x-ndjson" if len(lines) > 1 else "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                if pause_ms:
                    self.wfile.write(first)
                    time.sleep(pause_ms / 1000)
                self.wfile.write(rest if pause_ms else body)

            def do_GET(self):
                if self.path == "/api/version":
                    self.answer({"version": "0.0.0-stub"})
                elif self.path == "/api/tags":
                    self.answer({"models": [{"name": name, "model": name, "size": 1, "digest": name,
                                             "details": {"family": "stub"}} for name in ("stub", "stub-embed")]})
                else:
                    self.send_error(404)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                try:
                    if self.path == "/api/chat" and too_long(body["messages"]):
                        self.answer({"error": "the input length exceeds the context length"}, status=400)
                    elif self.path == "/api/chat":
                        message = stub.reply_to(body)
                        end = {"model": body["model"], "message": {"role": "assistant", "content": ""}, "done": True,
                               "done_reason": "stop", "prompt_eval_count": 10, "eval_count": 5}
                        # What it writes is there for so long before it says that this was all.
                        pause_ms = int(script_of(body["messages"]).get("pause_ms", 0))
                        self.answer({"model": body["model"], "message": message, "done": False}, end, pause_ms=pause_ms)
                    elif self.path == "/api/embed":
                        inputs = body["input"] if isinstance(body["input"], list) else [body["input"]]
                        with stub.lock:
                            stub.embedded += len(inputs)
                        if stub.embed_ms:
                            with stub.embedding:
                                time.sleep(stub.embed_ms * len(inputs) / 1000)
                        self.answer({"model": body["model"], "embeddings": stub.vectors(inputs),
                                     "prompt_eval_count": len(inputs)})
                    elif self.path == "/v1/rerank" and "refuse" in body["query"]:
                        self.answer({"error": "this query is refused"}, status=400)
                    elif self.path == "/v1/rerank":
                        self.answer({"results": scored(body["query"], body["documents"])})
                    else:
                        self.send_error(404)
                except (BrokenPipeError, ConnectionResetError):
                    pass  # the caller was killed: that is what some tests do

        return Handler
