"""Who is asked by scripts/bench/models.py: riverrun through its HTTP API, and llama.cpp and ONNX Runtime, each in a process of its own."""

import base64
import http.client
import json
import multiprocessing
import os
import subprocess
import sys
import time
from array import array
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
from server import Server  # noqa: E402

CONTEXT = 4096
# Of the likeliest tokens, so many are looked at where answers part.
CANDIDATES = 20


def ask(port, path, body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        data = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise RuntimeError(f"{path} answers {reply.status}: {data[:600]!r}")
    return json.loads(data)


def chat(port, model, messages, max_tokens):
    """A streamed, greedy answer by OpenAI's API, the same for both sides: text, counts, time to the first text and time of the whole."""
    body = {"model": model, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    began, first, text, usage = time.perf_counter(), None, "", {}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {reply.read(600)!r}")
        for line in reply:
            if not line.startswith(b"data: ") or line.strip() == b"data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                raise RuntimeError(f"the answer broke off: {event['error']}")
            usage = event.get("usage") or usage
            for choice in event.get("choices", []):
                piece = choice["delta"].get("content")
                if piece:
                    first = first or time.perf_counter() - began
                    text += piece
        whole = time.perf_counter() - began
    finally:
        connection.close()
    return {"text": text, "prompt": usage["prompt_tokens"], "generated": usage["completion_tokens"], "first_s": first or whole,
            "whole_s": whole}


class Ours:
    """`riverrun serve` with the settings of a part."""

    def __init__(self, folder, options, parallel=1, **settings):
        self.options = options
        self.server = Server(folder, {
            "RIVERRUN_MODEL_THREADS": str(options.threads), "RIVERRUN_MODEL_CONTEXT_TOKENS": str(CONTEXT),
            # Encoders on candle take the threads of the process, one for each core unless this says otherwise.
            "RAYON_NUM_THREADS": str(options.threads),
            "RIVERRUN_MODEL_PARALLEL": str(parallel), "RIVERRUN_INGEST_ROOTS": str(folder.parent),
            "RIVERRUN_DEFAULT_EMBED_MODEL": options.embed} | settings).start()
        self.connection = None

    def stop(self):
        self.server.stop()

    def memory(self):
        return measure.memory_bytes(self.server.process.pid)

    def chat(self, messages, max_tokens):
        return chat(self.server.api_port, self.options.chat, messages, max_tokens)

    def embed(self, texts):
        """Vectors, and the seconds until they were here: in base64, as OpenAI's clients ask for them, over a kept connection."""
        self.connection = self.connection or http.client.HTTPConnection("127.0.0.1", self.server.api_port, timeout=600)
        body = json.dumps({"model": self.options.embed, "input": texts, "encoding_format": "base64"})
        began = time.perf_counter()
        self.connection.request("POST", "/v1/embeddings", body, {"content-type": "application/json"})
        reply = self.connection.getresponse()
        data = reply.read()
        elapsed = time.perf_counter() - began
        if reply.status != 200:
            raise RuntimeError(f"{reply.status}: {data[:600]!r}")
        vectors = [array("f", base64.b64decode(one["embedding"])) for one in json.loads(data)["data"]]
        return vectors, elapsed

    def rerank(self, query, collection, count):
        """Texts with their scores, and the seconds that scoring took."""
        found = ask(self.server.api_port, "/rag/search", {"query": query, "collection": collection, "k": count, "rerank": True})
        return [(item["text"], item["scores"]["rerank"]) for item in found["items"]], found["took_ms"]["rerank"] / 1000


class Library:
    """riverrun's encoders in a process that has no server: `cargo build -p riverrun-models --example encoder`."""

    def __init__(self, program, options):
        threads = str(options.threads)
        settings = {"RIVERRUN_MODEL_THREADS": threads, "RAYON_NUM_THREADS": threads, "RIVERRUN_MODELS_OFFLINE": "true"}
        self.process = subprocess.Popen([program, options.embed], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | settings, text=True)

    def embed(self, texts):
        self.process.stdin.write(json.dumps(texts) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the encoder ended with {self.process.wait(20)}")
        answer = json.loads(line)
        return answer["vectors"], answer["seconds"]

    def stop(self):
        self.process.stdin.close()
        self.process.wait(20)


class Peer:
    """A process that answers calls through a pipe. What it prints goes to a file, whose end is shown when it does not start."""

    def __init__(self, work, folder, *arguments):
        folder.mkdir(parents=True, exist_ok=True)
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.log = folder / f"{work.__name__}-{time.monotonic_ns()}.log"
        self.process = context.Process(target=quiet, args=(str(self.log), work, other, *arguments), daemon=True)
        self.process.start()
        other.close()
        self.ready = self.receive()

    def receive(self):
        try:
            found = self.pipe.recv()
        except EOFError:
            raise RuntimeError(f"{self.log.name} ended: {self.log.read_text(errors='replace')[-1500:]}") from None
        return found

    def ask(self, *call):
        self.pipe.send(call)
        return self.receive()

    def memory(self):
        return measure.memory_bytes(self.process.pid)

    def stop(self):
        self.pipe.close()
        self.process.join(20)
        if self.process.is_alive():
            self.process.kill()


def quiet(log, work, pipe, *arguments):
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    work(pipe, *arguments)


def serve(pipe, functions):
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(functions[name](*arguments))


# ---- llama.cpp -------------------------------------------------------------------------------------------------------


def llama_server(pipe, path, threads, parallel, batch):
    """llama.cpp's own server on a GGUF file. `batch` of 0 leaves batches as llama.cpp has them."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel = CONTEXT * parallel, parallel
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    # What it takes from a copy of earlier prompts it has not computed.
    params.cache_ram_mib, params.fit_params = 0, False
    if batch:
        params.n_batch = params.n_ubatch = batch
    server = xllamacpp.Server(params)
    pipe.send((server.listening_address, xllamacpp.get_system_info().strip()))
    serve(pipe, {})


class LlamaCpp(Peer):
    def __init__(self, folder, path, threads, parallel=1, batch=0):
        super().__init__(llama_server, folder, path, threads, parallel, batch)
        address, self.system = self.ready
        self.port = int(address.rstrip("/").rsplit(":", 1)[1])

    def chat(self, messages, max_tokens):
        return chat(self.port, "model", messages, max_tokens)

    def reference(self, messages, max_tokens):
        """A greedy answer without anything kept from before: tokens of the prompt, and the answer's with the likeliest ones at each place."""
        prompt = ask(self.port, "/apply-template", {"messages": messages})["prompt"]
        done = ask(self.port, "/completion", {"prompt": prompt, "n_predict": max_tokens, "temperature": 0, "n_probs": CANDIDATES,
                                              "cache_prompt": False})
        return {"prompt": done["tokens_evaluated"], "text": done["content"], "tokens": done["completion_probabilities"]}


def shortfall(reference, text):
    """How much less likely, as a logarithm, llama.cpp finds the first token of `text` that is not its own; 0 when there is none, infinite when that
    is no likely token at all."""
    if text.rstrip("\ufffd") == reference["text"].rstrip("\ufffd"):  # half a character may stand at the end
        return 0.0
    rest = text.encode()
    for token in reference["tokens"]:
        said = bytes(token["bytes"])
        after = behind(rest, said)
        if after is None:
            fits = [other["logprob"] for other in token["top_logprobs"]
                    if (behind(rest, bytes(other["bytes"])) is not None if other["bytes"] else not rest)]
            return token["logprob"] - max(fits) if fits else float("inf")
        rest = after
    return float("inf")


def behind(text, said):
    """What of a text comes behind a token; nothing when it does not begin with it. Of the tokens of one character only the last one is told."""
    if not said:
        return None
    tail = next((at for at, byte in enumerate(said) if byte & 0xC0 != 0x80), len(said))
    if tail:
        character = text.decode(errors="ignore")[:1].encode()
        if len(character) > tail and character.endswith(said[:tail]) and text[len(character):].startswith(said[tail:]):
            return text[len(character) + len(said) - tail:]
    return text[len(said):] if text.startswith(said) else None


# ---- ONNX Runtime ----------------------------------------------------------------------------------------------------


def onnx_runtime(pipe, model, folder, threads):
    """ONNX Runtime on an encoder or a cross-encoder in fp32, padded to the longest text of a call."""
    import numpy
    import onnxruntime
    from tokenizers import Tokenizer

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.no_truncation()
    tokenizer.enable_padding()

    def run(texts):
        encoded = tokenizer.encode_batch(texts)
        inputs = {"input_ids": [one.ids for one in encoded], "attention_mask": [one.attention_mask for one in encoded],
                  "token_type_ids": [one.type_ids for one in encoded]}
        inputs = {name: numpy.array(value, dtype=numpy.int64) for name, value in inputs.items()}
        return inputs, session.run(None, {name: value for name, value in inputs.items() if name in wanted})[0]

    def embed(texts):
        """The mean of the tokens, of length 1."""
        began = time.perf_counter()
        inputs, hidden = run(texts)
        mask = inputs["attention_mask"][:, :, None]
        vectors = (hidden * mask).sum(1) / mask.sum(1)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        elapsed = time.perf_counter() - began
        return vectors.tolist(), elapsed

    def scores(query, texts):
        began = time.perf_counter()
        found = run([(query, text) for text in texts])[1][:, 0]
        elapsed = time.perf_counter() - began
        return found.tolist(), elapsed

    pipe.send("ready")
    serve(pipe, {"embed": embed, "scores": scores})
