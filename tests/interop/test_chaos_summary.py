"""`./x chaos --full` sums up what came of every fault; here with what commands print, nothing is started."""

import json
import re
import sys

import pytest

from server import ROOT

sys.path.insert(0, str(ROOT / "scripts/bench"))

import faults  # noqa: E402

ONE = {"runs": 5000, "broken_processes": 60, "lost": 0, "doubled_effects": 0, "terminal_events": 5000, "with_gaps": 0, "longest_stall_ms": 240, "longest_partition_stall_ms": 900,
       "longest_untouched_partition_stall_ms": 310, "runs_per_second": 80.25,
       "worker_mib_at_start": 58, "worker_mib_at_most": 80, "seed": 1}
PEER = {"runs": 10000, "broken_processes": 191, "lost": 3, "doubled_effects": 35, "terminal_events": 10001, "seed": 4}


def parts():
    return {part.name: part for part in faults.parts()}


def test_given_harnesses_side_by_side_when_they_are_read_then_counts_are_added_and_the_longest_time_counts():
    other = ONE | {"lost": 1, "with_gaps": 2, "longest_stall_ms": 1300, "worker_mib_at_most": 95, "seed": 2}
    found = faults.of_load([f"12 of 5000 runs ended\n{json.dumps(one)}\n" for one in (ONE, other)])
    assert found == ("10,000 runs, 120 broken; 1 lost, 0 doubled effects, 10,000 ends; 2 with gaps; longest stall 1.3 s, of one partition 0.9 s, of one that kept its owner 0.3 s; a worker 58 to 95 MiB; "
                     "160.5 runs/s; seed 1, 2")
    assert faults.of_load([f"begun\n{json.dumps(PEER, indent=2)}\n"]) == "10,000 runs, 191 broken; 3 lost, 35 doubled effects, 10,001 ends; seed 4"


@pytest.mark.parametrize(("read", "printed", "expected"), [
    (faults.of_cargo, "test result: ok. 3 passed; 0 failed; 0 ignored\ntest result: FAILED. 1 passed; 2 failed; 0 ignored\n", "4 passed, 2 failed"),
    (faults.of_cargo, "test result: ok. 3 passed; 0 failed; 0 ignored\n", "3 passed"),
    (faults.of_moments, "killed at event 1 (RunAccepted): ok\n1      RunAccepted                            1     25       0        24         24         ok\n"
                        "2      RunFinished                            1     25       0        24         24         lost\n",
     "killed at each of 2 events, 1 went on as if nothing had been"),
    (faults.of_pytest, "....\n4 passed, 1 skipped, 900 deselected, 2 warnings in 61.20s (0:01:01)\n", "4 passed, 1 skipped"),
    (faults.of_pytest, "measured: 0.3 s at most\n==== 2 passed in 1.0s ====\n", "2 passed; 0.3 s at most"),
    (faults.of_pytest, "F\n1 failed, 3 passed in 2.0s\n", "1 failed, 3 passed"),
    (faults.of_fuzz, "tables 50000\n1300000 inputs of 26 targets\n..\n9 passed in 8.1s\n", "1300000 inputs of 26 targets; of the whole program: 9 passed"),
    (faults.of_soak, "minutes            30, 14 kills\nlost               0\nmemory             0.42 MiB an hour, at most 300 MiB\nsearch 900 times, p50 1 ms, p99 9 ms then 9 ms (x1.03), 3 after a start p99 1 ms\n"
                     "turn 9 times, p50 1 ms, p99 9 ms then 9 ms (x0.9), 3 after a start p99 1 ms\n",
     "minutes 30, 14 kills; lost 0; memory 0.42 MiB an hour, at most 300 MiB; second half of the first, 99th percentiles: 0.9 to 1.03"),
])
def test_given_what_a_command_prints_when_it_is_read_then_its_figures_are_found(read, printed, expected):
    assert read([printed]) == expected


def test_given_the_page_when_parts_are_made_then_every_row_with_a_full_size_has_one():
    sized = {row for row, size in re.findall(r"^\| (F\d+) \|.*\| ([^|]*)\|$", faults.PAGE.read_text(), re.M) if "`" in size or size.startswith("as ")}
    covered = {row for part in faults.parts() for row in part.rows.split(", ")}
    assert sized <= covered and len(sized) >= 20, sized ^ covered


def test_given_parts_that_held_and_that_did_not_when_they_are_summed_up_then_each_is_told_with_what_repeats_it():
    found = {"kill": {"rows": "F1", "command": "riverrun chaos load", "seconds": 601, "held": True, "why": "", "came": "0 lost"},
             "F6": {"rows": "F6", "command": "./x interop -k a", "seconds": 50, "held": False, "why": "ended with 1: a | b", "came": ""}}
    text = faults.summary(found, {"cores": 2, "cpu": "a processor"})
    assert "| F1 | `kill` | 0 lost | 10 min | yes |" in text and "| F6 | `F6` |  | 50 s | no: ended with 1: a \\| b |" in text
    assert "- `kill`: `riverrun chaos load`" in text


@pytest.mark.parametrize(("rates", "told"), [
    ({"calm": "10,000 runs; 200.0 runs/s", "rush": "10,000 runs; 130.5 runs/s"}, "of those without faults (`calm`): 65%."),
    ({"calm": "10,000 runs; 200.0 runs/s"}, None), ({"calm": "", "rush": "10,000 runs; 130.5 runs/s"}, None), ({"kill": "10,000 runs; 16.6 runs/s"}, None),
])
def test_given_a_load_with_faults_and_one_without_when_they_are_summed_up_then_what_is_left_of_the_runs_per_second_is_told(rates, told):
    found = {name: {"rows": "F1", "command": "x", "seconds": 1, "held": True, "why": "", "came": came} for name, came in rates.items()}
    text = faults.summary(found, {"cores": 2, "cpu": "a processor"})
    assert (told in text) if told else "without faults" not in text, text


def test_given_commands_that_end_in_any_way_when_a_part_is_done_then_it_holds_only_if_all_of_them_did(tmp_path, monkeypatch):
    monkeypatch.setenv("RIVERRUN_BIN", sys.executable)
    said = ("riverrun", "-c", f"print('begun'); print('{json.dumps(ONE)}')")
    good = faults.do(faults.Part("good", "F1", (said, said), faults.of_load), tmp_path)
    assert good["held"] and good["came"].startswith("10,000 runs") and "2 at once" in good["command"], good
    assert (tmp_path / "good-2.txt").read_text().startswith("begun")
    bad = faults.do(faults.Part("bad", "F1", (said, ("riverrun", "-c", "raise SystemExit('error: chaos: 1 lost')")), faults.of_load), tmp_path)
    assert not bad["held"] and bad["why"] == "ended with 1: error: chaos: 1 lost" and bad["came"] == "", bad
    monkeypatch.setenv("RIVERRUN_BIN", str(tmp_path / "absent"))
    absent = faults.do(faults.Part("absent", "F1", (said,), faults.of_load), tmp_path)
    assert not absent["held"] and absent["why"].startswith("ended with 127: error: "), absent


def test_given_a_password_in_a_command_when_it_is_told_then_it_is_left_out(monkeypatch):
    monkeypatch.setenv("RIVERRUN_TEST_DATABASE_URL", "postgresql://user:secret@127.0.0.1:5/x")
    told = faults.told(parts()["dbos-postgresql"])
    assert "secret" not in told and told.endswith("--database-url URL"), told
