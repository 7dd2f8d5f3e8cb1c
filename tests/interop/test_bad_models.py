"""A model server that hangs, drips, floods, lies or breaks off: the run ends with its reason, and the process keeps its memory."""

import io
import re

import pytest

from server import Server
from stub_model import StubModel
from test_faults import resident_bytes

MODE = re.compile(rb"\[\[mode=(\w+)\]\]")
LINE = b'{"message": {"role": "assistant", "content": "%s"}, "done": false}\n'


class BadModel(StubModel):
    """Does with a request what stands in its task, `[[mode=flood]]`; without that it is the scripted model."""

    def handler(self):
        class Handler(super().handler()):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                mode = MODE.search(body)
                if mode is None or self.path != "/api/chat":
                    self.rfile = io.BytesIO(body)
                    super().do_POST()
                    return
                self.close_connection = True
                try:
                    getattr(self, mode.group(1).decode())()
                except OSError:
                    pass  # it has had enough: that is what it should

            def begin(self, status=200, kind="application/x-ndjson", **more):
                self.send_response(status)
                self.send_header("content-type", kind)
                for name, value in more.items():
                    self.send_header(name.replace("_", "-"), value)
                self.end_headers()

            def hangs(self):
                self.connection.recv(1)  # until the other side goes

            def fails(self):
                self.begin(500, "text/plain")
                self.wfile.write(b"out of order")

            def speaks_html(self):
                self.begin(200, "text/html")
                self.wfile.write(b"<html><h1>Sign in</h1></html>")

            def says_nothing(self):
                self.begin()

            def says_bytes(self):
                self.begin()
                self.wfile.write(bytes(range(256)) * 100)

            def breaks_off(self):
                self.begin(content_length="100000")
                self.wfile.write(LINE % b"half a")

            def nests(self):
                self.begin()
                self.wfile.write(b'{"message":' * 50_000 + b"1" + b"}" * 50_000 + b"\n")

            def drips(self):
                self.begin()
                for byte in LINE % (b"x" * 10_000):
                    self.wfile.write(bytes([byte]))
                    if self.waits(0.2):
                        return

            def waits(self, seconds):
                """Whether the other side went meanwhile."""
                self.connection.settimeout(seconds)
                try:
                    return not self.connection.recv(1)
                except TimeoutError:
                    return False
                finally:
                    self.connection.settimeout(None)

            def floods(self):
                self.begin()
                for _ in range(40_000):  # 2.5 GB
                    self.wfile.write(LINE % (b"x" * 65_536))

            def never_ends_a_line(self):
                self.begin()
                for _ in range(40_000):
                    self.wfile.write(b"x" * 65_536)

        return Handler


@pytest.fixture(scope="module")
def troubled(tmp_path_factory):
    model = BadModel()
    server = Server(tmp_path_factory.mktemp("troubled"), model.settings() | {"RIVERRUN_MODEL_TIMEOUT_MS": "5000", "RIVERRUN_MODEL_IDLE_TIMEOUT_MS": "2000"})
    yield server.start()
    server.stop()
    model.close()


@pytest.mark.parametrize("mode", ["hangs", "fails", "speaks_html", "says_nothing", "says_bytes", "breaks_off", "nests", "drips", "floods", "never_ends_a_line"])
def test_whatever_a_model_does_the_run_ends_with_its_reason(troubled, mode):
    before = resident_bytes(troubled)
    result = troubled.run_end(troubled.start_run(f"[[mode={mode}]]"), 180)
    assert result["status"] == "failed" and result["error"]["code"] and result["error"]["message"], result
    assert [step["seq"] for step in result["steps"]] == list(range(1, len(result["steps"]) + 1))
    grown = (resident_bytes(troubled) - before) >> 20
    assert grown < 256, f"{grown} MiB more"


def test_the_next_run_of_a_good_model_is_none_the_worse(troubled):
    assert troubled.run_end(troubled.start_run("[[steps=2 id=good-again]]"))["status"] == "succeeded"
