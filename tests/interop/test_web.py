"""The web pages in a real browser against the built binary. Needs Chromium and the pages' node_modules: `./x interop`
installs both; without them (a binary tried on its own) the walk is skipped by name. `RIVERRUN_SCREENSHOTS` names the folder that
keeps what the pages looked like; `./x interop` names one, and CONTRIBUTING.md says where."""

import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import pytest

import tiny_model
from server import ROOT, Server, wait_for
from stub_model import StubModel
from test_finetune import BASE, has_base
from test_poison import produce
from test_project_git import CERTIFICATE, GIT, Repositories, blob, commit, git, tree

WEB = Path(__file__).resolve().parents[2] / "web"
BROWSER = shutil.which("chromium") or shutil.which("chromium-headless-shell")


class Control:
    """Lets a walk end and begin its server, until it is closed: a start that is still under way when a try is over would leave a
    server that nobody stops, beside the one of the next try."""

    def __init__(self, server):
        self.acts = {"/stop": server.stop, "/kill": server.kill, "/start": server.start}
        self.closed, self.lock = False, threading.Lock()
        self.http = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def act(self, path):
        """The status of the answer."""
        with self.lock:
            if self.closed:
                return 410
            self.acts[path]()
            return 200

    def close(self):
        """Waits for what is under way; nothing is begun any more."""
        with self.lock:
            self.closed = True
        self.http.shutdown()
        self.http.server_close()

    def handler(self):
        control = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                self.send_response(control.act(self.path))
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        return Handler


pytestmark = pytest.mark.skipif(
    not BROWSER or not (WEB / "node_modules/playwright-core").is_dir(),
    reason="Chromium or web/node_modules is missing; ./x interop installs them",
)


def gallery(folder):
    """A page with all pictures of the folder, to look at them in one go."""
    pictures = sorted(path.relative_to(folder).as_posix() for path in folder.glob("**/*.png"))
    figures = "".join(
        f'<figure><figcaption>{escape(name)}</figcaption><img loading="lazy" width="640" src="{quote(name)}" alt=""></figure>'
        for name in pictures)
    (folder / "index.html").write_text(f'<!doctype html><meta charset="utf-8"><title>Screenshots</title>{figures}\n')
    return pictures


@pytest.fixture
def model():
    """Each try has a scripted model of its own: one that has heard the words of a script before goes on where they were, and a walk
    that is run again would fail of that, whatever the first try failed of."""
    stub = StubModel()
    yield stub
    stub.close()


@pytest.fixture(scope="module", autouse=True)
def pictures(tmp_path_factory):
    """Where pictures go, a folder a walk. Older ones go first: one of a step that is well again would mislead."""
    kept = os.environ.get("RIVERRUN_SCREENSHOTS")
    folder = Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob("**/*.png"), *folder.glob("**/failed.txt")]:
        old.unlink()
    yield folder
    gallery(folder)


def folder_of_try(folder, number):
    """What a second try leaves lies beside what the first one did, which is still there to be looked at."""
    return folder if number < 2 else folder / f"try-{number}"


@pytest.fixture
def screenshots(pictures, request):
    """Where this try's pictures go. Who runs a test again counts its tries."""
    return folder_of_try(pictures, getattr(request.node, "execution_count", 1))


def test_pictures_of_walks_stand_on_one_page(tmp_path):
    for name in ("walk/a.png", "runs/b&c.png"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(b"")
    assert gallery(tmp_path) == ["runs/b&c.png", "walk/a.png"]
    assert "runs/b&amp;c.png" in (tmp_path / "index.html").read_text()


def test_pictures_of_a_second_try_stand_beside_those_of_the_first(tmp_path):
    for number in (1, 2):
        folder = folder_of_try(tmp_path, number) / "walk"
        folder.mkdir(parents=True)
        (folder / "failed-a.png").write_bytes(b"")
    assert gallery(tmp_path) == ["try-2/walk/failed-a.png", "walk/failed-a.png"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_try_meets_a_model_that_has_heard_nothing(model, number):
    words = [base64.b64encode(text).decode() for text in (b"first", b"second")]
    asked = {"messages": [{"role": "user", "content": f"[[id=same says={','.join(words)}]]"}]}
    assert [model.reply_to(asked)["content"] for _ in words] == ["first", "second"]


# What fails, what goes on for too long, and what goes on although it is asked to end.
FAILS = "console.log('ok a'); console.error('not ok b'); process.exitCode = 1"
HANGS = "console.log('ok a'); console.error('not ok b'); setInterval(() => {}, 1000)"
CLINGS = "process.on('SIGTERM', () => {}); " + HANGS


@pytest.mark.parametrize(("script", "ended"), [(FAILS, "ended with 1"), (HANGS, "took longer than 3 s"), (CLINGS, "took longer than 3 s")])
def test_a_walk_that_fails_or_never_ends_keeps_its_words_with_its_pictures(tmp_path, script, ended):
    (tmp_path / "some.mjs").write_text(script)
    with pytest.raises(AssertionError, match="not ok b") as told:
        walk(tmp_path, tmp_path / "some.mjs", timeout=3, grace=1)
    kept = (tmp_path / "some/failed.txt").read_text()
    for words in ("ok a\n", "not ok b\n", ended):
        assert words in kept and words in str(told.value)


def test_a_server_is_not_begun_for_a_try_that_is_over():
    class Fake:
        begun = 0

        def start(self):
            self.begun += 1

        stop = kill = start

    server = Fake()
    control = Control(server)
    assert (control.act("/start"), server.begun) == (200, 1)
    control.close()
    assert (control.act("/start"), server.begun) == (410, 1)


# A walk as those below, without a browser: each try says by what it was served, and fails with its own words.
TRIES = """
import json
from pathlib import Path

def test_tried(new_server, model, tmp_path, screenshots):
    server = new_server("walked")
    met = [path.name for path in server.folder.iterdir()]
    Path(server.folder, "left").write_text("of this try")
    seen = Path({seen!r})
    tries = json.loads(seen.read_text()) if seen.exists() else []
    tries.append({{"met": met, "data": server.env["RIVERRUN_DATA_DIR"], "url": server.url, "model": model.url, "tmp": str(tmp_path), "shots": str(screenshots)}})
    seen.write_text(json.dumps(tries))
    assert False, f"failed in try {{len(tries)}}"
"""


def test_a_walk_that_is_run_again_meets_nothing_of_its_first_try_and_both_are_told(tmp_path):
    seen = tmp_path / "seen.json"
    (tmp_path / "test_tries.py").write_text(TRIES.format(seen=str(seen)))
    # The options that `./x interop` runs all tests with.
    options = next(line.split("set -- ", 1)[1] for line in (ROOT / "x").read_text().splitlines() if "set -- -n 3" in line).split()
    here = Path(__file__).parent
    # Any program: nothing of it is run.
    env = os.environ | {"PYTHONPATH": str(here), "RIVERRUN_BIN": sys.executable, "RIVERRUN_SCREENSHOTS": str(tmp_path / "shots")}
    env = {name: value for name, value in env.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "conftest", "-p", "test_web", "--rootdir", str(tmp_path),
         f"--basetemp={tmp_path / 'base'}", *options, str(tmp_path / "test_tries.py")],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False,
    )
    tries = json.loads(seen.read_text()) if seen.exists() else []
    assert len(tries) == 2, done.stdout + done.stderr
    assert [one["met"] for one in tries] == [[], []]
    for what in tries[0]:
        assert what == "met" or tries[0][what] != tries[1][what], f"both tries have {tries[0][what]}"
    for number in (1, 2):
        assert f"failed in try {number}" in done.stdout, done.stdout


def run_node(script, arguments, timeout, grace):
    """Status and words of a script; the status is None where it had to be ended. It is asked first, so that it ends its browser."""
    with subprocess.Popen(["node", script, *arguments], cwd=WEB, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as node:
        try:
            said = node.communicate(timeout=timeout)[0]
            return node.returncode, said
        except subprocess.TimeoutExpired:
            node.terminate()
        try:
            return None, node.communicate(timeout=grace)[0]
        except subprocess.TimeoutExpired:
            node.kill()
        return None, node.communicate()[0]


def walk(screenshots, script, *arguments, timeout=280, grace=10):
    """Runs a walk of web/e2e; `SHOTS` among the arguments stands for the folder of its screenshots."""
    shots = screenshots / Path(script).stem
    status, said = run_node(WEB / "e2e" / script, [str(shots) if one == "SHOTS" else one for one in arguments], timeout, grace)
    if status == 0 and "not ok" not in said:
        return
    said += f"the walk took longer than {timeout} s\n" if status is None else f"the walk ended with {status}\n"
    # Of a walk that is run again as well: its next try has a folder of its own.
    shots.mkdir(parents=True, exist_ok=True)
    (shots / "failed.txt").write_text(said)
    raise AssertionError(f"{said}screenshots in {shots}")


def walk_with_control(screenshots, server, script, *arguments, timeout=280):
    control = Control(server)
    try:
        walk(screenshots, script, server.url, control.url, "SHOTS", *arguments, timeout=timeout)
    finally:
        control.close()


def test_a_user_walks_through_the_pages(new_server, screenshots):
    walk_with_control(screenshots, new_server("web").start(), "walk.mjs", timeout=400)


def test_a_user_looks_closer_at_nodes_runs_and_documents(new_server, screenshots):
    walk(screenshots, "details.mjs", new_server("details").start().url, "SHOTS", timeout=400)


PRICE = '[[group]]\nas_of = "2026-01-01"\nprovider = "ollama"\nprices = [{ model = "stub", input = 100.0, output = 1000.0 }]\n'


def test_what_a_run_cost_and_what_a_reranker_gave_are_shown(new_server, model, tmp_path, screenshots):
    prices = tmp_path / "prices.toml"
    prices.write_text(PRICE)
    settings = {"RIVERRUN_MODEL_PRICES": str(prices), "RIVERRUN_JINA_API_KEY": "of-nobody", "RIVERRUN_JINA_BASE_URL": model.url}
    walk(screenshots, "figures.mjs", new_server("figures", **settings).start().url, "SHOTS")


def test_pages_keep_to_their_limits(new_server, screenshots):
    walk(screenshots, "limits.mjs", new_server("limits").start().url, "SHOTS")


def test_a_canvas_is_built_and_run_on_a_tablet(new_server, screenshots):
    walk(screenshots, "tablet.mjs", new_server("tablet").start().url, "SHOTS")


# Nobody serves it: a call waits until it is over.
SLOW = '[[tool]]\nname = "slow"\ndescription = "d"\neffect = "external"\ntimeout_s = 600\nkafka = {}\n'


def test_a_run_that_waits_is_resumed_answered_and_compared(new_server, tmp_path, screenshots):
    tools = tmp_path / "tools.toml"
    tools.write_text(SLOW)
    walk_with_control(screenshots, new_server("runs", RIVERRUN_TOOLS_FILE=str(tools)).start(), "runs.mjs", timeout=400)


def test_a_real_model_of_this_machine_runs_a_canvas(tmp_path, screenshots):
    # A small model may go on and on: it is given two turns.
    server = Server(tmp_path / "local", {"RIVERRUN_AGENT_MAX_ITERS": "2"}).start()
    try:
        if not has_base(server):
            pytest.skip(f"{BASE} is not on this machine; ./x models puts it there")
        walk(screenshots, "local.mjs", server.url, "SHOTS", timeout=900)
    finally:
        server.stop()


CHAT, HANDBOOK = "qwen2.5-coder-0.5b-instruct", ROOT / "examples/handbook"


def test_what_a_real_model_writes_grows_on_its_node_and_opens_its_source(tmp_path, screenshots):
    # Without chance: on one machine it writes the same each time.
    settings = {"RIVERRUN_DEFAULT_CHAT_MODEL": CHAT, "RIVERRUN_AGENT_TEMPERATURE": "0", "RIVERRUN_INGEST_ROOTS": str(HANDBOOK)}
    server = Server(tmp_path / "streamed", settings).start()
    try:
        if not has_base(server, CHAT):
            pytest.skip(f"{CHAT} is not on this machine; ./x models puts it there")
        ingested = server.ingest(HANDBOOK, "handbook")
        assert ingested["status"] == "done", ingested
        walk(screenshots, "streamed.mjs", server.url, "SHOTS", str(HANDBOOK), timeout=1800)
    finally:
        server.stop()


def test_a_model_is_tuned_on_its_page(new_server, tmp_path, screenshots):
    tiny_model.write_gguf(tmp_path / "bases" / "tiny-llama")
    settings = {"RIVERRUN_MODELS_DIR": str(tmp_path / "bases"), "RIVERRUN_MODELS_CACHE_DIR": str(tmp_path / "models")}
    walk_with_control(screenshots, new_server("tuning", **settings).start(), "finetune.mjs", "tiny-llama", timeout=400)


def test_code_is_imported_and_reported_on_its_page(new_server, screenshots):
    walk(screenshots, "projects.mjs", new_server("code").start().url, "SHOTS")


@pytest.mark.skipif(GIT is None, reason="needs git")
def test_code_is_imported_from_a_folder_and_a_repository_on_its_page(new_server, tmp_path, screenshots):
    folder, programs = tmp_path / "repositories/walked.git", tmp_path / "programs"
    folder.mkdir(parents=True)
    git(folder, "init", "-q", "--bare", "-b", "main", ".")
    commit(folder, tree(folder, {"a.py": ("100644", blob(folder, b"x = 1\n"))}))
    # Only this git trusts the certificate.
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\nexport GIT_SSL_CAINFO='{CERTIFICATE}'\nexec '{GIT}' \"$@\"\n")
    (programs / "git").chmod(0o755)
    server = new_server("imports", PATH=f"{programs}:/usr/bin:/bin", RIVERRUN_WEB_ALLOW="127.0.0.1").start()
    code = server.folder / "walked-code"
    code.mkdir()
    (code / "a.py").write_text("x = 1\n")
    served = Repositories(folder.parent)
    try:
        walk(screenshots, "imports.mjs", server.url, "SHOTS", str(code), served.url("walked"))
    finally:
        served.close()


def test_a_linter_is_removed_on_the_projects_page_and_one_that_cannot_be_fetched_says_why(new_server, screenshots):
    # The system's programs alone, among which is no linter, and no registry.
    server = new_server("linters", PATH="/usr/bin:/bin", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_FIND_LINKS="",
                        PIP_CONFIG_FILE=os.devnull).start()
    program = server.folder / "data/project-tools/ruff/site/bin/ruff"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    installed = {"version": "0", "starter": "site/bin/ruff", "interpreter": None, "python": False}
    (program.parents[2] / "installed.json").write_text(json.dumps(installed))
    walk(screenshots, "linters.mjs", server.url, "SHOTS", "away")


@pytest.mark.skipif("RIVERRUN_TEST_REGISTRY" not in os.environ, reason="fetches from a package registry: set RIVERRUN_TEST_REGISTRY=1")
def test_a_linter_is_installed_on_the_projects_page(new_server, screenshots):
    walk(screenshots, "linters.mjs", new_server("registry").start().url, "SHOTS", "there", timeout=600)


def test_dead_letters_are_handed_in_again_on_the_system_page(new_server, screenshots):
    server, topic = new_server("system").start(), "riverrun.agent.commands"
    assert server.cli("models", "probe", "stub", "--provider", "ollama").returncode == 0
    produce(server, topic, 0, b"nobody can read this")
    wait_for(lambda: server.get(f"/dlq?topic={topic}").json["items"], 60, "the dead letter", every_s=0.3)
    walk(screenshots, "system.mjs", server.url, "SHOTS", topic)


def test_a_user_signs_in_with_a_token(new_server, screenshots):
    tokens = {"ann": "rr_ann_may_run_agents_here_1", "bob": "rr_bob_may_only_read_here_12"}
    scopes = {"ann": "read+run", "bob": "read"}
    known = ",".join(f"{name}:{hashlib.sha256(token.encode()).hexdigest()}:{scopes[name]}" for name, token in tokens.items())
    server = new_server("tokens", RIVERRUN_API_TOKENS=known).start()
    walk(screenshots, "tokens.mjs", server.url, "SHOTS", tokens["ann"], tokens["bob"])
