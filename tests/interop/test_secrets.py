"""Keys of every setting that has one, and where they turn up afterwards: nowhere. Looked at are every file that a server keeps, its log, and its answers."""

import hashlib
import secrets

from server import wait_for

PROVIDERS = ["OPENAI", "ANTHROPIC", "GEMINI", "MISTRAL", "GROQ", "DEEPSEEK", "OPENROUTER", "TOGETHER", "AZURE", "COHERE", "VOYAGE", "JINA", "OLLAMA", "LMSTUDIO", "VLLM", "LLAMACPP"]
# Of a kind each, so that a hit says whose it was.
KEYS = {f"RIVERRUN_{name}_API_KEY": f"canary-{name.lower()}-{secrets.token_hex(12)}" for name in PROVIDERS}
KEYS |= {f"RIVERRUN_SOURCE_{name}": f"canary-source-{number}-{secrets.token_hex(12)}" for number, name in enumerate(["PASSWORD", "OTHER", "THIRD"])}
# Nobody listens there: keys do not leave this machine, and every service is down, which is when most is said.
ADDRESSES = {f"RIVERRUN_{name}_BASE_URL": "http://127.0.0.1:9" for name in PROVIDERS if name != "OLLAMA"}
TOKENS = {f"user{number}": f"canary-token-{number}-{secrets.token_hex(12)}" for number in range(30)}

PATHS = ["/health", "/diagnose", "/providers", "/models", "/agents", "/tools", "/topics", "/runs", "/collections", "/documents", "/metrics", "/usage", "/dead-letters", "/openapi.json",
         "/auth/session", "/warehouse/tables", "/no/such/route", "/models?provider=openai", "/models?provider=anthropic"]


def test_no_key_is_kept_logged_or_answered(new_server):
    granted = ",".join(f"{name}:{hashlib.sha256(token.encode()).hexdigest()}:admin" for name, token in TOKENS.items())
    server = new_server(**KEYS, **ADDRESSES, RIVERRUN_API_TOKENS=granted, RIVERRUN_LOG="debug,rdkafka=off,librdkafka=off", RIVERRUN_INGEST_DATABASES="127.0.0.1:1").start()
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
    ask(2, "POST", "/ingest", {"source": "postgres://ann:${RIVERRUN_SOURCE_PASSWORD}@127.0.0.1:1/db", "type": "sql", "query": "SELECT 1", "collection": "c"})
    ask(3, "POST", "/ingest", {"source": "mongodb://ann:${RIVERRUN_SOURCE_OTHER}@127.0.0.1:1/db/c", "collection": "c"})
    ask(4, "POST", "/runs", b"{")
    ask(5, "POST", "/auth/session", {"token": TOKENS["user5"] + "x"})
    ended = lambda run_id: ask(6, "GET", f"/runs/{run_id}").json.get("status") == "succeeded"  # noqa: E731 the answer is looked at too
    for reply in started:
        wait_for(lambda: ended(reply.json["run_id"]), 60, "a run to end", every_s=0.3)
    shown = [server.cli(*arguments, RIVERRUN_API_TOKEN=TOKENS["user7"]) for arguments in (["diagnose"], ["--json", "diagnose"], ["providers"], ["-vv", "runs", "ls"])]
    answers += [(done.args[1:], (done.stdout + done.stderr).encode()) for done in shown]
    assert server.stop() == 0

    found = []
    for canary in [*KEYS.values(), *TOKENS.values()]:
        found += [f"{canary} in the answer to {path}" for path, answer in answers if canary.encode() in answer]
    for file in sorted(server.folder.rglob("*")):
        if file.is_file():
            content = file.read_bytes()
            found += [f"{canary} in {file.relative_to(server.folder)}" for canary in [*KEYS.values(), *TOKENS.values()] if canary.encode() in content]
    assert not found, found
