"""Projects as their users meet them: imported, analyzed, and refused where they lead out."""

import hashlib
import io
import json
import os
import subprocess
import time
import zipfile

import pytest

from log_client import decoder, headers, read_topic
from server import BINARY, ROOT, wait_for

LEAK = "X = StandardScaler().fit_transform(X)\r\nparts = train_test_split(X, y)"


@pytest.fixture
def code(server):
    folder = server.folder / "code"
    folder.mkdir(exist_ok=True)
    (folder / "train é.py").write_bytes(LEAK.encode())
    return folder


def hash_of(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_folder_is_copied_and_analyzed_and_stays_as_it_was(server, code):
    before = hash_of(code)
    imported = server.cli("project", "import", str(code), "--json")
    assert imported.returncode == 0, imported
    project = server.get("/projects").json["items"][0]
    assert project["files"] == 1 and project["source_sha256"], project
    done = server.cli("project", "analyze", project["project_id"], "--no-review", "--json")
    assert done.returncode == 0 and "fit-before-split" in done.stdout, done
    report = server.cli("project", "report", project["project_id"])
    assert "train é.py:1" in report.stdout, report
    assert hash_of(code) == before


def test_a_folder_that_the_server_may_not_read_is_handed_in_and_makes_the_copy_that_the_command_alone_makes(new_server, tmp_path):
    server = new_server().start()
    code = tmp_path / "my \"code\" é"
    for name, content in {
        "src/train.py": LEAK.encode(), "src/名前.py": b"x = 1\n", "run.sh": b"#!/bin/sh\n", "zeros.bin": bytes(3 << 20), ".gitignore": b"*.log\n",
        "big.log": b"ignored", ".git/config": b"no part of it", "node_modules/a.js": b"no part of it",
    }.items():
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_bytes(content)
    (code / "run.sh").chmod(0o755)
    (code / "secret").symlink_to("/etc/passwd")
    (code / "etc").symlink_to("/etc")
    before = hash_of(code)
    refused = server.post("/projects/import", {"source": str(code)})
    assert refused.status == 422 and refused.json["code"] == "source_not_allowed", refused

    def imported(*more):
        done = server.cli("project", "import", str(code), "--json", *more)
        assert done.returncode == 0, done
        return json.loads(done.stdout)

    def files(view):
        return {one["path"]: one["size_bytes"] for one in server.get(f"/projects/{view['project_id']}/files").json["items"]}

    handed_in = imported()
    assert handed_in["name"] == code.name and handed_in["files"] == 5 and handed_in["skipped"] == 3, handed_in
    assert imported("--name", "mine")["name"] == "mine"
    there = files(handed_in)
    assert set(there) == {".gitignore", "run.sh", "src/train.py", "src/名前.py", "zeros.bin"}, there
    done = server.cli("project", "analyze", handed_in["project_id"], "--no-review")
    assert done.returncode == 0 and "fit-before-split" in done.stdout, done
    assert server.stop() == 0
    alone = imported()
    assert (alone["source_sha256"], alone["skipped"], alone["name"]) == (handed_in["source_sha256"], 3, code.name), alone
    server.start()
    assert files(alone) == there
    assert hash_of(code) == before


def test_what_can_not_be_handed_in_is_read_by_a_server_that_may_and_else_refused_with_the_fix(new_server, tmp_path):
    odd = tmp_path / "odd"
    odd.mkdir()
    (odd / "a\\b.py").write_text("x = 1\n")
    large = tmp_path / "large"
    large.mkdir()
    for number in range(3):
        (large / f"{number}.bin").write_bytes(os.urandom(24 << 20))
    server = new_server().start()
    for source in (odd, large):
        done = server.cli("project", "import", str(source))
        assert done.returncode == 4 and str(source) in done.stderr and "RIVERRUN_INGEST_ROOTS" in done.stderr, done
    assert server.stop() == 0
    server.env["RIVERRUN_INGEST_ROOTS"] = str(tmp_path)
    server.start()
    for source, files in ((odd, 1), (large, 3)):
        done = server.cli("project", "import", str(source), "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["files"] == files, done


def progress_on_the_log(server, project_id, phase):
    """What the log says of how far that work was, in its order."""
    decode = decoder(server.url)
    records = [one for one in read_topic(server.brokers, "riverrun.projects.events") if headers(one)["ce_type"].endswith(".ProjectProgressed")]
    events = [decode(one) for one in records]
    return [(one["done"], one["total"]) for one in events if one["project_id"] == project_id and one["phase"] == phase]


def test_how_far_an_import_and_an_analysis_are_is_told_by_a_few_events_and_in_the_view(server):
    folder = server.folder / f"far-{time.monotonic_ns()}"
    folder.mkdir()
    # The review takes a while: all else is done by then.
    (folder / "train.py").write_text("X = StandardScaler().fit_transform(X)  # [[delay_ms=5000 id=far]]\nparts = train_test_split(X, y)\n")
    for number in range(500):
        (folder / f"{number}.py").write_text("x = 1\n")
    done = server.cli("project", "import", str(folder), "--json")
    assert done.returncode == 0, done
    project_id = json.loads(done.stdout)["project_id"]
    assert json.loads(done.stdout)["files"] == 501 and "progress" not in json.loads(done.stdout), done
    assert server.post(f"/projects/{project_id}/analyze", {"review": True}, headers={"prefer": "respond-async"}).status == 202
    seen = []

    def analyzed():
        view = server.get(f"/projects/{project_id}").json
        seen.extend([view["progress"]] if "progress" in view else [])
        return view["status"] == "analyzed"

    wait_for(analyzed, 240, "the analysis")
    assert seen and seen[-1]["done"] == seen[-1]["total"] - 1 >= 8, seen[-1:]
    assert [one["done"] for one in seen] == sorted(one["done"] for one in seen)
    assert "progress" not in server.get(f"/projects/{project_id}").json
    tools = server.get(f"/projects/{project_id}/report").json["tools"]
    assert len(tools) == seen[-1]["total"] and tools[-1]["name"] == "review", tools
    for phase, end in (("importing", 501), ("analyzing", seen[-1]["total"])):
        told = progress_on_the_log(server, project_id, phase)
        counts = [count for count, _ in told]
        assert told[0] == (0, 0) and counts == sorted(set(counts)) and 1 <= len(told) <= 20, told
        assert all(count <= end and total in (0, end) or count <= total for count, total in told), told
    assert told[-1] == (seen[-1]["done"], seen[-1]["total"]), told


@pytest.mark.parametrize("name", ["../../evil", "/abs", "C:\\x", "a/../../b"])
def test_an_archive_that_leads_out_is_refused(server, name):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr(name, "x")
    path = server.folder / "evil.zip"
    path.write_bytes(archive.getvalue())
    done = server.cli("project", "import", str(path))
    assert done.returncode == 4, done


@pytest.mark.parametrize("source", ["ext::sh -c touch% /tmp/p", "file:///etc", "ftp://h/x.git"])
def test_addresses_that_start_programs_are_refused(server, source):
    done = server.cli("project", "import", source)
    assert done.returncode == 4, done


def test_the_example_of_projects_runs_as_it_stands(new_server):
    place = new_server()
    done = subprocess.run([ROOT / "examples/projects.sh"], env=place.env | {"RIVERRUN": str(BINARY)}, cwd=place.folder,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0 and "fit-before-split" in done.stdout and "removed" in done.stdout, done
