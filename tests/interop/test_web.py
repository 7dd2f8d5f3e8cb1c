"""The web pages in a real browser against the built binary. Needs Chromium and the pages' node_modules: `./x interop`
installs both; without them (a binary tried on its own) the walk is skipped by name."""

import os
import shutil
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
BROWSER = shutil.which("chromium") or shutil.which("chromium-headless-shell")


def control_of(server):
    """Lets the walk end and begin the server."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            {"/stop": server.stop, "/start": server.start}[self.path]()
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=http.serve_forever, daemon=True).start()
    return http


@pytest.mark.skipif(
    not BROWSER or not (WEB / "node_modules/playwright-core").is_dir(),
    reason="Chromium or web/node_modules is missing; ./x interop installs them",
)
def test_a_user_walks_through_the_pages(new_server, tmp_path):
    server = new_server("web").start()
    control = control_of(server)
    shots = Path(os.environ.get("RIVERRUN_SCREENSHOTS") or tmp_path / "shots")
    try:
        walk = subprocess.run(
            ["node", "e2e/walk.mjs", server.url, f"http://127.0.0.1:{control.server_address[1]}", str(shots)],
            cwd=WEB, capture_output=True, text=True, timeout=280,
        )
    finally:
        control.shutdown()
    assert walk.returncode == 0, f"{walk.stdout}\n{walk.stderr}\nscreenshots in {shots}"
    assert "not ok" not in walk.stdout + walk.stderr
