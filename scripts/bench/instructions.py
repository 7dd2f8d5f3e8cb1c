#!/usr/bin/env python3
"""What 200 steps on real instructions teach a small model: the loss of examples that training never saw, and how often the model
answers as the set does (one short line, nothing around it) before and after.

    scripts/bench/instructions.py --from FOLDER [--steps 200] [--learning-rate 5e-4] [--asked 100] [--json FILE] [--binary FILE]

FOLDER holds prompts and completions as JSON lines, one file a task: data/finetuning/t0_train_50k/data_per_template of a clone of
Self-Instruct's repository (yizhongw/self-instruct on GitHub), which is a sample of P3. Taken are the pairs with a prompt of at most 500 characters
and a completion of at most 40: 1,500 to train on, others to ask, by a fixed seed. Needs the base model in RIVERRUN_MODELS_DIR.
"""

import argparse
import json
import os
import random
import string
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MAX_PROMPT, MAX_COMPLETION = 500, 40
TRAINED_ON = 1_500
SEED = 7


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--from", dest="folder", type=Path, required=True)
    parser.add_argument("--base-model", default="smollm2-135m-instruct")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--asked", type=int, default=100, help="prompts that both models answer")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--binary", type=Path)
    return parser.parse_args()


def examples(folder):
    found = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            prompt, completion = one["prompt"].strip(), one["completion"].replace("<|endoftext|>", "").strip()
            if completion and "\n" not in completion and len(prompt) <= MAX_PROMPT and len(completion) <= MAX_COMPLETION:
                found.append({"prompt": prompt, "completion": completion})
    if len(found) <= TRAINED_ON:
        sys.exit(f"{folder} has {len(found)} examples of that size; more than {TRAINED_ON} are needed")
    random.Random(SEED).shuffle(found)
    return found


def plain(text):
    return text.strip().strip(string.punctuation).lower()


def answers(server, model, prompts):
    def ask(prompt):
        body = {"provider": "local", "model": model, "stream": False, "temperature": 0, "max_tokens": 60,
                "messages": [{"role": "user", "content": prompt}]}
        reply = server.post("/chat", body, timeout=300)
        if reply.status != 200:
            sys.exit(f"{model} does not answer: {reply}")
        return reply.json["text"].strip()

    return [ask(prompt) for prompt in prompts]


def measured(said, asked):
    """Counts of replies in the form that is taught, and of those that are the completion itself."""
    in_form = sum("\n" not in text and 0 < len(text) <= MAX_COMPLETION for text in said)
    equal = sum(plain(text) == plain(one["completion"]) for text, one in zip(said, asked, strict=True))
    return {"in_form": in_form, "equal": equal, "of": len(asked)}


def train(server, args, chosen):
    path = server.folder / "p3.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in chosen))
    done = server.cli("finetune", "train", "--dataset", str(path), "--name", "p3", "--base-model", args.base_model, "--max-steps", str(args.steps),
                      "--batch-size", str(args.batch_size), "--learning-rate", str(args.learning_rate), timeout=3600)
    if done.returncode:
        sys.exit(f"the training failed: {done.stdout}\n{done.stderr}")
    return server.get("/finetune/registry").json["items"][0]


def main():
    args = options()
    if args.binary:
        os.environ["RIVERRUN_BIN"] = str(args.binary)
    sys.path.insert(0, str(ROOT / "tests/interop"))
    from server import Server

    all_of_them = examples(args.folder)
    asked = all_of_them[TRAINED_ON : TRAINED_ON + args.asked]
    prompts = [one["prompt"] for one in asked]
    with tempfile.TemporaryDirectory() as folder:
        server = Server(folder, {"RIVERRUN_DEFAULT_CHAT_MODEL": args.base_model}).start()
        try:
            before = answers(server, args.base_model, prompts)
            version = train(server, args, all_of_them[:TRAINED_ON])
            after = answers(server, version["chat_model"], prompts)
        finally:
            server.stop()
    report = {"stage": version["stage"], "metrics": version["metrics"], "base": measured(before, asked), "tuned": measured(after, asked)}
    print(json.dumps(report, indent=2))
    if args.json:
        told = [one | {"base": base, "tuned": tuned} for one, base, tuned in zip(asked, before, after, strict=True)]
        args.json.write_text(json.dumps(report | {"answers": told}, indent=1))


if __name__ == "__main__":
    main()
