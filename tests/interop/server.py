"""A real `riverrun serve` in a folder and on ports of its own, and a client for it."""

import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

import servers

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("RIVERRUN_BIN") or ROOT / "target/debug/riverrun")
START_TIMEOUT_S = 90
STOP_TIMEOUT_S = 30

RUN_ENDED = {"succeeded", "failed", "cancelled"}


def free_ports(count):
    """Ports nobody listens on, all different. They lie below those of outgoing connections, so that a server that starts
    again meets none of these, and each process of tests takes its own."""
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    first = 12_000 + process % 8 * 2_000
    found = []
    for port in random.sample(range(first, first + 2_000), 2_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise AssertionError(f"{count} ports are not free")


def wait_for(condition, timeout_s, what, every_s=0.05):
    """Polls until `condition()` is truthy and returns that; fails with `what` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {timeout_s} s in vain for {what}; last saw {found!r}")
        time.sleep(every_s)


class Reply:
    """Status, headers and body of an HTTP answer, whatever the status."""

    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    @property
    def json(self):
        return json.loads(self.body)

    def __repr__(self):
        return f"<{self.status} {self.body[:600]!r}>"


class Server:
    """`riverrun serve`. Settings of whoever runs the tests do not reach it."""

    binary, arguments = BINARY, ()

    def __init__(self, folder, settings=None):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log_path = self.folder / "serve.log"
        self.api_port, self.broker_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self.api_port}"
        self.ws_url = f"ws://127.0.0.1:{self.api_port}"
        self.brokers = f"127.0.0.1:{self.broker_port}"
        self.process = None
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("RIVERRUN_")}
        # The system's own programs first: the shim of a version manager reads its home, which the sandbox keeps closed.
        self.env["PATH"] = f"/usr/bin:/bin:{self.env.get('PATH', '')}"
        self.env |= {
            "RIVERRUN_DATA_DIR": str(self.folder / "data"),
            "RIVERRUN_API_PORT": str(self.api_port),
            "RIVERRUN_BROKER_PORT": str(self.broker_port),
            "RIVERRUN_MODELS_OFFLINE": "true",
            "RIVERRUN_DEFAULT_CHAT_MODEL": "smollm2-135m-instruct",
            "RIVERRUN_DEFAULT_EMBED_MODEL": "all-minilm-l6-v2",
            "NO_COLOR": "1",
        }
        if "PYTEST_XDIST_WORKER" in os.environ:
            # Models of several tests share the cores, and threads of one that wait for each other spin: a run took minutes.
            self.env["RIVERRUN_MODEL_THREADS"] = "1"
        if "RIVERRUN_MODELS_DIR" in os.environ:
            self.env["RIVERRUN_MODELS_DIR"] = os.environ["RIVERRUN_MODELS_DIR"]
        self.env |= servers.settings_of(self) | (settings or {})
        self.brokers = self.env.get("RIVERRUN_KAFKA_BROKERS") or self.brokers

    # ---- life --------------------------------------------------------------------------------------------------------

    def spawn(self):
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([self.binary, "serve", *self.arguments], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)

    def start(self):
        """Starts it and returns once it answers."""
        self.spawn()
        wait_for(self.answers, START_TIMEOUT_S, "the server to answer /health")
        return self

    def answers(self):
        if self.process.poll() is not None:
            raise AssertionError(f"serve ended with {self.process.returncode}: {self.log_tail()}")
        try:
            return self.get("/health").status == 200
        except OSError:
            return False

    def runs(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        """kill -9: nothing of it runs to its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """SIGTERM, and its exit status."""
        if not self.runs():
            return None
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"serve did not stop within {STOP_TIMEOUT_S} s of SIGTERM: {self.log_tail()}") from None

    def log_tail(self, lines=30):
        return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])

    # ---- command line ------------------------------------------------------------------------------------------------

    def cli(self, *arguments, timeout=300, **settings):
        """Runs `riverrun ARGUMENT...` with this server's settings."""
        return subprocess.run([BINARY, *arguments], cwd=self.folder, env=self.env | settings, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=timeout, check=False)

    # ---- HTTP --------------------------------------------------------------------------------------------------------

    def request(self, method, path, body=None, headers=None, timeout=120):
        """`body` is sent as JSON unless it is bytes."""
        headers = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            headers.setdefault("content-type", "application/json")
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Reply(answer.status, answer.headers, answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Reply(error.code, error.headers, error.read())

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def start_run(self, task, key=None, **more):
        reply = self.post("/runs", {"task": task, "agent": "react", **more}, headers={"idempotency-key": key} if key else None)
        assert reply.status == 202, reply
        assert reply.headers["location"].endswith(reply.json["run_id"]), reply.headers
        return reply.json["run_id"]

    def run_end(self, run_id, timeout_s=60):
        """The run's result once it has ended."""
        def ended():
            reply = self.get(f"/runs/{run_id}")
            # The read model may be a moment behind the acknowledgement.
            if reply.status == 404:
                return None
            assert reply.status == 200, reply
            return reply.json if reply.json["status"] in RUN_ENDED else None
        return wait_for(ended, timeout_s, f"{run_id} to end")

    def ingest(self, source, collection, timeout_s=120, **more):
        """Ingests a path and returns the request's last state."""
        reply = self.post("/ingest", {"source": str(source), "collection": collection, **more})
        assert reply.status == 202, reply
        return self.ingest_end(reply.json["ingest_id"], timeout_s)

    def ingest_end(self, ingest_id, timeout_s=120):
        def ended():
            reply = self.get(f"/ingest/{ingest_id}")
            if reply.status == 404:
                return None
            assert reply.status == 200, reply
            return reply.json if reply.json["status"] not in {"queued", "running"} else None
        return wait_for(ended, timeout_s, f"{ingest_id} to end")

    def lag(self):
        """Records behind, by consumer group, as it is now: an answer may be a quarter of a second old."""
        asked = datetime.now(UTC)

        def new():
            report = self.get("/health").json
            return report if datetime.fromisoformat(report["measured_at"]) > asked else None

        return wait_for(new, 10, "an answer of /health that is new")["lag"]

    def settle(self, timeout_s=60):
        """Waits until every consumer group has caught up."""
        behind = {}

        def settled():
            behind.clear()
            lag = self.lag()
            behind.update({group: records for group, records in lag.items() if records})
            return lag and not behind

        try:
            wait_for(settled, timeout_s, "lag to return to zero")
        except AssertionError as error:
            raise AssertionError(f"{error}; behind: {behind}") from None
