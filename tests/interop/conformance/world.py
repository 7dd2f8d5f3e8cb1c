"""What the checks ask: servers with one trait each, and the things that many checks look at. All is made when it is first asked for."""

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sqlite3
import sys
from functools import cached_property
from pathlib import Path

import log_client
import tiny_model
from conformance import mongo, stubs, tiny_encoder
from conformance.exchange import PLACES, Talk
from server import BINARY, ROOT, Server, free_ports, wait_for
from websockets.sync.client import connect

BASE, RERANKER = "tiny-llama", "tiny-cross"
CERTIFICATE, KEY = (str(ROOT / "broker/tests/data" / name) for name in ("server.pem", "server-key.pem"))
SCOPES = ("read", "run", "ingest", "train", "admin")
TOKENS = {"ann": ("rr_ann_may_do_everything_0001", ""), "bob": ("rr_bob_may_only_look_here_02", ":read"),
          "eve": ("rr_eve_is_bound_to_a_team_03", ":read+run:team")} | {scope: (f"rr_one_that_may_only_{scope}_0004", f":{scope}") for scope in SCOPES}
CODE = "import os\nX = StandardScaler().fit_transform(X)\nparts = train_test_split(X, y)\n"
PLAIN = "def f(x):\n    if x:\n        return 1\n    return 2\n"


def examples(count=24):
    """A small dataset of prompts and completions."""
    return "".join(json.dumps({"prompt": f"Say {n}", "completion": f"N={n};"}) + "\n" for n in range(count))


class World:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.model = stubs.RecordingModel()
        self.hosted, self.ranker, self.traces = stubs.openai(), stubs.reranker(), stubs.tracing()
        self.servers, self.services = [], [self.hosted, self.ranker, self.traces]
        self.models = self.folder / "models"
        given = os.environ.get("RIVERRUN_MODELS_DIR")
        PLACES[:] = [(str(self.folder), "TMP"), *([(given, "MODELS")] if given else []), (str(ROOT), "."), (str(Path.home()), "~")]
        tiny_model.write(self.models / BASE)
        tiny_encoder.write(self.models / RERANKER)

    def close(self):
        for server in self.servers:
            server.stop()
        for service in self.services:
            service.close()
        self.model.close()

    # ---- servers -----------------------------------------------------------------------------------------------------

    def place(self, name, **settings):
        """Settings and a folder, and no server: commands host what they need."""
        server = Server(self.folder / name, self.model.settings() | {"RIVERRUN_MODELS_CACHE_DIR": str(self.models)} | settings)
        self.servers.append(server)
        return Talk(server)

    def started(self, name, headers=None, **settings):
        talk = self.place(name, **settings)
        talk.server.start()
        return Talk(talk.server, headers)

    @cached_property
    def main(self):
        """As few settings as tests can do with: chats go to the scripted model, vectors and ranks come from real ones."""
        programs = self.folder / "programs"
        programs.mkdir()
        (programs / "git").write_text(f"#!/bin/sh\nexport GIT_SSL_CAINFO='{CERTIFICATE}'\nexec '{shutil.which('git')}' \"$@\"\n")
        (programs / "git").chmod(0o755)
        # Beside the interpreter of the tests: a linter and a type checker that are of one version everywhere.
        for name in ("ruff", "mypy"):
            (programs / name).symlink_to(Path(sys.executable).with_name(name))
        return self.started("main", RIVERRUN_INGEST_ROOTS=f"{self.folder}:{ROOT / 'examples'}", RIVERRUN_DEFAULT_RERANK_MODEL=RERANKER,
                            RIVERRUN_WEB_ALLOW="127.0.0.1", RIVERRUN_LOG="info", PATH=f"{programs}:/usr/bin:/bin:{os.environ['PATH']}")

    @cached_property
    def changed(self):
        """Every setting with another value than its default, and every service of others that can be had here."""
        return self.started(
            "changed", RIVERRUN_AGENT_MAX_ITERS="2", RIVERRUN_AGENT_TEMPERATURE="0.7", RIVERRUN_CHUNK_SIZE="200", RIVERRUN_CHUNK_OVERLAP="20",
            RIVERRUN_RAG_TOP_K="2", RIVERRUN_MEMORY_WINDOW_TOKENS="256", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed",
            RIVERRUN_TRACING_ENDPOINT=self.traces.url, RIVERRUN_TRACING_PUBLIC_KEY="pk-conformance", RIVERRUN_TRACING_SECRET_KEY="sk-conformance",
            RIVERRUN_TRACING_PROJECT="conformance", RIVERRUN_OPENAI_API_KEY="key-of-openai", RIVERRUN_OPENAI_BASE_URL=f"{self.hosted.url}/v1",
            RIVERRUN_COHERE_API_KEY="key-of-cohere", RIVERRUN_COHERE_BASE_URL=self.ranker.url,
            RIVERRUN_API_HOST="localhost", RIVERRUN_INGEST_ROOTS=str(self.folder))

    @cached_property
    def guarded(self):
        """Tokens are wanted, two streams may be open, and the tracing service is away."""
        known = ",".join(f"{name}:{hashlib.sha256(token.encode()).hexdigest()}{scopes}" for name, (token, scopes) in TOKENS.items())
        [port] = free_ports(1)
        return self.started("guarded", bearer("ann"), RIVERRUN_API_TOKENS=known, RIVERRUN_API_MAX_STREAMS="2",
                            RIVERRUN_TRACING_ENDPOINT=f"http://127.0.0.1:{port}", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")

    @cached_property
    def nobody(self):
        """An address of this machine where nobody listens."""
        [port] = free_ports(1)
        return f"127.0.0.1:{port}"

    @cached_property
    def bare(self):
        """The model runtime is away."""
        return self.started("bare", RIVERRUN_MODEL_RUNTIME_BASE_URL=f"http://{self.nobody}", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed",
                            RIVERRUN_INGEST_ROOTS=str(self.folder))

    @cached_property
    def alone(self):
        """No server, vectors of the scripted model: commands host everything by themselves."""
        return self.place("alone", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")

    # ---- things to look at -------------------------------------------------------------------------------------------

    def file(self, name, text):
        path = self.folder / "files" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    @cached_property
    def handbook(self):
        """A collection of real documents."""
        view = self.main.server.ingest(ROOT / "examples/handbook", "handbook")
        assert view["failed"] == 0 and view["indexed"] == 8, view
        return "handbook"

    @cached_property
    def launches(self):
        """A document that the scripted model's only sentence cites, in two namespaces with other words."""
        for namespace, price in (("default", "9 crowns"), ("team", "7 dollars")):
            text = f"# Charges\n\nIt is as the handbook says: a winch launch costs {price}.\n"
            view = self.main.server.ingest(self.file(f"{namespace}/launches.md", text), "launches", namespace=namespace)
            assert view["indexed"] == 1, view
        return "launches"

    @cached_property
    def recalled(self):
        """A conversation that has outgrown its window; what was said of a dog is an episode of it."""
        said = ["my dog is called Rex and barks", "how nice " * 3, "the winch rope is red " + "and long " * 60, "I see " * 3,
                "the weather is fine " + "and dry " * 60, "yes " * 3] * 2
        for n, text in enumerate(said):
            turn = self.changed.post("/memory/turns", {"role": ("user", "assistant")[n % 2], "text": text, "session": "recalled"})
            assert turn.status == 200, turn
        wait_for(lambda: self.changed.server.get("/memory/context?query=what%20is%20my%20dog%20called&session=recalled").json["episodes"], 30, "an episode")
        return "recalled"

    @cached_property
    def people(self):
        """A table with the name `people`."""
        path = self.file("people.csv", "name,born,fee\nJane Doe,1970-01-31,1.50\nAl O'Hara,1981-05-06,20.00\n")
        view = self.main.server.ingest(path, "people", table="people")
        assert view["indexed"] == 1, view
        return "people"

    @cached_property
    def shop(self):
        """An SQLite database."""
        path = self.folder / "shop.db"
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE products (name TEXT, price REAL)")
            database.executemany("INSERT INTO products VALUES (?, ?)", [("quokka brush", 3.5), ("wombat rope", 7.25)])
        database.close()
        return path

    @cached_property
    def ended(self):
        """A run that has ended, with two calls of a tool."""
        return self.main.run("add up [[steps=2 id=ended]]", agent="react", metadata={"ticket": 7}).json

    def open_run(self, script_id, **more):
        """A run that stays open: it waits for a person."""
        run_id = self.main.server.start_run(f"count [[steps=1 id={script_id}]]", approval="always", **more)
        return run_id, self.asks(run_id)

    def asks(self, run_id):
        """The step that a run waits with."""
        def pending():
            run = self.main.server.get(f"/runs/{run_id}")
            return run.json["pending_approvals"] if run.status == 200 and run.json["status"] == "waiting_approval" else None
        return wait_for(pending, 60, f"{run_id} to ask")[0]["step"]

    @cached_property
    def code(self):
        """A folder of code with a leak of data, and a file to rewrite."""
        folder = self.folder / "code"
        folder.mkdir()
        (folder / "train.py").write_text(CODE)
        (folder / "plain.py").write_text(PLAIN)
        (folder / "requirements.txt").write_text("requests==2.0.0\n")
        return folder

    @cached_property
    def project(self):
        """The id of that folder as a project."""
        answer = self.main.post("/projects/import", {"source": str(self.code)})
        assert answer.status == 200, answer
        return self.imported(answer.json["project_id"])["project_id"]

    def imported(self, project_id):
        def there():
            view = self.main.server.get(f"/projects/{project_id}").json
            return view if view["status"] != "importing" else None
        return wait_for(there, 60, f"{project_id} to be imported")

    @cached_property
    def analysis(self):
        """The answer to a wish to analyze the project without a model, once that is done, and the report."""
        answer = self.main.post(f"/projects/{self.project}/analyze", {"review": False}, headers={"prefer": "respond-async"})
        assert answer.status == 202, answer
        place = answer.headers["location"]
        wait_for(lambda: self.main.server.get(place).status == 200, 120, "the report")
        return answer, self.main.get(place)

    def proposed(self, text, new):
        """The answer to a wish to rewrite `plain.py`, and the proposal once it is made."""
        rewrite = f"```python\n{text}```\n"
        answer = self.main.post(f"/projects/{self.project}/improve", {"file": "plain.py", "instruction": says(rewrite, new)}, headers={"prefer": "respond-async"})
        assert answer.status == 202, answer

        def made():
            found = self.main.server.get(answer.headers["location"])
            return found.status == 200 and found.json["status"] != "proposing"
        wait_for(made, 60, "the proposal")
        return answer, self.main.get(answer.headers["location"])

    def hand_in(self, name, text=None, format="sft"):
        path = self.file(f"{name}.jsonl", text or examples())
        return self.main.cli("finetune", "dataset", name, "--jsonl", path, "--format", format, "--base-model", BASE)

    @cached_property
    def training(self):
        """A training that was asked for by HTTP and followed: the answer, what its stream said, and the job as it ended."""
        self.hand_in("numbers").ok()
        answer = self.main.post("/finetune/jobs", training("numbers"), headers={"idempotency-key": "numbers"})
        assert answer.status == 202, answer
        heard = self.main.socket(f"/ws/finetune/{answer.json['job_id']}?after=0")
        return answer, heard, self.main.get(f"/finetune/jobs/{answer.json['job_id']}")

    def hub(self, name):
        """A model hub that has one repository, `someone/tiny`, and notes what it is asked."""
        source = self.folder / f"hub-{name}"
        tiny_encoder.write(source)
        files = {path.name: path.read_bytes() for path in source.iterdir()}
        answers = {f"/someone/tiny/resolve/main/{file}": content for file, content in files.items()}
        served = stubs.Service(answers | {"/api/models/someone/tiny": {"siblings": [{"rfilename": file} for file in files]}})
        self.services.append(served)
        return served

    def mongo(self):
        """A MongoDB server with a few animals, for as long as it is entered: its address and what it was asked."""
        return mongo.serving({"zoo.animals": [{"_id": "1", "name": "numbat", "legs": 4}, {"_id": "2", "name": "emu", "legs": 2}]})

    @cached_property
    def repository(self):
        """An address of a git repository behind https."""
        from test_project_git import PLAIN_ENVIRONMENT, Repositories
        served = Repositories(self.folder / "repositories")
        self.services.append(served)
        work = self.folder / "repositories/work"
        work.mkdir(parents=True)
        (work / "main.py").write_text("print('hello')\n")
        bare = served.folder / "small.git"
        author = ["-c", "user.name=t", "-c", "user.email=t@example.org"]
        for words in (["init", "-q", "-b", "main", "."], ["add", "."], [*author, "commit", "-q", "-m", "x"], ["clone", "-q", "--bare", ".", str(bare)]):
            subprocess.run(["git", *words], cwd=work, env=PLAIN_ENVIRONMENT, check=True, capture_output=True)
        return served.url("small")


def records(server, topic, key):
    """Types of the records of a topic that have that key, in order."""
    found = [record for record in log_client.read_topic(server.brokers, topic) if record.key() == key.encode()]
    return [log_client.headers(record)["ce_type"].rsplit(".", 1)[1] for record in found]


def bearer(name):
    return {"authorization": f"Bearer {TOKENS[name][0]}"}


def says(answer, script_id):
    """An instruction to which the scripted model gives this answer."""
    from base64 import b64encode
    return f"[[id={script_id} says={b64encode(answer.encode()).decode()}]]"


def training(name, **more):
    return {"name": name, "method": "sft_lora", "dataset": name, "base_model": BASE, "max_steps": 6, "batch_size": 2, "seq_len": 64,
            "learning_rate": 1e-3, "seed": 7, "lora": {"rank": 4, "alpha": 8.0, "dropout": 0.0, "targets": ["q_proj", "v_proj"]}} | more


def serve_refused(talk):
    """`serve` where it must refuse: how it ended and what it said."""
    from conformance.exchange import Done
    process = subprocess.run([BINARY, "serve"], cwd=talk.server.folder, env=talk.server.env, stdin=subprocess.DEVNULL, capture_output=True,
                             text=True, timeout=60, check=False)
    return Done("riverrun serve", process)


def first_message(url, *first):
    """Opens a WebSocket, says something, and gives the first message back while it stays open."""
    stream = connect(url, max_size=None, open_timeout=30)
    for one in first:
        stream.send(json.dumps(one))
    return stream, json.loads(stream.recv(timeout=30))


def held(port):
    """Listens on a port, so that nobody else can; None where somebody has it already."""
    try:
        return socket.create_server(("127.0.0.1", port))
    except OSError:
        return None
