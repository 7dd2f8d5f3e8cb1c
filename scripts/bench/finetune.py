"""Our trainer beside PyTorch + PEFT on the same CPU: same base, same first adapter, same tokens in the same order. Compares the
losses of every step, the time of a step, the peak of memory and the time to the first step.

    python scripts/bench/finetune.py BASE_FOLDER [--steps 50] [--method sft_lora|dpo] [--threads 2]

BASE_FOLDER is in Hugging Face's layout: config.json, model.safetensors, tokenizer.json, tokenizer_config.json. From a GGUF file:
    AutoModelForCausalLM.from_pretrained(FOLDER, gguf_file="model.gguf").save_pretrained(BASE_FOLDER), and the tokenizer alike.
Needs torch, transformers, peft and safetensors, and `cargo build --release -p riverrun-training --example peer`.
"""

import argparse
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLOURS = ["red", "green", "blue", "amber", "violet", "white", "black", "orange", "brown", "pink"]
THINGS = ["lamp", "river", "glider", "winch", "cloud", "field", "rope", "wing"]


def dataset(path, method):
    """A small set that has a format to learn, made the same way each time."""
    with open(path, "w", encoding="utf-8") as file:
        for thing in THINGS:
            for colour in COLOURS:
                prompt = f"Describe the {colour} {thing} in our catalogue."
                good = f"item={thing}; colour={colour}; length={len(thing) * len(colour)};"
                line = {"prompt": prompt, "completion": good}
                if method == "dpo":
                    line = {"prompt": prompt, "chosen": good, "rejected": f"It is a {colour} {thing}."}
                file.write(json.dumps(line) + "\n")


def plan(method, steps, batch, seq_len):
    targets = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
    return {"method": method, "lora": {"rank": 8, "alpha": 16.0, "dropout": 0.0, "targets": targets}, "learning_rate": 2e-4, "max_steps": steps,
            "batch_size": batch, "accumulation": 1, "seq_len": seq_len, "seed": 42, "warmup_steps": min(10, steps // 10), "weight_decay": 0.0,
            "max_grad_norm": 1.0, "dpo_beta": 0.1, "eval_every": steps + 1, "checkpoint_every": steps + 1, "patience": 0}


def peak_mib(child):
    return resource.getrusage(resource.RUSAGE_CHILDREN if child else resource.RUSAGE_SELF).ru_maxrss / 1024


def ours(base, folder, numbers, threads):
    (folder / "plan.json").write_text(json.dumps(numbers))
    dataset(folder / "data.jsonl", numbers["method"])
    kind = "dpo" if numbers["method"] == "dpo" else "sft"
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    program = target / "release/examples/peer"
    done = subprocess.run([program, base, folder / "data.jsonl", kind, folder / "plan.json", folder / "out"],
                          env=os.environ | {"RAYON_NUM_THREADS": str(threads)}, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()], peak_mib(True)


def rate(numbers, step):
    warm, steps = numbers["warmup_steps"], numbers["max_steps"]
    if step <= warm:
        return numbers["learning_rate"] * step / warm
    part = min((step - warm - 1) / max(steps - warm, 1), 1)
    return numbers["learning_rate"] * 0.5 * (1 + math.cos(math.pi * part))


def theirs(base, folder, numbers, threads):
    """PyTorch + PEFT; run in a process of its own, so that its memory is its own."""
    began = time.perf_counter()
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    model = AutoModelForCausalLM.from_pretrained(base, torch_dtype=torch.float32)
    model = PeftModel.from_pretrained(model, folder / "out", is_trainable=True)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=numbers["learning_rate"], weight_decay=0.0)
    steps = [json.loads(line) for line in (folder / "out/steps.jsonl").read_text().splitlines()]

    def log_probabilities(sequences):
        width = max(len(one["ids"]) for one in sequences)
        pad = lambda items, filler: torch.tensor([list(item) + [filler] * (width - len(item)) for item in items])
        ids = pad([one["ids"] for one in sequences], 0)
        there = pad([[1] * len(one["ids"]) for one in sequences], 0)
        taught = pad([one["taught"] for one in sequences], False)[:, 1:]
        logs = model(input_ids=ids, attention_mask=there).logits[:, :-1].log_softmax(-1)
        return logs.gather(-1, ids[:, 1:].unsqueeze(-1)).squeeze(-1) * taught, taught

    told = []
    for number, sequences in enumerate(steps, 1):
        start = time.perf_counter()
        optimizer.param_groups[0]["lr"] = rate(numbers, number)
        logs, taught = log_probabilities(sequences)
        if numbers["method"] == "dpo":
            with torch.no_grad(), model.disable_adapter():
                reference, _ = log_probabilities(sequences)
            gains = (logs - reference).sum(-1)
            loss = -torch.nn.functional.logsigmoid(numbers["dpo_beta"] * (gains[0::2] - gains[1::2])).mean()
        else:
            loss = -logs.sum() / taught.sum()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, numbers["max_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
        told.append({"step": number, "loss": loss.item(), "seconds": time.perf_counter() - start, "since_start_s": time.perf_counter() - began})
    print(json.dumps({"steps": told, "peak_mib": peak_mib(False)}))


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("base", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--method", choices=["sft_lora", "dpo"], default="sft_lora")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    numbers = plan(args.method, args.steps, args.batch, args.seq_len)
    if args.peer:
        return theirs(args.base, args.peer, numbers, args.threads)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own, own_peak = ours(args.base, folder, numbers, args.threads)
        again = [sys.executable, __file__, *sys.argv[1:], "--peer", name]
        done = subprocess.run(again, capture_output=True, text=True)
        if done.returncode:
            sys.exit(done.stderr)
        other = json.loads(done.stdout.splitlines()[-1])
    apart = max(abs(a["loss"] - b["loss"]) for a, b in zip(own, other["steps"], strict=True))
    report = {
        "method": args.method, "steps": args.steps, "max_loss_difference": apart,
        "first_loss": [own[0]["loss"], other["steps"][0]["loss"]], "last_loss": [own[-1]["loss"], other["steps"][-1]["loss"]],
        "step_s": [median([one["seconds"] for one in own]), median([one["seconds"] for one in other["steps"]])],
        "peak_mib": [own_peak, other["peak_mib"]],
        "to_first_step_s": [own[0]["since_start_s"], other["steps"][0]["since_start_s"]],
    }
    print(json.dumps(report, indent=2))
    sys.exit(apart > 1e-3)


if __name__ == "__main__":
    main()
