"""What `./x scale` takes for a failure, of measures that are written down here: nothing is started."""

import sys

import pytest

from server import ROOT

sys.path.insert(0, str(ROOT / "scripts"))
import scale  # noqa: E402


def run(*at):
    return {"steps": [{"seq": seq, "at": f"2026-01-01T00:00:0{second}Z"} for seq, second in enumerate(at, 1)]}


def watched(seen, before=True):
    return scale.fan_out(run(1, 2), seen, len(seen), 1.0) | {"open_before_the_first_event": before}


WHOLE = ({1: 0.010, 2: 0.020}, True)


def test_given_two_processes_when_they_do_as_much_as_is_wanted_then_nothing_is_said():
    lines = [scale.line(1, 80, 20.0, None), scale.line(2, 80, 11.0, 4.0), scale.line(4, 80, 8.0, 4.0)]
    assert [one["times"] for one in lines] == [1.0, 1.82, 2.5]
    assert scale.failures({"agents": lines, "watchers": watched([WHOLE] * 3)}, 1.8) == []
    assert "| 2 | 80 | 11.0 | 7.27 | 1.82 |" in scale.table({"agents": lines})


@pytest.mark.parametrize(("report", "named"), [
    ({"ingest": [scale.line(1, 80, 20.0, None), scale.line(2, 80, 12.0, 4.0)]}, "ingest: two processes did 1.67"),
    ({"watchers": watched([WHOLE, ({1: 0.010}, True)])}, "1 did not see everything"),
    ({"watchers": watched([WHOLE, (WHOLE[0], False)])}, "1 did not see everything"),
    ({"watchers": watched([WHOLE], before=False)}, "--gate-s"),
])
def test_given_a_measure_that_is_not_reached_when_it_is_judged_then_it_is_named(report, named):
    found = scale.failures(report, 1.8)
    assert len(found) == 1 and named in found[0], found


def test_given_watchers_that_see_an_event_late_when_they_are_summed_up_then_the_last_of_each_event_is_shown():
    found = watched([WHOLE, WHOLE, ({1: 0.5, 2: 0.030}, True)])
    assert (found["watchers"], found["events"], found["saw_everything"]) == (3, 2, 3), found
    assert (found["last_max_ms"], found["median_ms"]) == (500.0, 20.0), found


def test_given_an_event_that_nobody_saw_when_they_are_summed_up_then_nobody_saw_everything():
    found = watched([({1: 0.010}, True)] * 2)
    assert found["saw_everything"] == 0 and found["events"] == 2, found
