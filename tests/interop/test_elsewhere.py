"""The command line beside a server elsewhere: everything it does goes through the API that RIVERRUN_SERVER names, nothing of the machine's own."""

import hashlib
import http.server
import json
import os
import subprocess
import threading

import pytest

from server import BINARY, free_ports

TOKEN = "elsewhere-token"


@pytest.fixture
def elsewhere(new_server, tmp_path):
    """A server with a token, and a command line with a data folder of its own."""
    known = f"ann:{hashlib.sha256(TOKEN.encode()).hexdigest()}"
    server = new_server(RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed", RIVERRUN_API_TOKENS=known).start()
    place = tmp_path / "here"
    place.mkdir()

    def run(*arguments, **settings):
        env = {name: value for name, value in os.environ.items() if not name.startswith("RIVERRUN_")}
        env |= {"HOME": str(place), "RIVERRUN_DATA_DIR": str(place / "data"), "RIVERRUN_SERVER": server.url, "RIVERRUN_API_TOKEN": TOKEN,
                "RIVERRUN_MODELS_OFFLINE": "true", "NO_COLOR": "1"} | settings
        return subprocess.run([BINARY, *arguments], cwd=place, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)

    run.place = place
    return run


def ok(done):
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def test_commands_ask_the_server_that_is_named_and_leave_this_machine_alone(elsewhere):
    notes, code = elsewhere.place / "notes", elsewhere.place / "code"
    for folder in (notes, code):
        folder.mkdir()
    (notes / "birds.md").write_text("# Birds\n\nThe wandering albatross has the largest wingspan.\n")
    (code / "a.py").write_text("import os\n")
    (elsewhere.place / "examples.jsonl").write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "c", "completion": "d"}\n')
    taken = ok(elsewhere("ingest", "notes", "-c", "birds", "--json"))
    assert (taken["status"], taken["indexed"]) == ("done", 1), taken
    found = ok(elsewhere("search", "wingspan", "-c", "birds", "--json"))
    assert "albatross" in found["items"][0]["text"] and found["items"][0]["source"].startswith("upload/notes.zip"), found
    run = ok(elsewhere("agent", "run", "add [[steps=1 id=elsewhere]]", "--agent", "react", "--json"))
    assert run["status"] == "succeeded", run
    assert run["run_id"] in [one["run_id"] for one in ok(elsewhere("runs", "ls", "--json"))["items"]]
    project = ok(elsewhere("project", "import", "code", "--json"))
    assert project["files"] == 1, project
    assert ok(elsewhere("finetune", "dataset", "tiny", "--jsonl", "examples.jsonl", "--json"))["examples"] == 2
    assert "ingester" in elsewhere("diagnose").stdout
    assert not (elsewhere.place / "data").exists(), "nothing is kept or locked here"


def test_what_a_server_elsewhere_does_not_take_is_refused_by_name(elsewhere):
    (elsewhere.place / "notes").mkdir()
    (elsewhere.place / "notes/a.md").write_text("# A\n")
    for arguments, code, words in [
        (("stream", "produce", "hello"), 2, "RIVERRUN_SERVER"),
        (("stream", "consume", "--collection", "c", "--idle-timeout", "1"), 2, "RIVERRUN_SERVER"),
        (("ingest", "notes", "-c", "c", "--prune"), 2, "--prune"),
        (("agent", "run", "x", "--agent", "nobody"), 4, "react"),
        (("agent", "run", "x", "--agent", "react", "--collection", "none"), 4, "none"),
    ]:
        done = elsewhere(*arguments)
        assert done.returncode == code and words in done.stderr and "hint: " in done.stderr, (arguments, done)


def test_a_server_that_is_not_there_wants_a_token_or_is_no_riverrun_is_told_with_the_fix(elsewhere):
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    done = elsewhere("runs", "ls", RIVERRUN_SERVER=nowhere)
    assert done.returncode == 3 and nowhere in done.stderr and "RIVERRUN_SERVER" in done.stderr, done
    done = elsewhere("diagnose", RIVERRUN_SERVER=nowhere)
    assert done.returncode == 3 and "DOWN" in done.stdout and nowhere in done.stdout, done
    for token in ("", "another"):
        done = elsewhere("runs", "ls", RIVERRUN_API_TOKEN=token)
        assert done.returncode == 4 and "set RIVERRUN_API_TOKEN" in done.stderr, done
    for url in ("127.0.0.1:8000", "https://ann:s3cret@host"):
        done = elsewhere("runs", "ls", RIVERRUN_SERVER=url)
        assert done.returncode == 2 and "RIVERRUN_SERVER" in done.stderr and "s3cret" not in done.stderr, done


@pytest.mark.parametrize(("status", "body", "words"), [
    (200, {"version": "0.0.9"}, "0.0.9"), (200, {"hello": 1}, "no server of riverrun"), (404, {}, "404"), (301, {}, "301"), (502, {"version": "9.0.0"}, "502"),
])
def test_an_address_of_something_else_or_of_an_older_server_is_told(elsewhere, status, body, words):
    class Other(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:9/")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_):
            pass

    other = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Other)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        done = elsewhere("runs", "ls", RIVERRUN_SERVER=f"http://127.0.0.1:{other.server_port}")
    finally:
        other.shutdown()
        other.server_close()
    assert done.returncode == 1 and words in done.stderr and "hint: " in done.stderr, done
