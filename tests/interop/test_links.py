"""A worker whose link to the broker is late, is cut and falls silent: what it has to do is done once, and nothing is given up."""

import json

import pytest

from cluster import Worker
from server import free_ports, wait_for
from test_services import Proxy

NOTES = 10
# As far as a piece is late in the fault matrix.
LATE_S = 0.2


@pytest.fixture
def far(new_server, tmp_path):
    """A server whose second listener is found behind a proxy, that proxy, and the settings of a worker that comes that way."""
    users = tmp_path / "users"
    users.write_text("ann=correct horse\n")
    [port] = free_ports(1)
    proxy = Proxy("127.0.0.1", port)
    server = new_server(RIVERRUN_BROKER_SECURE_LISTEN=f"127.0.0.1:{port}", RIVERRUN_BROKER_SECURE_ADVERTISED=f"127.0.0.1:{proxy.port}",
                        RIVERRUN_BROKER_SECURE_USERS=str(users), RIVERRUN_INGEST_ROOTS=str(tmp_path), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed").start()
    settings = {"RIVERRUN_KAFKA_BROKERS": f"127.0.0.1:{proxy.port}", "RIVERRUN_KAFKA_SECURITY_PROTOCOL": "sasl_plaintext",
                "RIVERRUN_KAFKA_SASL_MECHANISM": "SCRAM-SHA-512", "RIVERRUN_KAFKA_SASL_USERNAME": "ann",
                "RIVERRUN_KAFKA_SASL_PASSWORD": "correct horse", "RIVERRUN_DATA_DIR": str(tmp_path / "worker")}
    yield server, proxy, settings
    proxy.close()


def notes(folder, name):
    place = folder / name
    place.mkdir()
    for number in range(NOTES):
        (place / f"{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is {name}{number}.\n")
    return place


def test_given_a_link_that_is_late_cut_and_silent_when_a_worker_works_over_it_then_every_document_is_found_once(far, tmp_path):
    server, proxy, settings = far
    worker = Worker(server, "embedder", **settings)
    try:
        worker.wait_ready()
        wait_for(lambda: worker.partitions("embedder") >= 2, 60, "the worker behind the link to have partitions")
        proxy.late_s = LATE_S
        for number, how in enumerate(["cut", "hold", "cut"]):
            refused, held = proxy.refused, proxy.held
            getattr(proxy, how)()
            reply = server.post("/ingest", {"source": str(notes(tmp_path, f"{how}{number}")), "collection": "far"})
            assert reply.status == 202, reply
            wait_for(lambda: proxy.refused >= refused + 2 or proxy.held > held, 60, "the worker to meet the fault")
            proxy.mend()
            view = server.ingest_end(reply.json["ingest_id"], 180)
            assert view["indexed"] == NOTES, view
        server.settle(120)
        found = server.post("/rag/search", {"query": "the keyword of this note", "collection": "far", "k": 100, "rerank": False}).json["items"]
        assert len(found) == len({item["document_id"] for item in found}) == 3 * NOTES, len(found)
        assert json.loads(server.cli("dlq", "ls", "--json").stdout)["items"] == []
        assert server.cli("collections", "check", "far").returncode == 0
    finally:
        proxy.mend()
        assert worker.stop() == 0, worker.log_path.read_text(errors="replace")
