"""What docs/security.md says of how many attacks are tried, counted: neither its figures nor the lists of the tests are to become fewer unseen."""

import os
import re
import subprocess
import sys
from collections import Counter

import pytest

import test_attacks
import test_attacks_wire
from server import ROOT

PAGE = ROOT / "docs/security.md"
FILES = ("test_attacks.py", "test_attacks_wire.py", "test_bad_input.py", "test_finetune_faults.py")
LEAST = 400
# Tests that go through a list of their own, and how many inputs each of their cases is.
WITHIN = {"test_frames_that_are_no_documents_never_become_one": len(test_attacks.FRAMES),
          "test_an_avro_body_that_claims_more_than_there_is_becomes_a_dead_letter": len(set(test_attacks_wire.BOMBS))}
# Rows whose figure is what these files try and nothing else; that of another has lists of Rust tests in it, too.
WHOLE = {"A1", "A5", "A7", "A8", "A12"}


@pytest.fixture(scope="module")
def tried():
    """(file, test or class) -> inputs, as pytest collects them."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run([sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *FILES], cwd=ROOT / "tests/interop", env=env,
                          capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
    found = Counter()
    for line in done.stdout.splitlines():
        # Parameters may have anything in them, but not the names before them.
        if at := re.match(r"(test_\w+\.py)::(?:(Test\w+)::)?(test_\w+)", line):
            file, group, test = at.groups()
            found[file, group or test] += WITHIN.get(test, 1)
    return found


def rows():
    """Row -> its tests of these files, and the first figure of its last cell."""
    found = {}
    for line in PAGE.read_text().splitlines():
        if row := re.match(r"\| (A\d+) \|.*\| ([^|]*) \|$", line):
            told = re.match(r"[\d,]+", row[2])
            found[row[1]] = re.findall(r"tests/interop/(test_\w+\.py)::(\w+)", line), int(told[0].replace(",", "")) if told else None
    return found


def test_given_the_page_when_attacks_are_counted_then_each_row_tries_what_it_says(tried):
    counted = {row: (sum(tried[file, test] for file, test in tests if file in FILES), told) for row, (tests, told) in rows().items()}
    assert WHOLE <= set(counted) and all(told for row, (_, told) in counted.items() if row in WHOLE), counted
    wrong = {row: found for row, found in counted.items() if (row in WHOLE and found[0] != found[1]) or (found[1] or found[0]) < found[0]}
    assert not wrong, f"(counted, told): {wrong}"
    assert sum(count for count, _ in counted.values()) >= LEAST, counted


def test_given_the_page_when_attacks_on_running_servers_are_counted_then_it_says_about_how_many(tried):
    [told] = re.findall(r"CI tries about (\d+) inputs", PAGE.read_text())
    count = sum(tried.values())
    assert abs(int(told) - count) <= count // 10 and count >= LEAST, count
