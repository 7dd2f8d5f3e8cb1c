#!/usr/bin/env python3
"""How fast projects are analyzed, and whether what reports say of others' tools is what these say by hand.

    ./x bench projects [--rounds 5] [--generated] [--lines 100000] [--json FILE]

or, with a binary of yours:

    python3 -m venv VENV && VENV/bin/pip install -r scripts/bench/requirements-projects.txt
    RIVERRUN_BIN=PATH VENV/bin/python scripts/bench/projects.py

Real projects come from the package registries (real_projects.py says which): three source archives of Python, about 107,000 lines,
are one project for the times; each of them, an npm package and a Rust crate are analyzed for the counts. With --generated, or where the
registry does not answer, times are those of a generated repository of --lines lines.

Ours and the peers' take turns (A B A B) and medians are given. `deterministic` is what an analysis takes in a server that starts no
program of others, as its report says: reading the copy, every analyzer of riverrun, and the figures and public names beside them;
`alone` is the same from the request to the report, over HTTP and the log; `whole` with the programs that are installed. By hand: ruff
alone, and ruff, mypy, bandit and semgrep one after the other. At the end: how much faster ours are than all of them (aim: 20 times),
the same without mypy and with ruff and mypy on our side too, since `alone` checks no types, and the deterministic parts in terms of ruff
alone (aim: 1.5), each only where all that it is of was at hand. semgrep has two rules of its own, so that nothing is fetched: with more
rules it is slower.

Counts are compared finding by finding (rule, file, line), as is the number that the report says, and a difference is an error: exit
code 1. A list that is cut is one. eslint is installed on request
with `riverrun project tools install`, which is shown to work on the way; clippy is allowed for it. What is not at hand is said.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
import real_projects as real  # noqa: E402
from server import Server, wait_for  # noqa: E402
from stub_model import StubModel  # noqa: E402

LINES_A_FILE = 250
# The virtual environment that runs this goes first, for the peers and for what a server starts.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
PEERS = {
    "ruff": real.RUFF,
    "mypy": real.MYPY,
    "bandit": ["bandit", "--recursive", "--quiet", "--exit-zero", "."],
    "semgrep": ["semgrep", "scan", "--metrics=off", "--disable-version-check", "--config", "RULES", "."],
}
SEMGREP_RULES = """rules:
  - {id: eval, languages: [python], severity: ERROR, message: eval, pattern: eval(...)}
  - {id: bare, languages: [python], severity: WARNING, message: bare except, pattern: "try: ...\\nexcept: ..."}
"""


def python_function(number, dice):
    """About twenty lines, one in ten with something to find."""
    branches = "\n".join(f"    if value > {dice.randrange(100)}:\n        total += value * {dice.randrange(1, 9)}"
                         for _ in range(dice.randrange(3, 8)))
    odd = "    return total\n    print(total)\n" if dice.random() < 0.1 else "    return total\n"
    return f"def step_{number}(value: int) -> int:\n    total = 0\n{branches}\n{odd}\n\n"


def javascript_function(number, dice):
    return (f"export function step{number}(value) {{\n  let total = 0;\n"
            + "".join(f"  if (value > {dice.randrange(100)}) {{\n    total += {dice.randrange(9)};\n  }}\n" for _ in range(5))
            + "  return total;\n}\n\n")


def go_function(number, dice):
    return (f"func Step{number}(value int) int {{\n\ttotal := 0\n"
            + "".join(f"\tif value > {dice.randrange(100)} {{\n\t\ttotal += {dice.randrange(9)}\n\t}}\n" for _ in range(5))
            + "\treturn total\n}\n\n")


def generate(folder, lines):
    """The same repository for the same number of lines. Returns how many lines it came to."""
    dice = random.Random(lines)
    (folder / "requirements.txt").write_text("requests==2.31\nnumpy\n")
    (folder / "go.mod").write_text("module bench\n\ngo 1.20\n")
    made, file = 0, 0
    while made < lines:
        kind = dice.choices(["py", "js", "go"], [8, 1, 1])[0]
        head = {"py": "import os\nimport requests\n\n\n", "js": "", "go": f"package p{file}\n\n"}[kind]
        write = {"py": python_function, "js": javascript_function, "go": go_function}[kind]
        text, number = head, 0
        while text.count("\n") < LINES_A_FILE:
            text += write(f"{file}_{number}", dice)
            number += 1
        path = folder / f"part{file % 40}" / f"p{file}" / f"file{file}.{kind}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        made, file = made + text.count("\n"), file + 1
    return made


def analyze(server, project_id):
    """Seconds from the request to the report, and the report."""
    began = time.perf_counter()
    reply = server.post(f"/projects/{project_id}/analyze", {"review": False}, headers={"prefer": "respond-async"})
    assert reply.status == 202, reply
    place = reply.headers["location"]

    def done():
        found = server.get(place)
        return found.json if found.status == 200 else None
    report = wait_for(done, 600, "the report", every_s=0.01)
    return time.perf_counter() - began, report


def peer(command, folder, rules):
    """Seconds of a call by hand; None when it breaks off."""
    began = time.perf_counter()
    arguments = [str(rules) if word == "RULES" else word for word in command]
    done = real.run(arguments, folder, os.environ | {"PATH": PATH})
    if done.returncode not in (0, 1):
        print(f"{command[0]} broke off: {(done.stderr or done.stdout)[-300:]!r}", file=sys.stderr)
        return None
    return time.perf_counter() - began


def calls(folder):
    """The peers that are there, as they get through these files."""
    present = {name: command for name, command in PEERS.items() if shutil.which(command[0], path=PATH)}
    if "mypy" in present and real.run(present["mypy"], folder, os.environ | {"PATH": PATH}).returncode == 2:
        present["mypy"] = present["mypy"] + real.BY_FOLDERS
    return present


class Bench:
    def __init__(self, scratch, model):
        self.scratch, self.rules = scratch, scratch / "rules.yml"
        self.rules.write_text(SEMGREP_RULES)
        settings = model.settings() | {"RIVERRUN_INGEST_ROOTS": str(scratch), "PATH": PATH}
        programs = "ruff,mypy,eslint,cargo-clippy"
        # Our own analyzers alone in one server, the programs of others besides in another.
        self.alone = Server(scratch / "alone", settings | {"RIVERRUN_PROJECT_PROGRAMS": "none"})
        self.whole = Server(scratch / "whole", settings | {"RIVERRUN_PROJECT_PROGRAMS": programs})

    def start(self):
        self.alone.start()
        self.whole.start()

    def stop(self):
        for server in (self.alone, self.whole):
            if server.process:
                server.stop()

    def imported(self, server, folder):
        """The project, and the seconds that its import took."""
        began = time.perf_counter()
        reply = server.post("/projects/import", {"source": str(folder)}, headers={"prefer": "respond-async"})
        assert reply.status == 202, reply
        project_id = reply.json["project_id"]

        def status():
            found = server.get(f"/projects/{project_id}").json
            assert found["status"] != "failed", found
            return found["status"] == "imported"
        wait_for(status, 300, "the import")
        return project_id, time.perf_counter() - began

    # ---- times ---------------------------------------------------------------------------------------------------------------

    def times(self, folder, rounds):
        """Rows of what and seconds, and the report."""
        ours = {"import": [], "deterministic": [], "alone": [], "whole": []}
        ids = {}
        for server in (self.alone, self.whole):
            ids[server], took = self.imported(server, folder)
            ours["import"].append(took)
        present = calls(folder)
        theirs = {name: [] for name in present}
        for _ in range(rounds):
            took, report = analyze(self.alone, ids[self.alone])
            ours["alone"].append(took)
            ours["deterministic"].append(report["took_ms"] / 1000)
            took, report = analyze(self.whole, ids[self.whole])
            ours["whole"].append(took)
            for name, command in list(present.items()):
                took = peer(command, folder, self.rules)
                if took is None:
                    del present[name], theirs[name]
                else:
                    theirs[name].append(took)
        return ({name: statistics.median(took) for name, took in ours.items()},
                {name: statistics.median(took) for name, took in theirs.items()}, report)

    # ---- counts --------------------------------------------------------------------------------------------------------------

    def counts(self, folders):
        """A line for each project and tool: what the report says beside what the tool says by hand. Differences end in `differ`."""
        environment = os.environ | {"PATH": PATH}
        eslint = self.installed_eslint()
        for name, folder in folders.items():
            # By hand last: clippy builds in the folder.
            by_hand = {"ruff": real.by_ruff, "mypy": real.by_mypy} if name in real.SDISTS else {}
            if name == "npm package" and eslint:
                by_hand = {"eslint": lambda folder, environment: real.by_eslint(eslint, folder, environment)}
            if name == "crate":
                by_hand = {"clippy": real.by_clippy}
            project_id, _ = self.imported(self.whole, folder)
            _, report = analyze(self.whole, project_id)
            for tool, ask in by_hand.items():
                ours, theirs = real.reported(report, tool), ask(folder, environment)
                run_of = next((one for one in report["tools"] if one["name"] == tool), {"status": "not in the report"})
                if theirs is None or (ours is None and run_of["status"] in ("skipped", "missing")):
                    # What breaks off by hand must not look clean in the report.
                    is_odd = theirs is None and run_of["status"] == "ran"
                    why = "differ: by hand it broke off or is not there" if is_odd else run_of.get("detail") or "not at hand"
                    yield name, tool, ours and ours.total(), theirs and theirs.total(), why
                    continue
                is_same = ours == theirs and run_of.get("findings") == theirs.total()
                some = [] if is_same else list(((ours or Counter()) - theirs) + (theirs - (ours or Counter())))[:3]
                why = "the same" if is_same else f"differ: {run_of.get('detail') or ''} {some}"
                yield name, tool, ours and ours.total(), theirs.total(), why

    def installed_eslint(self):
        """What starts eslint, after it was installed on request; None where that is not to be had."""
        done = self.whole.cli("project", "tools", "install", "eslint", "--json")
        if done.returncode != 0:
            print(f"eslint is not installed: {done.stderr.strip()}", file=sys.stderr)
            return None
        tool = next(one for one in json.loads(done.stdout)["items"] if one["name"] == "eslint")
        return ["node", tool["program"]]


def fetched(scratch, wanted):
    """Projects of the registries by name; what is not to be had is said."""
    folders = {}
    makers = {name: lambda name=name: real.sdist(name, scratch / "python") for name in real.SDISTS}
    makers |= {"npm package": lambda: real.npm_package(scratch), "crate": lambda: real.crate(scratch)}
    for name, make in makers.items() if wanted else ():
        try:
            folders[name] = make()
        except real.Unavailable as error:
            print(f"not to be had: {error}", file=sys.stderr)
    return folders


def shown(what, lines, ours, theirs):
    """A table, and the two figures that are aimed at."""
    rows = list(ours.items()) + [(f"{name} by hand", took) for name, took in theirs.items()]
    all_of_them = sum(theirs.values())
    rows.append((f"{' + '.join(theirs) or 'nothing'} by hand, one after the other", all_of_them))
    print(f"{what}, {lines:,} lines\n")
    print("| what | seconds | lines/s |\n|---|---|---|")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.3f} | {lines / max(seconds, 1e-6):,.0f} |")
    missing = sorted(set(PEERS) - set(theirs))
    print()
    if missing:
        print(f"not at hand: {', '.join(missing)}")
    aims = aimed_at(ours, theirs)
    for name, (figure, aim, is_met) in aims.items():
        print(f"{name}: {figure:.2f}" + (f" (aim: {aim}, {'met' if is_met else 'missed'})" if aim else ""))
    return dict(rows), {name: figure for name, (figure, *_) in aims.items()}


def aimed_at(ours, theirs):
    """The figures that are aimed at: what came of them, the aim, and whether it is met. What was not at hand is in none of them."""
    aims = {}
    if set(theirs) == set(PEERS):
        times = sum(theirs.values()) / max(ours["alone"], 1e-6)
        aims["all of them by hand, in terms of ours alone"] = times, "at least 20", times >= 20
        without = (sum(theirs.values()) - theirs["mypy"]) / max(ours["alone"], 1e-6)
        aims["all but mypy by hand, in terms of ours alone"] = without, None, None
        whole = sum(theirs.values()) / max(ours["whole"], 1e-6)
        aims["all of them by hand, in terms of ours with ruff and mypy"] = whole, None, None
    if "ruff" in theirs:
        times = ours["deterministic"] / max(theirs["ruff"], 1e-6)
        aims["the deterministic parts, in terms of ruff alone"] = times, "at most 1.5", times <= 1.5
    return aims


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--generated", action="store_true", help="times of a generated repository, and no counts")
    parser.add_argument("--lines", type=int, default=100_000, help="of a generated repository")
    parser.add_argument("--json", type=Path, help="also write the figures here")
    options = parser.parse_args()
    model = StubModel()
    with tempfile.TemporaryDirectory(prefix="riverrun-bench-") as name:
        scratch = Path(name)
        bench = Bench(scratch, model)
        folders = fetched(scratch, not options.generated)
        python = scratch / "python"
        if set(real.SDISTS) <= set(folders):
            what, lines = f"real projects ({', '.join(file for file, _ in real.SDISTS.values())})", real.lines_of(python)
        else:
            what, python = "a generated repository", scratch / "generated"
            python.mkdir()
            lines = generate(python, options.lines)
        try:
            bench.start()
            ours, theirs, report = bench.times(python, options.rounds)
            compared = list(bench.counts(folders))
        finally:
            bench.stop()
            model.close()
    print(f"medians of {options.rounds} rounds, {json.dumps(measure.machine())}\n")
    rows, aims = shown(what, lines, ours, theirs)
    print(f"\n{report['summary']['findings']} findings: {json.dumps(report['summary']['by_tool'])}")
    for tool in report["tools"]:
        if tool["status"] != "ran":
            print(f"{tool['name']} {tool['status']}: {tool.get('detail')}")
    if compared:
        print("\n| project | tool | in the report | by hand | |\n|---|---|---|---|---|")
    for project, tool, found, by_hand, why in compared:
        print(f"| {project} | {tool} | {found} | {by_hand} | {why} |")
    if options.json:
        kept = {"what": what, "lines": lines, "rows": rows, "aims": aims, "counts": compared, "machine": measure.machine()}
        options.json.write_text(json.dumps(kept, indent=1))
    if any(why.startswith("differ") for *_, why in compared):
        raise SystemExit("a report says something else than the tool by hand")


if __name__ == "__main__":
    main()
