"""A real model server: llama.cpp's own, on a real model, as `llamacpp` and in OpenAI's place."""

import importlib.util
import json
import os
import subprocess
import sys
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


def test_when_it_is_gone_the_error_names_it_and_the_fix(beside, name, llama):
    llama.kill()
    reply = beside.post("/chat", say("x", provider="llamacpp", model=name))
    assert reply.status == 503 and reply.json["code"] == "model_runtime_down" and llama.url.split("//")[1] in reply.json["detail"], reply
    assert "RIVERRUN_LLAMACPP_BASE_URL" in reply.json["hint"], reply
