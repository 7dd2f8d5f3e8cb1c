"""The archives, repositories and paths of `test_attacks.py` as projects: refused, or taken without what is bad in them; nothing outside
of the copy is written or read, and no program is started."""

import io
import json
import os
import struct
import zipfile
import zlib
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
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
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


def gigabyte():
    """Says and is 1 GB of zeros: one piece of a stream, a thousand times."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(bytes(1 << 20)) + packer.flush(zlib.Z_FULL_FLUSH)
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("zeros.py", piece * 1_024 + b"\x03\x00")
    content = bytearray(out.getvalue())
    for start, method, size in ((0, 8, 22), (content.index(b"PK\x01\x02"), 10, 24)):
        content[start + method:start + method + 2] = struct.pack("<H", zipfile.ZIP_DEFLATED)
        content[start + size:start + size + 4] = struct.pack("<I", 1 << 30)
    return bytes(content)


def million():
    """A directory of a million members, in the form for large archives (APPNOTE.TXT 4.3.14)."""
    count, local = 1_000_000, b"PK\x03\x04" + struct.pack("<HHHHHIIIHH", 20, 0, 0, 0, 0, 0, 0, 0, 7, 0) + b"0000000"
    head = b"PK\x01\x02" + struct.pack("<HHHHHHIIIHHHHHII", 45, 20, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0)
    directory = b"".join(head + b"%07d" % number for number in range(count))
    at = len(local)
    end = b"PK\x06\x06" + struct.pack("<QHHIIQQQQ", 44, 45, 45, 0, 0, count, count, len(directory), at)
    end += b"PK\x06\x07" + struct.pack("<IQI", 0, at + len(directory), 1)
    end += b"PK\x05\x06" + struct.pack("<HHHHIIH", 0, 0, 0xffff, 0xffff, len(directory), 0xffffffff, 0)
    return local + directory + end


def nested(depth=3):
    """Archives in archives, each of which says sixteen times what it has: 42.zip in small."""
    content = packed(("zeros", bytes(1 << 20), 0o100644))
    for _ in range(depth):
        content = packed(*((f"{number}.zip", content, 0o100644) for number in range(16)))
    return content


REFUSED = {
    "file as a folder": packed(("a", "x", 0o100644), ("a/b.py", "x", 0o100644)),
    "the same name twice": packed(("a.py", "x = 1\n", 0o100644), ("./a.py", "x = 2\n", 0o100644)),
    "nothing": packed(),
    "a name that no file can have": packed(("a" * 300 + ".py", "x = 1\n", 0o100644)),
}
# Taken, with these files and no others.
CLEANED = {
    "a link and a file beside it": (packed(("l", "/etc", 0o120777), ("b.py", "x = 1\n", 0o100644)), ["b.py"]),
    "a link and a file through it": (packed(("l", "/etc", 0o120777), ("l/passwd", "x = 1\n", 0o100644)), ["l/passwd"]),
    "a link to above and a file through it": (packed(("l", "../..", 0o120777), ("l/evil.txt", "x = 1\n", 0o100644), ("b.py", "x = 1\n", 0o100644)), ["b.py", "l/evil.txt"]),
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


@pytest.mark.parametrize("make", [gigabyte, million])
def test_an_archive_of_a_gigabyte_or_a_million_members_is_refused(server, make):
    path = archive_of(server, make.__name__, make())
    done = server.cli("project", "import", str(path))
    path.unlink()
    assert done.returncode == 4 and done.stderr.strip(), done
    nothing_outside(server)
    assert server.get("/health").status == 200


def test_archives_in_archives_stay_packed(server):
    content = nested()
    view = imported(server, archive_of(server, "nested", content))
    assert paths(server, view["project_id"]) == sorted(f"{number}.zip" for number in range(16))
    assert view["size_bytes"] < 16 * len(content), view
    assert server.cli("project", "analyze", view["project_id"], "--no-review").returncode == 0
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


@pytest.mark.parametrize("repository", [*REPOSITORIES, "file:///", "file:///etc/passwd"])
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


@pytest.mark.parametrize("path", ["../../x", "/etc/passwd", "a/../../x", "%2e%2e%2fx", "x" * 4_096])
def test_a_path_that_is_none_of_the_copy_is_refused_on_the_command_line(server, path):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    for verb in (["improve"], ["apply", "--yes"], ["revert"]):
        done = server.cli("project", *verb, project_id, "--file", path)
        assert done.returncode not in (0, 101) and done.returncode > 0 and done.stderr.strip(), done
        assert SECRET not in done.stdout + done.stderr, done
    nothing_outside(server)


@pytest.mark.parametrize("project_id", ["../other", "prj_", "prj_../x", "%2e%2e", "prj_01h455vb4pex5vsknk084sn02q", "' OR 1=1 --"])
def test_an_id_that_is_none_is_not_found(server, project_id):
    for place in ("report", "files", "patch"):
        assert server.get(f"/projects/{quote(project_id, safe='')}/{place}").status == 404, place


# Folders that whoever is at the machine may read, and nobody over the network.
ONLY_HERE = [".", "/etc", "/", "../..", "~"]


@pytest.mark.parametrize("source", [*ONLY_HERE, "/dev/zero", "/proc/self/environ", "/no/such/folder", "/etc/passwd", "../../etc/passwd",
                                    "%2e%2e%2fetc%2fpasswd", "a/\0b", "{folder}/" + "x" * 4_096, "{folder}/../../../../../../etc", "{folder}/out"],
                         ids=lambda source: source[:40].replace("\0", "NUL"))
def test_what_is_no_folder_or_archive_is_no_project(server, source):
    folder = server.folder / "ways-out"
    folder.mkdir(exist_ok=True)
    if not (folder / "out").is_symlink():
        (folder / "out").symlink_to("/etc")
    reply = server.post("/projects/import", {"source": source.replace("{folder}", str(folder))})
    assert 400 <= reply.status < 500 and SECRET.encode() not in reply.body, reply
    if source not in ONLY_HERE and "\0" not in source and "{folder}" not in source:
        assert server.cli("project", "import", source).returncode == 4


@pytest.mark.parametrize("name", ["pipe", "pipe.zip"])
def test_a_pipe_is_no_project_and_is_not_waited_for(server, name):
    path = server.folder / "pipes" / name
    path.parent.mkdir(exist_ok=True)
    os.mkfifo(path)
    assert server.cli("project", "import", str(path), timeout=60).returncode == 4
    reply = server.post("/projects/import", {"source": str(path)})
    if reply.status == 202:
        view = server.get(f"/projects/{reply.json['project_id']}").json
        assert view["status"] in ("importing", "failed") and view["files"] == 0, view
    else:
        assert 400 <= reply.status < 500, reply


def test_pipes_and_devices_of_a_folder_are_counted_and_not_opened(server):
    folder = folder_of(server, {"a.py": PLAIN})
    os.mkfifo(folder / "pipe.py")
    view = imported(server, folder)
    assert paths(server, view["project_id"]) == ["a.py"] and view["skipped"] >= 1, view
