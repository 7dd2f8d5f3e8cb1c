"""Commands: what each prints and how it ends."""

import json
import subprocess

from conformance.core import Group, Told
from conformance.exchange import has, short
from conformance.world import BASE, PLAIN, examples
from server import BINARY, ROOT, wait_for

commands = Group("Commands")


@commands.check("cli.diagnose", "a row for each service with its state, all required ones OK", "diagnose")
def _(w):
    done, as_json = w.main.cli("diagnose").ok(), w.main.cli("diagnose", "--json").ok()
    rows = as_json.json["services"]
    assert all(row["status"] == "up" for row in rows if row["required"]), rows
    assert len(done.out.splitlines()) == len(rows) + 1 and done.out.count(" OK ") >= sum(row["required"] for row in rows), done
    return done.told(said=f"{short(done.out.splitlines()[0], 60)} · a row for each service, required ones OK")


@commands.check("cli.diagnose.missing-keys", "cloud keys that are not set show as missing, and are no failure")
def _(w):
    done, providers = w.main.cli("diagnose").ok(), w.main.cli("providers").ok()
    row = next(line for line in providers.out.splitlines() if line.startswith("openai"))
    assert "missing (RIVERRUN_OPENAI_API_KEY)" in row, providers
    rows = [line for line in done.out.splitlines() if "openai" in line.lower() or "API_KEY" in line]
    assert rows and all("MISSING" in line and "optional" in line for line in rows), done
    return [done.told(said=short(rows[0], 90)), providers.told(said=short(row, 90))]


@commands.check("cli.serve", "starts the API and says where it is; SIGTERM ends it with 0", "serve")
def _(w):
    place = w.place("serve", RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    place.server.start()
    said = wait_for(lambda: next((line for line in place.server.log_path.read_text().splitlines() if "is ready" in line), None), 30, "the line")
    assert place.server.url in said and place.server.brokers in said, said
    assert place.server.stop() == 0
    return Told("riverrun serve; then SIGTERM", f"{said.split(' · data')[0]} · exit 0")


@commands.check("cli.providers", "the providers, with which have keys", "providers")
def _(w):
    done = w.changed.cli("providers", "--json").ok()
    keys = {item["name"]: item["has_key"] for item in done.json["items"]}
    assert keys["openai"] is True and keys["anthropic"] is False and keys["local"] is None, keys
    return done.told(said="openai: set, anthropic: missing, local: not needed")


@commands.check("cli.models", "the models of a provider", "models", "models ls", "models --provider")
def _(w):
    told = []
    for words, name in ((["models"], "stub"), (["models", "--provider", "local"], BASE), (["models", "ls"], "stub")):
        done = w.main.cli(*words).ok()
        assert any(line.startswith(f"{name} ") for line in done.out.splitlines()), done
        told.append(done.told(said=f"{name} among them"))
    return told


@commands.check("cli.models.pull", "fetches a model from the hub", "models pull")
def _(w):
    hub = w.hub("pull")
    done = w.alone.cli("models", "pull", "someone/tiny", RIVERRUN_HUB_BASE_URL=hub.url, RIVERRUN_MODELS_OFFLINE="false",
                       RIVERRUN_MODELS_CACHE_DIR=str(w.folder / "pulled")).ok()
    assert any(folder.is_dir() for folder in (w.folder / "pulled").iterdir()), done
    assert "/someone/tiny/resolve/main/model.safetensors" in hub.paths(), hub.paths()
    return done.told(said="the hub was asked for config, tokenizer and weights; the model's folder is there")


@commands.check("cli.chat", "the model's words, as they come", "chat")
def _(w):
    done = w.main.cli("chat", "hello").ok()
    assert done.out == "It is as the handbook says [1].\n" and "tokens" in done.err, done
    return done.told(said=short(done.out))


@commands.check("cli.embed", "the vector of a text", "embed")
def _(w):
    done = w.main.cli("embed", "a winch").ok()
    assert len(done.out.split()) == 384 and all(float(number) or True for number in done.out.split()), done
    return done.told(said="384 numbers")


@commands.check("cli.ingest", "reads a folder into a collection and counts what became of it", "ingest")
def _(w):
    done = w.main.cli("ingest", ROOT / "examples/handbook", "-c", "cli-handbook").ok()
    assert done.out.startswith("indexed 8 · unchanged 0 · failed 0"), done
    return done.told(said=short(done.out))


@commands.check("cli.collections", "the collections with their counts", "collections")
def _(w):
    name = w.handbook
    done = w.main.cli("collections", "-n", "default").ok()
    row = next(line for line in done.out.splitlines() if line.startswith(f"{name} "))
    assert row.split()[1:3] == ["default", "8"], row
    return done.told(said=short(row))


@commands.check("cli.search", "chunks with their source, place and score", "search")
def _(w):
    done = w.main.cli("search", "what does a winch launch cost", "-c", w.handbook).ok()
    assert done.out.startswith("1. ") and " bytes " in done.out and "(score " in done.out, done
    return done.told(said=short(done.out.splitlines()[0], 90))


@commands.check("cli.warehouse.tables", "the tables with rows, collection and columns", "warehouse tables")
def _(w):
    w.people
    done = w.main.cli("warehouse", "tables").ok()
    row = next(line for line in done.out.splitlines() if line.startswith("people "))
    assert "born DATE" in row, row
    return done.told(said=short(row, 90))


@commands.check("cli.warehouse.query", "rows of a reading statement", "warehouse query")
def _(w):
    done = w.main.cli("warehouse", "query", f"SELECT count(*) AS n FROM {w.people}").ok()
    assert done.out.split() == ["n", "2"], done
    return done.told(said=" ".join(done.out.split()))


@commands.check("cli.stream", "publishes a text on the topic of documents, and takes the topic into a collection until it is idle",
                "stream produce", "stream consume", "stream consume --collection", "stream consume --idle-timeout")
def _(w):
    made = w.main.cli("stream", "produce", "The marmot whistles on Sundays.").ok()
    taken = w.main.cli("stream", "consume", "--collection", "streamed", "--idle-timeout", "1", "--json").ok()
    assert taken.json["topic"] == "riverrun.documents" and taken.json["indexed"] == taken.json["documents"] >= 1, taken
    found = w.main.post("/rag/search", {"query": "marmot", "collection": "streamed"})
    assert "marmot" in found.json["items"][0]["text"], found
    return [made.told(said=short(made.out)), taken.told("documents", "indexed", "failed")]


@commands.check("cli.rag.search", "chunks found by meaning and by words", "rag search")
def _(w):
    done = w.main.cli("rag", "search", "winch launch", "-c", w.handbook, "--json").ok()
    has(done.json, "items took_ms")
    assert len(done.json["items"]) == 5, done
    return done.told("items", "items.0.source")


@commands.check("cli.rag.ask", "an answer with its citations", "rag ask")
def _(w):
    done = w.main.cli("rag", "ask", "what does a winch launch cost?", "-c", w.launches).ok()
    lines = [line for line in done.out.splitlines() if line.strip()]
    assert lines[0] == "It is as the handbook says [1]." and lines[1].startswith("[1] ") and "launches.md bytes" in lines[1], done
    return done.told(said=f"{lines[0]} [1] …launches.md bytes A..B “quote”")


@commands.check("cli.memory", "keeps a turn, chats with what was said in mind, and shows what a model is shown",
                "memory add", "memory chat", "memory context")
def _(w):
    talk = ("-n", "team", "-s", "cli")
    added = w.main.cli("memory", "add", "user", "the rope is in the red box", *talk).ok()
    chatted = w.main.cli("memory", "chat", "hello", *talk).ok()
    shown = w.main.cli("memory", "context", *talk).ok()
    assert added.out.startswith("trn_") and "handbook" in chatted.out and "shown: 1 turn," in chatted.err, (added, chatted)
    assert "user: the rope is in the red box" in shown.out and "user: hello" in shown.out, shown
    return [added.told(said=short(added.out)), chatted.told(said=short(chatted.out)), shown.told(said=short(shown.out, 90))]


@commands.check("cli.agents", "the agent types", "agents")
def _(w):
    done = w.main.cli("agents").ok()
    names = [line.split()[0] for line in done.out.splitlines()[1:]]
    assert names == ["react", "plan_execute", "reflexion", "critic"], done
    return done.told(said=", ".join(names))


@commands.check("cli.tools", "the tools", "tools")
def _(w):
    done = w.main.cli("tools").ok()
    assert any(line.startswith("calculator ") for line in done.out.splitlines()), done
    return done.told(said="calculator among them")


@commands.check("cli.agent.run", "runs an agent and prints its answer", "agent run")
def _(w):
    done = w.main.cli("agent", "run", "add [[steps=2 id=cli-run]]", "--agent", "react").ok()
    assert done.out == "done after 2 steps\n" and "succeeded" in done.err, done
    return done.told(said=short(done.out))


@commands.check("cli.finetune.dataset", "checks a file of examples and keeps it under a name", "finetune dataset")
def _(w):
    done = w.hand_in("cli-numbers").ok()
    assert "examples    24" in done.out, done
    return done.told(said=short(done.out, 90))


@commands.check("cli.finetune.train", "trains, follows the training, and names the version", "finetune train",
                "finetune train --dataset", "finetune train --name", "finetune train --max-steps")
def _(w):
    path = w.file("letters.jsonl", examples())
    done = w.main.cli("finetune", "train", "--dataset", path, "--name", "letters", "--max-steps", "2", "--base-model", BASE, "--seq-len", "64", "--json").ok()
    assert (done.json["status"], done.json["step"], done.json["model"]) == ("succeeded", 2, "letters@1"), done
    return done.told("status", "step", "model")


@commands.check("cli.finetune.jobs", "the trainings", "finetune jobs")
def _(w):
    _, _, job = w.training
    done = w.main.cli("finetune", "jobs").ok()
    row = next(line for line in done.out.splitlines() if job.json["job_id"] in line)
    return done.told(said=short(row, 90))


@commands.check("cli.finetune.registry", "the versions of models", "finetune registry")
def _(w):
    w.training
    done = w.main.cli("finetune", "registry").ok()
    row = next(line for line in done.out.splitlines() if line.startswith("numbers@1") or line.startswith("numbers "))
    return done.told(said=short(row, 90))


@commands.check("cli.finetune.eval", "measures answers against references", "finetune eval")
def _(w):
    path = w.file("samples.jsonl", '{"prediction": "the cat sat", "reference": "the cat"}\n')
    done = w.main.cli("finetune", "eval", path).ok()
    assert "rouge1" in done.out and "0.8000" in done.out, done
    return done.told(said="rouge1 … f1 0.8000")


@commands.check("cli.project.import", "copies a folder, a zip archive or a git repository and gives an id", "project import")
def _(w):
    from conformance.routes import zipped
    archive = w.folder / "files/code.zip"
    archive.parent.mkdir(exist_ok=True)
    archive.write_bytes(zipped())
    told = []
    for source, files in ((w.code, 3), (archive, 1), (w.repository, 1)):
        done = w.main.cli("project", "import", source, "--json").ok()
        assert done.json["files"] == files and done.json["project_id"].startswith("prj_"), done
        told.append(done.told("status", "files"))
    return told


@commands.check("cli.project.analyze", "analyzes the copy and prints the report", "project analyze")
def _(w):
    done = w.main.cli("project", "analyze", w.project, "--no-review").ok()
    assert "fit-before-split" in done.out and "train.py:2" in done.out, done
    return done.told(said="train.py:2 … fit-before-split, with all other findings")


@commands.check("cli.project.report", "the newest report; as JSON where that is asked for", "project report", "project report --json")
def _(w):
    w.analysis
    people, as_json = w.main.cli("project", "report", w.project).ok(), w.main.cli("project", "report", w.project, "--json").ok()
    has(as_json.json, "summary findings metrics")
    assert "fit-before-split" in people.out, people
    return [people.told(said="findings, the worst first"), as_json.told("summary", "findings")]


@commands.check("cli.project.improve", "shows a model's rewrite of a file as a diff", "project improve")
def _(w):
    from conformance.world import says
    rewrite = says(f"```python\n{PLAIN.replace('return 1', 'return 5')}```\n", "cli-improve")
    done = w.main.cli("project", "improve", w.project, "--file", "plain.py", "--instruction", rewrite).ok()
    assert "-        return 1\n+        return 5" in done.out, done
    return Told("riverrun project improve prj_… --file plain.py --instruction …", done.told(said="- return 1 / + return 5").came)


@commands.check("cli.project.apply", "writes the newest proposal to the copy", "project apply")
def _(w):
    w.proposed(PLAIN.replace("return 2", "return 6"), "cli-apply")
    done = w.main.cli("project", "apply", w.project, "--file", "plain.py", "--yes").ok()
    text = w.main.get(f"/projects/{w.project}/file?path=plain.py")
    w.main.cli("project", "revert", w.project, "--file", "plain.py").ok()
    assert done.out.startswith("plain.py  ") and "return 6" in text.body.decode(), (done, text)
    return done.told(said=short(done.out))


# ---- beyond the core -----------------------------------------------------------------------------------------------------

@commands.check("cli.runs", "lists, shows and follows runs", "runs ls", "runs show", "runs watch")
def _(w):
    run_id = w.ended["run_id"]
    listed, shown, watched = (w.main.cli("runs", *words).ok() for words in (("ls",), ("show", run_id), ("watch", run_id)))
    assert run_id in listed.out and "done after 2 steps" in shown.out and watched.out.count("calculator(") == 2, (listed, shown, watched)
    row = next(line for line in listed.out.splitlines() if run_id in line)
    return [listed.told(said=short(row, 90)), shown.told(said=short(shown.out, 90)), watched.told(said=short(watched.out, 90))]


@commands.check("cli.runs.answer", "approves, denies, resumes, forks and cancels", "runs approve", "runs approve --deny", "runs approve --note", "runs resume",
                "runs fork", "runs fork --at-seq", "runs cancel")
def _(w):
    from conformance.rules import tool_steps
    run_id, step = w.open_run("cli-answer")
    told = []

    def tell(*words):
        done = w.main.cli("runs", *words).ok()
        assert done.out.strip() or done.err.strip(), done
        told.append(done.told(said=short(done.out or done.err, 90)))

    tell("resume", run_id)
    tell("approve", run_id, step)
    assert w.main.server.run_end(run_id)["status"] == "succeeded"
    denied, asking = w.open_run("cli-deny")
    tell("approve", denied, asking, "--deny", "--note", "not today")
    w.main.server.run_end(denied)
    left_out = [one["error"] for one in tool_steps(w.main.get(f"/runs/{denied}").json) if one.get("error")]
    assert left_out and "not today" in json.dumps(left_out), left_out
    forked = w.main.cli("runs", "fork", run_id, "--at-seq", "0", "--json").ok()
    fork = forked.json["run_id"]
    w.asks(fork)
    tell("cancel", fork)
    assert w.main.server.run_end(fork)["status"] == "cancelled"
    return [*told, forked.told("run_id", "status")]


@commands.check("cli.worker", "one kind of worker as a process of its own, which wants a log and stores that others reach", "worker")
def _(w):
    # Empty is as good as unset, also where all servers of the tests have a Kafka.
    done = w.alone.cli("worker", "embedder", RIVERRUN_KAFKA_BROKERS="")
    told = [done.failed(2, "RIVERRUN_KAFKA_BROKERS")]
    place = w.place("worker", RIVERRUN_KAFKA_BROKERS=w.changed.server.brokers, RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    log = place.server.folder / "worker.log"
    with open(log, "wb") as out:
        process = subprocess.Popen([BINARY, "worker", "embedder"], cwd=place.server.folder, env=place.server.env, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
    try:
        wait_for(lambda: "embedder" in log.read_text() or process.poll() is not None, 60, "the worker to begin")
        assert process.poll() is None, log.read_text()
    finally:
        process.terminate()
        code = process.wait(30)
    assert code == 0, log.read_text()
    return [*told, Told("RIVERRUN_KAFKA_BROKERS=… riverrun worker embedder; then SIGTERM", f"{short(log.read_text().splitlines()[0], 90)} · exit {code}")]


@commands.check("cli.dlq", "lists, shows, drops and sends again what could not be handled", "dlq ls", "dlq show", "dlq drop", "dlq redrive")
def _(w):
    from test_poison import produce
    topic = "riverrun.agent.commands"
    for _ in range(2):
        produce(w.main.server, topic, 0, b"nobody can read this")

    def letters():
        items = json.loads(w.main.server.cli("dlq", "ls", "--topic", topic, "--json").stdout)["items"]
        return [item["id"] for item in items if item["status"] == "open"] if len(items) >= 2 else None

    first, second = wait_for(letters, 60, "two dead letters", every_s=0.3)[:2]
    listed, shown = w.main.cli("dlq", "ls").ok(), w.main.cli("dlq", "show", first).ok()
    dropped, redriven = w.main.cli("dlq", "drop", first).ok(), w.main.cli("dlq", "redrive", second).ok()
    assert first in listed.out and "dropped" in dropped.out and topic in redriven.out, (listed, dropped, redriven)
    return [listed.told(said="both, with reasons"), shown.told(said="its bytes"), dropped.told(said="marked as dropped"), redriven.told(said="on its topic again")]


@commands.check("cli.topics", "the topics of the log", "topics")
def _(w):
    done = w.main.cli("topics").ok()
    assert "riverrun.agent.commands" in done.out and "riverrun.agent.events" in done.out, done
    return done.told(said="riverrun.agent.commands, riverrun.agent.events, …")


@commands.check("cli.docs", "lists the documents of a collection, and removes one", "docs ls", "docs rm")
def _(w):
    w.main.server.ingest(w.file("docs/crane.md", "# Crane\n\nA crane dances.\n"), "docs")
    listed = w.main.cli("docs", "ls", "-c", "docs", "--json").ok()
    removed = w.main.cli("docs", "rm", listed.json["items"][0]["document_id"]).ok()
    assert len(listed.json["items"]) == 1, listed
    return [listed.told("items"), removed.told(said=short(removed.out, 90))]


@commands.check("cli.completion", "completion for a shell", "completion")
def _(w):
    done = w.alone.cli("completion", "bash").ok()
    assert "complete -F _riverrun" in done.out, done.out[-300:]
    return done.told(said="complete -F _riverrun …")


@commands.check("cli.openapi", "the description of the API, the same as a server's", "openapi")
def _(w):
    done = w.alone.cli("openapi").ok()
    assert done.json["paths"] == w.main.get("/openapi.json").json["paths"], "they differ"
    return done.told("openapi", said=f"{len(done.json['paths'])} paths")
