"""What a terminal is shown of texts that others wrote, and what files and programs get of them."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import termios

from server import BINARY

# Moves the cursor and erases the line, sets the title, a control of eight bits, and reorders what is read.
STEERS = "safe\x1b[2K\x1b]0;title\x07\x9b1A\u202eevil"
SHOWN = "safe\ufffd[2K\ufffd]0;title\ufffd\ufffd1A\ufffdevil"


def on_a_terminal(server, *arguments, limit_s=60):
    """What a command writes whose output and messages are a terminal."""
    ours, theirs = pty.openpty()
    # So wide that no line is broken.
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 400, 0, 0))
    process = subprocess.Popen([BINARY, *arguments], cwd=server.folder, env=server.env | {"TERM": "xterm"}, stdin=subprocess.DEVNULL,
                               stdout=theirs, stderr=theirs)
    os.close(theirs)
    said = b""
    try:
        while True:
            try:
                piece = os.read(ours, 4_096)
            except OSError:  # the other end is closed: how Linux says so
                break
            if not piece:
                break
            said += piece
        assert process.wait(timeout=limit_s) == 0, said
        return said.decode()
    finally:
        if process.poll() is None:
            process.kill()
        os.close(ours)


def test_what_others_wrote_steers_no_terminal_and_is_whole_for_programs(server):
    conversation = ["-n", "team", "-s", "terminal"]
    added = server.post("/memory/turns", {"role": "user", "text": STEERS, "namespace": "team", "session": "terminal"})
    assert added.status == 200, added
    source = server.folder / "steers.md"
    # So long that its few control characters don't make it binary data.
    source.write_text(f"# Winch\n\n{STEERS} of the winch. " + "The winch stands beside the hangar. " * 10 + "\n")
    assert server.ingest(source, "steers", namespace="team")["indexed"] == 1
    for arguments in (["memory", "turns", *conversation], ["memory", "context", *conversation],
                      ["search", "winch", "--no-rerank", "-c", "steers", "-n", "team"]):
        seen = on_a_terminal(server, *arguments)
        assert SHOWN in seen, (arguments, seen)
        assert not any(bad in seen for bad in ("\x1b]", "\x1b[2K", "\x9b", "\x07", "\u202e")), (arguments, seen)
        assert STEERS in server.cli(*arguments).stdout, arguments
    listed = json.loads(server.cli("--json", "memory", "turns", *conversation).stdout)
    assert listed["items"][0]["text"] == STEERS
