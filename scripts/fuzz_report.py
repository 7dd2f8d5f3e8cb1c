#!/usr/bin/env python3
"""Prints what the fuzz targets left in the folder of RIVERRUN_FUZZ_REPORT: inputs, seconds, failures. Ends with 1 if there was one.

    scripts/fuzz_report.py FOLDER
"""

import json
import sys
from pathlib import Path


def main(folder):
    reports = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    bad = 0
    print(f"{'target':24} {'inputs':>8} {'seconds':>8} {'slowest':>10}  failures")
    for one in reports:
        failures = ", ".join(f"input {number}" for number in one["failures"]) or "none"
        again = f"; again: RIVERRUN_FUZZ_SEED={one['seed']} RIVERRUN_FUZZ_ONLY={one['failures'][0]} ./x fuzz {one['target']}" if one["failures"] else ""
        print(f"{one['target']:24} {one['inputs']:>8} {one['seconds']:>8} {one['slowest_ms']:>7} ms  {failures}{again}")
        bad += bool(one["failures"])
    # A target that ended its whole process left the number of the input that it was at.
    for file in sorted(folder.glob("*.now")):
        print(f"{file.stem:24} ended its process at input {int(file.read_text() or 0)}; again: RIVERRUN_FUZZ_ONLY={int(file.read_text() or 0)} ./x fuzz {file.stem}")
        bad += 1
    print(f"{sum(one['inputs'] for one in reports)} inputs of {len(reports)} targets")
    return 1 if bad or not reports else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
