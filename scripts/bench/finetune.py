"""Our trainer beside PyTorch + PEFT on the same CPU: same base, same first adapter, same tokens in the same order. Compares the
losses of every step, the time of a step, the peak of memory and the time to the first step, and what the trained adapter says when
PEFT loads it. Prints a Markdown table.

    ./x bench finetune [--alone] [--steps 50] [--method sft_lora] [--threads 2] [--batch 4] [--seq-len 256] [--json FILE]

The examples begin alike over the base's chat template, which is computed once for all of a step here and for each of them there. With
--alone no example begins like another: they are written without a template, each behind a letter or mark of its own, and about as long.
(The two answers of a preference have the same prompt all the same.)

--base is a model folder: Hugging Face's layout (config.json, model.safetensors, tokenizer.json, tokenizer_config.json), or one with
a model.gguf, which is dequantized first, for both sides. --program is what `cargo build -p riverrun-training --example peer` builds.
Fails where losses are more than 1e-3 apart, or log probabilities of the trained adapter.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COLOURS = ["red", "green", "blue", "amber", "violet", "white", "black", "orange", "brown", "pink"]
THINGS = ["lamp", "river", "glider", "winch", "cloud", "field", "rope", "wing"]


# What a base writes without a template: the prompt, the answer, and the token that ends it.
BARE = "{% for message in messages %}{{ message['content'] }}{{ '<|im_end|>' if message['role'] == 'assistant' else '\\n' }}{% endfor %}"
FIRST_MARK = 33  # of ASCII: from there on each is a token by itself


def dataset(path, method, alone):
    """A small set that has a format to learn, made the same way each time."""
    with open(path, "w", encoding="utf-8") as file:
        for row, thing in enumerate(THINGS):
            for column, colour in enumerate(COLOURS):
                prompt = f"Describe the {colour} {thing} in our catalogue."
                if alone:
                    mark = chr(FIRST_MARK + row * len(COLOURS) + column)
                    prompt = f"{mark} is the mark of this entry, by which it is found on the shelves behind the workshop and in all lists of what we have. {prompt}"
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


def bare(base, scratch):
    """The base with a template that writes nothing of its own."""
    for path in base.iterdir() if base != scratch else ():
        if path.is_file():
            (scratch / path.name).symlink_to(path.resolve())
    template = scratch / "chat_template.jinja"
    template.unlink(missing_ok=True)  # as a link it would be that of the base
    template.write_text(BARE)
    return scratch


def share_nothing(steps, method):
    """Whether no example of a step begins like another."""
    each = 2 if method == "dpo" else 1
    firsts = [[one["ids"][0] for one in sequences[::each]] for sequences in steps]
    return all(len(set(first)) == len(first) for first in firsts)


def in_layout(base, scratch):
    """The base as both sides read it. Made in a process of its own: what a process was before it became another counts in its peak of memory."""
    if (base / "config.json").exists():
        return base
    subprocess.run([sys.executable, __file__, "--base", base, "--layout", scratch], check=True)
    return scratch


def lay_out(base, scratch):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    weights = next(base.glob("*.gguf")).name
    read = AutoModelForCausalLM.from_pretrained(base, gguf_file=weights)
    # What was read from GGUF is dequantized, but still counts as quantized, and that can't be saved.
    config = read.config
    if hasattr(config, "quantization_config"):
        del config.quantization_config
    plain = AutoModelForCausalLM.from_config(config, torch_dtype=read.dtype)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(scratch)
    AutoTokenizer.from_pretrained(base, gguf_file=weights).save_pretrained(scratch)


def measured(command, folder, variables):
    """The JSON lines that a process prints, and its own peak of memory in MiB."""
    with open(folder / "printed", "w+", encoding="utf-8") as printed:
        child = subprocess.Popen(command, env=os.environ | variables, stdout=printed)
        _, status, used = os.wait4(child.pid, 0)
        if status:
            sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
        printed.seek(0)
        return [json.loads(line) for line in printed], used.ru_maxrss / 1024


def ours(program, base, folder, numbers, threads, alone):
    (folder / "plan.json").write_text(json.dumps(numbers))
    dataset(folder / "data.jsonl", numbers["method"], alone)
    kind = "dpo" if numbers["method"] == "dpo" else "sft"
    command = [program, base, folder / "data.jsonl", kind, folder / "plan.json", folder / "out"]
    (folder / "out").mkdir()
    return measured(command, folder, {"RAYON_NUM_THREADS": str(threads)})


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
    said = json.loads((folder / "out/said.json").read_text())
    model.load_adapter(folder / "out/trained", "trained")
    model.set_adapter("trained")
    model.eval()
    with torch.no_grad():
        logs, taught = log_probabilities(said["sequences"])
    apart = (logs[taught] - torch.tensor(said["log_probabilities"])).abs().max().item()
    print(json.dumps({"steps": told, "exported_apart": apart}))


def median(values):
    ordered = sorted(values)
    return ordered[len(ordered) // 2]


def compare(args, method):
    """The figures of one method, ours first."""
    numbers = plan(method, args.steps, args.batch, args.seq_len)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "base").mkdir()
        base = in_layout(args.base, folder / "base")
        if args.alone:
            base = bare(base, folder / "base")
        own, _ = ours(args.program, base, folder, numbers, args.threads, args.alone)
        lines = [json.loads(line) for line in (folder / "out/steps.jsonl").read_text().splitlines()]
        if args.alone and not share_nothing(lines, method):
            sys.exit("examples of a step begin alike, which --alone is to keep them from: the base splits texts in another way than by bytes")
        again = [sys.executable, __file__, "--base", base, "--method", method, "--steps", str(args.steps), "--batch", str(args.batch),
                 "--seq-len", str(args.seq_len), "--threads", str(args.threads), "--peer", name]
        (other,), other_peak = measured(again, folder, {})
        # Ours goes on to a merged model, which theirs doesn't make: only what it took up to there is compared.
        peaks = json.loads((folder / "out/peaks.json").read_text())
    steps = other["steps"]
    mib = {"steps": peaks["steps"] / 2**20, "export": peaks["export"] / 2**20}
    return {
        "method": method + (" alone" if args.alone else ""), "steps": args.steps,
        "tokens": sum(len(one["ids"]) for sequences in lines for one in sequences) / len(lines),
        "max_loss_difference": max(abs(a["loss"] - b["loss"]) for a, b in zip(own, steps, strict=True)),
        "exported_adapter_difference": other["exported_apart"],
        "first_loss": [own[0]["loss"], steps[0]["loss"]], "last_loss": [own[-1]["loss"], steps[-1]["loss"]],
        "step_s": [median([one["seconds"] for one in own]), median([one["seconds"] for one in steps])],
        "peak_mib": [mib["steps"], other_peak], "peak_with_export_mib": mib["export"],
        # The process is at its peak in the one or the other, and both are estimated.
        "estimated_mib": {"steps": peaks["estimated"]["steps"] / 2**20,
                          "export": max(peaks["estimated"]["steps"], peaks["estimated"]["export"]) / 2**20},
        "to_first_step_s": [own[0]["since_start_s"], steps[0]["since_start_s"]],
    }


def table(reports):
    print("| method | what | riverrun | PyTorch + PEFT | ratio |\n|---|---|---|---|---|")
    for report in reports:
        for what, digits in (("step_s", 3), ("peak_mib", 0), ("to_first_step_s", 2), ("last_loss", 4)):
            own, other = report[what]
            print(f"| {report['method']} | {what} | {own:,.{digits}f} | {other:,.{digits}f} | {own / other:.2f} |")
        # What is refused for want of memory is told by it: it must be above the peak, and not far.
        found = {"steps": report["peak_mib"][0], "export": report["peak_with_export_mib"]}
        for part, estimated in report["estimated_mib"].items():
            print(f"| {report['method']} | peak of {part} in MiB: estimated, found | {estimated:,.0f}, {found[part]:,.0f} | | {estimated / found[part]:.2f} times |")
        print(f"| {report['method']} | tokens of a step | {report['tokens']:,.0f} | | |")
        for what in ("max_loss_difference", "exported_adapter_difference"):
            print(f"| {report['method']} | {what} | {report[what]:.1e} | | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    models = os.environ.get("RIVERRUN_MODELS_DIR")
    parser.add_argument("--base", type=Path, default=Path(models) / "smollm2-135m-instruct" if models else None)
    parser.add_argument("--program", type=Path)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq-len", type=int, default=256)
    parser.add_argument("--method", choices=["sft_lora", "dpo"], action="append", dest="methods")
    parser.add_argument("--alone", action="store_true", help="examples that begin alike with no other")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--peer", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--layout", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.layout:
        return lay_out(args.base, args.layout)
    if args.peer:
        return theirs(args.base, args.peer, plan(args.methods[0], args.steps, args.batch, args.seq_len), args.threads)
    reports = [compare(args, method) for method in args.methods or ["sft_lora", "dpo"]]
    table(reports)
    if args.json:
        args.json.write_text(json.dumps(reports, indent=2))
    sys.exit(any(max(one["max_loss_difference"], one["exported_adapter_difference"]) > 1e-3 for one in reports))


if __name__ == "__main__":
    main()
