"""Chains by their id, and runs that wait for others whatever came first: over HTTP, at the command line and by Kafka."""

import json
import subprocess
import time

import pytest

import log_client
from server import BINARY, ROOT, wait_for
from test_poison import encode, produce, run_id_for, schema_of

COMMANDS = "riverrun.agent.commands"


def part(name, task, *after):
    return {"name": name, "after": list(after), "run": {"task": task, "agent": "react"}}


def start(server, name, delay_ms=0, steps=1):
    """A diamond whose first run takes its time."""
    first = f"[[steps={steps} delay_ms={delay_ms} id={name}]] Count."
    started = server.post("/chains", {"runs": [
        part("end", "{{input}}", "left", "right"), part("left", "{{input}}", "start"), part("right", "{{input}}", "start"), part("start", first),
    ]})
    assert started.status == 202, started
    return started.json


def test_a_chain_is_shown_listed_and_watched_by_its_id(server):
    chain = start(server, "chain-shown")["chain_id"]
    watched = server.cli("chains", "watch", chain)
    assert watched.returncode == 0 and "4 of 4" in watched.stderr, watched
    shown = server.cli("chains", "show", chain)
    assert "4 of 4 runs ended" in shown.stdout and "left, right" in shown.stdout, shown
    view = json.loads(server.cli("chains", "show", chain, "--json").stdout)
    assert (view["status"], [run["name"] for run in view["runs"]][0]) == ("succeeded", "start")
    assert view["usage"]["total_tokens"] == sum(run["usage"]["total_tokens"] for run in view["runs"])
    listed = wait_for(lambda: (runs := json.loads(server.cli("runs", "ls", "--chain", chain, "--json").stdout)["items"]) and len(runs) == 4 and runs, 30, "the runs")
    assert {run["run_id"] for run in listed} == {run["run_id"] for run in view["runs"]}
    tree = server.cli("runs", "tree", view["runs"][0]["run_id"]).stdout
    assert tree.count("then ─") == 3 and tree.count("also behind") == 1, tree
    unknown = server.cli("chains", "show", "chn_01h455vb4pex5vsknk084sn02q")
    assert unknown.returncode == 4 and "hint:" in unknown.stderr, unknown


def test_a_chain_is_cancelled_as_a_whole_across_kill_9(new_server):
    server = new_server().start()
    chain = start(server, "chain-cancelled", delay_ms=3000, steps=6)
    wait_for(lambda: server.get(f"/chains/{chain['chain_id']}").json["status"] == "running", 60, "the first run")
    server.kill()
    server.start()
    done = server.cli("chains", "cancel", chain["chain_id"], "--reason", "enough")
    assert done.returncode == 0 and chain["chain_id"] in done.stdout, done
    view = wait_for(lambda: (view := server.get(f"/chains/{chain['chain_id']}").json)["finished_at"] and view, 60, "the end")
    assert view["status"] == "cancelled"
    assert {run["stop_reason"] for run in view["runs"]} == {"cancelled"}
    again = server.cli("chains", "cancel", chain["chain_id"])
    assert again.returncode == 4 and "ended" in again.stderr, again
    watched = server.cli("chains", "watch", chain["chain_id"])
    assert watched.returncode == 1 and "was cancelled" in watched.stderr, watched


@pytest.mark.parametrize("partition", [0, 1], ids=["same partition", "another partition"])
@pytest.mark.parametrize("restarts", [False, True], ids=["at once", "after kill -9"])
def test_a_run_that_is_asked_for_by_kafka_after_those_before_it_have_ended_begins_with_their_answers(new_server, partition, restarts):
    server = new_server().start()
    schema_id, schema = schema_of("riverrun.agent.StartRun")

    def ask(run_id, place, *after):
        request = {"task": "[[steps=1]] {{input}}", "agent": "react", "namespace": "default", "approval": "never", "after": list(after)}
        value = log_client.frame(schema_id, encode(schema, {"run_id": run_id, "request": request, "at": int(time.time() * 1000)}))
        for _ in range(2):  # redelivered
            produce(server, COMMANDS, place, value, key=run_id.encode())

    first, second, never = run_id_for(0, 7), run_id_for(partition, 8), run_id_for(0, 9)
    ask(first, 0)
    assert server.run_end(first)["status"] == "succeeded"
    if restarts:
        server.kill()
        server.start()
    ask(second, partition, first)
    wait_for(lambda: server.get(f"/runs/{second}").status == 200, 30, "the second run")
    end = server.run_end(second)
    assert (end["status"], end["after"]) == ("succeeded", [first]), end
    ask(never, 0, run_id_for(0, 10))
    wait_for(lambda: server.get(f"/runs/{never}").status == 200, 30, "the run that waits for nobody")
    assert server.get(f"/runs/{never}").json["status"] == "queued"
    cancelled = server.post(f"/runs/{never}/cancel", {})
    assert cancelled.status == 202 and server.run_end(never)["status"] == "cancelled"


def test_without_a_server_a_chain_whose_run_waits_behind_one_that_asks_says_for_whom(new_server):
    alone = new_server("chain-behind").start()
    first = alone.start_run("count [[steps=1 id=chain-before]]", session="ann", approval="always")
    wait_for(lambda: alone.get(f"/runs/{first}").json["status"] == "waiting_approval", 60, "the run to ask")
    behind = part("behind", "count [[steps=1 id=chain-behind]]")
    behind["run"] |= {"session": "ann"}
    started = alone.post("/chains", {"runs": [behind, part("last", "{{input}}", "behind")]})
    assert started.status == 202, started
    chain, waits = started.json["chain_id"], started.json["runs"][0]["run_id"]
    wait_for(lambda: alone.get(f"/runs/{waits}").json["status"] == "queued", 60, "the chain to be accepted")
    assert alone.stop() == 0
    watched = alone.cli("chains", "watch", chain, timeout=60)
    assert watched.returncode == 4 and f"run {waits} waits behind run {first}" in watched.stderr, watched
    assert alone.cli("runs", "approve", first, timeout=60).returncode == 0
    watched = alone.cli("chains", "watch", chain, timeout=60)
    assert watched.returncode == 0 and "2 of 2" in watched.stderr, watched


def test_the_example_runs(server):
    done = subprocess.run([ROOT / "examples/chain.sh", BINARY], env={**server.env, "RIVERRUN_URL": server.url}, cwd=server.folder, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0 and "2 of 2 runs ended" in done.stdout, done
