"""Rules of behaviour: agents, namespaces, documents, models."""

import json

from conformance.core import Group, Told
from conformance.exchange import has, short
from conformance.world import examples
from server import wait_for

rules = Group("Rules")


def tool_steps(run, kind="tool_result"):
    return [step["tool"] for step in run["steps"] if step["kind"] == kind]


# ---- agents --------------------------------------------------------------------------------------------------------------

@rules.check("rule.agent.omitted", "without an agent the supervisor picks one by capability, and the first step says whom and why")
def _(w):
    told = []
    for task, agent in (("Write a letter and improve its wording", "critic"), ("Compare both, step by step", "plan_execute"), ("What is 6*7?", "react")):
        answer = w.main.run(task, temperature=0)
        route = answer.json["steps"][0]
        assert route["kind"] == "route" and answer.json["agent"] == agent and route["text"].startswith(f"{agent}: "), answer
        told.append(answer.told("agent", "steps.0.kind"))
    return told


@rules.check("rule.agent.named", "the agent that is named runs, and no choice is made")
def _(w):
    told = []
    for agent in ("react", "plan_execute", "reflexion", "critic"):
        answer = w.main.run(f"add [[steps=1 id=named-{agent}]]", agent=agent)
        kinds = [step["kind"] for step in answer.json["steps"]]
        assert answer.json["agent"] == agent and "route" not in kinds and answer.json["answer"], answer
        told.append(answer.told("agent", said=", ".join(dict.fromkeys(kinds))))
    return told


@rules.check("rule.agent.catalog", "there are four agent types with capabilities and tags")
def _(w):
    answer = w.main.get("/agents")
    assert [item["name"] for item in answer.json["items"]] == ["react", "plan_execute", "reflexion", "critic"], answer
    return answer.told("items", "items.0.capabilities", "items.0.tags")


@rules.check("rule.tools.manifests", "tools are described by manifests with a schema of their arguments")
def _(w):
    answer = w.main.get("/tools")
    for item in answer.json["items"]:
        assert item["description"] and item["input_schema"]["type"] == "object", item
    at = next(at for at, item in enumerate(answer.json["items"]) if item["name"] == "calculator")
    return answer.told(f"items.{at}.name", f"items.{at}.effect", f"items.{at}.input_schema")


# ---- namespaces ----------------------------------------------------------------------------------------------------------

TOOLS = """
[[tool]]
name = "team_words"
description = "Says a word of the team."
effect = "none"
namespace = "team"
arguments.x = { type = "string" }

[tool.command]
program = "/bin/echo"
args = ["{x}"]
"""


@rules.check("rule.namespace.run-tools", "a run uses only tools of its namespace")
def _(w):
    place = w.place("tools", RIVERRUN_TOOLS_FILE=str(w.file("tools.toml", TOOLS)), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    place.server.start()
    mine, others = ({item["name"] for item in place.get(f"/tools?namespace={name}").json["items"]} for name in ("team", "default"))
    assert "team_words" in mine and "team_words" not in others, (mine, others)
    script = '[[steps=1 id=tools-{} tool=team_words args={{"x":"ibis"}}]]'
    inside = place.run(script.format("team"), agent="react", namespace="team", approval="never")
    outside = place.run(script.format("other"), agent="react", approval="never")
    place.server.stop()
    assert "ibis" in json.dumps(tool_steps(inside.json)[0]["result"]), inside
    assert all("result" not in tool for tool in tool_steps(outside.json)), outside
    return [inside.told("status", said="the tool gave `ibis`"), outside.told("status", said="there is no such tool")]


SENDS = TOOLS.replace("team_words", "sends").replace('effect = "none"', 'effect = "external"').replace('namespace = "team"\n', "")


@rules.check("rule.approval", "`never`, `external` and `always` say which calls wait for a person: none, those with an effect outside, all")
def _(w):
    place = w.place("approval", RIVERRUN_TOOLS_FILE=str(w.file("sends.toml", SENDS)), RIVERRUN_DEFAULT_EMBED_MODEL="ollama/stub-embed")
    place.server.start()
    told = []
    for approval, tool, waits in (("never", "sends", False), ("external", "sends", True), ("external", "calculator", False), ("always", "calculator", True)):
        call = 'tool=sends args={"x":"ibis"}' if tool == "sends" else "tool=calculator"
        body = {"task": f"[[steps=1 id=approval-{approval}-{tool} {call}]]", "agent": "react", "approval": approval}
        run_id = place.post("/runs", body).json["run_id"]
        look = f"/runs/{run_id}"
        wait_for(lambda: place.server.get(look).json.get("status") in ("waiting_approval", "succeeded", "failed"), 60, f"{approval} and {tool}")
        answer = place.get(look)
        assert answer.json["status"] == ("waiting_approval" if waits else "succeeded"), (approval, tool, answer)
        told.append(Told(f"approval: {approval}, a call of {tool}", answer.told("status").came))
    place.server.stop()
    return told


@rules.check("rule.namespace.run-memory", "a run reads the conversation of its namespace alone")
def _(w):
    for namespace, word in (("team", "altimeter"), ("default", "windsock")):
        w.main.post("/memory/turns", {"role": "user", "text": f"the {word} is new", "namespace": namespace, "session": "apart"})
    answer = w.main.run("say it [[steps=0 id=apart]]", agent="react", namespace="team", session="apart")
    shown = json.dumps(answer.json["steps"])
    assert "altimeter" in shown and "windsock" not in shown, answer
    return answer.told("namespace", said="`altimeter` of team was read, `windsock` of default was not")


@rules.check("rule.namespace.run-collections", "a run reads collections of its namespace alone")
def _(w):
    w.launches
    answer = w.main.run("what does a winch launch cost? [[steps=0 id=alone]]", agent="react", namespace="team", collections=["launches"])
    shown = json.dumps(answer.json["steps"])
    assert "7 dollars" in shown and "9 crowns" not in shown, answer
    missing = w.main.post("/agent/run", {"task": "x", "namespace": "team", "collections": [w.handbook]})
    return [answer.told("namespace", said="`7 dollars` of team was read, `9 crowns` of default was not"), missing.problem(404)]


@rules.check("rule.namespace.rag", "search and answers with a namespace read its collection alone")
def _(w):
    found = w.main.post("/rag/search", {"query": "winch launch", "collection": w.launches, "namespace": "team"})
    asked = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches, "namespace": "team"})
    for answer in (found, asked):
        assert b"7 dollars" in answer.body and b"9 crowns" not in answer.body, answer
    return [found.told("items", "items.0.text"), asked.told("citations.0.quote")]


@rules.check("rule.namespace.physical-name", "a collection is physically called `<namespace>__<collection>`")
def _(w):
    w.launches
    answer = w.main.get("/collections?namespace=team")
    at = next(at for at, item in enumerate(answer.json["items"]) if item["name"] == "launches")
    assert answer.json["items"][at]["physical_name"] == "team__launches", answer
    return answer.told(f"items.{at}.physical_name")


# ---- documents -----------------------------------------------------------------------------------------------------------

@rules.check("rule.ingest.both-indexes", "what is ingested is chunked, embedded and in both the vectors and the keywords")
def _(w):
    answer = w.main.get(f"/collections/{w.handbook}/check")
    found = [w.main.post("/rag/search", {"query": "winch", "collection": w.handbook, "mode": mode, "rerank": False}) for mode in ("dense", "sparse")]
    assert answer.json["chunks"] == answer.json["vectors"] == answer.json["keywords"] > 0 and all(one.json["items"] for one in found), answer
    return [answer.told("chunks", "vectors", "keywords"), *(one.told("items") for one in found)]


@rules.check("rule.tabular", "a tabular source with a table name is a table of the warehouse, and its rows are found")
def _(w):
    rows = w.main.post("/warehouse/query", {"sql": f"SELECT name FROM {w.people} WHERE fee > 2"})
    found = w.main.post("/rag/search", {"query": "Jane Doe", "collection": w.people})
    assert rows.json["rows"] == [["Al O'Hara"]] and "Jane" in found.json["items"][0]["text"], (rows, found)
    return [rows.told("rows.0.0"), found.told("items.0.text")]


@rules.check("rule.retrieval.hybrid", "search is by meaning and by words, fused by reciprocal rank")
def _(w):
    answer = w.main.post("/rag/search", {"query": "winch launch", "collection": w.handbook, "k": 50, "rerank": False})
    scores = [item["scores"] for item in answer.json["items"]]
    fused = [score["fused"] for score in scores]
    assert fused == sorted(fused, reverse=True) and any(score["dense"] for score in scores) and any(score["sparse"] for score in scores), scores
    ranks = {name: sorted((score[name] for score in scores if score[name] is not None), reverse=True) for name in ("dense", "sparse")}
    best = scores[0]
    wanted = sum(1 / (60 + 1 + ranks[name].index(best[name])) for name in ranks if best[name] is not None)
    assert abs(best["fused"] - wanted) < 0.01, (best, wanted)
    return answer.told("items", "items.0.scores")


@rules.check("rule.retrieval.rerank-local", "without a key of a hosted re-ranker a local cross-encoder orders what was found")
def _(w):
    answer = w.main.post("/rag/search", {"query": "winch launch", "collection": w.handbook, "k": 5})
    ranks = [item["scores"]["rerank"] for item in answer.json["items"]]
    assert None not in ranks and ranks == sorted(ranks, reverse=True) == [item["score"] for item in answer.json["items"]], answer
    return answer.told("items", said="each has a score of the cross-encoder and stands by it")


@rules.check("rule.retrieval.rerank-hosted", "a hosted re-ranker does, once its key is set")
def _(w):
    w.changed.server.ingest(w.file("ranked.txt", "winch. " * 200), "ranked")
    answer = w.changed.post("/rag/search", {"query": "winch", "collection": "ranked", "k": 2})
    method, path, headers, _ = w.ranker.asked[-1]
    assert headers["authorization"] == "Bearer key-of-cohere" and answer.json["items"][0]["scores"]["rerank"], answer
    return answer.told("items", said=f"the service was asked {method} {path} with the key")


@rules.check("rule.answer.cites", "an answer is grounded in chunks and cites them by place, and the cited bytes are the document's")
def _(w):
    answer = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches})
    [citation] = answer.json["citations"]
    span = citation["span"]
    text = w.main.get(f"/documents/{citation['document_id']}/text?start={span['start']}&end={span['end']}")
    assert "[1]" in answer.json["answer"] and citation["quote"] in text.json["text"], (answer, text)
    return [answer.told("answer", "citations.0.quote", "citations.0.supported"), text.told("text")]


# ---- models --------------------------------------------------------------------------------------------------------------

@rules.check("rule.models.providers", "providers are listed with whether they have a key")
def _(w):
    answer = w.changed.get("/providers")
    for item in answer.json["items"]:
        has(item, "name default kind has_key address")
    return answer.told("items", said="openai: true, anthropic: false, local: null")


@rules.check("rule.models.hosted-opt-in", "nothing goes to a hosted provider unless its key is set and a request names it")
def _(w):
    before = len(w.hosted.asked)
    plain_chat = w.changed.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False})
    assert len(w.hosted.asked) == before and plain_chat.json["model"] == "stub", plain_chat
    named = w.changed.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False, "provider": "openai", "model": "hosted"})
    keyless = w.main.post("/chat", {"messages": [{"role": "user", "content": "hello"}], "stream": False, "provider": "openai", "model": "hosted"})
    assert named.json["text"] == "hosted words" and keyless.status in (422, 503), keyless
    return [plain_chat.told("model"), named.told("text"), keyless.problem(keyless.status)]


@rules.check("rule.models.temperature", "a chat is streamed unless it is asked for whole, at the temperature that is asked for")
def _(w):
    body = {"messages": [{"role": "user", "content": "hello [[steps=0 id=rule-temperature]]"}], "temperature": 1.5}
    streamed, whole = w.main.post("/chat", body), w.main.post("/chat", body | {"stream": False})
    names = [name for name, _, _ in streamed.events()]
    temperatures = {chat["options"]["temperature"] for chat in w.model.chats_of("rule-temperature")}
    assert names[-1] == "final" and "delta" in names and temperatures == {1.5}, (names, temperatures)
    return [streamed.told(said="delta, final"), whole.told("text", "finish_reason")]


@rules.check("rule.models.default-dimensions", "the default embedding model is local and has 768 dimensions")
def _(w):
    done = w.alone.cli("embed", "a launch", "--json", RIVERRUN_DEFAULT_EMBED_MODEL="").ok()
    assert done.json["dimensions"] == 768 == len(done.json["vectors"][0]), done
    return done.told("model", "dimensions")


def first_use(w, name):
    """A hub, and settings under which models come from it alone."""
    hub = w.hub(name)
    return hub, {"RIVERRUN_HUB_BASE_URL": hub.url, "RIVERRUN_MODELS_OFFLINE": "false", "RIVERRUN_MODELS_DIR": "", "RIVERRUN_MODELS_CACHE_DIR": str(w.folder / f"fetched-{name}")}


@rules.check("rule.models.fetched-at-first-use", "a model that is not here is fetched from the hub when it is first needed")
def _(w):
    (hub, fetched), told = first_use(w, "first-use"), []
    training = ["finetune", "train", "--dataset", w.file("first.jsonl", examples()), "--name", "first"]
    for words in (training, [*training, "--base-model", "other/base"],
                  ["finetune", "eval", w.file("first-samples.jsonl", '{"prediction": "a", "reference": "a"}\n'), "--metrics", "bertscore", "--encoder", "other/encoder"],
                  ["ingest", w.file("first/auk.md", "# Auk\n\nAn auk dives.\n"), "-c", "late", "--strategy", "late", "--embed-backend", "hf"]):
        before = len(hub.asked)
        done = w.alone.cli(*words, RIVERRUN_DEFAULT_EMBED_MODEL="other/late", RIVERRUN_DEFAULT_CHAT_MODEL="other/base", **fetched)
        new = hub.paths()[before:]
        assert done.code != 0 and new, (done, new)
        told.append(Told(f"riverrun {' '.join(map(str, words))}", f"the hub was asked for {new[0]}, which it has not: exit {done.code}"))
    return told


@rules.check("rule.models.fetched-at-first-use.rerank",
             "so is the local re-ranker: a search that insists on it waits for it, and one that says nothing goes on without it and says that it is being fetched")
def _(w):
    w.alone.cli("ingest", w.file("first/auk.md", "# Auk\n\nAn auk dives.\n"), "-c", "first").ok()
    hub, fetched = first_use(w, "rerank")

    def search():
        done = w.alone.cli("search", "auk", "-c", "first", "--json", RIVERRUN_DEFAULT_RERANK_MODEL="someone/tiny", **fetched).ok()
        return done, done.json["items"][0]["scores"]["rerank"], len(hub.asked)

    (first, unranked, asked), (second, score, asked_then) = search(), search()
    assert unranked is None and 'the re-ranker "someone/tiny" is being fetched' in first.json["notes"][0], first
    assert score is not None and "notes" not in second.json and asked == asked_then > 0, (second, hub.paths())
    other, afresh = first_use(w, "rerank-insisted")
    insist = ["rag", "eval", "-c", "first", "--qrels", w.file("first.qrels", "1 auk 1\n"), "--queries", w.file("first.tsv", "1\tauk\n"), "--config", "rerank", "--json"]
    refused = w.alone.cli(*insist, RIVERRUN_DEFAULT_RERANK_MODEL="other/cross", **afresh)
    told = refused.failed(3, "other/cross", f"{other.url}/api/models/other/cross is not at the hub", 'check the name "other/cross"', "RIVERRUN_MODELS_DIR")
    insisted = w.alone.cli(*insist, RIVERRUN_DEFAULT_RERANK_MODEL="someone/tiny", **afresh).ok()
    assert "/someone/tiny/resolve/main/model.safetensors" in other.paths(), other.paths()
    return [first.told(said=f"rerank: null · {short(first.json['notes'][0], 90)}"),
            second.told(said="rerank: a score · no note · the hub was not asked again"), insisted.told("items"), told]

