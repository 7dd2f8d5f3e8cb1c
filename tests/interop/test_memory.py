"""Conversations through the built binary: over HTTP, by the command line, and as a stock Kafka client sees them."""

import json
import os
import subprocess

from server import ROOT, wait_for


def cli(server, *arguments):
    done = server.cli("memory", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_conversation_by_command_line(server):
    talk = ("-n", "interop", "-s", "by cli")
    first = cli(server, "add", "user", "the tow rope is in the red box", *talk)
    assert first["seq"] == 1 and first["turn_id"].startswith("trn_"), first
    cli(server, "add", "assistant", "noted", *talk)
    chat = cli(server, "chat", "hello", *talk)
    assert chat["turns_shown"] == 2 and chat["text"], chat
    shown = cli(server, "context", "--query", "where is the tow rope", *talk)
    assert [turn["role"] for turn in shown["turns"]] == ["user", "assistant", "user", "assistant"], shown
    why = cli(server, "why", first["turn_id"], *talk)
    assert why["sources"][0]["text"] == "the tow rope is in the red box"
    receipt = cli(server, "forget", first["turn_id"], *talk)
    assert receipt["removed"]["turns"] == 1 and not receipt["pending"], receipt
    assert "red box" not in json.dumps(cli(server, "context", "--query", "tow rope", *talk))
    assert cli(server, "forget", "--all", *talk)["removed"]["turns"] == 3
    gone = server.cli("memory", "why", first["turn_id"], *talk)
    assert gone.returncode == 4 and "memory_not_found" not in gone.stdout, gone


def test_a_run_reads_and_joins_its_conversation(server):
    server.post("/memory/turns", {"role": "user", "text": "the altimeter reads 300", "namespace": "interop", "session": "run"})
    run_id = server.start_run("say it [[steps=1 id=memory]]", namespace="interop", session="run")
    run = server.run_end(run_id)
    assert run["steps"][0]["tool"]["name"] == "memory_recall" and "altimeter" in json.dumps(run["steps"][1]), run

    def joined():
        turns = server.get("/memory/turns?namespace=interop&session=run").json["items"]
        return turns if len(turns) == 3 else None
    turns = wait_for(joined, 30, "the run to join its conversation")
    assert [turn["run_id"] for turn in turns] == [None, run_id, run_id], turns


def test_memory_survives_kill_and_a_lost_database(new_server):
    server = new_server("killed").start()
    for n in range(5):
        assert server.post("/memory/turns", {"role": "user", "text": f"number {n}"}).status == 200
    before = server.get("/memory/turns").json["items"]
    server.kill()
    for file in (server.folder / "data").glob("read.db*"):
        file.unlink()
    server.start()
    wait_for(lambda: server.get("/memory/turns").json["items"] == before, 30, "the turns to be read from the log again")
    assert server.post("/memory/turns", {"role": "user", "text": "number 5"}).json["seq"] == 6


def test_the_example_runs(server):
    done = subprocess.run([ROOT / "examples/memory.sh"], env=os.environ | {"RIVERRUN_URL": server.url}, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hangar 3" in done.stdout and "'turns': 1" in done.stdout, done.stdout
