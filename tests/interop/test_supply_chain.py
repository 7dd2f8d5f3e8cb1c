"""What `./x deny` and `./x sbom` do, with a cargo-deny that answers as it is told: nothing is fetched and nothing is built."""

import json
import os
import re
import subprocess
import sys

import pytest

from server import ROOT

X = (ROOT / "x").read_text()
VERSION = re.search(r"^CARGO_DENY_VERSION=(\S+)$", X, re.M).group(1)
CHANNEL = re.search(r'^channel = "(.+)"$', (ROOT / "rust-toolchain.toml").read_text(), re.M).group(1)


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.fixture
def deny(tmp_path):
    """Runs `./x deny`; what is told fails when cargo-deny is asked for it."""
    script(tmp_path / ".cargo/bin/rustc", f"echo 'rustc {CHANNEL} (a stand-in)'")
    script(tmp_path / ".cargo/bin/cargo", 'command="cargo-$1"; exec "$command" "$@"')
    script(tmp_path / f"cache/riverrun/cargo-deny-{VERSION}/bin/cargo-deny",
           'echo "$*" >>"$HOME/asked"; case "$*" in *"$FAILS"*) exit 1 ;; esac')

    def run(fails="nothing of it"):
        env = os.environ | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache"), "FAILS": fails}
        done = subprocess.run([ROOT / "x", "deny"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stderr, (tmp_path / "asked").read_text().splitlines()

    return run


def test_given_everything_can_be_fetched_when_dependencies_are_checked_then_each_check_is_made(deny):
    code, told, asked = deny()
    assert code == 0 and "NOT CHECKED" not in told, told
    assert asked == ["deny --locked check licenses bans sources", "deny fetch db", "deny --locked check advisories"]


def test_given_no_database_of_advisories_when_dependencies_are_checked_then_the_rest_is_and_the_gap_is_told(deny):
    code, told, asked = deny("fetch db")
    assert code == 0 and "NOT CHECKED: advisories" in told, told
    assert "deny --locked check licenses bans sources" in asked and not [line for line in asked if "check advisories" in line]


@pytest.mark.parametrize("check", ["licenses bans sources", "check advisories"])
def test_given_a_licence_that_is_refused_when_dependencies_are_checked_then_the_check_fails(deny, check):
    code, _, asked = deny(check)
    assert code == 1 and asked[-1] == "deny --locked check advisories", "what else there is to say is said"


def test_given_the_verb_when_a_bill_is_printed_then_nothing_else_is_on_its_output(tmp_path):
    done = subprocess.run([ROOT / "x", "sbom"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["bomFormat"] == "CycloneDX"


def test_ci_runs_what_everyone_runs_and_that_checks_the_dependencies():
    assert re.search(r'^exec ".*/\.\./x" test ', (ROOT / ".ci/run").read_text(), re.M)
    everything = re.search(r"^run_tests\(\) {\n(.*?)^}", X, re.M | re.S).group(1)
    assert "cargo xtask check || failed+=" in everything and "./x deny || failed+=" in everything and "./x sbom " in everything


def test_given_the_files_of_attacks_when_they_are_collected_then_there_are_more_than_four_hundred_cases():
    files = re.search(r"that are written down \((.*?)\)", (ROOT / "docs/security.md").read_text()).group(1)
    paths = [ROOT / "tests/interop" / name for name in re.findall(r"`(test_\w+\.py)`", files)]
    assert len(paths) == 4 and all(path.exists() for path in paths)
    listed = subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", *paths], cwd=ROOT, capture_output=True, text=True, check=True)
    assert len([line for line in listed.stdout.splitlines() if "::" in line]) >= 400


def test_ci_runs_every_suite_of_stores_on_each_server_that_it_starts():
    everything = re.search(r"^run_tests\(\) {\n(.*?)^}", X, re.M | re.S).group(1)
    _, started, against = everything.partition("start_services")
    assert started
    served = re.findall(r'"(RIVERRUN_TEST_\w+)"', (ROOT / "scripts/services.py").read_text())
    # The suites of vectors take what stands for Qdrant for one.
    assert "RIVERRUN_TEST_QDRANT_URL=$RIVERRUN_TEST_QDRANT_WIRE_URL cargo test" in against and "RIVERRUN_TEST_QDRANT_WIRE_URL" in served
    served.append("RIVERRUN_TEST_QDRANT_URL")
    suites = [*(ROOT / "stores/tests").glob("*.rs"), *(ROOT / "stores/tests").glob("*/main.rs")]
    wanted = {file.parent.name if file.name == "main.rs" else file.stem for file in suites if any(f'"{name}"' in file.read_text() for name in served)}
    assert {"cache", "documents", "qdrant", "keyword_stores"} <= wanted and wanted <= set(re.findall(r"--test (\w+)", against)), wanted
    assert all(part in against for part in ("read_models::", "blobs::s3", "sources::database", "sources::document_store")), against
