#!/usr/bin/env python3
"""Runs every part of the benchmarks, one after the other, and sums them up in one Markdown table: ours, theirs, the ratio.

    ./x bench all [PART ...] [--into FOLDER] [--quick] [--resume]

Each part is its own `./x bench PART`: what it prints is kept in FOLDER/PART.txt, its figures in FOLDER/PART.json. A part that fails, or
whose peer can't be had, is named with the reason, and the next one runs. FOLDER/summary.md is written anew after each, from the figures
that are there: docs/performance.md takes its tables from it. With --resume what has its figures already is not measured again.

All of it takes about three hours on two cores with nothing else to do; most of that is `agents`, which is left out by naming the others.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import measure

ROOT = Path(__file__).resolve().parents[2]
# The longest last: whoever stops early has the others.
PARTS = ("turns", "broker", "projects", "build", "knowledge", "models", "finetune", "agents")
# What makes a part short enough to see that it works.
QUICK = {
    "turns": ["--quick"],
    "broker": ["--quick", "--log-gb", "0.1"],
    "projects": ["--rounds", "1", "--generated", "--lines", "10000"],
    "build": ["--rounds", "1", "--files", "cli/src/serve.rs"],
    "knowledge": ["--rounds", "1", "--split-chunks", "1000", "--ingest-chunks", "500", "--chunks", "2000", "--queries", "50", "--rows", "10000"],
    "models": ["--rounds", "1", "--parts", "speed,embeddings"],
    "finetune": ["--steps", "3", "--method", "sft_lora"],
    "agents": ["--every", "25", "--agents", "react"],
}
NONE = "–"


# ---- figures of a part as rows: what, unit, ours, theirs, whose ------------------------------------------------------


def of_rows(found):
    return [(row["what"], row["unit"], row["riverrun"], row["peer"], row["peer_name"]) for row in found["rows"]]


def of_broker(found):
    ours = {(what, unit): value for what, name, unit, value in found["rows"] if name.startswith("riverrun")}
    theirs = [(what, unit, ours.get((what, unit)), value, name if name != "-" else "the disk alone")
              for what, name, unit, value in found["rows"] if not name.startswith("riverrun")]
    alone = [(what, unit, value, None, NONE) for (what, unit), value in ours.items() if (what, unit) not in {row[:2] for row in theirs}]
    return theirs + alone


def of_finetune(found):
    names = {"step_s": ("a step", "s"), "peak_mib": ("peak memory", "MiB"), "to_first_step_s": ("until the first step", "s"), "last_loss": ("loss of the last step", "")}
    return [(f"{report['method']}: {what}", unit, *report[key], "PyTorch + PEFT") for report in found for key, (what, unit) in names.items()]


def of_projects(found):
    rows = found["rows"]
    by_hand = {name: seconds for name, seconds in rows.items() if name.endswith("by hand, one after the other")}
    ruff = rows.get("ruff by hand")
    return [("our own analyzers", "s", rows["deterministic"], ruff, "ruff by hand"),
            *[("request to report", "s", rows["alone"], seconds, name) for name, seconds in by_hand.items()],
            *[("the same with the programs of others", "s", rows["whole"], seconds, name) for name, seconds in by_hand.items()]]


def of_agents(found):
    outcomes = found.get("outcomes", [])
    of = {agent: [one["done"] for one in outcomes if one["agent"] == agent] for agent in dict.fromkeys(one["agent"] for one in outcomes)}
    return [(f"tasks done by {agent}, of {len(done)}", "tasks", sum(done), None, NONE) for agent, done in of.items()]


READERS = {"turns": of_rows, "build": of_rows, "knowledge": of_rows, "models": of_rows, "broker": of_broker, "finetune": of_finetune,
           "projects": of_projects, "agents": of_agents}


# ---- the summary -----------------------------------------------------------------------------------------------------


def numbers(value):
    """`1,155` is one, `0.33 / 0.50` are two; what is none has none."""
    parts = str(value).replace(",", "").split(" / ") if value is not None else []
    try:
        return [float(part) for part in parts]
    except ValueError:
        return []


def ratio(ours, theirs):
    mine, other = numbers(ours), numbers(theirs)
    if not mine or len(mine) != len(other) or not all(other):
        return NONE
    return " / ".join(f"{a / b:.2f}" for a, b in zip(mine, other, strict=True))


def cell(value):
    if value is None:
        return "not measured"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"
    return str(value).replace("|", "\\|")


def summary(figures, failed, where):
    """Markdown of all that was measured; `figures` by part, `failed` with the reason of each."""
    lines = [f"{where['cores']} cores of {where['cpu']}, load {where['load']:.1f}. The ratio is ours to theirs.", "",
             "| part | what | unit | riverrun | peer | which peer | ratio |", "|---|---|---|---|---|---|---|"]
    for part, found in figures.items():
        for what, unit, ours, theirs, name in READERS[part](found):
            lines.append(f"| {part} | {what} | {unit} | {cell(ours)} | {cell(theirs)} | {cell(name)} | {ratio(ours, theirs)} |")
    lines += ["", *[f"- {part}: {why}" for part, why in failed.items()]] if failed else []
    return "\n".join(lines) + "\n"


def reason(code, printed):
    """Why a part failed, in one line: what its script or `x` called an error, or else the last thing that it said."""
    lines = [re.sub(r"\x1b\[[0-9;]*m", "", line).strip() for line in printed.splitlines() if line.strip()]
    told = next((line for line in reversed(lines) if line.lower().startswith("error")), lines[-1] if lines else "it said nothing")
    return f"ended with {code}: {told[:300]}"


# ---- running ---------------------------------------------------------------------------------------------------------


def shown(command, file, **more):
    """The exit code of a command and what it printed, which is shown as it comes and kept in the file; `more` goes to Popen."""
    printed = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **more) as process, file.open("w") as kept:
        for line in process.stdout:
            print(line, end="", file=sys.stderr, flush=True)
            kept.write(line)
            printed.append(line)
    return process.returncode, "".join(printed)


def run(part, options, file):
    """The reason why the part failed, if it did."""
    command = [str(ROOT / "x"), "bench", *([part] if part != "turns" else []), "--json", str(file), *(QUICK[part] if options.quick else [])]
    print(f"==> {' '.join(command)}", file=sys.stderr, flush=True)
    code, printed = shown(command, file.with_suffix(".txt"))
    return None if code == 0 else reason(code, printed)


def measured(folder, parts):
    return {part: json.loads((folder / f"{part}.json").read_text()) for part in parts if (folder / f"{part}.json").exists()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="of " + ", ".join(PARTS) + "; all when left out")
    parser.add_argument("--into", type=Path, default=Path("bench-results"), help="folder of figures (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="little of each, to see that it works")
    parser.add_argument("--resume", action="store_true", help="keep the figures that the folder has")
    options = parser.parse_args()
    if unknown := [part for part in options.parts if part not in PARTS]:
        parser.error(f"{unknown[0]!r} is no part; they are {', '.join(PARTS)}")
    parts = [part for part in PARTS if part in (options.parts or PARTS)]
    folder = options.into.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed, began = {}, time.monotonic()
    for part in parts:
        file = folder / f"{part}.json"
        if options.resume and file.exists():
            print(f"==> {part} has its figures already", file=sys.stderr)
            continue
        file.unlink(missing_ok=True)
        if why := run(part, options, file):
            failed[part] = why
            print(f"==> {part} {why}", file=sys.stderr, flush=True)
        text = summary(measured(folder, parts), failed, measure.machine())
        (folder / "summary.md").write_text(text)
    text = summary(measured(folder, parts), failed, measure.machine())
    (folder / "summary.md").write_text(text)
    print(text)
    print(f"{(time.monotonic() - began) / 60:.0f} min; kept in {os.path.relpath(folder)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
