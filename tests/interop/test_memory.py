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
    nothing = server.cli("memory", "context", *talk)
    assert nothing.returncode == 0 and not nothing.stdout and "nothing is remembered" in nothing.stderr, nothing
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
    assert gone.returncode == 4 and "memory_not_found" not in gone.stdout and "riverrun memory turns -n interop" in gone.stderr, gone
    gone = server.cli("memory", "why", "epi_01h455vb4pex5vsknk084sn02q", *talk)
    assert gone.returncode == 4 and "riverrun memory context -n interop" in gone.stderr, gone


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


SMALL = 1024


def small_talk(new_server, name):
    """A model with a small context, and a conversation that fills the window of memory."""
    server = new_server(name, RIVERRUN_MODEL_CONTEXT_TOKENS=str(SMALL), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed").start()
    talk = {"namespace": "default", "session": "small"}
    for n in range(6):
        text = f"turn {n}. " + "some words. " * 60
        assert server.post("/memory/turns", {"role": ("user", "assistant")[n % 2], "text": text, **talk}).status == 200
    return server, talk


def test_what_does_not_fit_the_models_context_is_left_out_and_told(new_server):
    server, talk = small_talk(new_server, "left-out")
    done = server.post("/memory/chat", {"text": "what was said?", "stream": False, **talk}).json
    left_out = done["left_out"]
    assert left_out["context_tokens"] == SMALL and left_out["estimated"] is True, done
    assert left_out["tokens_after"] < left_out["tokens_before"] and left_out["tokens_after"] <= SMALL, left_out
    assert left_out["turns"] > 0 and done["turns_shown"] > 0 and done["text"], done
    # For people on stderr; the data on stdout is the answer alone.
    chat = server.cli("memory", "chat", "and now?", "-s", "small", "--no-stream")
    assert chat.returncode == 0 and "left out, since about" in chat.stderr and f"of {SMALL}" in chat.stderr, chat
    assert "left out" not in chat.stdout, chat
    # With room for everything nothing is left out.
    whole = server.post("/memory/chat", {"text": "hello", "stream": False, "session": "another"}).json
    assert whole["left_out"] is None, whole


def test_words_that_do_not_fit_alone_are_refused_before_they_are_recorded(new_server):
    server = new_server("too-much", RIVERRUN_MODEL_CONTEXT_TOKENS="256", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed").start()
    refused = server.post("/memory/chat", {"text": "some more words. " * 300, "session": "much", "stream": False})
    assert refused.status == 422 and refused.json["code"] == "context_overflow", refused
    assert "256" in refused.json["detail"] and "RIVERRUN_MODEL_CONTEXT_TOKENS" in refused.json["hint"], refused
    assert server.get("/memory/turns?session=much").json["items"] == []
    told = server.cli("chat", "some more words. " * 300)
    assert told.returncode == 4 and "does not fit the context of 256 tokens" in told.stderr, told


def test_the_example_runs(server):
    done = subprocess.run([ROOT / "examples/memory.sh"], env=os.environ | {"RIVERRUN_URL": server.url}, capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "hangar 3" in done.stdout and "'turns': 1" in done.stdout, done.stdout
