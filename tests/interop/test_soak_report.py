"""What `./x soak` takes for a failure, of reports that are written down here: nothing is started."""

import sys

import pytest

from server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import soak  # noqa: E402


def report(minutes=30, ratio=1.0, handles=(200, 200), slope=0.0, life_s=60):
    return {"minutes": minutes, "latency": {"search": {"ratio": ratio}, "turn": {"ratio": None}}, "handles_first": handles[0],
            "handles_last": handles[1], "memory_slope_mib_per_hour": slope, "longest_life_s": life_s}


@pytest.mark.parametrize(("given", "named"), [
    (report(ratio=1.11), "search"), (report(handles=(200, 233)), "handles"), (report(minutes=120, slope=1.0), "memory"),
])
def test_given_a_bound_that_is_passed_when_a_report_is_judged_then_it_is_named(given, named):
    found = soak.over(given)
    assert len(found) == 1 and named in found[0], found


@pytest.mark.parametrize("given", [
    report(ratio=1.1), report(handles=(200, 232)), report(handles=(None, None), slope=None, life_s=0), report(minutes=120, slope=None, life_s=0), report(slope=9.0),
    report(minutes=120, slope=9.0, life_s=59), report(minutes=120, slope=0.99),
    report(minutes=29, ratio=3.0, handles=(200, 900), slope=99.0),
])
def test_given_a_report_within_its_bounds_or_of_a_short_soak_when_it_is_judged_then_nothing_is_said(given):
    assert soak.over(given) == []


def life(seconds, mib_per_hour, begins=0, every=5):
    """Samples of a process whose memory grows so."""
    return [(begins + at, int((300 + mib_per_hour * at / 3600) * 2**20), 200) for at in range(0, seconds + 1, every)]


@pytest.mark.parametrize(("lives", "told"), [
    ([life(600, 6.0)], "6.0 MiB an hour"),
    # Weighted by their lengths; those that are too short count for nothing beside them.
    ([life(300, 9.0), life(30, 900.0, 300), life(300, 3.0, 400)], "6.0 MiB an hour"),
    ([life(30, 90.0)], "90.0 MiB an hour (within lives of 30 s at most: mostly what a start takes)"),
    ([life(5, 90.0)], "no slope yet"), ([[]], "no slope yet"),
])
def test_given_lives_of_any_length_when_a_report_is_made_then_it_says_how_memory_grew(lives, told):
    assert soak.slope_text(*soak.memory_slope(lives)) == told
    made = soak.summary(type("Load", (), {"times": {}, "away": [], "runs": {}, "documents": {}, "records": {}, "errors": []}), lives, 0, [], 5)
    assert f"memory             {told}, at most" in soak.text(made | {"over": []})


def test_given_requests_that_wait_for_a_start_when_percentiles_are_taken_then_they_count_for_themselves():
    times = [(at, 0.01) for at in range(100)] + [(at, 0.02) for at in range(100, 200)]
    # Away from 50 s to 52 s: one that began before, one within and one just after it.
    slow = [(49.5, 1.0), (51.0, 2.0), (61.9, 3.0)]
    found = soak.latency(times + slow, [(50.0, 52.0)], 100)
    assert (found["p99_first_half_ms"], found["p99_second_half_ms"], found["ratio"]) == (10.0, 20.0, 2.0), found
    assert found["count"] == 203 and found["p99_after_a_start_ms"] == 3000.0, found
    # Those of the seconds 50 to 61, and the slow ones.
    assert found["after_a_start"] == 15, found


def test_given_a_kind_of_request_that_was_never_answered_when_percentiles_are_taken_then_there_are_none():
    found = soak.latency([(51.0, 2.0)], [(50.0, 52.0)], 100)
    assert (found["p50_ms"], found["ratio"], found["p99_after_a_start_ms"]) == (None, None, 2000.0), found
