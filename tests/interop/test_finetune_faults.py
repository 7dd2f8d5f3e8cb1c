"""Trainings under kills, full disks, broken files and absent bases: nothing is half-registered, nothing is lost, and errors say what to do.
The base is a tiny model that the tests make themselves."""

import contextlib
import json
import random
import subprocess
import threading
import time
from http.client import HTTPException

import pytest
from websockets.sync.client import connect

import disk
import tiny_model
from server import wait_for

BASE = "tiny-llama"
STEPS = 1500
# Taken in a moment, so that kills fall on what comes after them.
FEW = 20
KILLS = 20
# Ten processes that end without a step between them would be the training's fault: it fails then.
KILLS_AT_ONE_STEP = 8


def examples():
    draw = random.Random(3)
    colours, things = ["red", "green", "blue", "amber"], ["lamp", "river", "winch", "cloud", "field"]
    lines = [{"prompt": f"Say {colour} {thing}", "completion": f"{thing}:{colour}"} for colour in colours for thing in things]
    draw.shuffle(lines)
    return "".join(json.dumps(line) + "\n" for line in lines)


def maker(new_server, tmp_path):
    """Makes servers that find the tiny base, and keep the models that come out to themselves."""
    tiny_model.write(tmp_path / "bases" / BASE)

    def of(name):
        return new_server(name, RIVERRUN_MODELS_DIR=str(tmp_path / "bases"), RIVERRUN_MODELS_CACHE_DIR=str(tmp_path / name / "models"))

    return of


@pytest.fixture
def make(new_server, tmp_path):
    return maker(new_server, tmp_path)


def hand_in(server, content, name="lamps", *more):
    path = server.folder / f"{name}.jsonl"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return server.cli("finetune", "dataset", name, "--jsonl", str(path), *more)


def begin(server, steps=STEPS, base=BASE, content=None):
    done = hand_in(server, content or examples(), "lamps", "--base-model", base)
    assert done.returncode == 0, done
    body = {"name": "lamps", "dataset": "lamps", "base_model": base, "max_steps": steps, "batch_size": 2, "seq_len": 128, "learning_rate": 1e-4}
    accepted = server.post("/finetune/jobs", body)
    assert accepted.status == 202, accepted
    return accepted.json["job_id"]


def job(server, job_id):
    return server.get(f"/finetune/jobs/{job_id}").json


def ended(server, job_id):
    def look():
        view = job(server, job_id)
        return view if view["status"] not in ("queued", "running") else None

    return wait_for(look, 600, "the training to end", every_s=0.2)


def registered(server):
    return server.get("/finetune/registry").json["items"]


def losses(server, job_id):
    """The loss of every step, as the stream tells it."""
    found = {}
    with connect(f"{server.ws_url}/ws/finetune/{job_id}?after=0", max_size=None) as stream:
        for message in map(json.loads, stream):
            if message["type"] == "progress":
                found[message["step"]] = message["loss"]
            if message["type"] == "final":
                return found
    raise AssertionError("the stream ended before the training")


def outcome(server, job_id):
    view, versions = ended(server, job_id), registered(server)
    assert view["status"] == "succeeded", view
    assert [version["job_id"] for version in versions] == [job_id]
    return view["step"], view["loss"], view.get("eval_loss"), versions[0]["metrics"], versions[0]["adapter_sha256"]


def test_killed_at_any_moment_a_training_comes_to_the_same(make):
    calm = make("calm").start()
    calm_id = begin(calm)
    wanted, wanted_losses = outcome(calm, calm_id), losses(calm, calm_id)
    assert len(wanted_losses) == wanted[0], "a loss for each step"
    calm.stop()

    draw, server, seen = random.Random(20), make("killed").start(), []
    job_id = begin(server)
    for kill in range(KILLS):
        if kill % 4 == 3:  # while it starts, whatever it is at
            server.kill()
            server.spawn()
            time.sleep(draw.uniform(0, 1.5))
        else:
            before = seen[-1] if seen else 0

            def is_on():
                view = job(server, job_id)
                return view["step"] > before or view["status"] not in ("queued", "running")

            wait_for(is_on, 300, "the training to go on")
            time.sleep(draw.uniform(0, 0.5))
            seen.append(job(server, job_id)["step"])
        server.kill()
        server.start()
    assert seen == sorted(seen) and any(0 < step < wanted[0] for step in seen), seen
    assert outcome(server, job_id) == wanted
    assert losses(server, job_id) == wanted_losses
    assert not (server.folder / "data/finetune" / job_id).exists(), "checkpoints of an ended training go"


def test_killed_while_its_version_is_made_a_training_is_registered_once_and_whole(make, tmp_path):
    # Of this base a whole model can be made, too.
    tiny_model.write_gguf(tmp_path / "bases/tiny-gguf")
    calm = make("calm").start()
    wanted = outcome(calm, begin(calm, FEW, "tiny-gguf"))
    calm.stop()

    draw, server = random.Random(41), make("made").start()
    job_id = begin(server, FEW, "tiny-gguf")
    for _ in range(KILLS_AT_ONE_STEP):
        wait_for(lambda: job(server, job_id)["step"] == FEW or job(server, job_id)["status"] == "succeeded", 300, "the last step")
        if job(server, job_id)["status"] == "succeeded":
            break
        time.sleep(draw.uniform(0, 0.5))  # while it is exported, tried, or told
        server.kill()
        server.start()
    assert outcome(server, job_id) == wanted
    models = server.folder / "models"
    assert [path.name for path in models.iterdir() if "@" in path.name] == ["lamps@1"]
    assert (models / "lamps@1/model.gguf").stat().st_size > 0
    assert not list(models.glob(f".{job_id}*")), "nothing half-made is left"


def send(server, name, content):
    """Hands a dataset in to a server that may die over it."""
    parts = [f'--b\r\ncontent-disposition: form-data; name="name"\r\n\r\n{name}\r\n',
             f'--b\r\ncontent-disposition: form-data; name="file"; filename="many.jsonl"\r\n\r\n{content}\r\n', "--b--\r\n"]
    with contextlib.suppress(OSError, HTTPException):
        server.post("/finetune/datasets", "".join(parts).encode(), headers={"content-type": "multipart/form-data; boundary=b"})


def test_killed_while_a_dataset_is_handed_in_it_is_there_or_not(make):
    draw, server = random.Random(5), make("killed")
    content = "".join(json.dumps({"prompt": f"Say {n}", "completion": str(n * n)}) + "\n" for n in range(20_000))
    for round_ in range(5):
        server.start()
        sender = threading.Thread(target=send, args=(server, f"many{round_}", content))
        sender.start()
        time.sleep(draw.uniform(0, 1))
        server.kill()
        sender.join()
        server.start()
        found = server.get(f"/finetune/datasets/many{round_}")
        assert found.status in (200, 404), found
        if found.status == 200:
            assert found.json["examples"] == 20_000
        assert hand_in(server, content, f"many{round_}").returncode == 0, "the same again is taken"
        server.kill()


def test_a_checkpoint_that_can_not_be_written_does_not_end_a_training_and_without_any_a_failed_export_ends_it(make):
    """Another try would be the whole training again, and again."""
    server = make("full").start()
    in_the_way = server.folder / "data/finetune"
    in_the_way.write_text("where checkpoints would go")
    job_id = begin(server, 60)
    view = ended(server, job_id)
    assert view["status"] == "failed" and view["step"] == 60, "checkpoints are missed and steps go on"
    assert view["error"]["code"] == "training_io_failed" and str(in_the_way) in view["error"]["message"], view
    assert registered(server) == [] and not list((server.folder / "models").glob("*"))
    in_the_way.unlink()
    assert outcome(server, begin(server, 60))[0] == 60


def tries_again(server):
    """Whether the trainer waits for another try of what failed on the disk."""
    lines = server.log_path.read_text(errors="replace").splitlines()
    return any("work failed; trying again" in line and "training_io_failed" in line for line in lines)


def test_an_export_that_can_not_be_written_is_tried_again_from_the_last_checkpoint(make):
    calm = make("calm").start()
    wanted = outcome(calm, begin(calm))
    calm.stop()
    server = make("full").start()
    job_id = begin(server)
    folder = server.folder / "data/finetune" / job_id
    wait_for(lambda: list(folder.glob("step-*")), 120, "a checkpoint")
    in_the_way = folder / "export"
    in_the_way.write_text("where the adapter would go")
    wait_for(lambda: tries_again(server), 600, "an export that fails")
    assert job(server, job_id)["status"] == "running" and registered(server) == []
    in_the_way.unlink()
    assert outcome(server, job_id) == wanted
    assert not folder.exists(), "checkpoints of an ended training go"


def test_a_training_whose_cancelling_was_accepted_registers_nothing_even_while_its_model_is_tried(make, tmp_path):
    tiny_model.write_gguf(tmp_path / "bases/tiny-gguf")
    server = make("cancelled").start()
    job_id = begin(server, 60, "tiny-gguf")
    wait_for(lambda: job(server, job_id)["step"] == 60, 300, "the last step", every_s=0.01)
    asked = server.post(f"/finetune/jobs/{job_id}/cancel", {})
    view = ended(server, job_id)
    if asked.status == 202:
        assert view["status"] == "cancelled" and registered(server) == [], view
        assert not list((server.folder / "models").glob("*@*")) and not (server.folder / "data/finetune" / job_id).exists()
    else:
        assert asked.status == 409 and view["status"] == "succeeded", (asked, view)


def test_a_training_that_waits_for_another_ends_at_once_when_it_is_cancelled(make):
    server = make("waits").start()
    # So few that none is held out: nothing ends the first one early.
    assert hand_in(server, "".join(examples().splitlines(True)[:8]), "few", "--base-model", BASE).returncode == 0
    body = {"dataset": "few", "base_model": BASE, "max_steps": 100_000, "batch_size": 2, "seq_len": 128}
    first, second = [server.post("/finetune/jobs", body | {"name": name}).json["job_id"] for name in ("first", "second")]
    wait_for(lambda: any(job(server, one)["step"] >= 1 for one in (first, second)), 120, "a step")
    working, waiting = (first, second) if job(server, first)["step"] else (second, first)
    assert job(server, waiting)["status"] == "queued"
    assert server.post(f"/finetune/jobs/{waiting}/cancel", {}).status == 202
    assert ended(server, waiting)["status"] == "cancelled" and job(server, working)["status"] == "running"
    assert server.post(f"/finetune/jobs/{waiting}/cancel", {}).status == 409
    assert server.post(f"/finetune/jobs/{working}/cancel", {}).status == 202
    assert ended(server, working)["status"] == "cancelled"
    # The command of the one that waited comes to its turn, and changes nothing.
    server.settle()
    assert job(server, waiting)["status"] == "cancelled" and registered(server) == []


@contextlib.contextmanager
def small(server, folder):
    """Starts the server with a small disk for a folder; gives what fills it, and what makes room again."""
    server.start()
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a disk of a few MiB can't be mounted here")
    try:
        yield lambda: fill(folder / "filler"), (folder / "filler").unlink
    finally:
        server.stop()
        subprocess.run(["umount", "-l", folder], check=False)


@pytest.mark.parametrize("kind", ["a mounted one", "one of a library"])
def test_a_disk_that_fills_up_keeps_the_last_checkpoint_whole(make, tmp_path, kind):
    """A disk that is really full where one may be mounted; everywhere, one that says so to each write below the folder."""
    server = make("full")
    folder = server.folder / "data/finetune"
    disks = small(server, folder) if kind == "a mounted one" else disk.full(server, disk.library(tmp_path), "/data/finetune/")
    with disks as (take_room, give_room):
        job_id = begin(server)
        checkpoints = folder / job_id
        wait_for(lambda: list(checkpoints.glob("step-*")), 120, "a checkpoint")
        take_room()
        wait_for(lambda: "a checkpoint could not be written" in server.log_path.read_text(errors="replace"), 120, "a checkpoint that fails")
        before = job(server, job_id)["step"]
        wait_for(lambda: job(server, job_id)["step"] > before, 120, "the training to go on")
        server.kill()
        kept = sorted(checkpoints.glob("step-*"))
        assert kept and all(json.loads((one / "state.json").read_text())["step"] == int(one.name[5:]) for one in kept)
        give_room()
        server.start()
        assert "No space left on device" in server.log_path.read_text(errors="replace")
        outcome(server, job_id)


def fill(path):
    """Leaves no byte on the disk."""
    with open(path, "wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


GOOD = '{"prompt": "a", "completion": "b"}'
BROKEN = {
    "not JSON": ("sft", "hello", "line 2"),
    "cut off": ("sft", '{"prompt": "a", "compl', "line 2"),
    "a list": ("sft", '["a", "b"]', "line 2"),
    "a text": ("sft", '"a"', "line 2"),
    "a number": ("sft", "17", "line 2"),
    "null": ("sft", "null", "line 2"),
    "two objects in a line": ("sft", GOOD + GOOD, "line 2"),
    "single quotes": ("sft", "{'prompt': 'a', 'completion': 'b'}", "line 2"),
    "a comma too many": ("sft", '{"prompt": "a", "completion": "b",}', "line 2"),
    "not a number": ("sft", '{"prompt": "a", "completion": NaN}', "line 2"),
    "not UTF-8": ("sft", b'{"prompt": "\xff\xfe", "completion": "b"}', "line 2"),
    "a letter in too many bytes": ("sft", b'{"prompt": "\xc0\x80", "completion": "b"}', "line 2"),
    "half a surrogate in bytes": ("sft", b'{"prompt": "\xed\xa0\x80", "completion": "b"}', "line 2"),
    "a mark in between": ("sft", "\ufeff" + GOOD, "line 2"),
    "a CR alone": ("sft", GOOD + "\r" + GOOD, "line 2"),
    "a tab in a text": ("sft", '{"prompt": "a\tb", "completion": "b"}', "line 2"),
    "a number without end": ("sft", '{"prompt": "a", "completion": "b", "score": 1e999}', "line 2"),
    "an empty object": ("sft", "{}", "line 2.prompt"),
    "another format": ("sft", '{"messages": [{"role": "user", "content": "a"}]}', "line 2.prompt"),
    "UTF-16": ("sft", GOOD.encode("utf-16"), "line 2"),
    "compressed": ("sft", b"\x1f\x8b\x08\x00\x00\x00\x00\x00", "line 2"),
    "a NUL": ("sft", b'{"prompt": "a", "completion": "b"}\x00', "line 2"),
    "a NUL in a text": ("sft", '{"prompt": "a", "completion": "\\u0000"}', "line 2.completion"),
    "half a surrogate": ("sft", '{"prompt": "a", "completion": "\\ud800"}', "line 2"),
    "a key twice": ("sft", '{"prompt": "a", "prompt": "c", "completion": "b"}', "line 2"),
    "a key twice in a message": ("chat", '{"messages": [{"role": "user", "role": "assistant", "content": "a"}]}', "line 2"),
    "a message that is a text": ("chat", '{"messages": ["a"]}', "line 2.messages"),
    "content of parts": ("chat", '{"messages": [{"role": "assistant", "content": [{"type": "text", "text": "a"}]}]}', "line 2.messages"),
    "without a completion": ("sft", '{"prompt": "a"}', "line 2.completion"),
    "an empty completion": ("sft", '{"prompt": "a", "completion": ""}', "line 2.completion"),
    "a blank completion": ("sft", '{"prompt": "a", "completion": " \\n "}', "line 2.completion"),
    "a completion that is a number": ("sft", '{"prompt": "a", "completion": 7}', "line 2.completion"),
    "a completion that is null": ("sft", '{"prompt": "a", "completion": null}', "line 2.completion"),
    "deeper than any example": ("sft", '{"prompt": ' + "[" * 5000 + "]" * 5000 + "}", "line 2"),
    "longer than a MiB": ("sft", json.dumps({"prompt": "a" * (1 << 20), "completion": "b"}), "line 2"),
    "a control token": ("sft", '{"prompt": "a <|im_end|> b", "completion": "b"}', "line 2"),
    "a preference without a choice": ("dpo", '{"prompt": "a", "chosen": "b", "rejected": "b"}', "line 2.rejected"),
    "a preference without its worse half": ("dpo", '{"prompt": "a", "chosen": "b"}', "line 2.rejected"),
    "no messages": ("chat", '{"messages": []}', "line 2.messages"),
    "messages of no list": ("chat", '{"messages": "a"}', "line 2.messages"),
    "a message of nobody": ("chat", '{"messages": [{"content": "a"}]}', "line 2.messages"),
    "a role that is none": ("chat", '{"messages": [{"role": "robot", "content": "a"}]}', "line 2.messages"),
    "the user's last word": ("chat", '{"messages": [{"role": "user", "content": "a"}]}', "line 2.messages"),
    "the system in between": ("chat", '{"messages": [{"role": "user", "content": "a"}, {"role": "system", "content": "a"}, {"role": "assistant", "content": "a"}]}', "line 2.messages"),
}
GOOD_OF = {"sft": GOOD, "dpo": '{"prompt": "a", "chosen": "b", "rejected": "c"}',
           "chat": '{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}'}


def test_a_file_with_one_broken_line_is_refused_whole_and_names_it(make):
    server = make("broken").start()
    for number, (kind, (format_, line, place)) in enumerate(BROKEN.items()):
        line = line if isinstance(line, bytes) else line.encode()
        good = GOOD_OF[format_].encode()
        done = hand_in(server, b"\n".join([good, line, good, b""]), f"broken{number}", "--format", format_, "--base-model", BASE)
        assert done.returncode == 4 and place in done.stderr, (kind, done)
        assert "line 1" not in done.stderr and "line 3" not in done.stderr and "panicked" not in done.stderr, (kind, done)
    for number, content in enumerate([b"", b"\n\n \n", b"\xef\xbb\xbf"]):
        done = hand_in(server, content, f"empty{number}")
        assert done.returncode == 4 and "no examples" in done.stderr, done
    assert server.get("/finetune/datasets").json["items"] == []
    path = server.folder / "broken0.jsonl"
    done = server.cli("finetune", "train", "--dataset", str(path), "--name", "x", "--base-model", BASE)
    assert done.returncode == 4 and "line 2" in done.stderr, done
    assert server.get("/finetune/jobs").json["items"] == [] and registered(server) == []


def test_a_base_model_that_is_not_there_is_told_with_the_fix(make):
    server = make("absent").start()
    assert hand_in(server, examples()).returncode == 0
    asked = {"name": "lamps", "dataset": "lamps", "base_model": "no-such-base", "max_steps": 10}
    estimate = server.post("/finetune/estimate", asked)
    assert (estimate.status, estimate.json["code"]) == (404, "model_missing"), estimate
    done = hand_in(server, examples(), "more", "--base-model", "no-such-base")
    assert done.returncode == 4 and "no-such-base" in done.stderr, done
    view = ended(server, server.post("/finetune/jobs", asked).json["job_id"])
    assert view["status"] == "failed" and view["error"]["code"] == "model_missing" and view["error"]["hint"], view
    assert registered(server) == [] and not list((server.folder / "models").glob("*"))


def damaged(folder, kind):
    """Makes a base that looks like one and is none."""
    tiny_model.write(folder)
    weights, config = folder / "model.safetensors", folder / "config.json"
    if kind == "cut off":
        weights.write_bytes(weights.read_bytes()[:-1000])
    elif kind == "another architecture":
        config.write_text(config.read_text().replace("LlamaForCausalLM", "BertModel"))
    elif kind == "other sizes":
        config.write_text(config.read_text().replace('"intermediate_size": 64', '"intermediate_size": 96'))
    elif kind == "no tokenizer":
        (folder / "tokenizer.json").write_text("{}")


@pytest.mark.parametrize("kind", ["cut off", "another architecture", "other sizes", "no tokenizer"])
def test_a_base_model_that_is_damaged_fails_and_registers_nothing(make, tmp_path, kind):
    server = make("damaged").start()
    damaged(tmp_path / "bases/damaged", kind)
    assert hand_in(server, examples()).returncode == 0
    answer = server.post("/finetune/jobs", {"name": "lamps", "dataset": "lamps", "base_model": "damaged", "max_steps": 10, "seq_len": 128})
    if answer.status == 202:
        view = ended(server, answer.json["job_id"])
        assert view["status"] == "failed" and view["error"]["message"], view
    else:
        assert answer.status == 422 and answer.json["detail"], answer
    assert registered(server) == [] and server.get("/health").status == 200
