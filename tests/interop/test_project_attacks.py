"""The archives, repositories and paths of `test_attacks.py` as projects: refused, or taken without what is bad in them; nothing outside
of the copy is written or read, and no program is started."""

import io
import json
import os
import zipfile
from urllib.parse import quote

import pytest

from test_attacks import ARCHIVES, REPOSITORIES, SECRET
from test_project_changes import PLAIN, folder_of, imported, paths

# What a project takes and a document does not: an archive within is a file, and a link is left out.
TAKEN = {"archive in it": ["inner.zip"]}


def packed(*members):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, mode in members:
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, mode << 16
            archive.writestr(entry, content)
    return out.getvalue()


def unreadable():
    """A member with a name that says that it is UTF-8 and is not, in both places where an archive has it."""
    return packed(("\u00e9\u00e9.py", "x = 1\n", 0o100644)).replace("\u00e9\u00e9".encode(), b"\xff\xfe\xfd\xfc")


def lying():
    """Says in its directory that it is smaller than it is."""
    archive = bytearray(packed(("a.py", "x = 1\n" * 1_000, 0o100644)))
    at = archive.index(b"PK\x01\x02")
    archive[at + 24:at + 28] = (6).to_bytes(4, "little")
    return bytes(archive)


REFUSED = {
    "file as a folder": packed(("a", "x", 0o100644), ("a/b.py", "x", 0o100644)),
    "the same name twice": packed(("a.py", "x = 1\n", 0o100644), ("./a.py", "x = 2\n", 0o100644)),
    "nothing": packed(),
}
# Taken, with these files and no others.
CLEANED = {
    "a link and a file through it": (packed(("l", "/etc", 0o120777), ("b.py", "x = 1\n", 0o100644)), ["b.py"]),
    "a hook": (packed((".git/hooks/post-checkout", "#!/bin/sh\ntouch /tmp/riverrun-attack\n", 0o100755), ("a.py", "x = 1\n", 0o100755)), ["a.py"]),
    "set-user-id": (packed(("a.py", "x = 1\n", 0o104755)), ["a.py"]),
}


def nothing_outside(server):
    assert not [name for name in os.listdir("/tmp") if name.startswith("riverrun-attack")]
    for place in (server.folder, server.folder.parent):
        assert not (place / "evil.txt").exists() and not (place / "abs.txt").exists()


def archive_of(server, kind, content):
    path = server.folder / f"project-{kind.replace(' ', '-')}.zip"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("kind", ARCHIVES)
def test_an_archive_leads_nowhere_as_a_project(server, kind):
    done = server.cli("project", "import", str(archive_of(server, kind, ARCHIVES[kind])), "--json")
    nothing_outside(server)
    if done.returncode == 0:
        assert paths(server, json.loads(done.stdout)["project_id"]) == TAKEN[kind], done
    else:
        assert done.returncode == 4 and done.stderr.strip() and SECRET not in done.stdout + done.stderr, done


@pytest.mark.parametrize("kind", REFUSED)
def test_an_archive_that_contradicts_itself_is_refused(server, kind):
    done = server.cli("project", "import", str(archive_of(server, kind, REFUSED[kind])))
    assert done.returncode == 4 and done.stderr.strip(), done
    nothing_outside(server)


@pytest.mark.parametrize("make", [lying, unreadable])
def test_an_archive_that_lies_about_sizes_or_names_is_refused_or_read_as_it_is(server, make):
    done = server.cli("project", "import", str(archive_of(server, make.__name__, make())), "--json")
    assert done.returncode in (0, 4), done
    if done.returncode == 0:
        assert json.loads(done.stdout)["files"] == 1 and json.loads(done.stdout)["size_bytes"] <= 6_000, done
    nothing_outside(server)
    assert server.get("/health").status == 200


@pytest.mark.parametrize("kind", CLEANED)
def test_links_hooks_and_rights_of_an_archive_are_left_out(server, kind):
    content, expected = CLEANED[kind]
    view = imported(server, archive_of(server, kind, content))
    assert paths(server, view["project_id"]) == expected
    done = server.cli("project", "analyze", view["project_id"], "--no-review")
    assert done.returncode == 0, done
    nothing_outside(server)


@pytest.mark.parametrize("repository", [*REPOSITORIES, "file:///etc/passwd"])
def test_a_repository_that_is_a_program_an_option_or_this_machine_is_no_project(server, repository):
    done = server.cli("project", "import", "--", repository)
    assert done.returncode == 4 and done.stderr.strip() and SECRET not in done.stdout + done.stderr, done
    reply = server.post("/projects/import", {"source": repository})
    if reply.status == 202:
        # What can only be told by asking a name server ends as a failed import.
        project = server.get(f"/projects/{reply.json['project_id']}")
        assert project.json["status"] in ("importing", "failed"), project
    else:
        assert 400 <= reply.status < 500 and reply.json["detail"], reply
    nothing_outside(server)


@pytest.mark.parametrize("path", ["../../etc/passwd", "/etc/passwd", "a/../a.py", "./a.py", "A.PY", "a.py\0", "a.py/", "%61.py", "x" * 4_096, ""])
def test_a_path_that_is_none_of_the_copy_is_not_found_whatever_is_asked_of_it(server, path):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    for verb, body in (("improve", {}), ("apply", {"confirm": True}), ("revert", {"confirm": True})):
        reply = server.post(f"/projects/{project_id}/{verb}", {"file": path, **body})
        assert 400 <= reply.status < 500 and SECRET.encode() not in reply.body, (verb, reply)
    assert server.get(f"/projects/{project_id}/patch").body == b""


@pytest.mark.parametrize("project_id", ["../other", "prj_", "prj_../x", "%2e%2e", "prj_01h455vb4pex5vsknk084sn02q", "' OR 1=1 --"])
def test_an_id_that_is_none_is_not_found(server, project_id):
    for place in ("report", "files", "patch"):
        assert server.get(f"/projects/{quote(project_id, safe='')}/{place}").status == 404, place


@pytest.mark.parametrize("source", ["/dev/zero", "/proc/self/environ", "/no/such/folder", "."])
def test_what_is_no_folder_or_archive_is_no_project(server, source):
    reply = server.post("/projects/import", {"source": source})
    assert 400 <= reply.status < 500 and SECRET.encode() not in reply.body, reply
    if source != ".":
        assert server.cli("project", "import", source).returncode == 4


def test_pipes_and_devices_of_a_folder_are_counted_and_not_opened(server):
    folder = folder_of(server, {"a.py": PLAIN})
    os.mkfifo(folder / "pipe.py")
    view = imported(server, folder)
    assert paths(server, view["project_id"]) == ["a.py"] and view["skipped"] >= 1, view
