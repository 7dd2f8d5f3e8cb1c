"""The rows of the fault matrix (docs/reliability.md) that need the whole program and that no other file has: poison among many, clocks, long steps, lost answers,
watchers, damaged files, lost read models, signals, file handles, memory, a full disk. `./x interop -k test_faults --scale 20` is the long form."""

import contextlib
import json
import os
import random
import re
import resource
import shutil
import signal
import socket
import struct
import subprocess
import threading
import time
import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import Producer
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

import log_client
from clock import Clock
from server import RUN_ENDED, wait_for
from test_finetune_faults import fill
from test_kill import persistently
from test_poison import answered, cases, dead_letters, encode, run_id_for, schema_of, start_run
from test_services import Proxy
from watcher import Watcher, read_until_closed

COMMANDS = "riverrun.agent.commands"


def handles(server):
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def resident_bytes(server):
    pages = int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# ---- F7: poison among many ------------------------------------------------------------------------------------------------------


def test_one_record_in_a_hundred_that_nobody_can_read_holds_up_none_of_the_others(server, scale):
    def letters():
        return Counter(record.value() or b"" for record in dead_letters(server, COMMANDS))

    before, kinds = letters(), list(cases(COMMANDS).values())
    failures, good, bad = [], [], Counter()
    producer = Producer({"bootstrap.servers": server.brokers, "acks": "all"})
    for number in range(100 * scale):
        partition = number % 6
        if number % 100 == 50:
            key, value = b"poison", kinds[number // 100 % len(kinds)]
            bad[value] += 1
        else:
            run_id = run_id_for(partition, salt=500 + 20_000_000 * (number + 1))
            key, value = run_id.encode(), start_run(run_id, "[[steps=1]]")
            good.append(run_id)
        producer.produce(COMMANDS, value, key=key, partition=partition, on_delivery=lambda error, _: error and failures.append(error))
    assert producer.flush(60) == 0 and not failures, failures
    wait_for(lambda: answered(server, "riverrun.agent.RunFinished", good), 120 + 6 * scale, "the end of each good run", every_s=0.5)
    wait_for(lambda: (letters() - before).total() >= scale, 60, "the dead letters", every_s=0.5)
    server.settle()
    assert letters() - before == bad, "the original bytes of each that is broken, once, and of no other"
    accepted, wanted = {}, set(good)
    for record in log_client.read_topic(server.brokers, "riverrun.agent.events"):
        if log_client.headers(record)["ce_type"] == "riverrun.agent.RunAccepted" and record.key().decode() in wanted:
            accepted.setdefault(record.partition(), []).append(record.timestamp()[1])
    print(f"measured: no partition stood for longer than {max(after - before for times in accepted.values() for before, after in pairwise(sorted(times))) / 1000:.1f} s")


# ---- F11: longer than every limit of the group ------------------------------------------------------------------------------


def test_a_step_longer_than_every_limit_of_its_group_is_done_once(new_server, model, scale):
    server = new_server(RIVERRUN_KAFKA_SESSION_TIMEOUT_MS="6000", RIVERRUN_KAFKA_MAX_POLL_INTERVAL_MS="6000").start()
    runs = {server.start_run(f"[[steps=1 delay_ms=14000 id=long{number}]]"): f"long{number}" for number in range(scale)}
    for run_id, script in runs.items():
        assert server.run_end(run_id, 120 + 5 * scale)["status"] == "succeeded"
        assert model.requests[script] == [0, 1, 2], "each call once"
    claims = Counter(record.key().decode() for record in log_client.read_topic(server.brokers, "riverrun.agent.events")
                     if log_client.headers(record)["ce_type"] == "riverrun.agent.RunClaimed")
    assert claims == dict.fromkeys(runs, 1), "nobody took one over"


# ---- F13: clocks ----------------------------------------------------------------------------------------------------------


def test_clocks_that_are_wrong_change_neither_order_nor_end(server, scale):
    schema_id, schema = schema_of("riverrun.agent.StartRun")
    now = int(time.time() * 1000)
    failures = []
    producer = Producer({"bootstrap.servers": server.brokers, "acks": "all"})
    started = []
    for number, at in enumerate([-(2**53), 0, 1, now - 3_600_000, now + 3_600_000, 253_402_300_800_000, 2**62] * scale):
        # An id of its own: `run_id_for` looks through ten million.
        run_id = run_id_for(number % 6, salt=700 + number % 100 + 10_000_000 * (number // 100))
        request = {"task": f"[[steps=2 id=clock{number}]]", "agent": "react", "namespace": "default", "approval": "never"}
        value = log_client.frame(schema_id, encode(schema, {"run_id": run_id, "request": request, "at": at}))
        # The record's own time is as wrong as the event's, as far as Kafka's form has it.
        producer.produce(COMMANDS, value, key=run_id.encode(), partition=number % 6, timestamp=min(max(at, 1), now + 3_600_000),
                         on_delivery=lambda error, _: error and failures.append(error))
        started.append(run_id)
    assert producer.flush(20) == 0 and not failures, failures
    for run_id in started:
        result = server.run_end(run_id, 60 + scale)
        assert result["status"] == "succeeded", result
        assert [step["seq"] for step in result["steps"]] == list(range(1, len(result["steps"]) + 1))
        tools = [step["tool"] for step in result["steps"] if step.get("tool")]
        assert all((tool.get("duration_ms") or 0) >= 0 for tool in tools), tools


HOUR_MS = 3_600_000
# Ahead and back, an hour as in summer, a day, a year; the last is what everything ends with.
JUMPS_MS = [HOUR_MS, -HOUR_MS, 24 * HOUR_MS, 0, -365 * 24 * HOUR_MS, 400, 365 * 24 * HOUR_MS, -400, 0]


def test_a_clock_that_is_set_while_runs_go_on_changes_neither_order_nor_end(new_server, model, tmp_path, scale):
    clock = Clock(tmp_path)
    server = new_server(**clock.settings).start()

    def asked(runs):
        return sum(len(model.requests.get(script, [])) for script in runs.values())

    def ended(run_id):
        return server.get(f"/runs/{run_id}").json.get("status") in RUN_ENDED

    for number in range(scale):
        # Enough time for all of it, far too little for any of the jumps.
        runs = {server.start_run(f"[[steps=5 delay_ms=150 id=jump{number}x{one}]]", budget={"seconds": 600}): f"jump{number}x{one}" for one in range(6)}
        wait_for(lambda: all(model.requests.get(script) for script in runs.values()), 60, "each run to be in hand")
        for jump in JUMPS_MS:
            clock.set_ahead(jump)
            seen = asked(runs)
            wait_for(lambda: asked(runs) > seen or all(ended(run_id) for run_id in runs), 60, "the runs to go on")
        for run_id, script in runs.items():
            result = server.run_end(run_id, 60)
            assert result["status"] == "succeeded", result
            assert [step["seq"] for step in result["steps"]] == list(range(1, len(result["steps"]) + 1))
            assert all((step["tool"].get("duration_ms") or 0) >= 0 for step in result["steps"] if step.get("tool")), result["steps"]
            assert model.requests[script] == list(range(7)), "each call once"


def test_a_clock_that_is_set_back_keeps_no_member_of_a_group_from_telling_that_it_is_there(new_server, tmp_path):
    clock = Clock(tmp_path)
    server = new_server(**clock.settings, RIVERRUN_KAFKA_SESSION_TIMEOUT_MS="6000").start()
    server.settle()
    clock.set_ahead(-HOUR_MS)
    # Most groups have nothing to do meanwhile, for three times as long as a member may keep silent.
    assert server.run_end(server.start_run("[[steps=1 delay_ms=9000 id=set_back]]"), 90)["status"] == "succeeded"
    log = server.log_path.read_text()
    assert "the system's clock was set back" in log and "group member timed out" not in log, server.log_tail()


# ---- F15: what is lost on the way --------------------------------------------------------------------------------------------


def send_and_leave(server, body, key, how):
    """Hands in a request as a client whose network fails: half of it, or all of it without waiting for the answer, or for a few bytes of it."""
    payload = json.dumps(body).encode()
    head = (f"POST /runs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n").encode()
    with socket.create_connection(("127.0.0.1", server.api_port), timeout=10) as connection:
        # Gone at once, without a farewell.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.sendall(head + (payload[: len(payload) // 2] if how == "half" else payload))
        if how == "few bytes":
            connection.recv(10)


def test_a_request_whose_answer_is_lost_is_one_run_when_it_is_repeated(server, model, scale):
    runs = {}
    for number in range(12 * scale):
        key = uuid.uuid4().hex[:12]
        body = {"task": f"[[steps=1 id={key}]]", "agent": "react"}
        for how in random.Random(number).sample(["half", "all", "few bytes"], 2):
            send_and_leave(server, body, key, how)
        reply = persistently(lambda: server.post("/runs", body, headers={"idempotency-key": key}, timeout=10))
        assert reply.status == 202, reply
        runs[reply.json["run_id"]] = key
    for run_id, key in runs.items():
        assert server.run_end(run_id)["status"] == "succeeded"
        assert model.requests[key] == [0, 1, 2], "one run, and each of its calls once"
    accepted = [record.key().decode() for record in log_client.read_topic(server.brokers, "riverrun.agent.events")
                if log_client.headers(record)["ce_type"] == "riverrun.agent.RunAccepted"]
    assert all(accepted.count(run_id) == 1 for run_id in runs)


# ---- F16, F17: those who watch -------------------------------------------------------------------------------------------------


def seen(server, run_id, after=0):
    with connect(f"{server.ws_url}/ws/runs/{run_id}?after={after}", open_timeout=30) as socket_:
        return [json.loads(message) for message in socket_]


def check_whole(messages, steps):
    assert [message["step"]["seq"] for message in messages if message["type"] == "step"] == list(range(1, steps + 1))
    assert [message["type"] for message in messages].count("final") == 1 and messages[-1]["type"] == "final"


def open_streams(server):
    return int(re.search(r"^riverrun_open_streams (\d+)", server.get("/metrics").body.decode(), re.M)[1])


def client_sockets(server):
    """Connections to its API that the process holds, whoever is still at the other end: its other handles come and go with what else it does."""
    held = set()
    for handle in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with contextlib.suppress(OSError):  # closed just now
            held.add(os.readlink(handle))
    rows = [line.split() for table in ("tcp", "tcp6") for line in Path(f"/proc/{server.process.pid}/net/{table}").read_text().splitlines()[1:]]
    port, listens = f":{server.api_port:04X}", "0A"
    return sum(row[1].endswith(port) and row[3] != listens and f"socket:[{row[9]}]" in held for row in rows)


def appended_ms(server, run_id):
    """When the event of each step was handed to the log."""
    decode = log_client.decoder(server.url)
    return {step["seq"]: record.timestamp()[1] for record in log_client.read_topic(server.brokers, "riverrun.agent.events")
            if record.key().decode() == run_id and log_client.headers(record)["ce_type"] == "riverrun.agent.RunAdvanced"
            for step in decode(record)["steps"]}


def come_back(server, run_id, one, steps):
    """What one that was too slow has, and what it is given for its last number, are everything; the close code, and whether it had to come back."""
    messages, code = one.read()
    messages = [message for _, message in messages]
    whole = bool(messages) and messages[-1]["type"] == "final"
    if not whole:
        last = max((message["step"]["seq"] for message in messages if message["type"] == "step"), default=0)
        messages += seen(server, run_id, last)
    check_whole(messages, steps)
    return code, not whole


# For a thousand of them, at the longest while they watch.
MOST_MORE_MEMORY_MIB = 64


def test_watchers_that_do_not_read_or_vanish_disturb_nobody(server, scale):
    # What the first run and the first watcher cost is not what the others do.
    run_id = server.start_run("[[steps=2 id=first-watched]]")
    seen(server, run_id)
    server.settle()
    wait_for(lambda: open_streams(server) == 0, 30, "nobody to watch")
    before, memory, grown = handles(server), resident_bytes(server), [0]
    # As many messages a second for a thousand as for fifty; enough of them that they do not fit into little room.
    run_id = server.start_run(f"[[steps=60 delay_ms={60 * min(scale, 25)} id=watched]]", max_iters=70)
    wait_for(lambda: server.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    # They see the network as if it were there, and what they are sent goes nowhere.
    lost = Proxy("127.0.0.1", server.api_port)
    try:
        quick = [Watcher(server, run_id) for _ in range(50 * scale)]
        slow = [Watcher(server, run_id, little_room=True) for _ in range(6 * scale)]
        silent = [Watcher(server, run_id, little_room=True) for _ in range(6 * scale)]
        for _ in range(2 * scale):
            Watcher(server, run_id).vanish()
        unheard = [Watcher(server, run_id, port=lost.port) for _ in range(2 * scale)]
        lost.hold()
        read_until_closed(quick, slow, 120 + 10 * scale, lambda: grown.append(resident_bytes(server) - memory))
        # Nobody closes the others but the server.
        wait_for(lambda: open_streams(server) == 0, 90, "the streams of those who do not read to end", every_s=0.5)
        wait_for(lambda: client_sockets(server) == 0, 90, "the sockets of watchers to be closed", every_s=0.5)
        wait_for(lambda: handles(server) <= before + 10, 90, f"no handle to be left: {before} before", every_s=0.5)
    finally:
        lost.close()
    assert all(one.read()[1] is None for one in unheard), "they were not to hear the end"
    result = server.run_end(run_id)
    steps = len(result["steps"])
    assert result["status"] == "succeeded" and steps >= 60, result
    at, late = appended_ms(server, run_id), []
    for one in quick:
        messages, code = one.read()
        check_whole([message for _, message in messages], steps)
        assert code == 1000, code
        late += [when * 1000 - at[message["step"]["seq"]] for when, message in messages if message["type"] == "step"]
    for one in slow + silent:
        one.take_all(60)
    ends = [come_back(server, run_id, one, steps) for one in slow + silent]
    most, p99 = max(grown) >> 20, sorted(late)[len(late) * 99 // 100]
    codes = ", ".join(f"{count} with {code}" for code, count in sorted(Counter(code or "nothing" for code, _ in ends).items(), key=str))
    print(f"measured: {len(quick)} watchers had each step {p99:.0f} ms after its append (p99); of {len(slow)} that read a frame a second and {len(silent)} that read nothing "
          f"{sum(again for _, again in ends)} came back for the rest, closed {codes}; {most} MiB more")
    assert p99 < 5_000, f"{p99:.0f} ms"
    assert most <= MOST_MORE_MEMORY_MIB, f"{most} MiB more"


def test_given_watchers_that_are_gone_without_a_word_while_a_run_waits_then_their_sockets_are_closed(new_server, scale):
    if scale == 1:
        pytest.skip("a silence of a minute is waited for: --scale 2 and more")
    server = new_server().start()
    run_id = server.start_run("[[steps=1 id=waits]]", approval="always")
    wait_for(lambda: server.get(f"/runs/{run_id}").json.get("status") == "waiting_approval", 60, "the run to wait")
    lost = Proxy("127.0.0.1", server.api_port)
    try:
        gone = [Watcher(server, run_id, port=lost.port) for _ in range(5 * scale)]
        wait_for(lambda: open_streams(server) == len(gone) and client_sockets(server) == len(gone), 30, "the watchers to watch")
        lost.hold()
        # Nothing is sent but pings, which fill no buffer: it is their answers that are missing.
        wait_for(lambda: open_streams(server) == 0, 120, "their streams to end", every_s=1)
        wait_for(lambda: client_sockets(server) == 0, 30, "their sockets to be closed", every_s=0.5)
    finally:
        lost.close()
    assert server.post(f"/runs/{run_id}/cancel", {}).status < 300
    assert server.run_end(run_id)["status"] == "cancelled"


def test_a_watcher_that_is_cut_off_anywhere_sees_each_step_once(server, scale):
    run_id = server.start_run("[[steps=15 delay_ms=40 id=cuts]]", max_iters=30)
    wait_for(lambda: server.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")

    def watch(seed):
        moments, messages, after, cuts = random.Random(seed), [], 0, 0
        while not messages or messages[-1]["type"] != "final":
            assert cuts < 1_000, "it never comes to an end"
            cuts += 1
            socket_ = connect(f"{server.ws_url}/ws/runs/{run_id}?after={after}", open_timeout=30)
            for _ in range(moments.randint(1, 6)):
                try:
                    message = json.loads(socket_.recv(timeout=60))
                except ConnectionClosed:
                    break
                if message["type"] != "start":
                    messages.append(message)
                if message["type"] == "step":
                    after = message["step"]["seq"]
                if message["type"] == "final":
                    break
            # No farewell: the connection is cut.
            with contextlib.suppress(OSError):
                socket_.socket.shutdown(socket.SHUT_RDWR)
            socket_.socket.close()
        return messages

    with ThreadPoolExecutor(8) as pool:
        watched = list(pool.map(watch, range(16 * scale)))
    steps = len(server.run_end(run_id)["steps"])
    for messages in watched:
        check_whole(messages, steps)


# ---- F19, F20: files -------------------------------------------------------------------------------------------------------


@pytest.fixture
def lived_in(new_server):
    """A server that has done something of everything."""
    server = new_server("lived-in").start()
    note = server.folder / "note.md"
    note.write_text("# Note\n\nThe numbat eats termites.\n")
    assert server.cli("ingest", str(note), "-c", "notes").returncode == 0
    for number in range(4):
        server.run_end(server.start_run(f"[[steps={number} id=lived{number}]]"))
    assert server.post("/memory/turns", {"role": "user", "text": "my boat is blue"}).status == 200
    server.settle()
    return server


def shown(server):
    """What read models show, but for counters of what the process itself did."""
    runs = server.get("/runs?limit=100").json["items"]
    return {
        "runs": runs,
        "results": [server.get(f"/runs/{run['run_id']}").json for run in runs],
        "documents": server.get("/documents?collection=notes").json["items"],
        "collections": server.get("/collections").json["items"],
        "turns": server.get("/memory/turns").json["items"],
        "usage": server.get("/usage").json,
    }


def as_before(server, before):
    try:
        return shown(server) == before
    except KeyError:  # a problem document, while they are being made
        return False


def test_read_models_that_are_gone_or_old_are_made_again_the_same(lived_in, scale):
    server, data = lived_in, lived_in.folder / "data"
    assert server.stop() == 0
    old = server.folder / "old"
    old.mkdir()
    for file in data.glob("read.db*"):
        shutil.copy(file, old)
    server.start()
    server.run_end(server.start_run("[[steps=2 id=later]]"))
    server.settle()
    before = shown(server)
    assert len(before["runs"]) == 5
    for number in range(2 * scale):
        server.kill()
        for file in data.glob("read.db*"):
            file.unlink()
        if number % 2:
            for file in old.iterdir():
                shutil.copy(file, data)
        server.start()
        wait_for(lambda: as_before(server, before), 60, "the read models to be as they were", every_s=0.3)


def flip(file, moments):
    content = bytearray(file.read_bytes())
    content[moments.randrange(len(content))] ^= 1 << moments.randrange(8)
    file.write_bytes(content)


def cut(file, moments):
    os.truncate(file, moments.randrange(file.stat().st_size))


def garbage(file, moments):
    with file.open("ab") as end:
        end.write(moments.randbytes(100))


def gone(file, _):
    file.unlink()


def stray(file, moments):
    (file.parent / f"{file.name}.tmp").write_bytes(moments.randbytes(100))


def twice(file, moments):
    """As a copy by hand or a restored backup leaves it: the same under a second name, which for a segment of a log is that of another offset."""
    number = int(file.stem) + moments.randint(1, 3) if file.stem.isdigit() else None
    shutil.copy(file, file.with_name(f"{file.stem}-1{file.suffix}" if number is None else f"{number:0{len(file.stem)}}{file.suffix}"))


def speaks(server):
    try:
        return server.get("/health").status in (200, 503)
    except OSError:
        return False


# What may happen to which files. SQLite has no checksums, and the end of a log that is cut is a torn write: these are not flipped and cut.
DAMAGE = [("broker/**/*.log", flip), ("broker/*.journal", flip), ("broker/*.journal", garbage), ("broker/**/*.log", stray), ("read.db", cut), ("read.db", gone), ("**/*", stray),
          ("blobs/**/*", flip), ("vectors/**/*", flip), ("vectors/**/*", cut), ("keywords/**/*", flip), ("keywords/**/*", gone),
          ("broker/**/*.log", twice), ("vectors/**/*", twice), ("keywords/**/*", twice)]


def test_damaged_files_are_told_or_made_again_and_nothing_wrong_is_shown(lived_in, scale):
    server, data, whole = lived_in, lived_in.folder / "data", lived_in.folder / "whole"
    results = {result["run_id"]: result["answer"] for result in shown(server)["results"]}
    assert server.stop() == 0
    shutil.copytree(data, whole, symlinks=True)
    for number in range(len(DAMAGE) * scale):
        pattern, harm = DAMAGE[number % len(DAMAGE)]
        moments = random.Random(number)
        shutil.rmtree(data)
        shutil.copytree(whole, data, symlinks=True)
        files = sorted(file for file in data.glob(pattern) if file.is_file() and file.stat().st_size)
        if not files:
            continue
        file = moments.choice(files)
        what = f"seed {number}: {harm.__name__} {file.relative_to(data)}"
        harm(file, moments)
        server.log_path.write_bytes(b"")
        server.spawn()
        wait_for(lambda: server.process.poll() is not None or speaks(server), 90, f"{what}: an answer or an end")
        log = server.log_path.read_text(errors="replace")
        if server.process.poll() is not None:
            # Refused: with the fix, and neither by a panic nor by a signal.
            assert server.process.returncode in (1, 2, 3) and "hint:" in log, (what, server.process.returncode, server.log_tail())
            continue
        reply = server.get("/runs?limit=100")
        assert reply.status in (200, 503), (what, reply)
        if reply.status == 200:
            for run in reply.json["items"]:
                result = server.get(f"/runs/{run['run_id']}").json
                assert result.get("answer") in (results[run["run_id"]], None), (what, result)
            missing = set(results) - {run["run_id"] for run in reply.json["items"]}
            said = re.search("corrupt|damage|checksum|torn|hole|behind", server.log_path.read_text(errors="replace"))
            assert not missing or said, f"{what}: runs are missing and nobody says why"
        server.kill()


@contextlib.contextmanager
def only_read(folder):
    """The folder and all in it can't be written; for root, whom rights do not stop, because the disk is mounted so."""
    if os.geteuid():
        kept = {place: place.stat().st_mode for place in [folder, *folder.rglob("*")] if not place.is_symlink()}
        for place, mode in kept.items():
            place.chmod(mode & 0o555)
        try:
            yield
        finally:
            for place, mode in kept.items():
                place.chmod(mode)
        return
    for command in (["mount", "--bind", folder, folder], ["mount", "-o", "remount,ro,bind", folder]):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            subprocess.run(["umount", "-l", folder], capture_output=True, check=False)
            pytest.skip("a folder can't be mounted to be read only here")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def test_given_a_data_folder_that_can_only_be_read_when_started_then_it_is_refused_with_the_fix_and_nothing_is_lost(new_server):
    server = new_server().start()
    run_id = server.start_run("[[steps=1 id=only-read]]")
    result = server.run_end(run_id)
    assert server.stop() == 0
    with only_read(server.folder / "data"):
        server.log_path.write_bytes(b"")
        server.spawn()
        wait_for(lambda: server.process.poll() is not None, 60, "the server to end")
        log = server.log_path.read_text(errors="replace")
        assert server.process.returncode in (1, 2, 3) and "hint:" in log and "panicked" not in log, (server.process.returncode, log[-2_000:])
    server.start()
    assert server.get(f"/runs/{run_id}").json == result


# ---- F22: signals and file handles ----------------------------------------------------------------------------------------------


# What a drain may take by docs/operations.md (10 s), and what is closed behind it.
DRAINED_S = 15


@pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGHUP], [signal.SIGTERM, signal.SIGTERM], [signal.SIGINT, signal.SIGTERM]],
                         ids=lambda signals: " ".join(one.name for one in signals))
def test_a_signal_at_any_time_ends_the_server_and_no_run(new_server, signals, scale):
    server = new_server().start()
    moments, runs = random.Random(len(signals)), []
    for _ in range(2 * scale):
        runs.append(server.start_run("[[steps=4 delay_ms=150 id=signalled]]"))
        time.sleep(moments.uniform(0, 1))
        for one in signals:
            server.process.send_signal(one)
        # The second one insists: 130 says that something was left to the next start.
        assert server.process.wait(DRAINED_S) in ((0,) if len(signals) == 1 else (0, 130)), server.log_tail()
        server.start()
    for run_id in runs:
        assert server.run_end(run_id)["status"] == "succeeded"


def test_too_few_file_handles_hold_up_new_connections_and_nothing_else(new_server):
    server = new_server().start()
    soft, hard = resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)
    run_id = server.start_run("[[steps=3 delay_ms=200 id=handles]]")
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (handles(server) + 20, hard))
    crowd = []
    for _ in range(100):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", server.api_port))
        crowd.append(connection)
    time.sleep(1)
    for connection in crowd:
        connection.close()
    wait_for(lambda: server.get("/health").status == 200, 60, "the server to answer again")
    resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (soft, hard))
    assert server.run_end(run_id)["status"] in RUN_ENDED
    assert server.run_end(server.start_run("[[steps=1 id=more-handles]]"))["status"] == "succeeded"


def test_given_a_shell_that_allows_few_files_when_served_then_as_many_clients_as_are_promised_find_room(new_server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 1 << 20 if hard == resource.RLIM_INFINITY else hard
    if most < 4_096:
        pytest.skip(f"a process may have {most} files open here (ulimit -Hn)")
    server = new_server()
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        server.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    assert resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE)[0] == min(16_384, most)
    host, port = server.brokers.split(":")
    crowd = [socket.create_connection((host, int(port)), timeout=30) for _ in range(600)]
    try:
        wait_for(lambda: handles(server) > 600, 60, "the broker to take every connection")
        assert server.run_end(server.start_run("[[steps=1 id=crowd]]"))["status"] == "succeeded"
    finally:
        for connection in crowd:
            connection.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


# ---- F9: large messages -----------------------------------------------------------------------------------------------------


def test_bodies_at_and_beyond_the_limits_cost_no_more_memory_than_they_have(server, scale):
    search = {"query": "x", "collection": "none"}
    server.post("/rag/search", search)
    before = resident_bytes(server)
    for size in [60_000, 1_000_000, 2_000_000] * (10 * scale):
        reply = server.post("/rag/search", search | {"query": "x" * size})
        assert reply.status in (404, 413, 422), reply
    with ThreadPoolExecutor(16) as pool:
        replies = list(pool.map(lambda _: server.post("/rag/search", search | {"query": "x" * 1_000_000}).status, range(64 * scale)))
    assert set(replies) <= {404, 413, 422, 429}
    grown = (resident_bytes(server) - before) >> 20
    assert grown < 256, f"{grown} MiB more"
    print(f"measured: {grown} MiB more")


# ---- F6: a full disk --------------------------------------------------------------------------------------------------------


def test_a_log_on_a_full_disk_refuses_with_the_fix_and_goes_on_when_there_is_room(new_server, scale):
    server = new_server()
    disk = server.folder / "data/broker"
    disk.mkdir(parents=True)
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("a disk of a few MiB can't be mounted here")
    try:
        server.start()
        first = server.start_run("[[steps=1 id=before-full]]")
        assert server.run_end(first)["status"] == "succeeded"

        def refusal():
            # What is removed from the log meanwhile may make room for a few commands more.
            since = time.monotonic()
            reply = server.post("/runs", {"task": "[[steps=1 id=while-full]]", "agent": "react"}, timeout=180)
            took = time.monotonic() - since
            assert reply.status == 202 or took <= 5, f"{reply} after {took:.1f} s"
            return reply if reply.status != 202 else None

        def accepted():
            reply = server.post("/runs", {"task": "[[steps=1 id=after-full]]", "agent": "react"}, timeout=180)
            return reply.status == 202 and reply.json["run_id"]

        fix = f"free space in {disk}"

        def tells(path, status):
            # An answer of /health may be a quarter of a second old.
            reply = server.get(path)
            row = next(row for row in reply.json["services"] if row["name"] == "broker")
            return reply.status == status and row["status"] == "down" and fix in row["fix"] and str(disk) in row["detail"]

        for number in range(scale):
            watched = server.start_run(f"[[steps=6 delay_ms=500 id=watched-full-{number}]]", max_iters=10)
            wait_for(lambda: server.get(f"/runs/{watched}").status == 200, 30, "the run to be known")
            with connect(f"{server.ws_url}/ws/runs/{watched}", open_timeout=30, max_queue=None) as watcher:
                told = [watcher.recv(30)]
                fill(disk / "filler")
                refused = wait_for(refusal, 30, "a run to be refused")
                assert (refused.status, refused.json["code"]) == (507, "log_disk_full") and fix in refused.json["hint"], refused
                assert server.get(f"/runs/{first}").status == 200
                # What is asked whether it is ready, what people look at, and who watches a run.
                for path, status in (("/ready", 503), ("/health", 200), ("/diagnose", 200)):
                    wait_for(lambda path=path, status=status: tells(path, status), 5, f"{path} to tell of it")
                assert watcher.ping().wait(5), "the socket answers"
                since = time.monotonic()
                (disk / "filler").unlink()
                run_id = wait_for(accepted, 30, "a run to be accepted again")
                away = time.monotonic() - since
                assert away <= 5, f"refused for {away:.1f} s while there was room"
                told += list(watcher)
            assert server.run_end(run_id)["status"] == "succeeded"
            check_whole([json.loads(message) for message in told], len(server.run_end(watched)["steps"]))
            wait_for(lambda: server.get("/ready").status == 200, 30, "the server to be ready again")
        server.kill()
        server.start()
        assert server.get(f"/runs/{first}").json["status"] == "succeeded"
    finally:
        if server.process and server.process.poll() is None:
            server.kill()
        subprocess.run(["umount", "-l", disk], check=False)


def test_given_threads_that_watch_when_the_server_is_stopped_then_each_is_told(new_server):
    server = new_server().start()
    run_id = server.start_run("[[steps=3 delay_ms=1500 id=told]]")
    wait_for(lambda: server.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    ends = []

    def watch():
        try:
            ends.append(seen(server, run_id)[-1]["type"])
        except ConnectionClosed as error:
            ends.append(error.rcvd.code if error.rcvd else None)
    watchers = [threading.Thread(target=watch) for _ in range(5)]
    for one in watchers:
        one.start()
    wait_for(lambda: "riverrun_open_streams 5" in server.get("/metrics").body.decode(), 30, "the watchers to watch")
    assert server.stop() == 0
    for one in watchers:
        one.join(30)
    assert len(ends) == 5, ends
    server.start()
    assert server.run_end(run_id)["status"] == "succeeded"
