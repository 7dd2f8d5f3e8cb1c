"""Many processes of riverrun that share nothing but servers: APIs without workers, and workers of each kind beside them.

The log is hosted by the first API, vectors and keywords lie with scripts/qdrant_wire.py, which is not Qdrant; PostgreSQL is real, S3 is what
scripts/services.py starts."""

import json
import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
import uuid
from urllib.parse import urlsplit

from server import BINARY, Server, free_ports, wait_for

# Where each server is told, and what starts it.
SERVERS = {"RIVERRUN_TEST_DATABASE_URL": "postgres", "RIVERRUN_TEST_S3_ENDPOINT": "s3", "RIVERRUN_TEST_QDRANT_WIRE_URL": "vectors"}
BUCKET = "riverrun-test"
KINDS = ("ingester", "embedder", "indexer", "agent", "trainer", "analyzer", "projector", "tracer")
# A member of a group that is silent for so long has died; 45 s otherwise.
SILENCE_MS = 6_000
# Debug builds on a few cores: eight of them start at once.
READY_S = 120


def missing():
    """Why there can be no cluster here; None when there can."""
    lacking = [service for variable, service in SERVERS.items() if not os.environ.get(variable)]
    if lacking:
        return f"{', '.join(lacking)} is not there: ./x services, or scripts/services.py {' '.join(lacking)}"
    return None if shutil.which("psql") else "psql is not installed"


class Worker:
    """`riverrun worker KIND` on the log of a running server."""

    def __init__(self, server, kind, *arguments, **settings):
        self.port, = free_ports(1)
        self.log_path = server.folder / f"worker-{kind}-{self.port}.log"
        env = server.env | {"RIVERRUN_KAFKA_BROKERS": server.brokers} | settings
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen([BINARY, "worker", kind, "--health-port", str(self.port), *arguments], cwd=server.folder,
                                            env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, path):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=10) as reply:
                return reply.status, json.load(reply)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)
        except OSError:
            assert self.process.poll() is None, self.log_path.read_text(errors="replace")
            return None, None

    def figures(self):
        """The page of figures, a value for each series."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=10) as reply:
            lines = [line for line in reply.read().decode().splitlines() if not line.startswith("#")]
        series = [line.rpartition(" ")[0] for line in lines]
        assert len(series) == len(set(series)), f"a series is there twice: {series}"
        return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}

    def wait_ready(self):
        return wait_for(lambda: (found := self.ask("/ready"))[0] == 200 and found[1], READY_S, "the worker to be ready")

    def partitions(self, name):
        """How many partitions its workers of that name have."""
        _, report = self.ask("/health")
        return sum(one["partitions"] for one in (report or {"workers": []})["workers"] if one["name"] == name)

    def kill(self):
        """kill -9: nothing of it runs to its end."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                return self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
        return self.process.returncode


class Host(Server):
    """The API that hosts the log."""

    arguments = ("--no-workers", "--host-log")


class Beside(Server):
    """An API on the log of another."""

    arguments = ("--no-workers",)


class Cluster:
    """Its parts are stopped by `stop`; the database of its own stays with the server, which the tests end."""

    def __init__(self, folder, model, **settings):
        self.folder, self.workers, self.apis = folder, [], []
        self.settings = self.settings_for(folder, model) | settings
        self.api = self.add_api(Host)

    @classmethod
    def settings_for(cls, folder, model):
        """The servers, with a database of its own."""
        redis, mongodb = os.environ.get("RIVERRUN_TEST_REDIS_URL"), os.environ.get("RIVERRUN_TEST_MONGODB_URL")
        more = {"RIVERRUN_REDIS_URL": redis} if redis else {}
        if mongodb:
            more["RIVERRUN_MONGODB_URL"] = mongodb.replace("/?", f"/cluster_{uuid.uuid4().hex[:8]}?", 1)
        return {
            "RIVERRUN_DATABASE_URL": cls.new_database(), "RIVERRUN_QDRANT_URL": os.environ["RIVERRUN_TEST_QDRANT_WIRE_URL"],
            "RIVERRUN_S3_BUCKET": BUCKET, "RIVERRUN_S3_ENDPOINT": os.environ["RIVERRUN_TEST_S3_ENDPOINT"],
            "RIVERRUN_S3_ACCESS_KEY_ID": "test", "RIVERRUN_S3_SECRET_ACCESS_KEY": "s3cret",
            "RIVERRUN_DEFAULT_EMBED_MODEL": "ollama/stub-embed", "RIVERRUN_INGEST_ROOTS": str(folder),
            "RIVERRUN_KAFKA_SESSION_TIMEOUT_MS": str(SILENCE_MS), **model.settings(), **more,
        }

    @staticmethod
    def new_database():
        server, name = os.environ["RIVERRUN_TEST_DATABASE_URL"], f"cluster_{uuid.uuid4().hex[:8]}"
        subprocess.run(["psql", server, "-qc", f"CREATE DATABASE {name}"], check=True, capture_output=True)
        return urlsplit(server)._replace(path=f"/{name}").geturl()

    def add_api(self, kind=Beside):
        more = {"RIVERRUN_KAFKA_BROKERS": self.api.brokers} if kind is Beside else {}
        api = kind(self.folder / f"api-{len(self.apis)}", self.settings | more)
        self.apis.append(api)
        return api.start()

    def add(self, kind, *arguments, **settings):
        """A worker process; it need not be ready yet."""
        own = self.folder / f"{kind}-{len(self.workers)}"
        needs = {
            "trainer": {"RIVERRUN_MODELS_CACHE_DIR": str(self.folder / "models")},
            # Nobody listens there: runs wait for no tracing service.
            "tracer": {"RIVERRUN_TRACING_ENDPOINT": "http://127.0.0.1:9", "RIVERRUN_TRACING_PATIENCE_SECONDS": "0"},
        }.get(kind, {})
        worker = Worker(self.api, kind, *arguments, RIVERRUN_DATA_DIR=str(own), **(needs | settings))
        self.workers.append(worker)
        return worker

    def add_each(self, kinds=KINDS):
        """A process of each of these kinds, ready."""
        added = {kind: self.add(kind) for kind in kinds}
        for worker in added.values():
            worker.wait_ready()
        return added

    def end(self, worker):
        """Ends a worker of this cluster as a signal does."""
        worker.stop()
        self.workers.remove(worker)

    def stop(self):
        for one in [*self.workers, *reversed(self.apis)]:
            one.stop()
