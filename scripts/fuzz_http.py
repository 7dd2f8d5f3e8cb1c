#!/usr/bin/env python3
"""Runs schemathesis over a server of its own, from its OpenAPI document: every operation with made-up inputs, good and bad. A 5xx is a failure;
so is a server that does not answer any more.

    scripts/fuzz_http.py [--examples 500] [--seed 1] [ARGUMENT OF SCHEMATHESIS ...]

`./x fuzz http` has what it needs.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests/interop"))
from server import Server  # noqa: E402
from stub_model import StubModel  # noqa: E402


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--examples", type=int, default=500, help="most inputs of an operation (default: 500)")
    parser.add_argument("--seed", type=int, default=1, help="the same seed makes the same inputs (default: 1)")
    wanted, more = parser.parse_known_args()
    program = Path(sys.executable).with_name("schemathesis")
    if not program.exists():
        sys.exit(f"error: {program} is missing\n\nhint: ./x fuzz http")
    folder = Path(tempfile.mkdtemp(prefix="riverrun-fuzz-http-"))
    model = StubModel()
    server = Server(folder, model.settings() | {"RIVERRUN_INGEST_ROOTS": str(folder)})
    try:
        server.start()
        done = subprocess.run([program, "run", f"{server.url}/openapi.json", "--url", server.url, "--checks", "not_a_server_error", "--phases", "examples,coverage,fuzzing",
                               "--max-examples", str(wanted.examples), "--seed", str(wanted.seed), "--continue-on-failure", "--request-timeout", "120",
                               "--suppress-health-check", "all", *more], cwd=folder, check=False)
        if server.process.poll() is not None or server.get("/health").status != 200:
            sys.exit(f"error: the server does not answer any more: {server.log_tail()}")
        return done.returncode
    finally:
        server.stop()
        model.close()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
