#!/usr/bin/env python3
"""Does every fault of docs/reliability.md at full size, one after the other, and sums up in one Markdown table what came of each.

    ./x chaos --full [PART ...] [--into FOLDER] [--resume] [--list]

What a part prints is kept in FOLDER/PART.txt, what came of it in FOLDER/PART.json. A part that fails is named with the reason, and the next
one is done. FOLDER/summary.md is written anew after each, from all that the folder has: docs/reliability.md takes its table from it. With
--resume what has held already is not done again.

Rows whose full size is a number of repeats are parts of their own, named by the row, with what the row's tests and its last column say.
LangGraph and DBOS under the same load are parts as well. Many hours on two cores; each part alone takes minutes to an hour.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import every
import measure

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/reliability.md"
TESTS = ROOT / "tests/interop"
LOAD = ("--runs", "10000", "--steps", "10", "--workers", "4")
# Runs that meet a model in a bad mood take as long as its time-outs.
MOODS = ("--runs", "1000", "--steps", "10", "--workers", "4", "--kill-every", "0s", "--patience", "180m")


# ---- what came of a part, from what its commands printed -------------------------------------------------------------


def of_load(printed):
    """Several harnesses side by side are one load: counts are added, of times the longest counts."""
    reports = [json.loads(re.findall(r"^\{.*?\}$", text, re.M | re.S)[-1]) for text in printed]
    total = {key: sum(report[key] for report in reports) for key in ("runs", "broken_processes", "lost", "doubled_effects", "terminal_events")}
    words = [f"{total['runs']:,} runs, {total['broken_processes']} broken", f"{total['lost']} lost, {total['doubled_effects']} doubled effects, {total['terminal_events']:,} ends"]
    if gaps := sum(report.get("with_gaps", 0) for report in reports):
        words.append(f"{gaps} with gaps")
    if all("longest_stall_ms" in report for report in reports):
        longest, partition = (max(report[key] for report in reports) / 1000 for key in ("longest_stall_ms", "longest_partition_stall_ms"))
        stayed = max(report["longest_untouched_partition_stall_ms"] for report in reports) / 1000
        words.append(f"longest stall {longest:.1f} s, of one partition {partition:.1f} s, of one that kept its owner {stayed:.1f} s")
        words.append(f"a worker {max(report['worker_mib_at_start'] or 0 for report in reports)} to {max(report['worker_mib_at_most'] or 0 for report in reports)} MiB")
    if all("runs_per_second" in report for report in reports):
        words.append(f"{sum(report['runs_per_second'] for report in reports):.1f} runs/s")
    return "; ".join([*words, f"seed {', '.join(str(report['seed']) for report in reports)}"])


def of_moments(printed):
    """A line for each event, with its verdict at the end."""
    verdicts = re.findall(r"^\d+ +Run\w+ .* (\S+)$", printed[0], re.M)
    return f"killed at each of {len(verdicts)} events, {verdicts.count('ok')} went on as if nothing had been"


def of_cargo(printed):
    found = [re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", text, re.M) for text in printed]
    passed, failed = (sum(int(counts[at]) for results in found for counts in results) for at in (0, 1))
    return f"{passed} passed" + (f", {failed} failed" if failed else "")


def of_pytest(printed):
    """How many passed, and what tests say that they have measured."""
    ends = [found[-1] for text in printed if (found := re.findall(r"^=* ?(\d+ (?:passed|failed|skipped|error).*?) in [\d.]+s", text, re.M))]
    counts = [", ".join(re.findall(r"\d+ (?:passed|failed|skipped|errors?)", end)) for end in ends]
    return "; ".join([*counts, *re.findall(r"^measured: (.*)$", "".join(printed), re.M)])


def of_fuzz(printed):
    counted = re.findall(r"^\d+ inputs of \d+ targets$", printed[0], re.M)
    return "; ".join([*counted[-1:], f"of the whole program: {of_pytest(printed)}"])


def of_soak(printed):
    """Its report has a line for each figure, and one for each kind of request with how much slower it became."""
    lines = [" ".join(line.split()) for line in printed[0].splitlines() if re.match(r"(minutes|done|lost|errors|memory|file handles|OVER)\b", line)]
    ratios = [float(ratio) for ratio in re.findall(r"^\w+ +\d+ times, .*\(x([\d.]+)\)", printed[0], re.M)]
    return "; ".join([*lines, *([f"second half of the first, 99th percentiles: {min(ratios)} to {max(ratios)}"] if ratios else [])])


def last_line(printed):
    return [line.strip(" =") for line in printed[0].splitlines() if line.strip()][-1]


# ---- the parts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    name: str
    rows: str
    # Several are run at once.
    commands: tuple[tuple[str, ...], ...]
    came: Callable[[list[str]], str]


def load(name, rows, *arguments):
    return Part(name, rows, (("riverrun", "--json", "chaos", "load", *arguments),), of_load)


def peer(name, script, *arguments):
    return Part(name, "F1", ((sys.executable, f"scripts/bench/chaos_{script}.py", "--json", *LOAD, "--kill-every", "2", "--patience", "5400", *arguments),), of_load)


def freezes():
    """A minute for each of two hundred: four fleets share them."""
    arguments = ("--runs", "2500", "--steps", "10", "--workers", "4", "--over", "50m", "--fault", "freeze", "--freeze-for", "60s", "--kill-every", "60s", "--patience", "120m")
    return Part("freeze", "F10", tuple(("riverrun", "--json", "chaos", "load", *arguments, "--seed", str(seed)) for seed in (1, 2, 3, 4)), of_load)


def cargo(name, rows, settings, *arguments):
    return Part(name, rows, (("env", *settings, "cargo", "test", "--locked", "--workspace", *arguments),), of_cargo)


def scaled(page):
    """A part for each row whose full size is a number of repeats: those of its tests that can be repeated."""
    for row in re.findall(r"^\| F\d+ \|.*\| `--scale \d+`[^|]*\|$", page.read_text(), re.M):
        number, scale = re.match(r"\| (F\d+)", row)[1], re.findall(r"`--scale (\d+)`", row)[-1]
        tests = [test for file, test in re.findall(r"\b(test_\w+\.py)::(\w+)", row) if takes_scale((TESTS / file).read_text(), test)]
        yield Part(number, number, (("./x", "interop", "-k", " or ".join(tests), "--scale", scale, "-rP"),), of_pytest)


def takes_scale(text, test):
    return re.search(rf"^def {test}\(([^)]*, )?scale[,)]", text, re.M) is not None


def parts():
    """The longest last."""
    over = ("--over", "10m")
    database = os.environ.get("RIVERRUN_TEST_DATABASE_URL")
    return [
        Part("moments", "F1", (("riverrun", "chaos", "run", "--calls", "50"),), of_moments),
        load("kill", "F1", *LOAD, *over, "--kill-every", "2s", "--patience", "180m"),
        # As fast as it goes, without faults and with them.
        load("calm", "F1", *LOAD, "--kill-every", "0s", "--patience", "180m"),
        load("rush", "F1", *LOAD, "--kill-every", "2s", "--patience", "180m"),
        load("rebalance", "F12", *LOAD, *over, "--kill-every", "2s", "--fault", "rebalance", "--patience", "180m"),
        load("broker", "F5", *LOAD, *over, "--kill-every", "6s", "--fault", "broker", "--patience", "180m"),
        peer("langgraph", "langgraph"),
        peer("dbos", "dbos"),
        *([peer("dbos-postgresql", "dbos", "--database-url", database)] if database else []),
        *(load(mood, "F8", *MOODS, "--model", mood) for mood in ("error", "hang", "drip", "flood")),
        cargo("disk", "F3, F4", ("BROKER_CRASH_SEEDS=100000", "BROKER_FAILING_PROGRAMMES=20"), "--test", "crash"),
        cargo("broker-kills", "F2", ("BROKER_KILLS=1000",), "--test", "durability", "--", "kill_9"),
        Part("server-kills", "F2, F21", (("./x", "interop", "-k", "test_kill", "--kills", "1000", "-rP"),), of_pytest),
        *scaled(PAGE),
        Part("fuzz", "F24", (("./x", "fuzz"),), of_fuzz),
        Part("fuzz-http", "F24", (("./x", "fuzz", "http"),), last_line),
        Part("soak", "F25", (("./x", "soak"),), of_soak),
        freezes(),
    ]


# ---- running ---------------------------------------------------------------------------------------------------------


def run(command, file):
    """Its exit code and what it printed, which is shown as it comes and kept in the file. The binary is the one that is measured, if one is."""
    binary = os.environ["RIVERRUN_BIN"]
    started = [binary if word == "riverrun" else word for word in command]
    print(f"==> {repeated(command)}", file=sys.stderr, flush=True)
    return every.shown(started, file, stdin=subprocess.DEVNULL)


def do(part, folder):
    files = [folder / (f"{part.name}.txt" if number == 0 else f"{part.name}-{number + 1}.txt") for number in range(len(part.commands))]
    ended = [None] * len(files)

    def one(number):
        try:
            ended[number] = run(part.commands[number], files[number])
        except OSError as error:
            ended[number] = (127, f"error: {error}")

    began = time.monotonic()
    threads = [threading.Thread(target=one, args=(number,)) for number in range(len(files))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    whys = [every.reason(code, printed) for code, printed in ended if code != 0]
    return {"rows": part.rows, "command": told(part), "seconds": round(time.monotonic() - began), "held": not whys, "why": "; ".join(whys),
            "came": came(part, [printed for _, printed in ended])}


def came(part, printed):
    """A part that broke off has no figures, or some."""
    try:
        return part.came(printed)
    except (IndexError, KeyError, ValueError):
        return ""


def repeated(command):
    """What repeats it, without what is of this machine: paths, and URLs with a password."""
    words = [Path(word).name if word == sys.executable else re.sub(r"^\w+://.*@.*", "URL", word) for word in command]
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def told(part):
    shown = repeated(part.commands[0])
    return shown if len(part.commands) == 1 else f"{len(part.commands)} at once, each with a seed of its own: {shown}"


def summary(found, where):
    """Markdown of what came of each part."""
    lines = [f"{where['cores']} cores of {where['cpu']}.", "", "| rows | part | what came of it | took | held |", "|---|---|---|---|---|"]
    for name, one in found.items():
        held = "yes" if one["held"] else f"no: {one['why']}"
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in (one["rows"], f"`{name}`", one["came"], minutes(one["seconds"]), held)) + " |")
    if (share := throughput_kept(found)) is not None:
        lines += ["", f"Runs per second while workers are killed (`rush`), of those without faults (`calm`): {share:.0%}."]
    lines += ["", *[f"- `{name}`: `{one['command']}`" for name, one in found.items()]]
    return "\n".join(lines) + "\n"


def throughput_kept(found):
    """The part of the runs per second of a load without faults that is left with them; None where one of the two was not done."""
    rates = [re.search(r"([\d.]+) runs/s", found[name]["came"]) for name in ("rush", "calm") if name in found]
    if len(rates) < 2 or not all(rates):
        return None
    rush, calm = (float(rate[1]) for rate in rates)
    return rush / calm if calm else None


def minutes(seconds):
    return f"{seconds} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def results(folder, names):
    return {name: json.loads((folder / f"{name}.json").read_text()) for name in names if (folder / f"{name}.json").exists()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    all_parts = {part.name: part for part in parts()}
    parser.add_argument("parts", nargs="*", metavar="PART", help="all when left out; --list names them")
    parser.add_argument("--into", type=Path, default=Path("chaos-results"), help="folder of what came of them (default: %(default)s)")
    parser.add_argument("--resume", action="store_true", help="leave out what has held, by what the folder has")
    parser.add_argument("--list", action="store_true", help="name the parts and their commands, and do nothing")
    options = parser.parse_args()
    if unknown := [name for name in options.parts if name not in all_parts]:
        parser.error(f"{unknown[0]!r} is no part; they are {', '.join(all_parts)}")
    if options.list:
        print("\n".join(f"{name:16} {part.rows:8} {told(part)}" for name, part in all_parts.items()))
        return 0
    folder = options.into.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    failed = []
    for name in options.parts or all_parts:
        file = folder / f"{name}.json"
        if options.resume and file.exists() and json.loads(file.read_text())["held"]:
            print(f"==> {name} has held already", file=sys.stderr)
            continue
        one = do(all_parts[name], folder)
        file.write_text(json.dumps(one, indent=1) + "\n")
        if not one["held"]:
            failed.append(name)
            print(f"==> {name} {one['why']}", file=sys.stderr, flush=True)
        (folder / "summary.md").write_text(summary(results(folder, all_parts), measure.machine()))
    print(summary(results(folder, all_parts), measure.machine()))
    print(f"kept in {os.path.relpath(folder)}" + (f"; did not hold: {', '.join(failed)}" if failed else ""), file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
