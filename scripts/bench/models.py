#!/usr/bin/env python3
"""Measures the local model runtime beside llama.cpp (llama-cpp-python) and ONNX Runtime on the same files, and checks that answers and
vectors are equal. Prints a Markdown table; exit code 1 when something that must be equal is not.

    RIVERRUN_BIN=target/release/riverrun RIVERRUN_MODELS_DIR=DIR python scripts/bench/models.py [--threads N] [--rounds 3]
        [--chat smollm2-135m-instruct] [--embed all-minilm-l6-v2 --onnx model.onnx] [--json FILE]

Needs scripts/bench/requirements-models.txt. riverrun is measured through its HTTP API, the peers in a process of their own; ours and theirs
take turns and medians are given. `--onnx` is the same encoder exported with inputs input_ids, attention_mask and token_type_ids; without it
embeddings have no peer. For the equality of answers ours computes one request at a time (RIVERRUN_MODEL_PARALLEL=1).
"""

import argparse
import concurrent.futures
import http.client
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
from server import Server  # noqa: E402

CONTEXT = 4096
TOKENS = 64
TOPICS = ["rivers", "glaciers", "bread", "clocks", "bees", "bridges", "salt", "owls", "sails", "comets", "paper", "violins", "moss",
          "harbours", "maps", "kites", "iron", "tea", "snow", "lighthouses"]
QUESTIONS = [f"Explain in a few sentences what one should know about {topic}." for topic in TOPICS]
SENTENCES = [f"A short text about {topic}, number {number}, with a few more words." for number, topic in enumerate(TOPICS * 2)]


def long_text(seed, words=700):
    """Words that differ from the first one on for each seed."""
    return f"{seed} " + " ".join(f"{TOPICS[(seed + n) % len(TOPICS)]}" for n in range(words)) + " Which words came most often?"


# ---- ours ------------------------------------------------------------------------------------------------------------


class Ours:
    def __init__(self, folder, options, parallel):
        settings = {"RIVERRUN_MODEL_THREADS": str(options.threads), "RIVERRUN_MODEL_CONTEXT_TOKENS": str(CONTEXT),
                    "RIVERRUN_MODEL_PARALLEL": str(parallel)}
        self.options = options
        self.server = Server(folder, settings).start()

    def stop(self):
        self.server.stop()

    def memory(self):
        return measure.memory_bytes(self.server.process.pid)

    def chat(self, messages, max_tokens):
        """Text, counts, time to the first text and time of the whole."""
        body = {"model": self.options.chat, "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
                "stream_options": {"include_usage": True}}
        connection = http.client.HTTPConnection("127.0.0.1", self.server.api_port, timeout=600)
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
                usage = event.get("usage") or usage
                for choice in event.get("choices", []):
                    piece = choice["delta"].get("content")
                    if piece:
                        first = first or time.perf_counter() - began
                        text += piece
        finally:
            connection.close()
        return {"text": text, "prompt": usage["prompt_tokens"], "generated": usage["completion_tokens"],
                "first_s": first or 0.0, "whole_s": time.perf_counter() - began}

    def embed(self, texts):
        began = time.perf_counter()
        reply = self.server.post("/v1/embeddings", {"model": self.options.embed, "input": texts})
        elapsed = time.perf_counter() - began
        if reply.status != 200:
            raise RuntimeError(repr(reply))
        return [one["embedding"] for one in reply.json["data"]], elapsed


# ---- the peers, each in a process of its own -------------------------------------------------------------------------


class Peer:
    """A process that answers calls through a pipe."""

    def __init__(self, work, *arguments):
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=work, args=(other, *arguments), daemon=True)
        self.process.start()
        other.close()

    def ask(self, *call):
        self.pipe.send(call)
        return self.pipe.recv()

    def memory(self):
        return measure.memory_bytes(self.process.pid)

    def stop(self):
        self.pipe.close()
        self.process.join(20)


def llama_cpp(pipe, path, threads):
    """llama-cpp-python on a GGUF file: `(messages, max_tokens)` is answered as `Ours.chat` does. It keeps the prefix of the last call."""
    from llama_cpp import Llama, llama_vocab_is_eog
    from llama_cpp.llama_chat_format import Jinja2ChatFormatter

    llama = Llama(model_path=path, n_ctx=CONTEXT, n_threads=threads, n_threads_batch=threads, n_batch=128, n_ubatch=128, verbose=False)
    special = {name: llama.detokenize([token], special=True).decode() if token >= 0 else ""
               for name, token in (("bos", llama.token_bos()), ("eos", llama.token_eos()))}
    template = Jinja2ChatFormatter(template=llama.metadata["tokenizer.chat_template"], bos_token=special["bos"],
                                   eos_token=special["eos"])

    def answer(messages, max_tokens):
        prompt = template(messages=messages).prompt
        tokens = llama.tokenize(prompt.encode(), add_bos=not prompt.startswith(special["bos"] or "\0"), special=True)
        began, first, generated = time.perf_counter(), None, []
        for token in llama.generate(tokens, temp=0.0, repeat_penalty=1.0):
            if llama_vocab_is_eog(llama._model.vocab, token):
                break
            generated.append(token)
            first = first or time.perf_counter() - began
            if len(generated) == max_tokens:
                break
        whole = time.perf_counter() - began
        return {"text": llama.detokenize(generated).decode(errors="replace"), "prompt": len(tokens), "generated": len(generated),
                "first_s": first or 0.0, "whole_s": whole}

    serve(pipe, {"chat": answer, "ids": lambda text: llama.tokenize(text.encode(), add_bos=False, special=False)})


def onnx_runtime(pipe, model, folder, threads):
    """ONNX Runtime on an encoder: mean of the tokens, length 1, padded to the longest of a call."""
    import numpy
    import onnxruntime
    from tokenizers import Tokenizer

    settings = onnxruntime.SessionOptions()
    settings.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, settings, providers=["CPUExecutionProvider"])
    wanted = {one.name for one in session.get_inputs()}
    tokenizer = Tokenizer.from_file(f"{folder}/tokenizer.json")
    tokenizer.enable_padding()

    def embed(texts):
        began = time.perf_counter()
        encoded = tokenizer.encode_batch(texts)
        inputs = {"input_ids": [one.ids for one in encoded], "attention_mask": [one.attention_mask for one in encoded],
                  "token_type_ids": [one.type_ids for one in encoded]}
        inputs = {name: numpy.array(value, dtype=numpy.int64) for name, value in inputs.items()}
        hidden = session.run(None, {name: value for name, value in inputs.items() if name in wanted})[0]
        mask = inputs["attention_mask"][:, :, None]
        vectors = (hidden * mask).sum(1) / mask.sum(1)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors.tolist(), time.perf_counter() - began

    serve(pipe, {"embed": embed})


def serve(pipe, functions):
    while True:
        try:
            name, *arguments = pipe.recv()
        except EOFError:
            return
        pipe.send(functions[name](*arguments))


# ---- what is measured ------------------------------------------------------------------------------------------------


def user(text):
    return [{"role": "user", "content": text}]


class Bench:
    def __init__(self, options):
        self.options, self.rows, self.unequal = options, [], []

    def row(self, what, unit, ours, peer, name):
        ratio = round(ours / peer, 3) if ours and peer else None
        self.rows.append({"what": what, "unit": unit, "riverrun": ours, "peer": peer, "peer_name": name, "ratio": ratio})
        print(f"  {what}: {ours} | {name}: {peer}", file=sys.stderr, flush=True)

    def must(self, holds, what):
        if not holds:
            self.unequal.append(what)
            print(f"  unequal: {what}", file=sys.stderr, flush=True)

    def answers(self, ours, peer):
        """Greedy decoding gives the same tokens."""
        equal = 0
        for question in QUESTIONS:
            mine, theirs = ours.chat(user(question), TOKENS), peer.ask("chat", user(question), TOKENS)
            self.must(mine["prompt"] == theirs["prompt"], f"prompt tokens of {question!r}: {mine['prompt']} and {theirs['prompt']}")
            same = peer.ask("ids", mine["text"]) == peer.ask("ids", theirs["text"])
            self.must(same, f"answer to {question!r}: {mine['text']!r} and {theirs['text']!r}")
            equal += same
        self.row(f"greedy answers of {TOKENS} tokens that are equal", f"of {len(QUESTIONS)}", equal, len(QUESTIONS), "llama.cpp")

    def speed(self, ours, peer):
        sides = {"ours": ours.chat, "peer": lambda messages, most: peer.ask("chat", messages, most)}
        found = {side: {"prompt": [], "generation": [], "first": [], "reuse": []} for side in sides}
        for number in range(self.options.rounds):
            for side, chat in sides.items():
                # Another text each round, so that nothing of it is in a cache.
                question = user(long_text(100 * number + 7))
                fresh = chat(question, TOKENS)
                step = question + [{"role": "assistant", "content": fresh["text"]}, {"role": "user", "content": "And which least?"}]
                second = chat(step, 8)
                short = chat(user(f"{number}: {QUESTIONS[number % len(QUESTIONS)]}"), TOKENS)
                found[side]["prompt"].append(fresh["prompt"] / fresh["first_s"])
                found[side]["reuse"].append(second["first_s"] / fresh["first_s"])
                found[side]["first"].append(short["first_s"])
                for one in (fresh, short):
                    if one["generated"] > 8:
                        found[side]["generation"].append((one["generated"] - 1) / (one["whole_s"] - one["first_s"]))
        middle = {side: {name: round(statistics.median(values), 3) for name, values in of.items() if values} for side, of in found.items()}
        for name, what, unit in [("prompt", "prompt", "tokens/s"), ("generation", "generation", "tokens/s"),
                                 ("first", "time to first token, short prompt", "s"),
                                 ("reuse", "prefill of the second step, of the first's", "ratio")]:
            self.row(what, unit, middle["ours"].get(name), middle["peer"].get(name), "llama.cpp")
        self.row("memory, one request", "MB", round(ours.memory() / 1e6), round(peer.memory() / 1e6), "llama.cpp, without a server")

    def together(self, ours):
        """Four requests at once, beside the same four one after the other."""
        questions = [user(f"{number}. {question}") for number, question in enumerate(QUESTIONS[:4])]
        alone, at_once = [], []
        for _ in range(self.options.rounds):
            began = time.perf_counter()
            replies = [ours.chat(question, TOKENS) for question in questions]
            alone.append(sum(one["generated"] for one in replies) / (time.perf_counter() - began))
            began = time.perf_counter()
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                replies = list(pool.map(lambda question: ours.chat(question, TOKENS), questions))
            at_once.append(sum(one["generated"] for one in replies) / (time.perf_counter() - began))
        self.row("four requests at once, all tokens", "tokens/s", round(statistics.median(at_once), 1),
                 round(statistics.median(alone), 1), "riverrun, one after the other")
        self.row("memory, four sequences", "MB", round(ours.memory() / 1e6), None, "none")

    def embeddings(self, ours, peer):
        if peer:
            mine, theirs = ours.embed(SENTENCES)[0], peer.ask("embed", SENTENCES)[0]
            least = min(cosine(a, b) for a, b in zip(mine, theirs))
            self.must(least >= 0.999, f"embeddings: the least cosine is {least}")
            self.row("least cosine of embeddings", "", round(least, 6), 1.0, "ONNX Runtime")
        for size in (1, 32):
            texts = SENTENCES[:size]
            ours.embed(texts)
            mine, theirs = [], []
            for _ in range(self.options.rounds * 10):
                mine.append(size / ours.embed(texts)[1])
                if peer:
                    theirs.append(size / peer.ask("embed", texts)[1])
            self.row(f"embeddings, {size} at a time", "texts/s", round(statistics.median(mine), 1),
                     round(statistics.median(theirs), 1) if theirs else None, "ONNX Runtime, without a server")
        self.row("memory with the encoder", "MB", round(ours.memory() / 1e6), round(peer.memory() / 1e6) if peer else None, "ONNX Runtime")


def cosine(a, b):
    def dot(x, y):
        return sum(one * other for one, other in zip(x, y))
    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


def table(rows):
    lines = ["| | unit | riverrun | beside | what is beside | ratio |", "|---|---|---|---|---|---|"]
    shown = [["" if row[name] is None else str(row[name]) for name in ("what", "unit", "riverrun", "peer", "peer_name", "ratio")] for row in rows]
    return "\n".join(lines + [f"| {' | '.join(cells)} |" for cells in shown])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-dir", default=os.environ.get("RIVERRUN_MODELS_DIR"), help="the folder of models")
    parser.add_argument("--chat", default="smollm2-135m-instruct", help="a folder of it with a model.gguf")
    parser.add_argument("--embed", default="all-minilm-l6-v2", help="a folder of it with an encoder that takes the mean of tokens")
    parser.add_argument("--onnx", help="the same encoder for ONNX Runtime")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also writes the figures to this file")
    options = parser.parse_args()
    if not options.models_dir:
        parser.error("--models-dir or RIVERRUN_MODELS_DIR must name the folder of models")
    models = Path(options.models_dir).resolve()
    os.environ["RIVERRUN_MODELS_DIR"] = str(models)
    bench = Bench(options)
    with tempfile.TemporaryDirectory(prefix="riverrun-models-") as folder:
        ours, peer = Ours(Path(folder) / "one", options, 1), Peer(llama_cpp, str(models / options.chat / "model.gguf"), options.threads)
        try:
            bench.answers(ours, peer)
            bench.speed(ours, peer)
        finally:
            peer.stop()
            ours.stop()
        ours = Ours(Path(folder) / "four", options, 4)
        try:
            bench.together(ours)
        finally:
            ours.stop()
        ours = Ours(Path(folder) / "embed", options, 1)
        peer = Peer(onnx_runtime, options.onnx, str(models / options.embed), options.threads) if options.onnx else None
        try:
            bench.embeddings(ours, peer)
        finally:
            if peer:
                peer.stop()
            ours.stop()
    print(table(bench.rows))
    if options.json:
        Path(options.json).write_text(json.dumps({"machine": measure.machine(), "threads": options.threads, "rows": bench.rows,
                                                  "unequal": bench.unequal}, indent=1))
    return 1 if bench.unequal else 0


if __name__ == "__main__":
    sys.exit(main())
