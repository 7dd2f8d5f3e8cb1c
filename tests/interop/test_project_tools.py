"""Linters and type checkers in the data folder: listed, installed on request from a package registry, used before those of the PATH,
removed; and what is said without a registry. Registries here are folders and servers of this machine: nothing is fetched from elsewhere."""

import hashlib
import http.server
import json
import os
import shutil
import subprocess
import threading

import pytest

from server import BINARY, ROOT
from test_project_analysis import analyzed, found

LISTED = {"ruff", "mypy", "pyright", "ty", "eslint", "typescript-eslint", "tsc", "go-vet", "staticcheck", "clippy"}


def tools_of(server, **settings):
    done = server.cli("project", "tools", "ls", "--json", **settings)
    assert done.returncode == 0, done
    return {tool["name"]: tool for tool in json.loads(done.stdout)["items"]}


def test_every_tool_is_listed_with_its_place_or_what_to_do(server):
    tools = tools_of(server)
    assert set(tools) == LISTED
    assert {tool["name"]: tool for tool in server.get("/projects/tools").json["items"]} == tools
    for name, tool in tools.items():
        assert tool["status"] in ("installed", "path", "missing"), tool
        assert tool["status"] != "missing" or tool["fix"], tool
        assert (tool["version"] is None) == (name in ("go-vet", "clippy")), tool
    assert not tools["clippy"]["allowed"] and "RIVERRUN_PROJECT_PROGRAMS" in tools["clippy"]["fix"], tools["clippy"]
    done = server.cli("project", "tools", "ls")
    assert done.returncode == 0 and "staticcheck" in done.stdout, done


@pytest.mark.parametrize("name, code", [("left-pad", "tool_not_found"), ("ruff==0.1", "tool_not_found"), ("../ruff", "tool_not_found"),
                                        ("git+https://h/x", "tool_not_found"), ("clippy", "not_installable"), ("go-vet", "not_installable")])
def test_what_is_not_in_the_table_is_not_installed(server, name, code):
    reply = server.post("/projects/tools", {"names": [name]})
    assert reply.status in (404, 422) and reply.json["code"] == code and reply.json["hint"], reply
    done = server.cli("project", "tools", "install", "--", name)
    assert done.returncode == 4 and "hint:" in done.stderr, done
    assert server.cli("project", "tools", "rm", "--", name).returncode == 4


def test_names_are_wanted(server):
    assert server.post("/projects/tools", {"names": []}).status == 422
    assert server.post("/projects/tools", {"names": ["ruff"] * 33}).status == 422
    assert server.cli("project", "tools", "install").returncode == 2


def has_pip():
    return any(subprocess.run([python, "-I", "-c", "import pip"], check=False, capture_output=True).returncode == 0
               for python in filter(None, [shutil.which("python3", path=folder) for folder in os.get_exec_path()]))


@pytest.mark.parametrize("name, settings", [
    ("ruff", {"PIP_INDEX_URL": "http://127.0.0.1:9/simple", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull}),
    ("eslint", {"NPM_CONFIG_REGISTRY": "http://127.0.0.1:9/", "npm_config_registry": "http://127.0.0.1:9/"}),
])
def test_without_a_registry_it_is_said_what_failed_and_what_to_do_and_nothing_is_left(new_server, name, settings):
    if not (has_pip() if name == "ruff" else shutil.which("npm")):
        pytest.skip("its client is not on this machine")
    other = new_server(**settings)
    done = other.cli("project", "tools", "install", name)
    assert done.returncode == 3, done
    assert name in done.stderr and "registry can't be reached" in done.stderr and "hint:" in done.stderr, done
    folder = other.folder / "data/project-tools"
    assert not folder.exists() or list(folder.iterdir()) == []
    assert tools_of(other)[name]["status"] != "installed"


def test_a_client_that_is_missing_is_named(new_server):
    other = new_server(PATH="/no/such/folder")
    for name, client in (("ruff", "pip"), ("eslint", "node"), ("staticcheck", "go")):
        done = other.cli("project", "tools", "install", name)
        assert done.returncode == 4 and client in done.stderr and "hint:" in done.stderr, (name, done)


class Tampered(http.server.BaseHTTPRequestHandler):
    """An index of Python packages that has a wheel of the right name and version, and other contents."""

    wheel = b"PK\x05\x06" + bytes(18)

    def do_GET(self):
        is_page = self.path.endswith("/")
        name = self.server.wheel
        sha256 = hashlib.sha256(self.wheel).hexdigest()
        body = f'<a href="/files/{name}#sha256={sha256}">{name}</a>'.encode() if is_page else self.wheel
        self.send_response(200)
        self.send_header("content-type", "text/html" if is_page else "application/octet-stream")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def test_a_package_with_other_contents_than_its_lock_says_is_refused(new_server):
    if not has_pip():
        pytest.skip("no python3 has pip")
    version = tools_of(new_server())["ruff"]["version"]
    index = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Tampered)
    index.wheel = f"ruff-{version}-py3-none-any.whl"
    threading.Thread(target=index.serve_forever, daemon=True).start()
    try:
        other = new_server(PIP_INDEX_URL=f"http://127.0.0.1:{index.server_port}/simple", PIP_FIND_LINKS="", PIP_CONFIG_FILE=os.devnull)
        done = other.cli("project", "tools", "install", "ruff")
    finally:
        index.shutdown()
    assert done.returncode == 4 and "ruff" in done.stderr and "hash" in done.stderr.lower(), done
    assert tools_of(other)["ruff"]["status"] != "installed"


# Answers as ruff does, with one finding in every file of Python.
STAND_IN = """#!/bin/sh
case "$1" in --version) echo "ruff 0"; exit 0;; esac
printf '[{"code":"F999","filename":"%s/a.py","location":{"row":1,"column":1},"message":"by the one in the data folder"}]' "$(pwd)"
"""


def test_a_tool_of_the_data_folder_is_used_before_the_path_until_it_is_removed(new_server):
    server = new_server().start()
    own = server.folder / "data/project-tools/ruff"
    program = own / "site/bin/ruff"
    program.parent.mkdir(parents=True)
    program.write_text(STAND_IN)
    program.chmod(0o755)
    (own / "installed.json").write_text(json.dumps({"version": "0", "starter": "site/bin/ruff", "interpreter": None, "python": False}))
    tool = tools_of(server)["ruff"]
    assert (tool["status"], tool["installed_version"], tool["program"]) == ("installed", "0", str(program)), tool
    _, report = analyzed(server, {"a.py": "x = 1\n"})
    assert found(report, "ruff") == [("F999", "a.py", 1)], report["tools"]
    # Removing leaves the PATH as it is.
    done = server.cli("project", "tools", "rm", "ruff", "--json")
    assert done.returncode == 0 and not own.exists(), done
    tool = next(one for one in json.loads(done.stdout)["items"] if one["name"] == "ruff")
    assert tool["status"] == ("path" if shutil.which("ruff", path=server.env["PATH"]) else "missing"), tool
    done = server.cli("project", "tools", "rm", "ruff")
    assert done.returncode == 4 and "not installed" in done.stderr, done
    _, report = analyzed(server, {"a.py": "x = 1\n"})
    assert ("F999", "a.py", 1) not in found(report, "ruff")
    run = next(one for one in report["tools"] if one["name"] == "ruff")
    assert run["status"] == "ran" or "riverrun project tools install ruff" in run["fix"], run


@pytest.mark.skipif("RIVERRUN_TEST_REGISTRY" not in os.environ,
                    reason="fetches from package registries: set RIVERRUN_TEST_REGISTRY=1")
@pytest.mark.parametrize("name", ["ruff", "mypy", "ty", "pyright", "eslint", "typescript-eslint", "tsc", "staticcheck"])
def test_each_tool_is_installed_from_its_registry_and_runs(new_server, name):
    server = new_server().start()
    done = server.cli("project", "tools", "install", name, "--json", timeout=600)
    assert done.returncode == 0, done
    tool = next(one for one in json.loads(done.stdout)["items"] if one["name"] == name)
    assert tool["status"] == "installed" and tool["installed_version"] == tool["version"], tool
    _, report = analyzed(server, {
        "a.py": "import os\nx: int = 'a'\n", "c.js": "if (x = 1) { }\n", "b.ts": "const n: number = 'a';\nexport default n as any;\n",
        # Settings of a project are code of it: they are not read.
        "eslint.config.mjs": "throw new Error('read');\n", "tsconfig.json": "{ broken",
        "go.mod": "module m\n\ngo 1.20\n", "d.go": 'package m\n\nimport "fmt"\n\nfunc F() { fmt.Printf("%d", "x") }\n'})
    run = next(one for one in report["tools"] if one["name"] == name)
    assert run["status"] == "ran" and run["findings"] > 0, run
    before = (server.folder / f"data/project-tools/{name}/installed.json").stat().st_mtime_ns
    assert server.cli("project", "tools", "install", name).returncode == 0
    assert (server.folder / f"data/project-tools/{name}/installed.json").stat().st_mtime_ns == before, "it was there already"


@pytest.mark.skipif("RIVERRUN_TEST_REGISTRY" not in os.environ, reason="fetches from a package registry: set RIVERRUN_TEST_REGISTRY=1")
def test_the_example_of_tools_runs_as_it_stands(new_server):
    place = new_server()
    done = subprocess.run([ROOT / "examples/project_tools.sh"], env=place.env | {"RIVERRUN": str(BINARY)}, cwd=place.folder,
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "ruff/F821" in done.stdout, done
    assert not (place.folder / "data/project-tools/ruff").exists()
