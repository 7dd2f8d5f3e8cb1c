"""One training that is killed at twenty moments, in every phase from its dataset to its version, and comes to what one that nobody
disturbed comes to. Where a phase is over in a moment, it is held there by a library in front of the disk."""

import contextlib
import random
import threading
import time
from http.client import HTTPException

import pytest

import disk
import tiny_model
from server import wait_for
from test_finetune_faults import STEPS, begin, examples, job, losses, maker, outcome, registered, send

BASE = "tiny-gguf"  # of which a whole model can be made
FEW = "".join(examples().splitlines(True)[:8])  # none is held out, so that nothing ends a training early
DATASET = [("write", "/data/blobs/"), ("fsync", "/data/blobs/")]
CHECKPOINT = [("write", "/.step-"), ("fsync", "/.step-"), ("rename", "/.step-"), ("renamed", "/.step-")]
# The adapter's file, the merged model, the adapter among the blobs, and the model in the place of its version, of which nothing is told yet.
END = [("write", "/export/"), ("write", ".staging/model.gguf"), ("fsync", ".staging/model.gguf"), ("write", "/data/blobs/"), ("renamed", "/lamps@1")]
ESTIMATES, STARTS, AT_STEPS = 2, 2, 3
MOMENTS = len(DATASET) + 1 + ESTIMATES + 1 + STARTS + len(CHECKPOINT) + AT_STEPS + len(END) + 1


@pytest.fixture
def make(new_server, tmp_path):
    tiny_model.write_gguf(tmp_path / "bases" / BASE)
    return maker(new_server, tmp_path)


def beside(work, *given):
    thread = threading.Thread(target=work, args=given)
    thread.start()
    return thread


def estimate(server):
    with contextlib.suppress(OSError, HTTPException, ValueError):  # it dies over it
        server.post("/finetune/estimate", {"dataset": "lamps", "name": "lamps", "base_model": BASE})


def test_killed_at_twenty_moments_of_all_phases_a_training_is_registered_once_and_as_if_nothing_had_been(make, tmp_path):
    assert MOMENTS >= 20
    calm = make("calm").start()
    calm_id = begin(calm, STEPS, BASE, FEW)
    wanted, wanted_losses = outcome(calm, calm_id), losses(calm, calm_id)
    calm.stop()

    draw, server, library = random.Random(77), make("killed"), disk.library(tmp_path)
    # Its first start writes among the blobs, too: whose they are.
    server.start()
    server.kill()
    # The dataset: what is not acknowledged is not there.
    for moment in DATASET:
        with disk.held(server, library, *moment):
            sender = beside(send, server, "lamps", FEW)
        sender.join()
        server.start()
        assert server.get("/finetune/datasets/lamps").status == 404, moment
        server.kill()
    # What is acknowledged is.
    server.start()
    send(server, "lamps", FEW)
    server.kill()
    server.start()
    wait_for(lambda: server.get("/finetune/datasets/lamps").status == 200, 60, "the dataset")
    # An estimate leaves nothing.
    for _ in range(ESTIMATES):
        asker = beside(estimate, server)
        time.sleep(draw.uniform(0, 0.1))  # it measures the machine for fifty milliseconds
        server.kill()
        asker.join()
        server.start()
    assert server.get("/finetune/jobs").json["items"] == [] and registered(server) == []
    # A training that was just accepted, and one that is taken up again.
    job_id = begin(server, STEPS, BASE, FEW)
    server.kill()
    for _ in range(STARTS):
        server.spawn()
        time.sleep(draw.uniform(0, 1.5))
        server.kill()
    # Half a checkpoint, one that is not synced, one without its name, and one of which nobody was told.
    for moment in CHECKPOINT:
        with disk.held(server, library, *moment):
            pass
        assert registered_on_disk(server) == [], moment
    # Between any steps; should they be over sooner, it is held behind them.
    held, seen = server.folder / "held", []
    held.unlink(missing_ok=True)
    with disk.told(server, library, AT="write", OF="/export/", DOES="hold", FLAG=held):
        server.start()
        for _ in range(AT_STEPS):
            before = job(server, job_id)["step"]
            wait_for(lambda before=before: job(server, job_id)["step"] > before or held.exists(), 300, "the training to go on", every_s=0.02)
            seen.append(job(server, job_id)["step"])
            server.kill()
            server.start()
        server.kill()
    assert any(0 < step < wanted[0] for step in seen), seen
    # What is made of it, up to the moment before it is told.
    for moment in END:
        with disk.held(server, library, *moment):
            assert registered(server) == [] and job(server, job_id)["status"] in ("queued", "running"), moment
    # And the moment in which it is told.
    server.start()
    wait_for(lambda: registered(server), 300, "the version", every_s=0.02)
    server.kill()
    server.start()
    assert outcome(server, job_id) == wanted
    assert losses(server, job_id) == wanted_losses
    assert registered_on_disk(server) == ["lamps@1"]
    assert not list((server.folder / "models").glob(f".{job_id}*")), "nothing half-made is left"
    assert not (server.folder / "data/finetune" / job_id).exists(), "checkpoints of an ended training go"


def registered_on_disk(server):
    return sorted(path.name for path in (server.folder / "models").glob("*@*"))
