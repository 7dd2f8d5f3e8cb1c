"""A Redis server that processes share: used while it is there, done without when it is not."""

import shutil
import socket
import subprocess

import pytest

from server import free_ports, wait_for

REDIS = shutil.which("redis-server")

pytestmark = pytest.mark.skipif(not REDIS, reason="redis-server is not installed: apt-get install redis-server")


class Redis:
    def __init__(self, folder):
        self.folder, self.process = folder, None
        self.port, = free_ports(1)
        self.url = f"redis://127.0.0.1:{self.port}"

    def start(self):
        self.process = subprocess.Popen([REDIS, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--save", ""],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for(lambda: self.ask("PING") == "+PONG", 20, "redis-server to answer")
        return self

    def ask(self, command):
        """The first line of its answer to an inline command."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=5) as one:
                one.sendall(command.encode() + b"\r\n")
                return one.makefile("rb").readline().decode().strip()
        except OSError:
            return None

    def keys(self):
        return int((self.ask("DBSIZE") or ":0")[1:])

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()


@pytest.fixture
def redis(tmp_path):
    one = Redis(tmp_path).start()
    yield one
    one.kill()


def row(server):
    return next(row for row in server.get("/diagnose").json["services"] if row["name"] == "cache")


def test_given_a_cache_that_is_killed_when_questions_are_asked_then_they_are_answered_before_during_and_after(new_server, redis):
    server = new_server(RIVERRUN_REDIS_URL=redis.url).start()
    wait_for(lambda: row(server)["status"] == "up" and row(server)["version"], 20, "the cache in diagnose")
    file = server.folder / "birds.md"
    file.write_text("# Birds\n\nThe quetzal is a bird of the cloud forest.\n")
    server.ingest(file, "birds")
    question = {"query": "which bird lives in the cloud forest?", "collection": "birds"}

    def asked():
        reply = server.post("/rag/ask", question)
        assert reply.status == 200 and reply.json["answer"], reply
        return reply

    # A moment of slowness is a miss, not an error: so it is asked until it hits.
    hit = wait_for(lambda: (reply := asked()).headers["x-riverrun-cache"] == "hit" and reply, 30, "an answer from the cache")
    assert redis.keys() >= 2, "a vector and an answer"
    file.write_text("# Birds\n\nThe quetzal is a bird of the cloud forest, and the dipper is one of the brook.\n")
    server.ingest(file, "birds")
    assert wait_for(lambda: (reply := asked()).headers["x-riverrun-cache"] is None and reply, 10, "an answer from the changed collection")

    redis.kill()
    for _ in range(5):
        assert asked().json["found"] == hit.json["found"]
        found = server.post("/rag/search", question)
        assert found.status == 200 and found.json["items"], found
    down = row(server)
    assert down["status"] == "down" and not down["required"] and "RIVERRUN_REDIS_URL" in down["fix"], down
    assert server.get("/health").status == 200 and server.cli("diagnose").returncode == 0

    redis.start()
    wait_for(lambda: row(server)["status"] == "up", 20, "the cache to be used again")
    wait_for(lambda: asked().headers["x-riverrun-cache"] == "hit", 30, "an answer from the cache again")


def test_given_two_servers_that_share_a_cache_when_requests_come_then_limits_count_for_both_together(new_server, redis):
    settings = {"RIVERRUN_REDIS_URL": redis.url, "RIVERRUN_RATE_PER_TOKEN": "30"}
    servers = [new_server(name, **settings).start() for name in ("one", "two")]
    for server in servers:
        wait_for(lambda server=server: row(server)["status"] == "up", 20, "the cache in diagnose")
    redis.ask("FLUSHALL")
    statuses = [server.get("/agents").status for _ in range(40) for server in servers]
    assert set(statuses) == {200, 429}
    # Each alone would let 30 through; some come back meanwhile.
    assert 30 <= statuses.count(200) < 55, statuses
    redis.kill()
    wait_for(lambda: servers[0].get("/agents").status == 200, 30, "the limits of the process itself")
