"""A clock that a test sets while a program runs: what it does is in clock.c."""

import struct
from pathlib import Path

from preloaded import built

SOURCE = Path(__file__).with_name("clock.c")


class Clock:
    def __init__(self, folder):
        self.file = folder / "clock"
        self.file.write_bytes(struct.pack("q", 0))
        self.settings = {"LD_PRELOAD": str(built(SOURCE, folder)), "CLOCK_FILE": str(self.file)}

    def set_ahead(self, ms):
        """The program has it mapped: it must stay the same file."""
        with self.file.open("r+b") as file:
            file.write(struct.pack("q", ms))
