"""The short form of the chaos harness; `./x chaos --runs 10000` is the long one."""

import json
import subprocess

import pytest

from server import BINARY


def chaos(*arguments, timeout=600):
    return subprocess.run([BINARY, "--json", "chaos", *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=timeout, check=False)


def test_a_run_killed_at_each_of_its_events_ends_once(tmp_path):
    done = chaos("run", "--calls", "2")
    assert done.returncode == 0, done.stderr
    kills = json.loads(done.stdout)["kills"]
    assert len(kills) >= 8, done.stderr
    for kill in kills:
        assert kill["faults"] == [], kill
        assert (kill["terminal_events"], kill["doubled_effects"], kill["succeeded"]) == (1, 0, 1), kill


@pytest.mark.parametrize("more", [
    ["--fault", "kill", "--kill-every", "2s", "--over", "8s"],
    ["--fault", "freeze", "--freeze-for", "3s", "--kill-every", "500ms", "--over", "8s"],
    # Whatever changes all of a group at once leaves it the time to settle.
    ["--fault", "rebalance", "--kill-every", "5s", "--over", "15s"],
    ["--fault", "broker", "--kill-every", "4s", "--over", "12s"],
    ["--model", "error", "--kill-every", "0s"],
], ids=lambda more: " ".join(more))
def test_nothing_is_lost_and_nothing_doubled_under_load(more):
    done = chaos("load", "--runs", "200", "--steps", "8", "--workers", "2", "--tool-ms", "150", "--patience", "5m", *more)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    # As many runs with a good model go before those with a bad one.
    runs = 400 if "--model" in more else 200
    assert (report["runs"], report["lost"], report["doubled_effects"], report["terminal_events"], report["with_gaps"]) == (runs, 0, 0, runs, 0), report
    # More runs than are driven at once, each with a tool that takes its time: they are not done before the first break.
    assert report["broken_processes"] >= 1 or "0s" in more, report
    assert min(report[name] for name in ("longest_stall_ms", "longest_untouched_partition_stall_ms", "longest_turnover_ms")) >= 0, report
    assert report["longest_untouched_partition_stall_ms"] <= report["longest_partition_stall_ms"] and report["runs_per_second"] > 0, report
    print(f"measured: partitions that kept their owner stood for {report['longest_untouched_partition_stall_ms']} ms at most, others for {report['longest_partition_stall_ms']} ms")
    assert report["takeover_p99_ms"] <= report["longest_takeover_ms"] and report["worker_mib_at_most"] >= 1, report


def test_a_time_that_is_none_is_refused():
    done = chaos("load", "--kill-every", "soon")
    assert done.returncode == 2 and "500ms" in done.stderr, done.stderr
