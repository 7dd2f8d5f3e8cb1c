"""Projects at a terminal: the question before a file of the copy is written, and how far an analysis is."""

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import termios
import time

import pytest

from server import BINARY
from test_project_changes import PLAIN, block, digest, folder_of, imported, proposed, shown

QUESTION = b"[y]es, [n]o"


def at_a_terminal(server, *arguments, question=None, keys=b"", limit_s=120):
    """Runs a command whose input and messages are a terminal, and presses these keys when the question is there. Gives its exit
    code, its data and what stood on the terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
    process = subprocess.Popen([BINARY, *arguments], cwd=server.folder, env=server.env | {"TERM": "xterm"}, stdin=theirs,
                               stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    said, pressed, deadline = b"", question is None, time.monotonic() + limit_s
    try:
        while time.monotonic() < deadline:
            if not select.select([ours], [], [], 0.2)[0]:
                if process.poll() is not None:
                    break
                continue
            try:
                piece = os.read(ours, 4_096)
            except OSError:  # the other end is closed: how Linux says so
                break
            if not piece:
                break
            said += piece
            if not pressed and question in said:
                os.write(ours, keys)
                pressed = True
        data = process.stdout.read()
        return process.wait(timeout=30), data, said
    finally:
        if process.poll() is None:
            process.kill()
        os.close(ours)


@pytest.fixture
def changed(server):
    """A project with a proposal, and what the file becomes by it."""
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    wanted = PLAIN.replace(b"return 1", b"return 3")
    proposed(server, project_id, "a.py", block(shown(wanted)))
    return project_id, wanted


def hash_of(server, project_id):
    return server.get(f"/projects/{project_id}/file?path=a.py").json["sha256"]


@pytest.mark.parametrize("keys", [b"y\n", b"yes\n", b"Y\n", b" YES \n"])
def test_a_yes_at_the_terminal_writes_the_file_that_was_shown(server, changed, keys):
    project_id, wanted = changed
    code, data, said = at_a_terminal(server, "project", "apply", project_id, "--file", "a.py", question=QUESTION, keys=keys)
    assert code == 0 and QUESTION in said and b"a.py" in said, (code, said)
    assert b"-        return 1" in data and b"+        return 3" in data and digest(wanted).encode() in data, data
    assert hash_of(server, project_id) == digest(wanted)


def test_anything_else_at_the_terminal_leaves_the_copy_as_it_is(server, changed):
    project_id, wanted = changed
    # The last one is the end of the input.
    for keys in (b"n\n", b"no\n", b"\n", b"maybe\n", b"yes please\n", b"1\n", b"\x04"):
        code, data, said = at_a_terminal(server, "project", "apply", project_id, "--file", "a.py", question=QUESTION, keys=keys)
        assert code == 4 and b"not confirmed" in said and b"--yes" in said, (keys, code, said)
        assert b"+        return 3" in data, "the diff is shown whatever the answer is"
        assert hash_of(server, project_id) == digest(PLAIN), keys
    # It is still there to be taken.
    code, _, said = at_a_terminal(server, "project", "apply", project_id, "--file", "a.py", question=QUESTION, keys=b"y\n")
    assert code == 0 and hash_of(server, project_id) == digest(wanted), said


def test_with_yes_nobody_is_asked(server, changed):
    project_id, wanted = changed
    code, _, said = at_a_terminal(server, "project", "apply", project_id, "--file", "a.py", "--yes")
    assert code == 0 and QUESTION not in said and hash_of(server, project_id) == digest(wanted), said


def test_with_json_only_json_is_data_whether_it_is_confirmed_or_not(server, changed):
    project_id, wanted = changed
    asked = server.cli("--json", "project", "apply", project_id, "--file", "a.py")
    assert asked.returncode == 4 and asked.stdout == "" and "+        return 3" in asked.stderr, asked
    code, data, said = at_a_terminal(server, "--json", "project", "apply", project_id, "--file", "a.py", question=QUESTION, keys=b"y\n")
    assert code == 0 and b"+        return 3" in said, (code, said)
    assert json.loads(data)["after_sha256"] == digest(wanted) == hash_of(server, project_id)


def test_how_far_an_analysis_is_stands_on_the_terminal_and_not_in_the_data(server):
    leak = b"X = StandardScaler().fit_transform(X)  # [[delay_ms=4000 id=terminal]]\nparts = train_test_split(X, y)\n"
    project_id = imported(server, folder_of(server, {"a.py": leak}))["project_id"]
    code, data, said = at_a_terminal(server, "project", "analyze", project_id)
    assert code == 0 and b"fit-before-split" in data, (code, data)
    assert b" analyzers" in said and b" of " in said and b" analyzers" not in data, said
    code, data, said = at_a_terminal(server, "project", "analyze", project_id, "--no-review", "--json")
    assert code == 0 and json.loads(data)["findings"] and b"analyzers" not in said, said
