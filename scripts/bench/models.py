#!/usr/bin/env python3
"""Measures the local model runtime beside llama.cpp's own server and ONNX Runtime on the same files, and proves that answers, vectors and scores
are theirs. Prints a Markdown table; exit code 1 when something that must be equal is not (with --aims also when an aim is missed).

    ./x bench models [--models-dir DIR] [--parts answers,speed,together,embeddings,rerank]
        [--threads N] [--rounds 3] [--chat smollm2-135m-instruct] [--embed all-minilm-l6-v2] [--json FILE]

Needs scripts/bench/requirements-models.txt: wheels, nothing is compiled. All parts take five minutes with the 135M model on two quiet cores, ten
with one of 0.5B. Both sides are asked over HTTP in the same way, in turns, and medians are given; ONNX Runtime has no server in between, and where
--encoder names ours without one (`./x bench models` builds and names it), embeddings are measured both ways.

What must be equal: the tokens of the prompt (so the template). Greedy answers of 64 tokens are compared to 20 questions, to a second question about each
answer (whose prefix ours has kept, and llama.cpp reads anew), and to the 20 questions four at a time, and it is told how likely ours is, by llama.cpp's own
logarithms, where it parts. They need not be equal, because this llama.cpp is a later one than the linked one, whose sums are in another order: with weights
of 16 bits that shows in the second digit behind the point, with those of four bits, whose activations are rounded to eight, in the first. That each token is
the linked llama.cpp's own is a test (models/src/local/chat/plain_tests.rs).
Cosines of vectors must be 0.999, scores of a cross-encoder equal to 0.001. There is no small published one at hand: it is made of the encoder and a
head of random numbers, the same file for both.
"""

import argparse
import concurrent.futures
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import measure
from model_peers import Library, LlamaCpp, Ours, Peer, onnx_runtime, shortfall

PARTS = ("answers", "speed", "together", "embeddings", "rerank")
TOKENS = 64
# Threads of both sides' libraries spin for a while when they have nothing to do, which is time of the side that is asked next.
SETTLE_S = 0.3
# So often an encoder is asked before it is the other's turn: the first time after a pause, everything is cold.
TURN = 5
# As many as ours computes at once: the same sums.
BATCH = 128
TOPICS = ["rivers", "glaciers", "bread", "clocks", "bees", "bridges", "salt", "owls", "sails", "comets", "paper", "violins", "moss",
          "harbours", "maps", "kites", "iron", "tea", "snow", "lighthouses"]
QUESTIONS = [f"Explain in a few sentences what one should know about {topic}." for topic in TOPICS]
SENTENCES = [f"A short text about {topic}, number {number}, with a few more words." for number, topic in enumerate(TOPICS * 2)][:32]
# From five to some 190 words, in no order.
MIXED = [" ".join([SENTENCES[number]] + ["and a little more of it"] * (number * 13 % 32)) for number in range(32)]


def long_text(seed, words=700):
    """Words that differ from the first one on for each seed."""
    return f"{seed} " + " ".join(f"{TOPICS[(seed + n) % len(TOPICS)]}" for n in range(words)) + " Which words came most often?"


def user(text):
    return [{"role": "user", "content": text}]


def second(question, answer):
    return [*user(question), {"role": "assistant", "content": answer}, *user("Which of that matters most, and why?")]


def middle(values, digits=1):
    return round(statistics.median(values), digits)


def cosine(a, b):
    def dot(x, y):
        return sum(one * other for one, other in zip(x, y))
    return dot(a, b) / (dot(a, a) * dot(b, b)) ** 0.5


class Bench:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.models = Path(options.models_dir)
        self.rows, self.unequal, self.missed, self.system, self.started = [], [], [], None, []

    def llama(self, models=None, **more):
        path = str((models or self.models) / self.options.chat / "model.gguf")
        peer = LlamaCpp(self.folder / "peers", path, self.options.threads, **more)
        self.system = peer.system
        return peer

    def ours(self, name, **more):
        ours = Ours(self.folder / name, self.options, **more)
        self.started.append(ours)
        return ours

    def clear(self):
        """Ends what a part that broke off left running, so that it takes nothing from the next one."""
        for ours in self.started:
            if ours.server.process.poll() is None:
                ours.stop()

    def onnx(self, folder):
        from onnx_encoder import build

        file = self.folder / f"{folder.name}.onnx"
        build(folder, file)
        return Peer(onnx_runtime, self.folder / "peers", str(file), str(folder), self.options.threads)

    def row(self, what, unit, ours, peer, name, aim=None, value=None):
        """`aim` is (">=", 0.98) of the ratio, or of `value` where that is given."""
        ratio = round(ours / peer, 3) if ours and peer else None
        reached = None
        if aim:
            found = ratio if value is None else value
            reached = found is not None and (found >= aim[1] if aim[0] == ">=" else found <= aim[1])
            if not reached:
                self.missed.append(f"{what}: {found}, not {aim[0]} {aim[1]}")
        self.rows.append({"what": what, "unit": unit, "riverrun": ours, "peer": peer, "peer_name": name, "ratio": ratio,
                          "aim": f"{aim[0]} {aim[1]}" if aim else None, "reached": reached})
        print(f"  {what}: {ours} | {name}: {peer}", file=sys.stderr, flush=True)

    def must(self, holds, what):
        if not holds:
            self.unequal.append(what)
            print(f"  unequal: {what}", file=sys.stderr, flush=True)

    # ---- answers -----------------------------------------------------------------------------------------------------

    def compare(self, what, mine, theirs):
        """Whether an answer is llama.cpp's, and how far from it where it is not."""
        self.must(mine["prompt"] == theirs["prompt"], f"{what}: {mine['prompt']} tokens in the prompt, not {theirs['prompt']}")
        return shortfall(theirs, mine["text"])

    def answers(self):
        peer, asked = self.llama(batch=BATCH), {}
        try:
            ours = self.ours("one")
            try:
                first, later = [], []
                for question in QUESTIONS:
                    mine, asked[question] = ours.chat(user(question), TOKENS), peer.reference(user(question), TOKENS)
                    first.append(self.compare(question, mine, asked[question]))
                    step = second(question, mine["text"])
                    later.append(self.compare(f"second step of {question}", ours.chat(step, TOKENS), peer.reference(step, TOKENS)))
            finally:
                ours.stop()
            ours = self.ours("four-answers", parallel=4)
            try:
                with concurrent.futures.ThreadPoolExecutor(4) as pool:
                    mine = list(pool.map(lambda question: ours.chat(user(question), TOKENS), QUESTIONS))
            finally:
                ours.stop()
            at_once = [self.compare(f"four at once: {question}", one, asked[question]) for question, one in zip(QUESTIONS, mine)]
        finally:
            peer.stop()
        for what, found in [("", first), (", second step, prefix kept", later), (", four at a time", at_once)]:
            self.row(f"greedy answers of {TOKENS} tokens that are equal{what}", f"of {len(found)}", found.count(0.0), len(found), "llama.cpp")
        away = [short for short in first + later + at_once if short > 0]
        self.row("of the others: how much less likely llama.cpp finds the first token that is another", "ln", round(max(away, default=0.0), 4), None, "none")

    # ---- speed -------------------------------------------------------------------------------------------------------

    def speed(self):
        ours, peer = self.ours("speed"), self.llama()
        try:
            sides = {"ours": ours.chat, "peer": peer.chat}
            found = {side: {"prompt": [], "generation": [], "first": [], "reuse": []} for side in sides}
            for ask in sides.values():
                ask(user("Hello."), 8)
            for number in range(self.options.rounds):
                for side, ask in sides.items():
                    time.sleep(SETTLE_S)
                    # Another text each round, so that nothing of it is in a cache.
                    question = user(long_text(100 * number + 7))
                    fresh = ask(question, TOKENS)
                    step = [*question, {"role": "assistant", "content": fresh["text"]}, *user("And which least?")]
                    later = ask(step, 8)
                    short = ask(user(f"{number}: {QUESTIONS[number % len(QUESTIONS)]}"), TOKENS)
                    found[side]["prompt"].append(fresh["prompt"] / fresh["first_s"])
                    found[side]["reuse"].append(later["first_s"] / fresh["first_s"])
                    found[side]["first"].append(short["first_s"])
                    for one in (fresh, short):
                        if one["generated"] > 8:
                            found[side]["generation"].append((one["generated"] - 1) / (one["whole_s"] - one["first_s"]))
            both = {name: [middle(found[side][name], 3) if found[side][name] else None for side in sides] for name in found["ours"]}
            self.row("prompt", "tokens/s", *both["prompt"], "llama.cpp", aim=(">=", 0.98))
            self.row("generation", "tokens/s", *both["generation"], "llama.cpp", aim=(">=", 0.98))
            self.row("time to first token, short prompt", "s", *both["first"], "llama.cpp")
            self.row("prefill of the second step, of the first's", "ratio", *both["reuse"], "llama.cpp", aim=("<=", 0.15), value=both["reuse"][0])
            self.row("memory, one request", "MB", round(ours.memory() / 1e6), round(peer.memory() / 1e6), "llama.cpp, in Python")
        finally:
            peer.stop()
            ours.stop()

    def together(self):
        """Of the file as it is, and of the same weights in Q4_0: only of some formats does llama.cpp multiply several tokens in less time
        than one after the other. Rows of Q4_0 are laid out anew for it, those of Q4_1 and Q5_0 are not."""
        from requantized import requantize

        self.four(self.models, "", None)
        models = self.folder / "q4_0"
        requantize(self.models / self.options.chat / "model.gguf", models / self.options.chat / "model.gguf")
        self.four(models, ", in Q4_0", (">=", 2.0))

    def four(self, models, which, aim):
        """Four requests at once, beside the same four one after the other, and beside llama.cpp with as many places."""
        ours, peer = self.ours(f"four-{models.name}", parallel=4, RIVERRUN_MODELS_DIR=str(models)), self.llama(models, parallel=4)
        try:
            sides, figures = {"ours": ours.chat, "peer": peer.chat}, {}
            for number in range(self.options.rounds):
                for side, ask in sides.items():
                    time.sleep(SETTLE_S)
                    questions = [user(f"{number}.{place}. {question}") for place, question in enumerate(QUESTIONS[:8])]
                    began = time.perf_counter()
                    replies = [ask(question, TOKENS) for question in questions[:4]]
                    alone = sum(one["generated"] for one in replies) / (time.perf_counter() - began)
                    began = time.perf_counter()
                    with concurrent.futures.ThreadPoolExecutor(4) as pool:
                        replies = list(pool.map(lambda question: ask(question, TOKENS), questions[4:]))
                    at_once = sum(one["generated"] for one in replies) / (time.perf_counter() - began)
                    figures.setdefault((side, "alone"), []).append(alone)
                    figures.setdefault((side, "at once"), []).append(at_once)
            at_once = middle(figures["ours", "at once"])
            self.row(f"four requests at once{which}, all tokens", "tokens/s", at_once, middle(figures["ours", "alone"]), "riverrun, one after the other", aim=aim)
            self.row("the same", "tokens/s", at_once, middle(figures["peer", "at once"]), "llama.cpp, four at once")
            self.row("the same, llama.cpp", "tokens/s", None, middle(figures["peer", "alone"]), "llama.cpp, one after the other")
            self.row(f"memory, four places{which}", "MB", round(ours.memory() / 1e6), round(peer.memory() / 1e6), "llama.cpp, in Python")
        finally:
            peer.stop()
            ours.stop()

    # ---- encoders ----------------------------------------------------------------------------------------------------

    def embeddings(self):
        ours, peer = self.ours("embed"), self.onnx(self.models / self.options.embed)
        library = Library(self.options.encoder, self.options) if self.options.encoder else None
        try:
            least = min(cosine(a, b) for texts in (SENTENCES, MIXED) for a, b in zip(ours.embed(texts)[0], peer.ask("embed", texts)[0]))
            self.must(least >= 0.999, f"embeddings: the least cosine is {least}")
            self.row("least cosine of embeddings", "", round(least, 6), 1.0, "ONNX Runtime, fp32")
            for what, texts in [("1 at a time", SENTENCES[:1]), ("32 at a time", SENTENCES), ("32 of 13 to 200 words at a time", MIXED)]:
                asked = {"over HTTP": ours.embed, "in its process": library and library.embed, "peer": lambda texts: peer.ask("embed", texts)}
                rates = {who: [] for who, ask in asked.items() if ask}
                for _ in range(self.options.rounds * 2):
                    for who, found in rates.items():
                        time.sleep(SETTLE_S)
                        found += [len(texts) / asked[who](texts)[1] for _ in range(TURN)]
                theirs = middle(rates.pop("peer"))
                for who, found in rates.items():
                    self.row(f"embeddings, {what}, {who}", "texts/s", middle(found), theirs, "ONNX Runtime, in its caller's process", aim=(">=", 1.0))
            self.row("memory with the encoder", "MB", round(ours.memory() / 1e6), round(peer.memory() / 1e6), "ONNX Runtime, in Python")
        finally:
            peer.stop()
            ours.stop()
            if library:
                library.stop()

    def rerank(self):
        models, texts = self.folder / "models", self.folder / "texts"
        shutil.copytree(self.models / self.options.embed, models / self.options.embed)
        make_cross_encoder(self.models / self.options.embed, models / "bench-cross")
        texts.mkdir()
        for number, topic in enumerate(TOPICS):
            words = " ".join(TOPICS[(number * step) % len(TOPICS)] for step in range(1, 20))
            (texts / f"{topic}.md").write_text(f"This is about {topic}. It also speaks of {words}.\n")
        settings = {"RIVERRUN_MODELS_DIR": str(models), "RIVERRUN_DEFAULT_RERANK_MODEL": "bench-cross"}
        ours, peer = self.ours("rerank", **settings), self.onnx(models / "bench-cross")
        try:
            ended = ours.server.ingest(texts, "texts")
            self.must(ended["indexed"] == len(TOPICS), f"texts that were ingested: {ended}")
            away, mine, theirs, spread = 0.0, [], [], []
            for topic in TOPICS[:max(5, self.options.rounds)]:
                query = f"What is there to say about {topic}?"
                asked = [text for text, _ in ours.rerank(query, "texts", len(TOPICS))[0]]
                time.sleep(SETTLE_S)
                turn = [ours.rerank(query, "texts", len(TOPICS)) for _ in range(TURN)]
                time.sleep(SETTLE_S)
                their_turn = [peer.ask("scores", query, asked) for _ in range(TURN)]
                mine += [len(found) / seconds for found, seconds in turn]
                theirs += [len(asked) / seconds for _, seconds in their_turn]
                found, scores = dict(turn[-1][0]), their_turn[-1][0]
                self.must(len(found) == len(TOPICS), f"{len(found)} texts were scored, not {len(TOPICS)}")
                away = max([away, *(abs(found[text] - other) for text, other in zip(asked, scores))])
                spread += scores
            self.must(away <= 1e-3, f"scores of the cross-encoder are up to {away} away")
            self.row("scores of a cross-encoder: furthest from the peer's", "", round(away, 7), None, f"ONNX Runtime, whose scores are {min(spread):.2f} to {max(spread):.2f}")
            self.row("pairs scored", "pairs/s", middle(mine), middle(theirs), "ONNX Runtime, without a server", aim=(">=", 1.0))
        finally:
            peer.stop()
            ours.stop()


def make_cross_encoder(encoder, folder):
    """A BERT that scores pairs: an encoder with a head of random numbers. Good for nothing but comparing who computes it."""
    import numpy
    from onnx_encoder import read_safetensors, write_safetensors

    tensors = {f"bert.{name}": value for name, value in read_safetensors(encoder / "model.safetensors").items() if not name.endswith("position_ids")}
    draw, hidden = random.Random(11), tensors["bert.pooler.dense.bias"].shape[0]
    tensors["classifier.weight"] = numpy.array([[draw.gauss(0, 1) for _ in range(hidden)]])
    tensors["classifier.bias"] = numpy.array([0.5])
    folder.mkdir(parents=True)
    write_safetensors(folder / "model.safetensors", tensors)
    config = json.loads((encoder / "config.json").read_text())
    config |= {"architectures": ["BertForSequenceClassification"], "id2label": {"0": "LABEL_0"},
               "sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(encoder / "tokenizer.json", folder / "tokenizer.json")


def table(rows):
    names = ("what", "unit", "riverrun", "peer", "peer_name", "ratio", "aim")
    lines = ["| | unit | riverrun | beside | what is beside | ratio | aim |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        cells = ["" if row[name] is None else str(row[name]) for name in names]
        if row["reached"] is False:
            cells[-1] += ", missed"
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models-dir", default=os.environ.get("RIVERRUN_MODELS_DIR"), help="the folder of models")
    parser.add_argument("--parts", default=",".join(PARTS), help="what to do, of " + ", ".join(PARTS))
    parser.add_argument("--chat", default="smollm2-135m-instruct", help="a folder of it with a model.gguf")
    parser.add_argument("--embed", default="all-minilm-l6-v2", help="a folder of it with a BERT that takes the mean of tokens")
    parser.add_argument("--encoder", help="the program of models/examples/encoder.rs: embeddings also without a server")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", help="also writes the figures to this file")
    parser.add_argument("--aims", action="store_true", help="ends with 1 also when an aim is missed")
    options = parser.parse_args()
    if not options.models_dir:
        parser.error("--models-dir or RIVERRUN_MODELS_DIR must name the folder of models")
    parts = [part for part in options.parts.split(",") if part]
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts: {', '.join(sorted(unknown))}")
    options.models_dir = os.environ["RIVERRUN_MODELS_DIR"] = str(Path(options.models_dir).resolve())
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="riverrun-models-") as folder:
        bench = Bench(options, Path(folder))
        for part in parts:
            print(f"{part} ({time.monotonic() - began:.0f} s so far)", file=sys.stderr, flush=True)
            try:
                getattr(bench, part)()
            except (AssertionError, OSError, EOFError, KeyError, RuntimeError) as error:
                # What was measured until then, and the other parts, count all the same.
                bench.must(False, f"{part} broke off: {error!r}")
                bench.clear()
    print(table(bench.rows))
    for what in bench.unequal + bench.missed:
        print(f"- {what}")
    if options.json:
        Path(options.json).write_text(json.dumps({
            "machine": measure.machine(), "threads": options.threads, "chat": options.chat, "embed": options.embed, "llama.cpp": bench.system,
            "seconds": round(time.monotonic() - began), "rows": bench.rows, "unequal": bench.unequal, "missed": bench.missed}, indent=1))
    return 1 if bench.unequal or (options.aims and bench.missed) else 0


if __name__ == "__main__":
    sys.exit(main())
