"""A server that nobody asks for anything: what it still does."""

import re
import time
from pathlib import Path

import pytest

from server import wait_for


def figure(server, name):
    """One figure of the broker, as the page of metrics has it."""
    return float(re.search(rf"^riverrun_broker_{name} (\S+)$", server.get("/metrics").body.decode(), re.MULTILINE).group(1))


def settled(server):
    """The number of connections to the broker, once it has stopped to change."""
    def same_twice():
        before = figure(server, "connections")
        time.sleep(1)
        return before if figure(server, "connections") == before else None
    return wait_for(same_twice, 60, "the connections to the broker to stop changing")


@pytest.fixture(scope="module")
def idle(server):
    """A server with nothing to do, for a while."""
    server.settle()
    settled(server)
    time.sleep(4)
    return server


def test_given_groups_when_their_lag_is_asked_for_then_no_client_is_made_for_it(idle):
    before = settled(idle)
    for _ in range(2):
        assert "riverrun.agent" in idle.lag()
        assert idle.get("/diagnose").status == 200
        time.sleep(1.1)  # what was asked within a second is not asked again
    assert figure(idle, "connections") <= before


def test_given_nothing_to_read_then_readers_ask_seldom_and_hear_at_once(idle):
    before, since = figure(idle, "requests_total"), time.monotonic()
    time.sleep(6)
    asked, seconds = figure(idle, "requests_total") - before, time.monotonic() - since
    # Some sixteen readers each 3 s, and a heartbeat of each group each 3 s.
    assert asked / seconds < 20, f"{asked} requests in {seconds:.1f} s"
    # A long wait for records ends with the first of them.
    run = idle.run_end(idle.start_run("add up [[steps=1 id=idle]]"))
    assert run["status"] == "succeeded", run


def test_given_a_start_when_the_server_has_settled_then_what_only_the_start_needed_is_given_back(new_server):
    server = new_server().start()

    def kib(name):
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        return int(re.search(rf"^{name}:\s+(\d+) kB$", status, re.MULTILINE).group(1))

    wait_for(lambda: kib("VmRSS") < 0.75 * kib("VmHWM"), 60, "the memory of the start to be given back")
    # Nothing is missing: what was given back comes again when it is used.
    run = server.run_end(server.start_run("add up [[steps=1 id=given-back]]"))
    assert run["status"] == "succeeded", run
