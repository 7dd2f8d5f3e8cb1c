#!/usr/bin/env python3
"""How long the debug binary takes to build after a change in one crate, and `cargo check` after the same.

    ./x bench build [--rounds 3] [--json FILE]

In the checkout itself, with the target folder of every build. A change is a new function at the end of one file, which is put back: the
crate is compiled anew, those below it follow, and the program is linked. Between two rounds nothing else may build.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import measure

ROOT = Path(__file__).resolve().parents[2]
# From the last crate to be compiled to one of the first; what stands above a changed crate is not compiled again.
FILES = ["cli/src/serve.rs", "api/src/routes/docs.rs", "workers/src/stream.rs", "agents/src/policy.rs", "stores/src/read_models/runs.rs", "schemas/src/names.rs"]
COMMANDS = {"build": ["cargo", "build", "--locked", "-p", "riverrun-cli"], "check": ["cargo", "check", "--locked", "-p", "riverrun-cli"]}


def change(text, number):
    """The text with one more function, that does something else each time and is not called."""
    return f"{text}\n#[allow(dead_code)]\nfn measured_change() -> u32 {{\n    {number}\n}}\n"


def seconds(command):
    began = time.perf_counter()
    subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def measured(name, rounds):
    """Seconds after a change, by command. The file is put back, whatever happens."""
    path, found = ROOT / name, {what: [] for what in COMMANDS}
    kept = path.read_text()
    try:
        for number in range(rounds):
            path.write_text(change(kept, number))
            for what, command in COMMANDS.items():
                found[what].append(seconds(command))
    finally:
        path.write_text(kept)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", nargs="*", default=FILES, metavar="FILE", help="what is changed (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    if not shutil.which("cargo"):
        sys.exit("error: cargo is not there; ./x bench build brings it")
    for command in COMMANDS.values():
        seconds(command)  # so that what follows is the change alone
    rows = []
    for name in options.files:
        for what, samples in measured(name, options.rounds).items():
            rows.append({"what": f"cargo {what} of the binary after a change in {name}", "unit": "s", "riverrun": f"{statistics.median(samples):.1f}", "peer": None, "peer_name": "–", "note": ""})
            print(f"  {rows[-1]['what']}: {rows[-1]['riverrun']} s", file=sys.stderr, flush=True)
    where = measure.machine()
    print(f"\n{options.rounds} rounds on {where['cores']} cores of {where['cpu']}, load {where['load']:.1f}, target folder {os.environ.get('CARGO_TARGET_DIR', 'target')}.\n")
    print("| after a change in | cargo build | cargo check |\n|---|---|---|")
    shown = [row["riverrun"] for row in rows]
    for name, built, checked in zip(options.files, shown[::2], shown[1::2], strict=True):
        print(f"| {name} | {built} s | {checked} s |")
    if options.json:
        options.json.write_text(json.dumps({"machine": where, "rounds": options.rounds, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
