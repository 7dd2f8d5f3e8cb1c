"""A fleet of two programs, as it is in the middle of a rolling upgrade: an older one and this one drive the runs of one log."""

import os
from pathlib import Path

import pytest

from server import BINARY, Server, wait_for

OLDER = os.environ.get("RIVERRUN_TEST_OLD_BIN")


class Older(Server):
    binary = Path(OLDER or BINARY)


@pytest.mark.skipif(not OLDER, reason="RIVERRUN_TEST_OLD_BIN names no older riverrun: build one of an earlier commit")
@pytest.mark.parametrize("host", ["older", "this"])
def test_given_an_older_program_beside_this_one_when_either_leaves_then_every_run_ends_once_for_the_other(tmp_path, model, host):
    kinds = [Older, Server] if host == "older" else [Server, Older]
    stays = kinds[0](tmp_path / "stays", model.settings())
    # Each has stores of its own, and both the whole log: runs share nothing else.
    leaves = kinds[1](tmp_path / "leaves", model.settings() | {"RIVERRUN_KAFKA_BROKERS": stays.brokers})
    try:
        stays.start()
        leaves.start()
        run_ids = [one.start_run(f"[[steps=2 delay_ms=50 id=both-{host}-{number}-{at}]]") for number in range(6) for at, one in enumerate((stays, leaves))]
        for run_id in run_ids:
            assert stays.run_end(run_id, 120)["steps"] == leaves.run_end(run_id, 120)["steps"]
        run_ids = [one.start_run(f"[[steps=4 delay_ms=300 id=left-{host}-{number}-{at}]]") for number in range(6) for at, one in enumerate((stays, leaves))]
        wait_for(lambda: any((reply := stays.get(f"/runs/{run_id}")).status == 200 and reply.json["steps"] for run_id in run_ids), 60, "a step")
        assert leaves.stop() == 0
        for run_id in run_ids:
            run = stays.run_end(run_id, 180)
            assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, len(run["steps"]) + 1)), run
    finally:
        leaves.stop()
        stays.stop()
