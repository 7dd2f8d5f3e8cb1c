"""A disk that is full, or holds whoever writes to it, when a test says so: what it says of itself is in disk.c."""

import contextlib
from pathlib import Path

from preloaded import built as build
from server import wait_for

SOURCE = Path(__file__).with_name("disk.c")


def library(folder):
    return build(SOURCE, folder)


@contextlib.contextmanager
def told(server, built, **more):
    """The server's settings with the library in front of its disk."""
    before = server.env
    server.env = before | {"LD_PRELOAD": str(built)} | {f"DISK_{name}": str(value) for name, value in more.items()}
    try:
        yield
    finally:
        server.env = before


@contextlib.contextmanager
def held(server, built, operation, part):
    """Starts the server, and kills it where it does the operation on such a file for the first time: half of a write is done then, a
    sync or a rename not at all, and what is `renamed` wholly. Nothing of the server runs at the end."""
    met = server.folder / "held"
    met.unlink(missing_ok=True)
    with told(server, built, AT=operation, OF=part, DOES="hold", FLAG=met):
        server.start()
    yield
    wait_for(met.exists, 300, f"{operation} of {part}")
    server.kill()


@contextlib.contextmanager
def full(server, built, part):
    """Starts the server; gives what takes all room from such files, and what gives it back."""
    flag = server.folder / "no-room"
    with told(server, built, AT="write", OF=part, DOES="full", FLAG=flag):
        server.start()
        yield flag.touch, flag.unlink
