"""Services of other makers as far as the checks need them: each notes what it was asked."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from stub_model import StubModel


class RecordingModel(StubModel):
    """The scripted model, with the body of every chat."""

    def __init__(self):
        self.chats = []
        super().__init__(at_once=True)

    def reply_to(self, body):
        self.chats.append(body)
        return super().reply_to(body)

    def chats_of(self, script_id):
        return [body for body in self.chats if f"id={script_id}" in json.dumps(body["messages"])]


class Service:
    """An HTTP server that answers by path; `asked` has (method, path, headers, body)."""

    def __init__(self, answers):
        self.asked, self.answers = [], answers
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def answer(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                headers = {name.lower(): value for name, value in self.headers.items()}
                service.asked.append((self.command, self.path, headers, body))
                status, kind, content = service.reply(self.path.split("?")[0], body)
                self.send_response(status)
                self.send_header("content-type", kind)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(content)

            do_GET = do_POST = do_HEAD = answer

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def reply(self, path, body):
        found = self.answers.get(path)
        if found is None:
            return 404, "application/json", b"{}"
        found = found(body) if callable(found) else found
        if isinstance(found, bytes):
            return 200, "application/octet-stream", found
        if isinstance(found, str):
            return 200, "text/event-stream", found.encode()
        return 200, "application/json", json.dumps(found).encode()

    def paths(self):
        return [path for _, path, _, _ in self.asked]

    def close(self):
        self.http.shutdown()
        self.http.server_close()


def openai():
    """A hosted provider in OpenAI's protocol."""
    chunk = {"id": "c", "object": "chat.completion.chunk", "model": "hosted",
             "choices": [{"index": 0, "delta": {"role": "assistant", "content": "hosted words"}, "finish_reason": None}]}
    last = {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    stream = "".join(f"data: {json.dumps(one)}\n\n" for one in (chunk, last)) + "data: [DONE]\n\n"
    return Service({"/v1/models": {"object": "list", "data": [{"id": "hosted", "object": "model"}]}, "/v1/chat/completions": stream})


def reranker():
    """A hosted re-ranker in Cohere's protocol, that puts the last document first."""
    def rank(body):
        count = len(json.loads(body)["documents"])
        return {"results": [{"index": at, "relevance_score": (at + 1) / (count + 1)} for at in reversed(range(count))]}
    return Service({"/v2/rerank": rank})


def tracing():
    """A tracing service that takes OTLP and answers nothing."""
    return Service({path: b"" for path in ("/v1/traces", "/api/public/otel/v1/traces")})
