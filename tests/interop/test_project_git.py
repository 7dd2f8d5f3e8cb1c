"""Repositories as projects over the transport that they come by: git's own server program behind https on this machine. What a
repository says is text: no hook, filter, submodule or setting of anybody is run, and git is started for what may be cloned alone."""

import json
import os
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from server import ROOT, Server, wait_for
from test_attacks import REPOSITORIES, SECRET
from test_project_changes import paths

# A certificate for 127.0.0.1, which no machine trusts but by being told to.
CERTIFICATE, KEY = (str(ROOT / "broker/tests/data" / name) for name in ("server.pem", "server-key.pem"))
GIT = shutil.which("git")
PLAIN_ENVIRONMENT = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "HOME": "/nonexistent"}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 12345\n"

pytestmark = pytest.mark.skipif(GIT is None, reason="needs git")


class Repositories:
    """`git http-backend` behind https, and what was asked of it."""

    def __init__(self, folder):
        self.folder, self.asked, self.redirects = folder, [], {}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.server.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(CERTIFICATE, KEY)
        self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def url(self, name):
        return f"https://{self.host}/{name}.git"

    def backend(self, handler, body):
        path, _, query = handler.path.partition("?")
        environment = PLAIN_ENVIRONMENT | {
            "GIT_PROJECT_ROOT": str(self.folder), "GIT_HTTP_EXPORT_ALL": "1", "PATH_INFO": path, "QUERY_STRING": query,
            "REQUEST_METHOD": handler.command, "REMOTE_ADDR": "127.0.0.1", "CONTENT_LENGTH": str(len(body)),
            "CONTENT_TYPE": handler.headers.get("content-type", ""), "GIT_PROTOCOL": handler.headers.get("git-protocol", ""),
            "HTTP_CONTENT_ENCODING": handler.headers.get("content-encoding", ""),
        }
        done = subprocess.run([GIT, "http-backend"], env=environment, input=body, capture_output=True, timeout=60, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line)
        return int(lines.pop("Status", "200").split()[0]), lines, content

    def handler(repositories):  # noqa: N805 the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self):
                repositories.asked.append(self.path)
                name = self.path.split("/")[1].removesuffix(".git")
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                if name in repositories.redirects:
                    status, lines, content = 302, {"Location": repositories.redirects[name]}, b""
                else:
                    status, lines, content = repositories.backend(self, body)
                self.send_response(status)
                for key, value in lines.items():
                    self.send_header(key, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = answer

        return Handler


def git(folder, *arguments, input=None):
    words = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false", "-c", "core.protectHFS=false"]
    done = subprocess.run([GIT, *words, *arguments], cwd=folder, env=PLAIN_ENVIRONMENT, input=input, capture_output=True, check=False)
    assert done.returncode == 0, (arguments, done)
    return done.stdout.decode().strip()


def blob(folder, content):
    return git(folder, "hash-object", "-w", "--stdin", input=content)


def tree(folder, entries):
    """A tree as it is said to be: `git add` would refuse some."""
    raw = b"".join(b"%s %s\0" % (mode.encode(), name.encode()) + bytes.fromhex(sha) for name, (mode, sha) in sorted(entries.items()))
    return git(folder, "hash-object", "-w", "-t", "tree", "--literally", "--stdin", input=raw)


def commit(folder, root, branch="main"):
    made = git(folder, "commit-tree", root, "-m", "x")
    git(folder, "update-ref", f"refs/heads/{branch}", made)
    git(folder, "symbolic-ref", "HEAD", f"refs/heads/{branch}")


@pytest.fixture(scope="module")
def repositories(tmp_path_factory):
    served = Repositories(tmp_path_factory.mktemp("repositories"))
    yield served
    served.close()


@pytest.fixture
def made(repositories):
    """Makes an empty repository that is served, with hooks of its own."""
    def make(name):
        folder = repositories.folder / f"{name}.git"
        folder.mkdir()
        git(folder, "init", "-q", "--bare", "-b", "main", ".")
        return folder
    return make


@pytest.fixture(scope="module")
def place(tmp_path_factory, model):
    """A server that may read this machine's repositories, whose git notes how it was started and trusts the certificate, and
    whose user has settings, templates and filters that would start programs."""
    folder = tmp_path_factory.mktemp("git-serve")
    programs, started, proof, template = (folder / name for name in ("programs", "started", "proof", "template"))
    programs.mkdir()
    (programs / "git").write_text(
        f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{started}'\nexport GIT_SSL_CAINFO='{CERTIFICATE}'\nexec '{GIT}' \"$@\"\n")
    (programs / "git").chmod(0o755)
    hook = template / "hooks/post-checkout"
    hook.parent.mkdir(parents=True)
    hook.write_text(f"#!/bin/sh\ntouch '{proof}'\n")
    hook.chmod(0o755)
    (folder / "gitconfig").write_text(
        f"[core]\n\thooksPath = {hook.parent}\n\tfsmonitor = touch {proof}\n[init]\n\ttemplateDir = {template}\n"
        f"[filter \"evil\"]\n\tsmudge = touch {proof}\n\trequired = true\n[filter \"lfs\"]\n\tsmudge = touch {proof}\n\tprocess = touch {proof}\n"
        "[protocol]\n\tallow = always\n[submodule]\n\trecurse = true\n")
    settings = {"PATH": f"{programs}:/usr/bin:/bin:{os.environ['PATH']}", "RIVERRUN_WEB_ALLOW": "127.0.0.1", "GIT_TEMPLATE_DIR": str(template),
                "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"), "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.hooksPath",
                "GIT_CONFIG_VALUE_0": str(hook.parent), "GIT_SSH_COMMAND": f"touch {proof}"}
    running = Server(folder / "serve", model.settings() | settings).start()
    running.started, running.proof = started, proof
    yield running
    running.stop()


def starts(place):
    """The lines with which git was started since this was asked last."""
    lines = place.started.read_text().splitlines() if place.started.exists() else []
    place.started.unlink(missing_ok=True)
    return lines


def check_nothing_ran(place):
    assert not place.proof.exists()
    assert not [name for name in os.listdir("/tmp") if name.startswith("riverrun-attack")]


def refused(place, source):
    done = place.cli("project", "import", "--", source)
    assert done.returncode == 4 and done.stderr.strip() and SECRET not in done.stdout + done.stderr, done
    check_nothing_ran(place)
    return done


def test_a_repository_is_its_files_and_nothing_of_it_is_run(place, repositories, made):
    folder = made("whole")
    plain = {"a.py": b"x = 1\n", "two words.py": b"x = 2\r\n", "\u540d\u524d \u00e9.py": b"x = 3\n", "-rf.py": b"x = 4\n", "quo\"te's.py": b"x = 5\n",
             "tab\there.py": b"x = 6\n", ".githooks-post-checkout": b"#!/bin/sh\ntouch /tmp/riverrun-attack\n", "big.bin": POINTER,
             ".gitattributes": b"*.py filter=evil\n*.bin filter=lfs diff=lfs merge=lfs -text\n",
             ".gitmodules": f'[submodule "sub"]\n\tpath = sub\n\turl = {repositories.url("inner")}\n'.encode()}
    entries = {name: ("100644", blob(folder, content)) for name, content in plain.items()}
    entries["run.py"] = ("100755", blob(folder, b"x = 7\n"))
    entries["link.py"] = ("120000", blob(folder, b"/etc/passwd"))
    entries["sub"] = ("160000", "1" * 40)
    commit(folder, tree(folder, entries))
    starts(place)
    repositories.asked.clear()

    done = place.cli("project", "import", repositories.url("whole"), "--json")
    assert done.returncode == 0, done
    project = json.loads(done.stdout)
    # A link comes as the text that it is, which leads nowhere.
    assert sorted(paths(place, project["project_id"])) == sorted([*plain, "run.py", "link.py"])
    assert project["size_bytes"] == sum(map(len, plain.values())) + len(b"x = 7\n") + len(b"/etc/passwd"), project
    check_nothing_ran(place)
    lines = starts(place)
    assert len(lines) == 1 and " clone " in lines[0] and lines[0].count("--no-recurse-submodules") == 1, lines
    assert repositories.asked and all(path.startswith("/whole.git/") for path in repositories.asked), repositories.asked

    again = json.loads(place.cli("project", "import", repositories.url("whole"), "--json").stdout)
    assert again["source_sha256"] == project["source_sha256"]
    assert place.cli("project", "analyze", project["project_id"], "--no-review").returncode == 0
    check_nothing_ran(place)


@pytest.mark.parametrize("name, modules", [
    ("program", '[submodule "s"]\n\tpath = s\n\turl = ext::sh -c touch% /tmp/riverrun-attack\n'),
    ("option", '[submodule "s"]\n\tpath = s\n\turl = --upload-pack=touch /tmp/riverrun-attack\n'),
    ("machine", '[submodule "s"]\n\tpath = s\n\turl = file:///etc\n'),
    ("above", '[submodule "s"]\n\tpath = ../..\n\turl = https://example.org/x.git\n'),
    ("dash", '[submodule "s"]\n\tpath = -x\n\turl = https://example.org/x.git\n'),
    ("name", '[submodule "../../x"]\n\tpath = s\n\turl = https://example.org/x.git\n'),
    ("update", '[submodule "s"]\n\tpath = s\n\turl = https://example.org/x.git\n\tupdate = !touch /tmp/riverrun-attack\n'),
])
def test_a_submodule_that_leads_elsewhere_is_not_followed(place, repositories, made, name, modules):
    folder = made(f"module-{name}")
    commit(folder, tree(folder, {".gitmodules": ("100644", blob(folder, modules.encode())), "a.py": ("100644", blob(folder, b"x = 1\n")),
                                 "s": ("160000", "1" * 40)}))
    starts(place)
    done = place.cli("project", "import", repositories.url(f"module-{name}"), "--json")
    # git refuses some of these itself, when it checks what comes.
    assert done.returncode in (0, 4), done
    if done.returncode == 0:
        assert sorted(paths(place, json.loads(done.stdout)["project_id"])) == [".gitmodules", "a.py"]
    check_nothing_ran(place)
    assert len(starts(place)) == 1


@pytest.mark.parametrize("name", ["..", ".git", ".GIT", ".g\u200cit", "git~1", "a/../../evil.txt"])
def test_a_tree_that_leads_out_or_into_gits_own_folder_is_refused(place, repositories, made, name):
    number = sum(ord(c) for c in name)
    folder = made(f"tree-{number}")
    inner = tree(folder, {"config": ("100644", blob(folder, f"[core]\n\tfsmonitor = touch {place.proof}\n".encode()))})
    entry = ("100644", blob(folder, b"x")) if "/" in name else ("40000", inner)
    commit(folder, tree(folder, {name: entry, "a.py": ("100644", blob(folder, b"x = 1\n"))}))
    refused(place, repositories.url(f"tree-{number}"))
    assert not (place.folder / "evil.txt").exists() and not (place.folder.parent / "evil.txt").exists()


@pytest.mark.parametrize("branch", ["-x", "--upload-pack=touch", "$(touch)", "\u00e9"])
def test_a_branch_that_looks_like_an_option_is_only_a_name(place, repositories, made, branch):
    name = f"branch-{sum(ord(c) for c in branch)}"
    folder = made(name)
    commit(folder, tree(folder, {"a.py": ("100644", blob(folder, b"x = 1\n"))}), branch)
    done = place.cli("project", "import", repositories.url(name), "--json")
    assert done.returncode == 0 and paths(place, json.loads(done.stdout)["project_id"]) == ["a.py"], done
    check_nothing_ran(place)


@pytest.mark.parametrize("target", ["file:///etc", "http://169.254.169.254/latest/meta-data/", "ext::touch /tmp/riverrun-attack", "elsewhere"])
def test_a_redirect_is_not_followed(place, repositories, made, target):
    name = f"moved-{sum(ord(c) for c in target)}"
    repositories.redirects[name] = repositories.url("elsewhere") if target == "elsewhere" else target
    repositories.asked.clear()
    refused(place, repositories.url(name))
    assert not [path for path in repositories.asked if path.startswith("/elsewhere")], repositories.asked


def test_a_repository_that_is_not_there_or_has_nothing_is_a_failed_import_that_says_so(place, repositories, made):
    made("nothing")
    for name in ("missing", "nothing"):
        assert refused(place, repositories.url(name)).stderr.strip()
    refusal = place.post("/projects/import", {"source": repositories.url("missing")})
    assert refusal.status == 422 and refusal.json["hint"], refusal
    reply = place.post("/projects/import", {"source": repositories.url("missing")}, headers={"prefer": "respond-async"})
    assert reply.status == 202, reply
    view = wait_for(lambda: (found := place.get(f"/projects/{reply.json['project_id']}").json)["status"] != "importing" and found, 60, "the end")
    assert view["status"] == "failed" and view["error"]["hint"] and view["files"] == 0, view
    assert (view["error"]["code"], view["error"]["hint"]) == (refusal.json["code"], refusal.json["hint"]), (view, refusal)


def test_a_certificate_that_nobody_trusts_is_refused(place, repositories, made, new_server):
    folder = made("untrusted")
    commit(folder, tree(folder, {"a.py": ("100644", blob(folder, b"x = 1\n"))}))
    other = new_server(RIVERRUN_WEB_ALLOW="127.0.0.1").start()
    done = other.cli("project", "import", repositories.url("untrusted"))
    assert done.returncode == 4 and "certificate" in done.stderr.lower(), done


# This server may read this machine by https: that is no refusal.
@pytest.mark.parametrize("source", [one for one in REPOSITORIES if not one.startswith("https://127.0.0.1/")]
                         + ["file:///", "file:///etc/passwd", "FILE:///etc", "git+file:///etc/passwd", "http://127.0.0.1:1/x.git"])
def test_for_an_address_that_is_refused_no_program_is_started(place, source):
    starts(place)
    refused(place, source)
    reply = place.post("/projects/import", {"source": source})
    assert 400 <= reply.status < 500 and reply.json["detail"], reply
    assert starts(place) == []
