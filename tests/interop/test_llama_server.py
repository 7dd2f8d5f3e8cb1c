"""A real model server: llama.cpp's own, on a real model, as `llamacpp`, in OpenAI's place, and behind a shim that speaks Ollama's API with its counts."""

import importlib.util
import json
import os
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from server import Server, wait_for

MODEL = "smollm2-135m-instruct"
CONTEXT = 2048
PROGRAM = """
import sys
from pathlib import Path
import xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel = sys.argv[1], int(sys.argv[2]), 1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.cache_ram_mib, params.fit_params = 0, False
server = xllamacpp.Server(params)
Path(sys.argv[3]).write_text(server.listening_address)
sys.stdin.read()
"""


class LlamaServer:
    def __init__(self, folder):
        models = os.environ.get("RIVERRUN_MODELS_DIR") or Path.home() / ".cache/riverrun/models"
        file, self.log = folder / "address", folder / "llama.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([sys.executable, "-c", PROGRAM, str(Path(models) / MODEL / "model.gguf"), str(CONTEXT), str(file)],
                                            stdin=subprocess.PIPE, stdout=log, stderr=log)
        self.url = wait_for(lambda: self.alive() and file.exists() and file.read_text(), 120, "llama.cpp's server")

    def alive(self):
        if self.process.poll() is not None:
            raise AssertionError(f"it ended: {self.log.read_text(errors='replace')[-1500:]}")
        return True

    def kill(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("there is no wheel of llama.cpp's server for this machine")
    server = LlamaServer(tmp_path_factory.mktemp("llama"))
    yield server
    server.kill()


@pytest.fixture(scope="module")
def beside(tmp_path_factory, llama):
    """Ours, which knows that server by two names."""
    settings = {"RIVERRUN_LLAMACPP_BASE_URL": llama.url, "RIVERRUN_OPENAI_BASE_URL": llama.url, "RIVERRUN_MODEL_CONTEXT_TOKENS": str(CONTEXT),
                "RIVERRUN_MODEL_THREADS": "1"}
    server = Server(tmp_path_factory.mktemp("beside"), settings).start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def name(beside):
    [model] = beside.get("/models?provider=llamacpp").json["items"]
    assert model["context_tokens"] == CONTEXT and model["present"], model
    return model["name"]


def say(text, **more):
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 24, "stream": False, **more}


def test_it_answers_what_the_same_model_in_the_process_answers(beside, name):
    answers = []
    for provider, model in [("llamacpp", name), ("openai", name), ("local", MODEL)]:
        reply = beside.post("/chat", say("Name three rivers.", provider=provider, model=model))
        assert reply.status == 200, reply
        answers.append(reply.json)
    # The same template and tokenizer; how sums are rounded is each one's own, and may show after a few words.
    assert len({answer["usage"]["prompt_tokens"] for answer in answers}) == 1, answers
    assert len({" ".join(answer["text"].split()[:3]) for answer in answers}) == 1, answers


def test_a_schema_is_held_and_a_stream_comes_in_pieces(beside, name):
    schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["n"], "additionalProperties": False}
    body = {"model": f"llamacpp/{name}", "messages": [{"role": "user", "content": "A number as JSON."}], "max_tokens": 24,
            "response_format": {"type": "json_schema", "json_schema": {"name": "number", "schema": schema}}}
    reply = beside.post("/v1/chat/completions", body)
    assert reply.status == 200, reply
    assert list(json.loads(reply.json["choices"][0]["message"]["content"])) == ["n"]
    done = beside.cli("chat", "Name three rivers.", "--provider", "llamacpp", "--model", name, "-t", "0", "--max-tokens", "24")
    assert done.returncode == 0 and done.stdout.strip() and "tokens" in done.stderr, done


def test_what_does_not_fit_is_refused_with_both_numbers_and_a_run_ends(beside, name):
    reply = beside.post("/chat", say("river " * 3000, provider="llamacpp", model=name))
    assert reply.status == 422 and reply.json["code"] == "context_overflow" and str(CONTEXT) in reply.json["detail"], reply
    run = beside.run_end(beside.start_run("What is 2 + 3?", provider="llamacpp", model=name, max_iters=2), 240)
    assert run["status"] in ("succeeded", "failed") and run["usage"]["prompt_tokens"] > 0, run


def test_its_card_says_what_it_can(beside, name):
    reply = beside.post("/models/probe", {"model": name, "provider": "llamacpp"}, timeout=300)
    assert reply.status == 200, reply
    card = reply.json
    assert card["context_tokens"] == CONTEXT and card["valid_json"] >= 1, card
    assert card["prompt_tokens_per_s"] > 0 and card["tokens_per_s"] > 0, card
    assert beside.get("/models/cards?provider=llamacpp").json["items"] == [card]


class OllamaShim:
    """Ollama's documented API over llama.cpp's server. An `old` one knows no `truncate` and cuts what does not fit, as Ollama did."""

    def __init__(self, llama, old):
        shim = self
        self.asked = []

        def forward(path, body):
            request = urllib.request.Request(llama.url + path, json.dumps(body).encode(), {"content-type": "application/json"})
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)

        def answer(body):
            """Status and lines."""
            options, messages = body["options"], body["messages"]
            prompt = forward("/apply-template", {"messages": messages})["prompt"]
            tokens = len(forward("/tokenize", {"content": prompt, "parse_special": True})["tokens"])
            end = {"model": body["model"], "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
            if tokens >= options["num_ctx"]:
                if not old and body.get("truncate") is False:
                    return 400, [{"error": "the input length exceeds the context length"}]
                return 200, [end | {"prompt_eval_count": options["num_ctx"], "eval_count": 0}]
            asked = {"messages": messages, "temperature": options.get("temperature", 0.8), "max_tokens": options.get("num_predict", 64)}
            if "format" in body:
                asked["response_format"] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": body["format"]}}
            done = forward("/v1/chat/completions", asked)
            message = {"role": "assistant", "content": done["choices"][0]["message"]["content"]}
            reason = {"length": "length"}.get(done["choices"][0]["finish_reason"], "stop")
            counts = {"prompt_eval_count": done["usage"]["prompt_tokens"], "eval_count": done["usage"]["completion_tokens"]}
            return 200, [{"model": body["model"], "message": message, "done": False}, end | counts | {"done_reason": reason}]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def send(self, status, lines):
                body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
                self.send_response(status)
                self.send_header("content-type", "application/x-ndjson" if len(lines) > 1 else "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self):
                known = {"/api/version": {"version": "0.0.0-shim"}, "/api/tags": {"models": [{"name": "smol", "model": "smol", "size": 1}]}}
                self.send(200, [known[self.path]]) if self.path in known else self.send_error(404)

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                shim.asked.append(body)
                self.send(*answer(body)) if self.path == "/api/chat" else self.send_error(404)

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.mark.parametrize("old", [False, True])
def test_a_server_of_ollamas_api_has_the_context_that_was_set_and_cuts_nothing_unseen(tmp_path, llama, old):
    shim, context = OllamaShim(llama, old), 1024
    server = Server(tmp_path / "serve", {"RIVERRUN_MODEL_RUNTIME_BASE_URL": shim.url, "RIVERRUN_DEFAULT_CHAT_MODEL": "smol",
                                         "RIVERRUN_MODEL_CONTEXT_TOKENS": str(context)}).start()
    try:
        reply = server.post("/chat", say("Name three rivers."))
        assert reply.status == 200 and reply.json["text"], reply
        assert 10 < reply.json["usage"]["prompt_tokens"] < 100 and 0 < reply.json["usage"]["completion_tokens"] <= 24, reply
        # By its length alone it could fit: only the server knows.
        reply = server.post("/chat", say("river " * 1250))
        assert reply.status == 422 and reply.json["code"] == "context_overflow", reply
        run = server.run_end(server.start_run("What is 2 + 3?", max_iters=1), 240)
        assert run["usage"]["prompt_tokens"] > 0 or run["error"]["code"] == "context_overflow", run
        assert {body["options"]["num_ctx"] for body in shim.asked if "messages" in body} == {context}
    finally:
        server.stop()
        shim.close()


def test_when_it_is_gone_the_error_names_it_and_the_fix(beside, name, llama):
    llama.kill()
    reply = beside.post("/chat", say("x", provider="llamacpp", model=name))
    assert reply.status == 503 and reply.json["code"] == "model_runtime_down" and llama.url.split("//")[1] in reply.json["detail"], reply
    assert "RIVERRUN_LLAMACPP_BASE_URL" in reply.json["hint"], reply
