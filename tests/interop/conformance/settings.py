"""Settings: what each is without a value, and what a value changes."""


from conformance.core import Group, Told
from conformance.exchange import Talk, short
from conformance.world import RERANKER, held, serve_refused
from server import wait_for

settings = Group("Settings")


def with_settings(said, **values):
    """What was asked, with the settings that it was asked under in front."""
    shown = " ".join(f"RIVERRUN_{name}={value}" for name, value in values.items())
    return Told(f"{shown}: {said.sent}" if shown else said.sent, said.came)


def iterations(run):
    return sum(step["kind"] == "tool_call" for step in run["steps"])


@settings.check("setting.agent-max-iters", "most iterations of an agent's loop; 8", "RIVERRUN_AGENT_MAX_ITERS")
def _(w):
    usual, fewer = (talk.run(f"add [[steps=20 id=iters-{name}]]", agent="react") for name, talk in (("usual", w.main), ("fewer", w.changed)))
    assert usual.json["stop_reason"] == fewer.json["stop_reason"] == "max_iters", (usual, fewer)
    assert iterations(usual.json) in (7, 8) and iterations(fewer.json) in (1, 2), (usual, fewer)
    return [usual.told("stop_reason", said=f"{iterations(usual.json)} calls before the answer"),
            with_settings(fewer.told("stop_reason", said=f"{iterations(fewer.json)} calls before the answer"), AGENT_MAX_ITERS=2)]


@settings.check("setting.agent-temperature", "sampling temperature of agents; 0.2", "RIVERRUN_AGENT_TEMPERATURE")
def _(w):
    told = []
    for name, talk, wanted, more in (("usual", w.main, 0.2, {}), ("warm", w.changed, 0.7, {"AGENT_TEMPERATURE": "0.7"})):
        answer = talk.run(f"add [[steps=0 id=temperature-{name}]]", agent="react")
        [chat, *_] = w.model.chats_of(f"temperature-{name}")
        assert abs(chat["options"]["temperature"] - wanted) < 1e-6, chat["options"]
        told.append(with_settings(answer.told("status", said=f"the model was asked with temperature {wanted}"), **more))
    return told


@settings.check("setting.api-address", "where the API listens; 127.0.0.1 and 8000", "RIVERRUN_API_HOST", "RIVERRUN_API_PORT")
def _(w):
    place = w.place("address", RIVERRUN_API_PORT="", RIVERRUN_API_HOST="")
    holder = held(8000)
    try:
        refused = serve_refused(place)
    finally:
        if holder:
            holder.close()
    told = refused.failed(1, "127.0.0.1:8000")
    answer = w.changed.get("/health")
    assert answer.status == 200
    return [Told("port 8000 is taken: riverrun serve", told.came), with_settings(answer.told(), API_HOST="localhost", API_PORT="N")]


@settings.check("setting.broker-port", "port of the embedded broker; 9092", "RIVERRUN_BROKER_PORT")
def _(w):
    place = w.place("broker", RIVERRUN_BROKER_PORT="", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    holder = held(9092)
    try:
        refused = serve_refused(place)
    finally:
        if holder:
            holder.close()
    assert refused.code in (1, 3), refused
    row = next(row for row in w.main.get("/health").json["services"] if row["name"] == "broker")
    assert row["address"].endswith(w.main.server.brokers.rsplit(":", 1)[1]), row
    return [Told("port 9092 is taken: riverrun serve", refused.failed(refused.code, "9092").came),
            Told("RIVERRUN_BROKER_PORT=N: GET /health", f"broker · {row['kind']} · {row['address']}")]


@settings.check("setting.chunk-size", "characters of a chunk, and those that neighbours share; 800 and 100", "RIVERRUN_CHUNK_SIZE", "RIVERRUN_CHUNK_OVERLAP")
def _(w):
    text, told = " ".join(f"word{n}" for n in range(700)), []
    for talk, size, overlap, more in ((w.main, 800, 100, {}), (w.changed, 200, 20, {"CHUNK_SIZE": 200, "CHUNK_OVERLAP": 20})):
        talk.server.ingest(w.file("long.txt", text), "sizes")
        found = talk.post("/rag/search", {"query": "word1", "collection": "sizes", "k": 100, "rerank": False})
        spans = sorted((item["span"]["start"], item["span"]["end"]) for item in found.json["items"])
        longest = max(end - start for start, end in spans)
        shared = max(before[1] - after[0] for before, after in zip(spans, spans[1:]))
        assert size * 0.8 < longest <= size and overlap * 0.5 < shared <= overlap, (longest, shared)
        told.append(with_settings(found.told("items", said=f"longest chunk within {size}, neighbours share up to {overlap}"), **more))
    return told


@settings.check("setting.rag-top-k", "results of a search that names no number; 5", "RIVERRUN_RAG_TOP_K")
def _(w):
    w.changed.server.ingest(w.file("long.txt", " ".join(f"word{n}" for n in range(700))), "sizes")
    usual = w.main.post("/rag/search", {"query": "launch", "collection": w.handbook})
    fewer = w.changed.post("/rag/search", {"query": "word1", "collection": "sizes"})
    assert (len(usual.json["items"]), len(fewer.json["items"])) == (5, 2), (usual, fewer)
    return [usual.told("items"), with_settings(fewer.told("items"), RAG_TOP_K=2)]


@settings.check("setting.memory-window", "tokens of a conversation that a model is shown; 2048", "RIVERRUN_MEMORY_WINDOW_TOKENS")
def _(w):
    usual, small = (talk.get("/memory/context?session=window") for talk in (w.main, w.changed))
    assert (usual.json["window_tokens"], small.json["window_tokens"]) == (2048, 256), (usual, small)
    return [usual.told("window_tokens"), with_settings(small.told("window_tokens"), MEMORY_WINDOW_TOKENS=256)]


@settings.check("setting.default-chat-model", "the chat model where none is named, of a local runtime", "RIVERRUN_DEFAULT_CHAT_MODEL")
def _(w):
    usual = w.alone.cli("diagnose", "--json", RIVERRUN_DEFAULT_CHAT_MODEL="", RIVERRUN_MODEL_RUNTIME_BASE_URL="")
    # The embedding model is of another runtime, which may be away: that is told in its own row alone.
    row, other = (next(row for row in usual.json["services"] if row["name"] == name) for name in ("chat model", "embed model"))
    assert other["kind"] == "ollama" and row["status"] != "down" and "ollama" not in row["detail"], (row, other)
    answer = w.main.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False})
    assert row["kind"] == "local" and "qwen2.5-0.5b-instruct" in row["detail"] and answer.json["model"] == "stub", (row, answer)
    return [Told("nothing set: riverrun diagnose --json", f"chat model · {row['kind']} · {row['detail'].removesuffix(' is not there')}"),
            with_settings(answer.told("model"), DEFAULT_CHAT_MODEL="stub")]


@settings.check("setting.default-embed-model", "the embedding model where none is named; local, of 768 dimensions", "RIVERRUN_DEFAULT_EMBED_MODEL")
def _(w):
    usual = w.alone.cli("embed", "a winch", "--json", RIVERRUN_DEFAULT_EMBED_MODEL="").ok()
    other = w.alone.cli("embed", "a winch", "--json").ok()
    assert (usual.json["model"], usual.json["dimensions"], other.json["dimensions"]) == ("all-mpnet-base-v2", 768, 64), (usual, other)
    return [usual.told("model", "dimensions"), with_settings(other.told("model", "dimensions"), DEFAULT_EMBED_MODEL="ollama/stub-embed")]


@settings.check("setting.model-runtime", "the address of the local model runtime; unset, models run in the process", "RIVERRUN_MODEL_RUNTIME_BASE_URL")
def _(w):
    own, runtime = w.alone.cli("providers", "--json", RIVERRUN_MODEL_RUNTIME_BASE_URL="").ok(), w.main.cli("providers", "--json").ok()
    default = [next(item["name"] for item in done.json["items"] if item["default"]) for done in (own, runtime)]
    assert default == ["local", "ollama"], default
    return [own.told(said="default: local"), with_settings(runtime.told(said="default: ollama"), MODEL_RUNTIME_BASE_URL="http://ADDRESS")]


@settings.check("setting.models-dir", "a folder of models that is looked at before any hub, and never written", "RIVERRUN_MODELS_DIR")
def _(w):
    hub = w.hub("unasked")
    done = w.alone.cli("models", "--provider", "local", "--json", RIVERRUN_MODELS_DIR=str(w.models), RIVERRUN_MODELS_OFFLINE="false", RIVERRUN_HUB_BASE_URL=hub.url).ok()
    row = next(item for item in done.json["items"] if item["name"] == RERANKER)
    assert row["present"] and hub.asked == [], (row, hub.asked)
    return done.told(said=f"{RERANKER} · present · the hub was not asked")


@settings.check("setting.data-dir", "where everything is kept; ~/.local/share/riverrun, by the XDG rules", "RIVERRUN_DATA_DIR")
def _(w):
    told, home = [], w.folder / "home"
    for more, folder in (({}, home / ".local/share/riverrun"), ({"XDG_DATA_HOME": str(home / "xdg")}, home / "xdg/riverrun"),
                         ({"RIVERRUN_DATA_DIR": str(home / "own")}, home / "own")):
        done = w.alone.cli("tokens", "create", "ann", "--scope", "read", **({"HOME": str(home), "RIVERRUN_DATA_DIR": ""} | more)).ok()
        assert (folder / "tokens.json").is_file() and done.out.startswith("rr_"), (done, folder)
        told.append(Told(done.sent, f"exit 0 · {folder / 'tokens.json'} is there"))
    return told


@settings.check("setting.dotenv", "settings are read from `.env` in the working folder, and the environment wins")
def _(w):
    place = w.place("dotenv", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    (place.server.folder / ".env").write_text("RIVERRUN_OPENAI_API_KEY=from-the-file\nRIVERRUN_RAG_TOP_K=none\n")
    refused = place.cli("providers")
    done = place.cli("providers", "--json", RIVERRUN_RAG_TOP_K="3").ok()
    assert next(item["has_key"] for item in done.json["items"] if item["name"] == "openai") is True, done
    return [Told(f".env: RIVERRUN_RAG_TOP_K=none; {refused.sent}", refused.failed(2, 'RIVERRUN_RAG_TOP_K is "none"').came),
            Told(f".env: RIVERRUN_OPENAI_API_KEY=…; {done.sent}", "exit 0 · openai has a key")]


@settings.check("setting.unreadable-value", "a value that cannot be is an error that names the setting, the value and the fix")
def _(w):
    values = {"API_PORT": "http", "CHUNK_SIZE": "0", "RAG_TOP_K": "0", "AGENT_TEMPERATURE": "hot", "AGENT_MAX_ITERS": "0", "MEMORY_WINDOW_TOKENS": "10",
              "DATABASE_URL": "x", "MODEL_RUNTIME_BASE_URL": "x"}
    return [w.alone.cli("providers", **{f"RIVERRUN_{name}": value}).failed(2, f"RIVERRUN_{name}", "hint:") for name, value in values.items()]


@settings.check("setting.provider-keys", "a provider's key switches it on; keys are never shown", "RIVERRUN_OPENAI_API_KEY", "RIVERRUN_COHERE_API_KEY")
def _(w):
    off, on = w.main.get("/providers"), w.changed.get("/providers")
    keys = [{item["name"]: item["has_key"] for item in answer.json["items"]} for answer in (off, on)]
    assert not keys[0]["openai"] and not keys[0]["cohere"] and keys[1]["openai"] and keys[1]["cohere"], keys
    assert b"key-of-" not in on.body
    return [off.told(said="openai and cohere have no key"), with_settings(on.told(said="openai and cohere have one"), OPENAI_API_KEY="…", COHERE_API_KEY="…")]


@settings.check("setting.tracing", "the tracing service, its project and its keys", "RIVERRUN_TRACING_ENDPOINT", "RIVERRUN_TRACING_PROJECT",
                "RIVERRUN_TRACING_PUBLIC_KEY", "RIVERRUN_TRACING_SECRET_KEY")
def _(w):
    import base64
    run = w.changed.run("add [[steps=1 id=setting-tracing]]", agent="react")
    wait_for(lambda: [body for _, _, _, body in w.traces.asked if b"setting-tracing" in body or b"invoke_agent" in body], 30, "the spans")
    method, path, headers, body = next(one for one in w.traces.asked if b"invoke_agent" in one[3])
    wanted = "Basic " + base64.b64encode(b"pk-conformance:sk-conformance").decode()
    assert headers["authorization"] == wanted and b"conformance" in body and run.json["trace_id"], headers
    return with_settings(Told(run.sent, f"the service got {method} {path} with both keys and the project `conformance`"), TRACING_ENDPOINT="http://ADDRESS",
                         TRACING_PUBLIC_KEY="…", TRACING_SECRET_KEY="…", TRACING_PROJECT="conformance")


@settings.check("setting.api-tokens", "tokens that the API wants, by the hashes that are set", "RIVERRUN_API_TOKENS")
def _(w):
    without, with_one = Talk(w.guarded.server).get("/runs"), w.guarded.get("/runs")
    assert with_one.status == 200
    return [with_settings(without.problem(401), API_TOKENS="ann:HASH"), Told("GET /runs authorization: Bearer …", "200")]


BACKENDS = [
    # setting, value, row of diagnose, kind when unset, kind when set
    ("DATABASE_URL", "postgres://ann:canary-4711@{}/db", "sql", "sqlite", "postgresql"),
    ("QDRANT_URL", "http://{}", "vectors", "qdrant-edge", "qdrant"),
    ("REDIS_URL", "redis://{}/0", "cache", None, "redis"),
    ("MONGODB_URL", "mongodb://{}/riverrun", "documents", None, "mongodb"),
    ("KAFKA_BROKERS", "{}", "broker", "embedded", "kafka"),
    ("SCHEMA_REGISTRY_URL", "http://{}", "schema registry", "built-in", "confluent"),
]


def backend(setting, value, name, kind, other):
    @settings.check(f"setting.{setting.lower().replace('_', '-')}", f"unset, {name} is embedded; set, it is that service, and `diagnose` says which", f"RIVERRUN_{setting}")
    def _(w):
        row = next(row for row in w.main.get("/diagnose").json["services"] if row["name"] == name)
        assert row["status"] == "up" and kind in (None, row["kind"]), row
        done = w.alone.cli("diagnose", **{f"RIVERRUN_{setting}": value.format(w.nobody)})
        line = next((line for line in done.out.splitlines() if line.startswith(f"{name} ")), "")
        assert "DOWN" in line and "canary" not in done.out + done.err, done
        return [Told("GET /diagnose", f"{name} · {row['kind']} · up"), done.told(said=short(line, 110))]


for backend_line in BACKENDS:
    backend(*backend_line)
