"""Projects as their users meet them: imported, analyzed, and refused where they lead out."""

import hashlib
import io
import subprocess
import zipfile

import pytest

from server import BINARY, ROOT

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
