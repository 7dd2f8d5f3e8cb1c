"""Canvases in MongoDB: the same answers as embedded, and made again from the log when the server has lost them."""

import json
import os
import uuid

import pytest

from server import wait_for

MONGODB = os.environ.get("RIVERRUN_TEST_MONGODB_URL")


@pytest.fixture
def mongodb():
    if not MONGODB:
        pytest.skip("RIVERRUN_TEST_MONGODB_URL is not set: scripts/services.py mongodb")
    return lambda: MONGODB.replace("/?", f"/documents_{uuid.uuid4().hex[:8]}?", 1)


def test_a_store_that_is_lost_is_made_again_from_the_log(new_server, mongodb, tmp_path):
    path = tmp_path / "board.json"
    path.write_text(json.dumps({"format": "riverrun.canvas", "version": 1, "name": "Board", "namespace": "default",
                                "nodes": [], "edges": []}))
    server = new_server(RIVERRUN_MONGODB_URL=mongodb()).start()
    for revision in range(3):
        done = server.cli("canvas", "save", path, "--revision", str(revision))
        assert done.returncode == 0, done
    row = next(row for row in server.get("/diagnose").json["services"] if row["name"] == "documents")
    assert (row["kind"], row["status"]) == ("mongodb", "up") and row["version"], row
    before = server.get("/canvases/board").json
    server.stop()
    # Another, empty database, and then the embedded store: both become what the log says.
    for url in [mongodb(), ""]:
        server.env["RIVERRUN_MONGODB_URL"] = url
        server.start()
        wait_for(lambda: server.get("/canvases/board").json == before, 60, "the canvas to be made again from the log")
        server.stop()
