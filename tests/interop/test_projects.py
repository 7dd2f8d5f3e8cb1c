"""Projects as their users meet them: imported, analyzed, and refused where they lead out."""

import hashlib
import io
import json
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
