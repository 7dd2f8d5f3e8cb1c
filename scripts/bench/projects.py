#!/usr/bin/env python3
"""How fast projects are analyzed: a generated repository of Python, JavaScript and Go, imported once and analyzed several times,
beside the linters and checkers of others that are installed, run by hand one after the other on the same files.

    python3 -m venv VENV && VENV/bin/pip install -r scripts/bench/requirements-projects.txt
    RIVERRUN_BIN=PATH VENV/bin/python scripts/bench/projects.py [--lines 100000] [--rounds 5] [--json FILE]

Ours and the peers' take turns (A B A B) and medians are given. `deterministic` is what riverrun's own analyzers take, as the report
says for the slowest of them (they run side by side); `whole` is from the request to the report, with the programs of others that the
analysis started. Peers: ruff, mypy, bandit, semgrep, as far as they are beside the Python that runs this or on the PATH. At the end:
how much faster all of ours are than all of them, and the deterministic parts in terms of ruff alone. bandit and semgrep read only what
they know, semgrep with two rules of its own, so that nothing is fetched.
"""

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests/interop"))

import measure  # noqa: E402
from server import Server, wait_for  # noqa: E402
from stub_model import StubModel  # noqa: E402

OWN = {"syntax", "dead-code", "dependencies", "imports", "leakage", "licences", "secrets"}
LINES_A_FILE = 250
# The virtual environment that runs this goes first, for the peers and for what a server starts.
PATH = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
PEERS = {
    "ruff": ["ruff", "check", "--isolated", "--no-cache", "--exit-zero", "--quiet", "."],
    "mypy": ["mypy", "--config-file=", "--no-incremental", "--ignore-missing-imports", "--cache-dir=/dev/null", "."],
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
    reply = server.post(f"/projects/{project_id}/analyze", {"review": False})
    assert reply.status == 202, reply
    place = reply.headers["location"]

    def done():
        found = server.get(place)
        return found.json if found.status == 200 else None
    report = wait_for(done, 600, "the report", every_s=0.01)
    return time.perf_counter() - began, report


def peer(command, folder, rules):
    began = time.perf_counter()
    arguments = [str(rules) if word == "RULES" else word for word in command]
    done = subprocess.run(arguments, cwd=folder, env=os.environ | {"PATH": PATH}, stdin=subprocess.DEVNULL, capture_output=True,
                          check=False)
    if done.returncode not in (0, 1):
        print(f"{command[0]} broke off: {done.stderr[-300:]!r}", file=sys.stderr)
        return None
    return time.perf_counter() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    present = {name: command for name, command in PEERS.items() if shutil.which(command[0], path=PATH)}
    model = StubModel()
    with tempfile.TemporaryDirectory(prefix="riverrun-bench-") as scratch:
        folder, rules = Path(scratch) / "code", Path(scratch) / "rules.yml"
        folder.mkdir()
        rules.write_text(SEMGREP_RULES)
        lines = generate(folder, options.lines)
        settings = model.settings() | {"RIVERRUN_INGEST_ROOTS": str(folder)}
        # Our own analyzers alone in one server, the programs of others besides in another.
        alone = Server(Path(scratch) / "alone", settings | {"RIVERRUN_PROJECT_PROGRAMS": "none"}).start()
        whole = Server(Path(scratch) / "whole", settings | {"PATH": PATH}).start()
        ours = {"deterministic": [], "alone": [], "whole": []}
        theirs = {name: [] for name in present}
        try:
            ids, imports = {}, []
            for server in (alone, whole):
                began = time.perf_counter()
                reply = server.post("/projects/import", {"source": str(folder)})
                assert reply.status == 202, reply
                ids[server] = reply.json["project_id"]
                wait_for(lambda s=server: s.get(f"/projects/{ids[s]}").json["status"] == "imported", 300, "the import")
                imports.append(time.perf_counter() - began)
            for _ in range(options.rounds):
                took, report = analyze(alone, ids[alone])
                ours["alone"].append(took)
                ours["deterministic"].append(max(tool["took_ms"] for tool in report["tools"] if tool["name"] in OWN) / 1000)
                ours["whole"].append(analyze(whole, ids[whole])[0])
                for name, command in list(present.items()):
                    took = peer(command, folder, rules)
                    if took is None:
                        del present[name], theirs[name]
                    else:
                        theirs[name].append(took)
        finally:
            alone.stop()
            whole.stop()
            model.close()
    middle = statistics.median
    rows = [("import", middle(imports))] + [(name, middle(took)) for name, took in ours.items()]
    rows += [(f"{name} by hand", middle(took)) for name, took in theirs.items()]
    if theirs:
        rows.append(("all of them by hand, one after the other", sum(middle(took) for took in theirs.values())))
    print(f"{lines} lines, medians of {options.rounds} rounds, {json.dumps(measure.machine())}\n")
    print("| what | seconds | a second | lines/s |\n|---|---|---|---|")
    for name, seconds in rows:
        print(f"| {name} | {seconds:.3f} | {1 / max(seconds, 1e-6):.2f} | {lines / max(seconds, 1e-6):,.0f} |")
    if theirs:
        by_hand = sum(middle(took) for took in theirs.values())
        print(f"\nall of them by hand take {by_hand / middle(ours['alone']):.1f} times as long as ours alone")
    if "ruff" in theirs:
        print(f"the deterministic parts take {middle(ours['deterministic']) / middle(theirs['ruff']):.2f} times as long as ruff")
    print(f"\n{report['summary']['findings']} findings: {json.dumps(report['summary']['by_tool'])}")
    missing = sorted(set(PEERS) - set(theirs))
    if missing:
        print(f"not at hand: {', '.join(missing)}")
    if options.json:
        options.json.write_text(json.dumps({"lines": lines, "rows": dict(rows), "machine": measure.machine()}, indent=1))


if __name__ == "__main__":
    main()
