"""Options of commands: what each changes."""

import json
import re
import subprocess
import time

from conformance.core import Group, Told
from conformance.exchange import Done, has, short
from conformance.world import PLAIN, says
from server import BINARY, ROOT, wait_for

flags = Group("Options")


@flags.check("flag.models.provider", "another provider's models", "models --provider")
def _(w):
    done = w.changed.cli("models", "--provider", "openai", "--json").ok()
    assert [item["name"] for item in done.json["items"]] == ["hosted"], done
    return done.told("items.0.name", "items.0.provider")


@flags.check("flag.chat.provider-model", "another provider and model answer", "chat --provider", "chat --model")
def _(w):
    done = w.changed.cli("chat", "hello", "--provider", "openai", "--model", "hosted").ok()
    method, path, headers, body = w.hosted.asked[-1]
    assert done.out == "hosted words\n" and headers["authorization"] == "Bearer key-of-openai" and json.loads(body)["model"] == "hosted", (done, body)
    return done.told(said=f"{short(done.out)} · {method} {path} with the key")


@flags.check("flag.chat.no-stream", "the answer at once instead of as it comes", "chat --no-stream")
def _(w):
    done = w.main.cli("chat", "hello", "--no-stream").ok()
    assert done.out == "It is as the handbook says [1].\n" and re.fullmatch(r"stub · \d+ tokens\n", done.err), done
    return done.told(said=short(done.out))


@flags.check("flag.chat.temperature", "the sampling temperature", "chat -t")
def _(w):
    done = w.main.cli("chat", "hello [[steps=0 id=flag-temperature]]", "-t", "0.9").ok()
    [chat] = w.model.chats_of("flag-temperature")
    assert abs(chat["options"]["temperature"] - 0.9) < 1e-6, chat["options"]
    return [done.told(said="the model was asked with temperature 0.9"), w.main.cli("chat", "hello", "-t", "9").failed(4, "temperature")]


@flags.check("flag.ingest.collection", "the collection that is filled", "ingest -c")
def _(w):
    done = w.main.cli("ingest", w.file("flags/owl.md", "# Owl\n\nAn owl sees at night.\n"), "-c", "flag-owls").ok()
    assert "default/flag-owls" in done.out, done
    return done.told(said=short(done.out))


@flags.check("flag.ingest.table", "a tabular source becomes a table of the warehouse, too", "ingest --table")
def _(w):
    done = w.main.cli("ingest", w.file("flags/birds.csv", "bird,eggs\nowl,4\nwren,6\n"), "-c", "flag-birds", "--table", "birds").ok()
    rows = w.main.cli("warehouse", "query", "SELECT sum(eggs) AS eggs FROM birds").ok()
    assert rows.out.split() == ["eggs", "10"], rows
    return [done.told(said=short(done.out)), rows.told(said=" ".join(rows.out.split()))]


@flags.check("flag.ingest.type-inferred", "the type of a source follows from its extension")
def _(w):
    done = w.main.cli("ingest", w.file("flags/cells.csv", "animal;legs\nwombat;4\n"), "-c", "flag-inferred").ok()
    found = w.main.cli("search", "wombat", "-c", "flag-inferred", "--json").ok()
    assert "animal: wombat; legs: 4" in found.json["items"][0]["text"], found
    return [done.told(said=short(done.out)), found.told("items.0.text")]


@flags.check("flag.ingest.type", "the type can be forced, in both spellings", "ingest -t", "ingest --type")
def _(w):
    path, told = w.file("flags/cells.txt", "animal,legs\nquoll,4\n"), []
    for at, spelling in enumerate(("-t", "--type")):
        done = w.main.cli("ingest", path, "-c", f"flag-type-{at}", spelling, "csv").ok()
        found = w.main.cli("search", "quoll", "-c", f"flag-type-{at}", "--json").ok()
        assert "animal: quoll; legs: 4" in found.json["items"][0]["text"], found
        told.append(done.told(said="read as a table"))
    return told


@flags.check("flag.ingest.sql", "rows of a database, by one SELECT", "ingest --query", "ingest -t")
def _(w):
    done = w.main.cli("ingest", f"sqlite:{w.shop}", "-t", "sql", "--query", "SELECT name FROM products WHERE price > 5", "-c", "flag-sql").ok()
    found = w.main.cli("search", "wombat rope", "-c", "flag-sql", "--json").ok()
    texts = " ".join(item["text"] for item in found.json["items"])
    assert "wombat rope" in texts and "quokka" not in texts, found
    refused = w.main.cli("ingest", f"sqlite:{w.shop}", "-t", "sql", "--query", "DELETE FROM products", "-c", "flag-sql")
    assert refused.code in (1, 4), refused
    return [done.told(said=short(done.out)), refused.failed(refused.code, "hint:")]


@flags.check("flag.ingest.mongo", "documents of a collection, by a filter", "ingest -t")
def _(w):
    with w.mongo() as (address, asked):
        done = w.alone.cli("ingest", f"mongodb://{address}/zoo/animals", "-t", "mongo", "--query", '{"legs": 4}', "-c", "flag-mongo").ok()
        assert {"find": "animals", "filter": {"legs": 4}} in [{key: one.get(key) for key in ("find", "filter")} for one in asked], asked
    found = w.alone.cli("search", "numbat", "-c", "flag-mongo", "--json").ok()
    refused = w.alone.cli("ingest", f"mongodb://{address}/zoo/animals", "-t", "mongo", "--query", '{"$where": "1"}', "-c", "flag-mongo")
    assert "numbat" in found.json["items"][0]["text"], found
    return [done.told(said=short(done.out)), refused.failed(refused.code, "$where")]


@flags.check("flag.ingest.late", "chunks are embedded within their document, by a model of the hub in the process", "ingest --strategy", "ingest --embed-backend")
def _(w):
    done = w.main.cli("ingest", ROOT / "examples/handbook/charges.md", "-c", "flag-late", "--strategy", "late", "--embed-backend", "hf").ok()
    found = w.main.cli("search", "winch launch", "-c", "flag-late", "--json").ok()
    assert found.json["items"], found
    return [done.told(said=short(done.out)), found.told("items", "embed_model")]


@flags.check("flag.ingest.raptor", "a tree of summaries stands above the chunks", "ingest --strategy")
def _(w):
    text = "\n\n".join(f"River number {n} rises in the hills of county {n} and {'flows on ' * (20 + n % 5)}to the sea." for n in range(30))
    done = w.main.cli("ingest", w.file("flags/rivers.txt", text), "-c", "flag-raptor", "--strategy", "raptor", "--chunk-size", "300", "--chunk-overlap", "0").ok()
    found = w.main.post("/rag/search", {"query": "rivers", "collection": "flag-raptor", "k": 100, "rerank": False})
    layers = [item["metadata"]["layer"] for item in found.json["items"] if item["metadata"].get("layer")]
    assert layers, found
    return [done.told(said=short(done.out)), found.told("items", said=f"{len(layers)} of them summaries")]


@flags.check("flag.search", "which collection is searched, and how many results come", "search -c", "search -k", "rag search -c", "rag search -k")
def _(w):
    told = []
    for words in (["search"], ["rag", "search"]):
        done = w.main.cli(*words, "launch", "-c", w.handbook, "-k", "2", "--json").ok()
        assert len(done.json["items"]) == 2, done
        told.append(done.told("items"))
    return told


@flags.check("flag.rag.namespace", "the namespace whose collection is read", "rag search --namespace", "rag ask -c", "rag ask --namespace")
def _(w):
    told = []
    for words in (["rag", "search"], ["rag", "ask"]):
        done = w.main.cli(*words, "what does a winch launch cost?", "-c", w.launches, "--namespace", "team", "--json").ok()
        assert "7 dollars" in done.out and "crowns" not in done.out, done
        told.append(done.told(said="7 dollars, of the namespace alone"))
    return told


@flags.check("flag.stream.topic", "another topic than the usual one", "stream produce --topic")
def _(w):
    made = w.main.cli("stream", "produce", "The lynx purrs.", "--topic", "lynxes", "--json").ok()
    taken = w.main.cli("stream", "consume", "--collection", "flag-lynx", "--topic", "lynxes", "--idle-timeout", "1", "--json").ok()
    assert made.json["topic"] == "lynxes" and taken.json["indexed"] == 1, (made, taken)
    return [made.told("topic", "offset"), taken.told("topic", "indexed")]


@flags.check("flag.stream.idle-timeout", "reading goes on as long as documents come, and ends once none has come for the idle time")
def _(w):
    from confluent_kafka import Producer
    idle_s, more = 2.5, 6
    w.main.cli("stream", "produce", "Vole 0 digs.", "--topic", "voles").ok()
    producer = Producer({"bootstrap.servers": w.main.server.brokers})
    words = ["stream", "consume", "--topic", "voles", "--collection", "flag-voles", "--idle-timeout", str(idle_s), "--json"]
    process = subprocess.Popen([BINARY, *words], cwd=w.main.server.folder, env=w.main.server.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        wait_for(lambda: (w.main.server.get("/documents?collection=flag-voles").json or {}).get("items"), 60, "the first document")
        began = last = time.monotonic()
        for n in range(1, more + 1):
            try:
                process.wait(0.5)
            except subprocess.TimeoutExpired:
                pass  # it reads on, as it should
            else:
                raise AssertionError(f"it ended {time.monotonic() - last:.1f} s after a document: {process.communicate()}")
            last = time.monotonic()
            producer.produce("voles", f"Vole {n} digs.".encode())
            assert producer.flush(15) == 0
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    silent_s = time.monotonic() - last
    done = Done(f"riverrun {' '.join(words)}", subprocess.CompletedProcess([], process.returncode, out, err)).ok()
    assert last - began > idle_s and silent_s >= idle_s and done.json["documents"] == more + 1, (last - began, silent_s, done)
    return done.told("documents", said=f"{more} of them came one after the other for longer than the idle time; it ended when none had come for that long")


@flags.check("flag.memory", "namespace and session of a conversation", "memory add -n", "memory add -s", "memory chat -n", "memory chat -s",
             "memory context -n", "memory context -s")
def _(w):
    w.main.cli("memory", "add", "user", "the key is under the mat", "-n", "team", "-s", "flags").ok()
    chatted = w.main.cli("memory", "chat", "hello", "-n", "team", "-s", "flags", "--json").ok()
    mine, other = (w.main.cli("memory", "context", "-n", "team", "-s", session, "--json").ok() for session in ("flags", "others"))
    assert chatted.json["turns_shown"] == 1 and len(mine.json["turns"]) == 3 and other.json["turns"] == [], (mine, other)
    return [chatted.told("turns_shown"), mine.told("turns"), other.told("turns")]


@flags.check("flag.memory.query", "what resembles a text is recalled", "memory context --query")
def _(w):
    without, done = (w.changed.cli("memory", "context", *words, "-s", w.recalled, "--json").ok() for words in ((), ("--query", "what is my dog called?")))
    assert without.json["episodes"] == [] and "Rex" in done.json["episodes"][0]["text"], (without, done)
    return [without.told("episodes"), done.told("episodes.0.kind", "episodes.0.text")]


@flags.check("flag.agent.agent", "the agent that runs", "agent run --agent")
def _(w):
    told = []
    for name in ("react", "plan_execute", "reflexion", "critic"):
        done = w.main.cli("agent", "run", f"add [[steps=1 id=flag-{name}]]", "--agent", name, "--json").ok()
        assert (done.json["agent"], done.json["status"]) == (name, "succeeded"), done
        told.append(done.told("agent", "answer"))
    return told


@flags.check("flag.agent.steps", "the reasoning trace", "agent run --steps")
def _(w):
    done = w.main.cli("agent", "run", "add [[steps=1 id=flag-steps]]", "--agent", "react", "--steps").ok()
    kinds = [line.split()[1] for line in done.out.splitlines() if line.strip()[:1].isdigit()]
    assert kinds == ["thought", "tool_call", "tool_result", "thought", "answer"], done
    return done.told(said=", ".join(kinds))


@flags.check("flag.agent.namespace", "tools, memory and collections of a namespace", "agent run --namespace")
def _(w):
    w.launches
    done = w.main.cli("agent", "run", "what does a winch launch cost? [[steps=0 id=flag-namespace]]", "--agent", "react", "--collection", "launches", "--namespace", "team", "--json").ok()
    assert "7 dollars" in done.out and "crowns" not in done.out, done
    return done.told("namespace", "status", said="it read `7 dollars`, of the namespace alone")


@flags.check("flag.finetune.dataset", "the file of examples and what its lines hold", "finetune dataset --jsonl", "finetune dataset --format")
def _(w):
    done = w.hand_in("flag-sft", format="sft").ok()
    broken = w.hand_in("flag-broken", '{"prompt": "a"}\n')
    return [done.told(said=short(done.out, 80)), broken.failed(4, "line 1.completion")]


@flags.check("flag.finetune.metrics", "which measures, joined by commas", "finetune eval --metrics")
def _(w):
    path = w.file("metrics.jsonl", '{"prediction": "the cat sat", "reference": "the cat"}\n')
    both = w.main.cli("finetune", "eval", path, "--metrics", "rouge,bertscore", "--encoder", "all-minilm-l6-v2", "--json").ok()
    judged = w.main.cli("finetune", "eval", w.file("judged.jsonl", json.dumps({"question": "What is the fee?", "answer": "It is 7.50.", "contexts": ["A launch costs 7.50."]}) + "\n"),
                        "--metrics", "ragas", "--json").ok()
    has(both.json, "rouge bertscore")
    has(judged.json, "ragas")
    assert judged.json["ragas"]["samples"] == 1, judged
    return [both.told("rouge.samples", "bertscore.encoder"), judged.told("ragas.samples"), w.main.cli("finetune", "eval", path, "--metrics", "bleu").failed(2, "bleu", "rouge, bertscore, ragas")]


@flags.check("flag.project.no-review", "no model is asked", "project analyze --no-review")
def _(w):
    before = len(w.model.chats)
    done = w.main.cli("project", "analyze", w.project, "--no-review", "--json").ok()
    assert len(w.model.chats) == before and not done.json.get("review"), done
    return done.told("findings", said="no chat reached the model, the report has no review")


@flags.check("flag.project.improve-file", "the file that is rewritten", "project improve --file")
def _(w):
    rewrite = says(f"```python\n{PLAIN.replace('return 1', 'return 7')}```\n", "flag-improve")
    done = w.main.cli("project", "improve", w.project, "--file", "plain.py", "--instruction", rewrite, "--json").ok()
    assert done.json["file"] == "plain.py", done
    return [Told("riverrun project improve prj_… --file plain.py --instruction … --json", done.told("file", "status").came),
            w.main.cli("project", "improve", w.project, "--file", "none.py").failed(4, "none.py")]


@flags.check("flag.project.apply", "without `--yes`, and without a person to ask, nothing is written", "project apply --file", "project apply --yes")
def _(w):
    w.proposed(PLAIN.replace("return 2", "return 8"), "flag-apply")
    unsure = w.main.cli("project", "apply", w.project, "--file", "plain.py")
    sure = w.main.cli("project", "apply", w.project, "--file", "plain.py", "--yes").ok()
    w.main.cli("project", "revert", w.project, "--file", "plain.py").ok()
    return [unsure.failed(4, "not confirmed"), sure.told(said=short(sure.out))]
