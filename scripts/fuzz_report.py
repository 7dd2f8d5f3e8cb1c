#!/usr/bin/env python3
"""Prints what the fuzz targets left in the folder of RIVERRUN_FUZZ_REPORT: inputs, seconds, failures. Ends with 1 if there was one, if a target
tried fewer inputs than it should, or if one that is listed was not there.

    scripts/fuzz_report.py FOLDER [--least INPUTS] [--listed fuzz/README.md]
"""

import argparse
import json
import re
import sys
from pathlib import Path


def listed(page):
    """The targets in the first column of the page's table; settings are in capitals."""
    rows = re.findall(r"^\|((?: `[a-z_]+`,?)+) \|", page.read_text(), re.M)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def main(folder, least=0, wanted=frozenset()):
    reports = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    bad = 0
    print(f"{'target':24} {'inputs':>8} {'seconds':>8} {'slowest':>10}  failures")
    for one in reports:
        failures = ", ".join(f"input {number}" for number in one["failures"]) or "none"
        again = f"; again: RIVERRUN_FUZZ_SEED={one['seed']} RIVERRUN_FUZZ_ONLY={one['failures'][0]} ./x fuzz {one['target']}" if one["failures"] else ""
        print(f"{one['target']:24} {one['inputs']:>8} {one['seconds']:>8} {one['slowest_ms']:>7} ms  {failures}{again}")
        if one["inputs"] < least:
            print(f"{'':24} {least} inputs were asked for")
        bad += bool(one["failures"]) or one["inputs"] < least
    # A target that ended its whole process left the number of the input that it was at.
    for file in sorted(folder.glob("*.now")):
        print(f"{file.stem:24} ended its process at input {int(file.read_text() or 0)}; again: RIVERRUN_FUZZ_ONLY={int(file.read_text() or 0)} ./x fuzz {file.stem}")
        bad += 1
    for name in sorted(wanted - {one["target"] for one in reports}):
        print(f"{name:24} is listed and was not there")
        bad += 1
    print(f"{sum(one['inputs'] for one in reports)} inputs of {len(reports)} targets")
    return 1 if bad or not reports else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--least", type=int, default=0, metavar="INPUTS", help="fewer inputs of a target are a failure")
    parser.add_argument("--listed", type=Path, metavar="PAGE", help="a page whose table names the targets that must be there")
    asked = parser.parse_args()
    sys.exit(main(asked.folder, asked.least, listed(asked.listed) if asked.listed else frozenset()))
