"""HTTP routes, more closely: what single fields of a request change, and what single fields of an answer say."""

from conformance.exchange import short
from conformance.routes import routes

# ---- runs ----------------------------------------------------------------------------------------------------------------

@routes.check("http.agent-run.tools", "a run has the tools that its request names, and no other is called whatever the model asks for")
def _(w):
    script = "add [[steps=1 id=route-tools-{}]]"
    named = w.main.run(script.format("named"), agent="react", tools=["calculator"])
    other = w.main.run(script.format("other"), agent="react", tools=["knowledge_search"])
    made, left_out = ([step["tool"] for step in run.json["steps"] if step["kind"] == "tool_result" and step["tool"]["name"] == "calculator"] for run in (named, other))
    assert len(made) == 1 and "result" in made[0], named
    assert len(left_out) == 1 and "result" not in left_out[0] and "no tool" in left_out[0]["error"], other
    return [named.told("status", said=f"calculator gave {short(made[0]['result'])}"), other.told("status", said=short(left_out[0]["error"], 90))]


@routes.check("http.agent-run.citations", "the result of a run has the passages that its answer cites")
def _(w):
    answer = w.main.run("what does a winch launch cost?", agent="react", collections=[w.launches])
    [citation] = answer.json["citations"]
    assert answer.json["answer"] == "It is as the handbook says [1].", answer
    assert (citation["n"], citation["supported"]) == (1, True) and citation["source"].endswith("launches.md") and citation["quote"], citation
    return answer.told("answer", "citations.0.n", "citations.0.source", "citations.0.supported")


# ---- search and answers --------------------------------------------------------------------------------------------------

def shelved(w):
    """A collection of two documents that say the same of another bird, each with who put it there as metadata."""
    for name, by in (("ibis", "ann"), ("egret", "bob")):
        answer = w.main.post("/ingest", {"source": str(w.file(f"shelf/{name}.md", f"# Birds\n\nThe {name} wades in shallow water.\n")), "collection": "shelf", "metadata": {"by": by}})
        assert answer.status == 202 and w.main.server.ingest_end(answer.json["ingest_id"])["failed"] == 0, answer
    return "shelf"


def sources_shown(w):
    """How many passages the model was shown with the last chat."""
    return w.model.chats[-1]["messages"][-1]["content"].count("<source number=")


BY_BOB = {"metadata": {"by": "bob"}}


@routes.check("http.rag-search.metadata", "a filter by metadata lets only documents with it be found")
def _(w):
    body = {"query": "what wades in shallow water", "collection": shelved(w), "rerank": False}
    everything, filtered, nothing = (w.main.post("/rag/search", body | more) for more in ({}, {"filter": BY_BOB}, {"filter": {"metadata": {"by": "eve"}}}))
    assert {item["metadata"]["by"] for item in everything.json["items"]} == {"ann", "bob"}, everything
    assert {item["metadata"]["by"] for item in filtered.json["items"]} == {"bob"} and "egret" in filtered.json["items"][0]["text"], filtered
    assert nothing.status == 200 and nothing.json["items"] == [], nothing
    return [everything.told("items"), filtered.told("items", "items.0.text"), nothing.told("items")]


@routes.check("http.rag-ask.fields", "`k` is how many passages an answer is made of, `filter` which, and a citation whose passage has not the words is not `supported`")
def _(w):
    body, told = {"query": "what wades in shallow water", "collection": shelved(w), "rerank": False}, []
    for more, shown in (({}, 2), ({"k": 1}, 1), ({"filter": BY_BOB}, 1)):
        answer = w.main.post("/rag/ask", body | more)
        assert answer.status == 200 and sources_shown(w) == shown, (more, answer, w.model.chats[-1])
        # The scripted model says of everything that it is as the handbook says, which neither document does.
        [citation] = answer.json["citations"]
        assert (citation["n"], citation["supported"]) == (1, False), answer
        assert "filter" not in more or citation["source"].endswith("egret.md"), answer
        told.append(answer.told("citations.0.source", "citations.0.supported", said=f"the model was shown {shown} passage{'s' * (shown != 1)}"))
    return told
