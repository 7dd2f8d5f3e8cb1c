"""Keys of every setting that has one, and where they turn up afterwards: nowhere. Looked at are every file that a server keeps, its log, its answers, an
export, and what a tracing service gets."""

import base64
import hashlib
import json
import secrets
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from server import wait_for

PROVIDERS = ["OPENAI", "ANTHROPIC", "GEMINI", "MISTRAL", "GROQ", "DEEPSEEK", "OPENROUTER", "TOGETHER", "AZURE", "COHERE", "BEDROCK", "VOYAGE", "JINA", "OLLAMA", "LMSTUDIO", "VLLM", "LLAMACPP"]
# Of a kind each, so that a hit says whose it was.
KEYS = {f"RIVERRUN_{name}_API_KEY": f"canary-{name.lower()}-{secrets.token_hex(12)}" for name in PROVIDERS}
KEYS |= {f"RIVERRUN_SOURCE_{name}": f"canary-source-{number}-{secrets.token_hex(12)}" for number, name in enumerate(["PASSWORD", "OTHER", "THIRD"])}
# What Amazon's own programs have keys in.
KEYS |= {f"AWS_{name}": f"canary-aws-{number}-{secrets.token_hex(12)}" for number, name in enumerate(["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "BEARER_TOKEN_BEDROCK"])}
# Nobody listens there: keys do not leave this machine, and every service is down, which is when most is said.
ADDRESSES = {f"RIVERRUN_{name}_BASE_URL": "http://127.0.0.1:9" for name in PROVIDERS if name != "OLLAMA"}
# The one that is sent to the tracing service, as the password of its basic authentication.
KEYS["RIVERRUN_TRACING_SECRET_KEY"] = f"canary-tracing-{secrets.token_hex(12)}"
# The hub's: ours, and what its own programs have it in, which counts where ours is not set.
KEYS |= {name: f"canary-hub-{number}-{secrets.token_hex(12)}" for number, name in enumerate(["RIVERRUN_HUB_TOKEN", "HF_TOKEN"])}
# Servers behind a gate: a password, and a header of another name.
KEYS["RIVERRUN_ANTHROPIC_PASSWORD"] = f"canary-login-{secrets.token_hex(12)}"
GATE = f"canary-gate-{secrets.token_hex(12)}"
ADDRESSES |= {"RIVERRUN_ANTHROPIC_USER": "ann", "RIVERRUN_VLLM_HEADERS": f"x-gate={GATE}"}
TOKENS = {f"user{number}": f"canary-token-{number}-{secrets.token_hex(12)}" for number in range(30)}

PATHS = ["/health", "/diagnose", "/providers", "/models", "/agents", "/tools", "/topics", "/runs", "/collections", "/documents", "/metrics", "/usage", "/dead-letters", "/openapi.json",
         "/auth/session", "/warehouse/tables", "/no/such/route", "/models?provider=openai", "/models?provider=anthropic"]


class TracingService:
    """Takes spans, and keeps what was sent."""

    def __init__(self):
        service = self
        self.headers, self.bodies = [], []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_POST(self):
                service.bodies.append(self.rfile.read(int(self.headers["content-length"])))
                service.headers.append(dict(self.headers))
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


class Hub:
    """Has a model that asks for consent and one that is sent on to a store, another server, which has none; keeps the headers of what it and the store were asked."""

    def __init__(self):
        self.asked, self.asked_store = [], []
        self.store, store = self.serve(self.asked_store, lambda _: (404, {}))
        sent_on = {"location": f"{store}/signed"}
        self.server, self.url = self.serve(self.asked, lambda path: (302, sent_on) if path.startswith("/sent/on/") else (401, {"x-error-code": "GatedRepo"}))

    @staticmethod
    def serve(asked, answer):
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                asked.append({name.lower(): value for name, value in self.headers.items()})
                status, headers = answer(self.path)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", "0")
                self.end_headers()

            do_HEAD = do_GET

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server, f"http://127.0.0.1:{server.server_address[1]}"

    def close(self):
        for server in (self.server, self.store):
            server.shutdown()
            server.server_close()


@pytest.fixture
def hub():
    service = Hub()
    yield service
    service.close()


@pytest.fixture
def tracing():
    service = TracingService()
    yield service
    service.server.shutdown()
    service.server.server_close()


def plain(value):
    """Every text in a line of an export, and what stands in it as base64."""
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from plain(one)
    elif isinstance(value, str):
        yield value.encode()
        try:
            yield base64.b64decode(value, validate=True)
        except ValueError:
            pass


def contents(file):
    yield file.read_bytes()
    if file.suffix in (".jsonl", ".ndjson", ".json"):
        for line in file.read_text(errors="replace").splitlines():
            try:
                yield from plain(json.loads(line))
            except ValueError:
                pass


def test_no_key_is_kept_logged_traced_exported_or_answered(new_server, tracing, hub):
    granted = ",".join(f"{name}:{hashlib.sha256(token.encode()).hexdigest()}:admin" for name, token in TOKENS.items())
    server = new_server(**KEYS, **ADDRESSES, RIVERRUN_API_TOKENS=granted, RIVERRUN_LOG="debug,rdkafka=off,librdkafka=off", RIVERRUN_INGEST_DATABASES="127.0.0.1:1",
                        RIVERRUN_TRACING_ENDPOINT=tracing.url, RIVERRUN_TRACING_PUBLIC_KEY="public", RIVERRUN_TRACING_CONTENT="true",
                        RIVERRUN_HUB_BASE_URL=hub.url, RIVERRUN_MODELS_OFFLINE="false").start()
    answers = []

    def ask(number, method, path, body=None, **more):
        headers = {"authorization": f"Bearer {list(TOKENS.values())[number % len(TOKENS)]}"}
        reply = server.request(method, path, body, headers | more)
        answers.append((path, str(reply.headers).encode() + reply.body))
        return reply

    for number, path in enumerate(PATHS):
        ask(number, "GET", path)
    started = [ask(number, "POST", "/runs", {"task": f"[[steps=1 id=secret{number}]]", "agent": "react"}) for number in range(len(TOKENS))]
    assert all(reply.status == 202 for reply in started), started
    # What fails tells most: a provider that refuses its key, a database that is not there, a wrong token, a body that is none.
    for number, name in enumerate(PROVIDERS):
        if name != "OLLAMA":
            ask(number, "POST", "/chat", {"messages": [{"role": "user", "content": "x"}], "provider": name.lower(), "model": "m"})
    # A hub that refuses its token, and one that sends on to where it is not for.
    for model in ("meta/gated", "sent/on:m.gguf"):
        ask(1, "POST", "/chat", {"messages": [{"role": "user", "content": "x"}], "provider": "local", "model": model})
    ask(2, "POST", "/ingest", {"source": "postgres://ann:${RIVERRUN_SOURCE_PASSWORD}@127.0.0.1:1/db", "type": "sql", "query": "SELECT 1", "collection": "c"})
    ask(3, "POST", "/ingest", {"source": "mongodb://ann:${RIVERRUN_SOURCE_OTHER}@127.0.0.1:1/db/c", "collection": "c"})
    ask(4, "POST", "/runs", b"{")
    ask(5, "POST", "/auth/session", {"token": TOKENS["user5"] + "x"})
    ended = lambda run_id: ask(6, "GET", f"/runs/{run_id}").json.get("status") == "succeeded"  # noqa: E731 the answer is looked at too
    for reply in started:
        wait_for(lambda: ended(reply.json["run_id"]), 60, "a run to end", every_s=0.3)
    shown = [server.cli(*arguments, RIVERRUN_API_TOKEN=TOKENS["user7"]) for arguments in (["diagnose"], ["--json", "diagnose"], ["providers"], ["-vv", "runs", "ls"])]
    pulled = [server.cli("-vv", "models", "pull", model, **more) for model in ("meta/gated", "sent/on:m.gguf") for more in ({}, {"RIVERRUN_HUB_TOKEN": ""})]
    assert all(done.returncode == 3 for done in pulled) and "the token was sent" in pulled[0].stderr, pulled
    answers += [(done.args[1:], (done.stdout + done.stderr).encode()) for done in shown + pulled]
    assert server.stop() == 0
    exported = server.cli("export", str(server.folder / "exported"))
    assert exported.returncode == 0, exported
    answers.append(("export", (exported.stdout + exported.stderr).encode()))

    login = base64.b64encode(f"ann:{KEYS['RIVERRUN_ANTHROPIC_PASSWORD']}".encode()).decode()
    canaries = [*KEYS.values(), *TOKENS.values(), GATE, login]
    found = []
    for canary in canaries:
        found += [f"{canary} in the answer to {path}" for path, answer in answers if canary.encode() in answer]
    for file in sorted(server.folder.rglob("*")):
        if file.is_file():
            found += [f"{canary} in {file.relative_to(server.folder)}" for content in contents(file) for canary in canaries if canary.encode() in content]
    assert tracing.bodies, "spans were sent"
    found += [f"{canary} in a trace" for body in tracing.bodies for canary in canaries if canary.encode() in body]
    sent = [f"{name}: {value}" for headers in tracing.headers for name, value in headers.items()]
    found += [f"{canary} in a header to the tracing service" for header in sent for canary in canaries if canary in header]
    assert not found, found
    # The hub gets its token, or where that is not set the other one; its store gets none.
    tokens = {headers.get("authorization") for headers in hub.asked}
    assert tokens == {f"Bearer {KEYS[name]}" for name in ("RIVERRUN_HUB_TOKEN", "HF_TOKEN")}, tokens
    assert hub.asked_store and not any("canary" in str(headers) for headers in hub.asked_store), hub.asked_store
    # It gets its own key, and that is how it should be.
    basic = base64.b64encode(f"public:{KEYS['RIVERRUN_TRACING_SECRET_KEY']}".encode()).decode()
    assert all(f"Basic {basic}" in headers.values() for headers in tracing.headers)
