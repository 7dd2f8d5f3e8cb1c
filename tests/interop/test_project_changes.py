"""Changes of a project's copy as their users make them: proposed by a scripted model, applied, taken back, exported; and what an
import makes of large files, links, submodules, archives that are bombs, and names in any script."""

import base64
import hashlib
import io
import itertools
import json
import os
import subprocess
import zipfile

import pytest

from server import BINARY

numbers = itertools.count()

PLAIN = b"def f(x):\n    if x:\n        return 1\n    return 2\n"
DEAD = b"def f():\n    return 1\n    print(2)\n"

CONTENTS = {
    "lf.py": PLAIN,
    "crlf.py": PLAIN.replace(b"\n", b"\r\n"),
    "mixed ends.py": b"def f(x):\r\n    if x:\r\n        return 1\r\n    return 2\n",
    "returns.py": PLAIN.replace(b"\n", b"\r"),
    "all three ends.py": b"def f(x):\r\n    if x:\r        return 1\n    return 2\r",
    "mark.py": b"\xef\xbb\xbf" + PLAIN,
    "no end.py": PLAIN.rstrip(b"\n"),
    "crlf mark no end.py": b"\xef\xbb\xbf" + PLAIN.replace(b"\n", b"\r\n").rstrip(b"\r\n"),
    "latin1 \u00e9.py": b"# caf\xe9\n" + PLAIN,
    "\u540d\u524d \u043f\u0440\u0438.py": "# \u540d\u524d\n".encode() + PLAIN,
}


def digest(content):
    return hashlib.sha256(content).hexdigest()


def shown(content):
    """A file as a model sees it and writes it: without its mark, with plain line ends."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = content.decode("latin-1")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def block(text):
    return f"```python\n{text.rstrip(chr(10))}\n```\n"


def says(*answers):
    """An instruction to which the scripted model gives these answers, one after the other."""
    words = ",".join(base64.b64encode(answer.encode()).decode() for answer in answers)
    return f"[[id=improve{next(numbers)} says={words}]]"


def folder_of(server, files):
    folder = server.folder / f"project{next(numbers)}"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def imported(server, source):
    done = server.cli("project", "import", str(source), "--json")
    assert done.returncode == 0, done
    return json.loads(done.stdout)


def improve(server, project_id, file, *answers, candidates=1):
    done = server.cli("project", "improve", project_id, "--file", file, "--instruction", says(*answers),
                      "--candidates", str(candidates), "--json")
    assert done.stdout, done
    return done, json.loads(done.stdout)


def proposed(server, project_id, file, answer):
    """A proposal over HTTP, which waits until it is made."""
    reply = server.post(f"/projects/{project_id}/improve", {"file": file, "instruction": says(answer)})
    assert reply.status == 200 and reply.json["status"] != "proposing", reply
    return reply.json


def apply(server, project_id, file, proposal_id):
    body = {"file": file, "proposal_id": proposal_id, "confirm": True}
    return server.post(f"/projects/{project_id}/apply", body)


def paths(server, project_id):
    return [one["path"] for one in server.get(f"/projects/{project_id}/files?limit=500").json["items"]]


def test_only_the_line_that_changes_changes_whatever_the_ends_the_mark_and_the_encoding(server):
    folder = folder_of(server, CONTENTS)
    project_id = imported(server, folder)["project_id"]
    wanted = {name: content.replace(b"return 1", b"return 3") for name, content in CONTENTS.items()}
    for name, content in CONTENTS.items():
        rewrite = block(shown(content).replace("return 1", "return 3"))
        done, proposal = improve(server, project_id, name, rewrite)
        assert done.returncode == 0 and proposal["after_sha256"] == digest(wanted[name]), (name, proposal)
        assert proposal["before_sha256"] == digest(content), name
        done = server.cli("project", "apply", project_id, "--file", name, "--yes", "--json")
        assert done.returncode == 0 and json.loads(done.stdout)["after_sha256"] == digest(wanted[name]), done
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == CONTENTS, "the original changed"

    patch = server.get(f"/projects/{project_id}/patch").body
    environment = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
                                "GIT_CEILING_DIRECTORIES": str(server.folder)}
    git = subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=folder, input=patch, env=environment,
                         capture_output=True, check=False)
    assert git.returncode == 0, (git, patch)
    assert {name: (folder / name).read_bytes() for name in CONTENTS} == wanted


def test_the_command_prints_the_patch_in_the_bytes_of_the_files(server):
    name = "latin1.py"
    content = CONTENTS["latin1 \u00e9.py"]
    project_id = imported(server, folder_of(server, {name: content}))["project_id"]
    proposal = proposed(server, project_id, name, block(shown(content).replace("caf\u00e9", "th\u00e9")))
    assert apply(server, project_id, name, proposal["proposal_id"]).status == 200
    file = server.folder / f"patch{next(numbers)}"
    with open(file, "wb") as out:
        subprocess.run([BINARY, "project", "patch", project_id], cwd=server.folder, env=server.env, stdout=out, timeout=60,
                       check=True)
    assert file.read_bytes() == server.get(f"/projects/{project_id}/patch").body
    assert b"\n-# caf\xe9\n+# th\xe9\n" in file.read_bytes()


def test_a_change_is_taken_back_byte_for_byte_and_only_once(server):
    content = CONTENTS["crlf mark no end.py"]
    project_id = imported(server, folder_of(server, {"a.py": content}))["project_id"]
    proposal = proposed(server, project_id, "a.py", block(shown(content).replace("return 1", "return 3")))
    assert apply(server, project_id, "a.py", proposal["proposal_id"]).status == 200
    assert server.get(f"/projects/{project_id}/patch").body
    done = server.cli("project", "revert", project_id, "--file", "a.py", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["after_sha256"] == digest(content), done
    assert server.get(f"/projects/{project_id}/patch").body == b""
    again = server.post(f"/projects/{project_id}/revert", {"file": "a.py", "confirm": True})
    assert (again.status, again.json["code"]) == (409, "nothing_to_undo"), again


def test_a_proposal_for_a_file_that_changed_since_is_stale_and_leaves_the_copy(server):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    first, second = (proposed(server, project_id, "a.py", block(shown(PLAIN).replace("return 1", f"return {new}")))
                     for new in (3, 4))
    assert apply(server, project_id, "a.py", first["proposal_id"]).status == 200
    stale = apply(server, project_id, "a.py", second["proposal_id"])
    assert (stale.status, stale.json["code"]) == (409, "stale_proposal"), stale
    file = server.get(f"/projects/{project_id}/file?path=a.py").json
    assert file["sha256"] == first["after_sha256"], file


def test_nothing_is_written_that_was_not_confirmed(server):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    improve(server, project_id, "a.py", block(shown(PLAIN).replace("return 1", "return 3")))
    done = server.cli("project", "apply", project_id, "--file", "a.py")
    assert done.returncode == 4 and "+        return 3" in done.stdout, done
    assert server.post(f"/projects/{project_id}/apply", {"file": "a.py"}).status == 422
    assert server.get(f"/projects/{project_id}/patch").body == b""


@pytest.mark.parametrize("answer, why", [
    ("There is nothing to do.", "no block of code"),
    (block("def f(:"), "does not parse"),
    (block("def g(x):\n    return 2"), "loses public names: f"),
    (block(shown(PLAIN)), "changed nothing"),
    (block("a = 1") + block("b = 2"), "fences"),
])
def test_an_answer_that_is_no_rewrite_is_refused_with_its_reason(server, answer, why):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    done, proposal = improve(server, project_id, "a.py", answer)
    assert done.returncode != 0 and why in done.stderr, done
    assert proposal["status"] == "refused" and why in proposal["note"], proposal
    assert apply(server, project_id, "a.py", proposal["proposal_id"]).status in (404, 409)
    assert server.get(f"/projects/{project_id}/patch").body == b""


def test_the_best_of_several_candidates_is_proposed(server):
    project_id = imported(server, folder_of(server, {"a.py": DEAD}))["project_id"]
    same, better = shown(DEAD).replace("print(2)", "print(3)"), "def f():\n    return 1\n"
    _, proposal = improve(server, project_id, "a.py", "no block", block(same), block(better), candidates=3)
    assert proposal["after_sha256"] == digest(better.encode()), proposal
    assert proposal["improves"] and proposal["findings_after"] < proposal["findings_before"], proposal
    assert proposal["note"] is None, proposal


def test_a_rewrite_that_improves_nothing_is_said_to(server):
    project_id = imported(server, folder_of(server, {"a.py": DEAD}))["project_id"]
    done, proposal = improve(server, project_id, "a.py", block(shown(DEAD).replace("print(2)", "print(3)")))
    assert not proposal["improves"] and "no fewer findings" in proposal["note"], proposal
    assert "no fewer findings" in done.stderr, done


# Answers as mypy does, when it has the other files of the project at hand.
TYPE_CHECKER = """#!/bin/sh
case "$1" in --version) echo "mypy 0"; exit 0;; esac
[ -f other.py ] || exit 0
grep -q "'a'" a.py || exit 0
echo "a.py:1:10: error: Incompatible types  [assignment]"
echo "other.py:1:1: error: Another file  [misc]"
exit 1
"""


def test_what_a_type_checker_says_of_the_file_is_part_of_the_task_and_of_the_evidence(new_server):
    server = new_server().start()
    own = server.folder / "data/project-tools/mypy"
    program = own / "site/bin/mypy"
    program.parent.mkdir(parents=True)
    program.write_text(TYPE_CHECKER)
    program.chmod(0o755)
    (own / "installed.json").write_text(json.dumps({"version": "0", "starter": "site/bin/mypy", "interpreter": None, "python": False}))
    files = {"a.py": b"x: int = 'a'\nprint(x)\n", "other.py": b"import a\nprint(a.x)\n"}
    project_id = imported(server, folder_of(server, files))["project_id"]
    for value, fewer in (("1", 1), ("'a'  # text", 0)):
        _, proposal = improve(server, project_id, "a.py", block(f"x: int = {value}\nprint(x)\n"))
        assert proposal["findings_before"] - proposal["findings_after"] == fewer, proposal
        assert proposal["improves"] == bool(fewer), proposal


# Answers as cargo-clippy does: a lint of the file, and an error in another one when the number that it uses is no i32 any more.
CLIPPY = """#!/bin/sh
said() {
  echo "{\\"reason\\":\\"compiler-message\\",\\"message\\":{\\"level\\":\\"$1\\",\\"message\\":\\"m\\",\\"code\\":{\\"code\\":\\"$2\\"},\\"children\\":[],"\\
"\\"spans\\":[{\\"is_primary\\":true,\\"file_name\\":\\"$3\\",\\"line_start\\":2,\\"column_start\\":1}]}}"
}
[ -f Cargo.toml ] || exit 1
if grep -q 'i32' src/lib.rs; then
  grep -q 'return 1;' src/lib.rs && said warning clippy::needless_return src/lib.rs
  echo '{"reason":"build-finished","success":true}'
else
  said error E0308 src/other.rs
  exit 101
fi
"""


def test_what_clippy_says_is_evidence_where_an_operator_allows_it_and_a_rewrite_that_breaks_the_build_improves_nothing(new_server, tmp_path):
    program = tmp_path / "programs/cargo-clippy"
    program.parent.mkdir()
    program.write_text(CLIPPY)
    program.chmod(0o755)
    path = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    lint = b"mod other;\npub fn f() -> i32 {\n    return 1;\n}\npub use other::g;\n"
    files = {"Cargo.toml": b'[package]\nname = "a"\nversion = "0.1.0"\nedition = "2021"\nlicense = "MIT"\n', "src/lib.rs": lint,
             "src/other.rs": b"pub fn g() -> i32 {\n    crate::f()\n}\n"}
    mended, broken = (lint.decode().replace("return 1;", "1"), lint.decode().replace("return 1;", "1").replace("i32", "u8"))
    for programs, expected in (("ruff", [(0, 0), (0, 0)]), ("cargo-clippy", [(1, 0), (1, 2)])):
        server = new_server(programs, PATH=path, RIVERRUN_PROJECT_PROGRAMS=programs).start()
        project_id = imported(server, folder_of(server, files))["project_id"]
        report = server.post(f"/projects/{project_id}/analyze", {"review": False}).json
        clippy = next(one for one in report["tools"] if one["name"] == "clippy")
        if "the kernel does not confine" in (clippy.get("detail") or ""):
            pytest.skip("this kernel has no Landlock")
        assert clippy["status"] == ("ran" if programs == "cargo-clippy" else "skipped"), clippy
        counts = []
        for text in (mended, broken):
            _, proposal = improve(server, project_id, "src/lib.rs", block(text))
            assert proposal["improves"] == (proposal["findings_after"] < proposal["findings_before"]), proposal
            counts.append((proposal["findings_before"], proposal["findings_after"]))
        assert counts == expected, f"{programs}: the error of the other file counts, and the lint that it hides is still there"
        server.stop()


def test_public_names_may_go_that_were_asked_for_and_no_other(server):
    two = b"def f(x):\n    return x\n\n\ndef g(x):\n    return x\n"
    one = "def f(x):\n    return x\n"
    project_id = imported(server, folder_of(server, {"a.py": two}))["project_id"]
    call = ["project", "improve", project_id, "--file", "a.py", "--json", "--instruction"]
    done = server.cli(*call, says(block(one)), "--may-remove", "f")
    assert done.returncode != 0 and "loses public names: g" in done.stderr, done
    done = server.cli(*call, says(block(one)), "--may-remove", "f", "--may-remove", "g")
    proposal = json.loads(done.stdout)
    assert done.returncode == 0 and proposal["after_sha256"] == digest(one.encode()), done
    assert proposal["improves"] and "takes out g" in proposal["note"], "that nothing uses it is a finding of the file then"
    done = server.cli(*call, says(block(one)), "--may-remove", "h")
    assert done.returncode == 4 and "no public name" in done.stderr and "one of f, g" in done.stderr, done

    place = f"/projects/{project_id}/improve"
    reply = server.post(place, {"file": "a.py", "instruction": says(block(one)), "may_remove": ["g"]})
    assert reply.status == 200 and reply.json["after_sha256"] == digest(one.encode()), reply
    for names, code in ((["g", "h"], "name_not_found"), (["g"] * 101, "invalid_request")):
        reply = server.post(place, {"file": "a.py", "may_remove": names})
        assert (reply.status, reply.json["code"]) == (422, code), reply


CHECKS = b"import a, sys\nassert not (len(sys.argv) > 1 and sys.argv[1] != '; rm -rf .')\nassert a.f(1) == 1, a.f(1)\n"


@pytest.mark.parametrize("new, passes", [("return 1  # one", True), ("return 3", False)])
def test_the_projects_own_tests_are_run_before_and_after(server, new, passes):
    folder = folder_of(server, {"a.py": PLAIN, "check.py": CHECKS})
    project_id = imported(server, folder)["project_id"]
    done = server.cli("--json", "project", "improve", project_id, "--file", "a.py", "--instruction",
                      says(block(shown(PLAIN).replace("return 1", new))), "--tests", "python3", "check.py", "; rm -rf .")
    if "only where the kernel confines" in done.stderr:
        pytest.skip("this kernel has no Landlock")
    tests = json.loads(done.stdout)["tests"]
    assert tests["before"]["passed"] and tests["after"]["passed"] == passes, tests
    if not passes:
        assert "AssertionError: 3" in tests["after"]["output"] and "AssertionError: 3" in done.stderr, tests
        assert "pass without it and fail with it" in done.stderr, done
    assert sorted(one.name for one in folder.iterdir()) == ["a.py", "check.py"]


def test_of_several_candidates_one_that_the_tests_stand_is_proposed_although_another_looks_better(server):
    before = b"def f(x):\n    return x\n    print(2)\n"
    breaking = b"def f(x):\n    return 2\n"
    standing = b"def f(x):\n    # What it was given comes back, and nothing else is done to it at all.\n    return x\n"
    project_id = imported(server, folder_of(server, {"a.py": before, "check.py": CHECKS}))["project_id"]
    for answers, expected, passes in (((breaking, standing), standing, True), ((breaking, breaking), breaking, False)):
        done = server.cli("--json", "project", "improve", project_id, "--file", "a.py", "--instruction",
                          says(*(block(shown(answer)) for answer in answers)), "--candidates", "2", "--tests", "python3", "check.py")
        if "only where the kernel confines" in done.stderr:
            pytest.skip("this kernel has no Landlock")
        proposal = json.loads(done.stdout)
        assert proposal["after_sha256"] == digest(expected) and proposal["improves"] == passes, proposal
        assert proposal["tests"]["before"]["passed"] and proposal["tests"]["after"]["passed"] == passes, proposal
        assert ("left out" if passes else "pass without it and fail with it") in proposal["note"], proposal


def test_project_code_reads_nothing_but_its_copy_and_opens_no_socket(server):
    secret = server.folder / "secret.txt"
    secret.write_text("very secret")
    probe = f"""import pathlib, socket
for attempt in (lambda: pathlib.Path({str(secret)!r}).read_text(), lambda: pathlib.Path({str(server.folder / "made")!r}).write_text("x"),
                lambda: socket.socket().connect(("127.0.0.1", {server.api_port}))):
    try:
        print("LED OUT", attempt())
    except OSError:
        print("held")
"""
    project_id = imported(server, folder_of(server, {"a.py": PLAIN, "probe.py": probe.encode()}))["project_id"]
    done = server.cli("--json", "project", "improve", project_id, "--file", "a.py", "--instruction",
                      says(block(shown(PLAIN).replace("return 1", "return 3"))), "--tests", "python3", "probe.py")
    if "only where the kernel confines" in done.stderr:
        pytest.skip("this kernel has no Landlock")
    tests = json.loads(done.stdout)["tests"]
    for run in (tests["before"], tests["after"]):
        assert run["output"].count("held") == 3 and "LED OUT" not in run["output"], run
    assert not (server.folder / "made").exists()


@pytest.mark.parametrize("program", ["/bin/sh", "../../bin/sh", "no-such-program", ""])
def test_a_test_command_that_is_no_installed_program_is_refused_before_a_model_is_asked(server, program):
    project_id = imported(server, folder_of(server, {"a.py": PLAIN}))["project_id"]
    reply = server.post(f"/projects/{project_id}/improve", {"file": "a.py", "tests": [program]})
    assert (reply.status, reply.json["code"]) == (422, "tests_not_run"), reply
    assert server.get(f"/projects/{project_id}/proposals").json["items"] == []


def test_a_diff_is_shown_to_its_last_blank_line(server):
    content = b"def f(x):\n    return 1\n\n\n\ndef g(x):\n    return 2\n"
    project_id = imported(server, folder_of(server, {"a.py": content}))["project_id"]
    done = server.cli("project", "improve", project_id, "--file", "a.py", "--instruction",
                      says(block(shown(content.replace(b"return 1", b"return 3")))))
    diff = server.get(f"/projects/{project_id}/proposals").json["items"][0]["diff"]
    # Three lines of context, which are blank: without them the diff is none that can be applied.
    assert diff.endswith("+    return 3\n \n \n \n") and done.stdout == diff, done


def test_a_file_of_5_mb_is_copied_and_analyzed_and_not_given_to_a_model(server):
    big = b"x = 1\n" * 900_000
    view = imported(server, folder_of(server, {"big.py": big, "a.py": DEAD}))
    assert view["size_bytes"] == len(big) + len(DEAD), view
    done = server.cli("project", "analyze", view["project_id"], "--no-review", "--json")
    assert done.returncode == 0 and "unreachable-code" in done.stdout, done
    done = server.cli("project", "improve", view["project_id"], "--file", "big.py")
    assert done.returncode != 0 and "bytes" in done.stderr, done


def test_links_are_counted_and_never_followed(server):
    secret = server.folder / "outside.txt"
    secret.write_text("outside")
    folder = folder_of(server, {"a.py": PLAIN})
    (folder / "link.py").symlink_to(secret)
    (folder / "broken").symlink_to("nowhere")
    (folder / "above").symlink_to("..")
    (folder / "itself").symlink_to(".")
    view = imported(server, folder)
    assert paths(server, view["project_id"]) == ["a.py"]
    assert view["skipped"] >= 4, view


def test_a_submodule_is_only_its_files(server):
    folder = folder_of(server, {".gitmodules": b'[submodule "sub"]\n\tpath = sub\n\turl = ext::sh -c "touch pwned"\n',
                                "sub/.git": b"gitdir: ../../../../etc\n", "sub/b.py": PLAIN, ".git/config": b"[core]\n"})
    found = paths(server, imported(server, folder)["project_id"])
    assert sorted(found) == [".gitmodules", "sub/b.py"]
    assert not list(server.folder.rglob("pwned"))


def bomb():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as zipped:
        zipped.writestr("zeros", bytes(40 << 20))
    return archive.getvalue()


def crowd():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        for number in range(20_001):
            zipped.writestr(f"{number}", b"")
    return archive.getvalue()


def overlapping():
    """Two members of the directory that are the same bytes of the archive (Fifield, "A better zip bomb", 2019)."""
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as zipped:
        zipped.writestr("a.py", PLAIN)
        twin = zipfile.ZipInfo("a.py")
        first = zipped.infolist()[0]
        for name in ("CRC", "compress_size", "file_size", "header_offset", "compress_type", "external_attr"):
            setattr(twin, name, getattr(first, name))
        twin.filename = twin.orig_filename = "b.py"
        zipped.filelist.append(twin)
    return archive.getvalue()


@pytest.mark.parametrize("make", [bomb, crowd, overlapping])
def test_an_archive_that_is_a_bomb_is_refused_whole(server, make):
    path = server.folder / f"{make.__name__}.zip"
    path.write_bytes(make())
    before = sorted(one.name for one in server.folder.iterdir())
    done = server.cli("project", "import", str(path))
    assert done.returncode == 4, done
    assert sorted(one.name for one in server.folder.iterdir()) == before
    assert server.get("/health").status == 200


def test_an_archive_keeps_names_in_any_script_and_leaves_links_out(server):
    path = server.folder / "names.zip"
    with zipfile.ZipFile(path, "w") as zipped:
        for name in CONTENTS:
            zipped.writestr(name, CONTENTS[name])
        link = zipfile.ZipInfo("link.py")
        link.create_system, link.external_attr = 3, 0o120777 << 16
        zipped.writestr(link, "/etc/passwd")
    view = imported(server, path)
    assert sorted(paths(server, view["project_id"])) == sorted(CONTENTS)
    assert view["skipped"] == 1, view
