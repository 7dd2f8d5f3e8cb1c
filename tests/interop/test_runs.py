"""Approvals, forks and sessions over HTTP and the command line, across `kill -9` of the server."""

import json
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor

from server import BINARY, wait_for


def popen(server, *arguments):
    """A command that is at work."""
    return subprocess.Popen([BINARY, *arguments], cwd=server.folder, env=server.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def waiting(server, run_id, after=0):
    """The run once it asks something that it did not ask before."""
    def asks():
        run = server.get(f"/runs/{run_id}").json
        pending = run.get("pending_approvals") or []
        return run if run.get("status") == "waiting_approval" and pending and pending[0]["step"] > after else None
    return wait_for(asks, 60, f"{run_id} to ask")


def test_an_approval_survives_kill_9_and_is_answered_at_the_command_line(new_server):
    server = new_server().start()
    run_id = server.start_run("count [[steps=2 id=survive]]", approval="always")
    step = waiting(server, run_id)["pending_approvals"][0]["step"]
    server.kill()
    server.start()
    assert waiting(server, run_id)["pending_approvals"][0]["step"] == step
    listed = server.cli("--json", "runs", "ls", "--status", "waiting_approval")
    assert run_id in listed.stdout, listed.stderr
    approved = server.cli("runs", "approve", run_id, str(step))
    assert approved.returncode == 0, approved.stderr
    step = waiting(server, run_id, step)["pending_approvals"][0]["step"]
    denied = server.cli("runs", "approve", run_id, "--deny", "--note", "enough of it", "--watch")
    assert denied.returncode == 0, denied.stderr
    again = server.cli("runs", "approve", run_id, str(step))
    assert again.returncode == 4 and "ended" in again.stderr, again.stderr
    run = server.run_end(run_id)
    assert run["status"] == "succeeded"
    assert any("enough of it" in (s.get("tool") or {}).get("error", "") for s in run["steps"])
    said = [(s["decision"]["decision"], s["decision"].get("note")) for s in run["steps"] if s["kind"] == "approval"]
    assert said == [("approve", None), ("deny", "enough of it")], run
    shown = server.cli("runs", "show", run_id).stdout
    assert " -> approved 20" in shown and ": enough of it" in shown, shown
    assert [s["seq"] for s in run["steps"]] == list(range(1, len(run["steps"]) + 1))


def test_without_a_server_and_a_terminal_a_run_that_asks_says_how_to_answer(new_server):
    alone = new_server("alone")  # never started: the commands host what they need
    asked = alone.cli("agent", "run", "count [[steps=1 id=alone]]", "--agent", "react", "--approval", "always")
    assert asked.returncode == 4, asked
    hint = asked.stderr.split("riverrun runs approve ", 1)[1].split()
    run_id, step = hint[0], hint[1]
    shown = alone.cli("runs", "show", run_id)
    assert "waiting_approval" in shown.stdout, shown.stderr
    answered = alone.cli("runs", "approve", run_id, step)
    assert answered.returncode == 0 and "done after 1 steps" in answered.stdout, answered


def test_without_a_server_a_run_that_asks_again_ends_each_command_that_follows_it(new_server):
    alone = new_server("asks-again")
    asked = alone.cli("agent", "run", "count [[steps=2 id=asks-again]]", "--agent", "react", "--approval", "always")
    assert asked.returncode == 4, asked
    run_id, first = asked.stderr.split("riverrun runs approve ", 1)[1].split()[:2]
    # Nobody could answer while one of these has the data folder.
    for arguments in (["runs", "watch", run_id], ["--json", "runs", "watch", run_id]):
        watched = alone.cli(*arguments, timeout=60)
        assert watched.returncode == 4 and f"runs approve {run_id} {first}" in watched.stderr, watched
    again = alone.cli("runs", "approve", run_id, first, timeout=60)
    assert again.returncode == 4, again
    second = again.stderr.split(f"riverrun runs approve {run_id} ", 1)[1].split()[0]
    assert int(second) > int(first), again
    answered = alone.cli("runs", "approve", run_id, second, timeout=60)
    assert answered.returncode == 0 and "done after 2 steps" in answered.stdout, answered
    # What was answered asks nobody any more.
    watched = alone.cli("runs", "watch", run_id, timeout=60)
    assert watched.returncode == 0 and "waits" not in watched.stderr, watched


def test_without_a_server_a_run_whose_conversation_waits_for_somebody_says_for_whom(new_server):
    alone = new_server("behind")
    talk = ["--agent", "react", "--session", "ann"]
    asked = alone.cli("agent", "run", "count [[steps=1 id=before]]", *talk, "--approval", "always")
    assert asked.returncode == 4, asked
    first = asked.stderr.split("riverrun runs approve ", 1)[1].split()[0]
    behind = alone.cli("agent", "run", "count [[steps=1 id=behind]]", *talk, "--approval", "never", timeout=60)
    assert behind.returncode == 4 and f"waits behind run {first}" in behind.stderr, behind
    second = behind.stderr.split("error: run ", 1)[1].split()[0]
    assert f"riverrun runs approve {first}" in behind.stderr and f"riverrun runs watch {second}" in behind.stderr, behind
    watched = alone.cli("runs", "watch", second, timeout=60)
    assert watched.returncode == 4 and f"waits behind run {first}" in watched.stderr, watched
    assert alone.cli("runs", "approve", first, timeout=60).returncode == 0
    watched = alone.cli("runs", "watch", second, timeout=60)
    assert watched.returncode == 0 and "done after 1 steps" in watched.stdout, watched


def test_a_run_that_is_left_by_its_command_is_named(server):
    process = popen(server, "agent", "run", "count [[steps=1 id=left]]", "--agent", "react", "--approval", "always", "--steps")
    # It asks, and beside a server that is waited for.
    wait_for(lambda: "approval" in process.stdout.readline(), 60, "the run to ask")
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode == 130 and "error: interrupted" in told, told
    run_id = told.split("hint: run ", 1)[1].split()[0]
    assert f"riverrun runs watch {run_id}" in told and f"riverrun runs cancel {run_id}" in told, told
    assert waiting(server, run_id)["status"] == "waiting_approval", "it goes on without its command"
    server.post(f"/runs/{run_id}/cancel", {})


def test_who_watches_a_run_ends_when_nobody_reads_any_more_and_the_run_goes_on(server):
    run_id = server.start_run("count [[steps=2 id=no-reader]]", approval="always")
    step = waiting(server, run_id)["pending_approvals"][0]["step"]
    watchers = [popen(server, *arguments) for arguments in (["runs", "watch", run_id], ["--json", "runs", "watch", run_id])]
    for watcher in watchers:
        assert watcher.stdout.readline()
        watcher.stdout.close()
    server.post(f"/runs/{run_id}/approvals/{step}", {"decision": "approve"})
    # The run asks once more and has not ended.
    second = waiting(server, run_id, step)["pending_approvals"][0]["step"]
    for watcher in watchers:
        assert watcher.wait(30) == 0, watcher.stderr.read()
        assert "error" not in watcher.stderr.read()
    server.post(f"/runs/{run_id}/approvals/{second}", {"decision": "approve"})
    assert server.run_end(run_id)["status"] == "succeeded"


def test_forks_can_be_made_seen_and_compared_at_the_command_line(server):
    run_id = server.start_run("branch [[steps=2 id=cli-fork]]")
    server.run_end(run_id)
    forked = server.cli("--json", "runs", "fork", run_id, "--at-seq", "3", "--task", "otherwise [[steps=2 id=cli-fork]]")
    assert forked.returncode == 0, forked.stderr
    fork = json.loads(forked.stdout)["run_id"]
    assert server.run_end(fork)["forked_from"] == {"run_id": run_id, "at_seq": 3}
    tree = wait_for(lambda: (t := server.cli("runs", "tree", fork).stdout).count("run_") == 2 and t, 30, "the tree")
    assert tree.index(run_id) < tree.index(fork)
    compared = server.cli("runs", "compare", fork)
    assert compared.returncode == 0 and f"< {run_id}" in compared.stdout and f"> {fork}" in compared.stdout, compared
    cut = server.cli("runs", "fork", run_id, "--at-seq", "2")
    assert cut.returncode == 4 and "at_seq 1" in cut.stderr, cut.stderr
    resumed = server.cli("runs", "resume", run_id)
    assert resumed.returncode == 4 and "runs fork" in resumed.stderr, resumed.stderr


def test_runs_of_a_session_take_turns_across_kill_9(new_server):
    server = new_server().start()
    runs = [server.start_run(f"turn [[steps=1 id=turn{n}]]", session="s", approval="always") for n in range(3)]
    step = waiting(server, runs[0])["pending_approvals"][0]["step"]
    server.kill()
    server.start()
    assert waiting(server, runs[0])
    assert [server.get(f"/runs/{run}").json["status"] for run in runs[1:]] == ["queued", "queued"]
    for number, run in enumerate(runs):
        step = waiting(server, run)["pending_approvals"][0]["step"]
        assert server.post(f"/runs/{run}/approvals/{step}", {"decision": "approve"}).status == 202
        server.run_end(run)
    refused = server.cli("agent", "run", "x", "--session-policy", "reject")
    assert refused.returncode == 2, refused.stderr


def test_the_session_policy_at_the_command_line_says_what_becomes_of_a_second_run(new_server):
    server = new_server().start()

    def first(name):
        run_id = server.start_run(f"first [[steps=1 id=policy-{name}]]", session="s", approval="always")
        return run_id, waiting(server, run_id)["pending_approvals"][0]["step"]

    def second(policy):
        return server.cli("agent", "run", f"second [[steps=1 id=policy-{policy}]]", "--agent", "react", "--session", "s",
                          "--session-policy", policy)

    run_id, step = first("one")
    refused = second("reject")
    assert refused.returncode == 4 and f"run {run_id} of session \"s\" is waiting_approval" in refused.stderr, refused
    assert server.get(f"/runs/{run_id}").json["status"] == "waiting_approval", "the one before it is let alone"
    with ThreadPoolExecutor(1) as pool:
        queued = pool.submit(second, "enqueue")
        wait_for(lambda: [run for run in server.get("/runs?session=s").json["items"] if run["status"] == "queued"], 60, "it to wait")
        assert server.post(f"/runs/{run_id}/approvals/{step}", {"decision": "approve"}).status == 202
        done = queued.result()
    assert done.returncode == 0 and "done after 1 steps" in done.stdout, done
    assert server.run_end(run_id)["status"] == "succeeded"
    run_id, _ = first("two")
    took_over = second("interrupt")
    assert took_over.returncode == 0 and "done after 1 steps" in took_over.stdout, took_over
    assert server.run_end(run_id)["status"] == "cancelled"
