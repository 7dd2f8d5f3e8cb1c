"""HTTP and WebSocket routes: what each takes and answers."""

import io
import json
import zipfile

from conformance.core import Group, promised
from conformance.exchange import has, short
from conformance.world import PLAIN, training
from server import wait_for
from test_sources import multipart

routes = Group("Routes")
RUN = "run_id status agent answer citations steps usage stop_reason trace_id created_at finished_at"
STEP = "seq kind agent at"


def fields(answer):
    """The fields of an answer, in words."""
    return "{" + ", ".join(answer.json) + "}"


# ---- the whole -----------------------------------------------------------------------------------------------------------

@routes.check("http.health", "the state, the version, each service with its fix, and the lag of each worker", "GET /health")
def _(w):
    answer = w.main.get("/health")
    has(answer.json, "status version services lag")
    for row in answer.json["services"]:
        has(row, "name kind required status detail fix latency_ms")
        assert row["status"] in ("up", "down", "missing"), row
    assert answer.status == 200 and answer.json["status"] == "ok" and answer.json["lag"], answer
    return answer.told("status", "version", "services", "lag")


@routes.check("http.health.degraded", "200 with `degraded` while a required service is down")
def _(w):
    answer = w.bare.get("/health")
    assert (answer.status, answer.json["status"]) == (200, "degraded"), answer
    return answer.told("status")


@routes.check("http.docs", "a page that lets people try the API, and the document that it is made of", "GET /docs", "GET /openapi.json")
def _(w):
    page, document = w.main.get("/docs"), w.main.get("/openapi.json")
    assert page.status == 200 and b"swagger-ui" in page.body.lower(), page
    has(document.json, "openapi paths components")
    return [page.told(said="an HTML page of Swagger UI"), document.told("openapi", "info.title", said=f"{len(document.json['paths'])} paths")]


@routes.check("http.metrics", "figures as Prometheus reads them", "GET /metrics")
def _(w):
    answer = w.main.get("/metrics")
    lines = answer.body.decode().splitlines()
    assert answer.status == 200 and answer.headers["content-type"].startswith("text/plain"), answer
    assert any(line.startswith("# TYPE riverrun_") for line in lines), lines[:20]
    return answer.told(said="# TYPE riverrun_… lines as text/plain")


# ---- catalogs ------------------------------------------------------------------------------------------------------------

@routes.check("http.agents", "the agent types with what they can do and their tags", "GET /agents")
def _(w):
    answer = w.main.get("/agents")
    for item in answer.json["items"]:
        has(item, "name description capabilities tags")
        assert item["capabilities"] and item["tags"], item
    return answer.told(said=", ".join(item["name"] for item in answer.json["items"]))


@routes.check("http.tools", "the manifests of the tools, also those of one namespace", "GET /tools")
def _(w):
    answer, team = w.main.get("/tools"), w.main.get("/tools?namespace=team")
    for item in answer.json["items"]:
        has(item, "name description input_schema effect source namespace")
        assert item["effect"] in ("none", "idempotent", "external"), item
        assert item["source"] in ("builtin", "http", "command", "mcp", "kafka"), item
    assert {item["namespace"] for item in team.json["items"]} == {"team"}, team
    return [answer.told("items"), team.told("items.0.namespace")]


@routes.check("http.collections", "the collections with their counts and embedding model, also those of one namespace", "GET /collections")
def _(w):
    w.launches, w.handbook
    answer, team = w.main.get("/collections"), w.main.get("/collections?namespace=team")
    for item in answer.json["items"]:
        has(item, "name namespace physical_name documents chunks embedding updated_at")
        has(item["embedding"], "model dimensions")
    assert {item["namespace"] for item in team.json["items"]} == {"team"} and "launches" in [item["name"] for item in team.json["items"]], team
    at = next(at for at, item in enumerate(answer.json["items"]) if item["name"] == "handbook")
    return [answer.told(f"items.{at}.physical_name", f"items.{at}.documents", f"items.{at}.chunks", f"items.{at}.embedding.model"),
            team.told("items.0.physical_name")]


# ---- runs ----------------------------------------------------------------------------------------------------------------

@routes.check("http.agent-run", "runs an agent to its end and answers with the whole result", "POST /agent/run")
def _(w):
    answer = w.main.run("add [[steps=2 id=route-run]]", agent="react")
    has(answer.json, RUN)
    has(answer.json["usage"], "prompt_tokens completion_tokens total_tokens")
    for step in answer.json["steps"]:
        has(step, STEP)
    assert (answer.json["status"], answer.json["agent"]) == ("succeeded", "react"), answer
    return answer.told("status", "agent", "answer", "steps", "stop_reason", "trace_id")


@routes.check("http.agent-run.fields", "takes every field of a run request, and gives the metadata back")
def _(w):
    w.launches
    body = {"agent": "react", "namespace": "team", "session": "fields", "provider": "ollama", "model": "stub", "temperature": 0.3, "max_iters": 4,
            "tools": ["calculator", "knowledge_search"], "collections": ["launches"], "budget": {"tokens": 100_000, "seconds": 60},
            "approval": "never", "metadata": {"ticket": 7}}
    answer = w.main.run("add [[steps=1 id=route-fields]]", **body)
    [chat, *_] = w.model.chats_of("route-fields")
    assert answer.json["status"] == "succeeded" and answer.json["metadata"] == {"ticket": 7}, answer
    assert chat["model"] == "stub" and abs(chat["options"]["temperature"] - 0.3) < 1e-6, chat["options"]
    return answer.told("status", "metadata.ticket", said="the model was asked with temperature 0.3")


@routes.check("http.agent-run.budget", "a run ends early where its budget or its iterations are used up")
def _(w):
    seconds = w.main.run("add [[steps=8 delay_ms=400 id=route-seconds]]", agent="react", budget={"seconds": 1})
    tokens = w.main.run("add [[steps=6 id=route-tokens]]", agent="react", budget={"tokens": 20})
    iterations = w.main.run("add [[steps=6 id=route-iters]]", agent="react", max_iters=2)
    for answer, reason in ((tokens, "budget_tokens"), (seconds, "budget_seconds"), (iterations, "max_iters")):
        assert answer.json["stop_reason"] == reason, answer
    return [answer.told("status", "stop_reason") for answer in (tokens, seconds, iterations)]


@routes.check("http.runs", "202 with id, state and stream once the command is on the log, and a Location", "POST /runs")
def _(w):
    answer = w.main.post("/runs", {"task": "add [[steps=1 id=route-runs]]", "agent": "react"})
    has(answer.json, "run_id status stream")
    assert answer.status == 202 and answer.json["stream"] == f"/ws/runs/{answer.json['run_id']}", answer
    assert answer.headers["location"] == f"/runs/{answer.json['run_id']}", answer.headers
    assert w.main.server.run_end(answer.json["run_id"])["status"] == "succeeded"
    return answer.told("status", "stream", said=f"location: {answer.headers['location']}")


@routes.check("http.runs.list", "the runs, newest first, by state, agent and namespace", "GET /runs")
def _(w):
    w.ended
    answer = w.main.get("/runs?status=succeeded&agent=react&namespace=default&limit=3")
    has(answer.json, "items next_cursor")
    assert answer.json["items"] and all((run["status"], run["agent"], run["namespace"]) == ("succeeded", "react", "default") for run in answer.json["items"]), answer
    return answer.told("items")


@routes.check("http.runs.show", "a run as it is, with its steps", "GET /runs/{id}")
def _(w):
    answer = w.main.get(f"/runs/{w.ended['run_id']}")
    has(answer.json, RUN)
    assert answer.json["steps"] == w.ended["steps"] and answer.json["answer"] == w.ended["answer"], answer
    return answer.told("status", "answer", "steps")


@routes.check("http.runs.events", "the stream of a run by server-sent events, from behind `Last-Event-ID`", "GET /runs/{id}/events")
def _(w):
    answer = w.main.get(f"/runs/{w.ended['run_id']}/events", headers={"last-event-id": "3"})
    names = [name for name, _, _ in answer.events()]
    seqs = [data["step"]["seq"] for name, _, data in answer.events() if name == "step"]
    assert names[0] == "start" and names[-1] == "final" and seqs == list(range(4, len(w.ended["steps"]) + 1)), answer
    return answer.told(said=f"start, steps {seqs[0]} to {seqs[-1]}, final")


@routes.check("http.runs.cancel", "202; the run ends as cancelled", "POST /runs/{id}/cancel")
def _(w):
    run_id, _ = w.open_run("route-cancel")
    answer = w.main.post(f"/runs/{run_id}/cancel", {"reason": "enough"})
    assert answer.status == 202, answer
    assert w.main.server.run_end(run_id)["status"] == "cancelled"
    return [answer.told(), w.main.get(f"/runs/{run_id}").told("status")]


@routes.check("http.runs.resume", "202 for a run that waits, which looks again", "POST /runs/{id}/resume")
def _(w):
    run_id, _ = w.open_run("route-resume")
    answer = w.main.post(f"/runs/{run_id}/resume", {})
    assert answer.status == 202, answer
    w.main.post(f"/runs/{run_id}/cancel", {})
    return answer.told("status")


@routes.check("http.runs.fork", "202; a new run shares the first steps, and may have another model, agent or task", "POST /runs/{id}/fork")
def _(w):
    task = "otherwise [[steps=2 id=route-fork]]"
    body = {"at_seq": 3, "model": "stub-embed", "agent": "critic", "task": task}
    answer = w.main.post(f"/runs/{w.ended['run_id']}/fork", body)
    assert answer.status == 202, answer
    run = w.main.server.run_end(answer.json["run_id"])
    shared = w.ended["steps"][:3]
    assert w.ended["agent"] == "react" and w.ended["task"] != task, w.ended
    assert run["forked_from"] == {"run_id": w.ended["run_id"], "at_seq": 3}, run
    assert [(step["kind"], step["agent"], step.get("tool")) for step in run["steps"][:3]] == [(step["kind"], step["agent"], step.get("tool")) for step in shared], run
    assert (run["status"], run["agent"], run["task"]) == ("succeeded", "critic", task), run
    assert {step["agent"] for step in run["steps"][3:]} == {"critic"}, run
    # The new task is what the other model was shown, and nobody else was asked.
    assert {chat["model"] for chat in w.model.chats_of("route-fork")} == {"stub-embed"}, run
    return [answer.told("status"), w.main.get(f"/runs/{run['run_id']}").told("status", "agent", "task", "forked_from.at_seq", said="`stub-embed` was asked for it")]


@routes.check("http.runs.approvals", "202 for approve or deny with a note; the run goes on", "POST /runs/{id}/approvals/{step}")
def _(w):
    told = []
    for decision in ("approve", "deny"):
        run_id, step = w.open_run(f"route-{decision}")
        answer = w.main.post(f"/runs/{run_id}/approvals/{step}", {"decision": decision, "note": "not on Sundays"})
        assert answer.status == 202, answer
        run = w.main.server.run_end(run_id)
        result = next(step["tool"] for step in run["steps"] if step["kind"] == "tool_result")
        if decision == "approve":
            assert "error" not in result, result
        else:
            assert "result" not in result and "not on Sundays" in result["error"], result
        told += [answer.told(said=f"the call {'gave ' + short(result['result']) if decision == 'approve' else 'was left out: ' + short(result['error'], 90)}")]
    return told


@routes.check("http.accepted", "202 comes with a Location that answers")
def _(w):
    run_id, step = w.open_run("accepted")
    asked = [("/runs", {"task": "add [[steps=0 id=accepted-run]]", "agent": "react"}), (f"/runs/{run_id}/resume", {}),
             (f"/runs/{run_id}/approvals/{step}", {"decision": "deny"}), (f"/runs/{w.ended['run_id']}/fork", {"at_seq": 0}),
             ("/ingest", {"source": str(w.file("accepted.md", "# Coot\n\nA coot dives.\n")), "collection": "accepted"}),
             ("/projects/import", {"source": str(w.code)}), (f"/projects/{w.project}/analyze", {"review": False}),
             (f"/projects/{w.project}/improve", {"file": "plain.py", "instruction": "x [[steps=0 id=accepted-improve]]"})]
    told = []
    for path, body in asked:
        answer = w.main.post(path, body, headers={"prefer": "respond-async"})
        place = answer.headers["location"]
        assert answer.status == 202 and place, (answer, answer.headers)
        wait_for(lambda: w.main.server.get(place).status == 200, 60, f"{place} to answer")
        told.append(answer.told(said=f"location: {place}"))
    return told


@routes.check("http.accepted.training", "202 for a training comes with a Location, too")
def _(w):
    answer, _, _ = w.training
    assert answer.status == 202, answer
    return promised(answer.headers["location"], answer.told(said=f"location: {answer.headers['location']} · {fields(answer)}"))


# ---- search and answers --------------------------------------------------------------------------------------------------

@routes.check("http.rag-search", "chunks with all scores, their place in the document, and how long each stage took", "POST /rag/search")
def _(w):
    answer = w.main.post("/rag/search", {"query": "what does a winch launch cost", "collection": w.handbook, "k": 3, "rerank": True})
    has(answer.json, "items took_ms")
    has(answer.json["took_ms"], "embed dense sparse fuse rerank")
    for item in answer.json["items"]:
        has(item, "chunk_id document_id source text score scores span metadata")
        has(item["scores"], "dense sparse fused rerank")
        has(item["span"], "start end")
    assert len(answer.json["items"]) == 3, answer
    return answer.told("items", "items.0.source", "items.0.scores", "took_ms")


@routes.check("http.rag-search.filter", "a filter lets only certain documents be found")
def _(w):
    body = {"query": "launch", "collection": w.handbook, "rerank": False}
    charges = next(item["source"] for item in w.main.post("/rag/search", body | {"k": 50}).json["items"] if item["source"].endswith("charges.md"))
    answer = w.main.post("/rag/search", body | {"filter": {"sources": [charges]}})
    assert {item["source"] for item in answer.json["items"]} == {charges}, answer
    return answer.told("items", "items.0.source")


@routes.check("http.rag-ask", "an answer with citations that name chunk, document, place and quote", "POST /rag/ask")
def _(w):
    answer = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches, "k": 3, "provider": "ollama", "model": "stub"})
    has(answer.json, "answer citations usage took_ms trace_id")
    [citation] = answer.json["citations"]
    has(citation, "n chunk_id document_id source span quote supported")
    assert citation["supported"] is True, answer
    return answer.told("answer", "citations.0.source", "citations.0.quote", "citations.0.supported")


@routes.check("http.rag-ask.stream", "with `stream` the answer comes by server-sent events")
def _(w):
    answer = w.main.post("/rag/ask", {"query": "what does a winch launch cost?", "collection": w.launches, "stream": True})
    names = [name for name, _, _ in answer.events()]
    assert answer.headers["content-type"].startswith("text/event-stream") and names[-1] == "final" and "delta" in names, answer
    return answer.told(said=f"delta × {names.count('delta')}, final")


# ---- documents -----------------------------------------------------------------------------------------------------------

@routes.check("http.ingest", "202 with id and stream; every field of the request is taken", "POST /ingest", "GET /ingest/{id}")
def _(w):
    path = w.file("fields.csv", "animal,legs\nquokka,4\n")
    body = {"source": str(path), "collection": "fields", "namespace": "team", "type": "csv", "table": "animals", "strategy": "recursive",
            "embed_backend": "hf", "metadata": {"by": "ann"}}
    answer = w.main.post("/ingest", body)
    has(answer.json, "ingest_id stream")
    assert answer.status == 202 and answer.json["stream"] == f"/ws/ingest/{answer.json['ingest_id']}", answer
    w.main.server.ingest_end(answer.json["ingest_id"])
    seen = w.main.get(f"/ingest/{answer.json['ingest_id']}")
    found = w.main.post("/rag/search", {"query": "quokka", "collection": "fields", "namespace": "team"})
    assert (seen.json["status"], seen.json["indexed"], seen.json["failed"]) == ("done", 1, 0), seen
    assert found.json["items"][0]["metadata"]["by"] == "ann", found
    return [answer.told("stream"), seen.told("status", "indexed", "chunks")]


@routes.check("http.ingest.multipart", "files may be handed in as multipart")
def _(w):
    body, headers = multipart([("collection", "handed-in")], [("note.md", b"# Narwhal\n\nThe narwhal has a tusk.\n")])
    answer = w.main.request("POST", "/ingest", body, headers)
    assert answer.status == 202 and w.main.server.ingest_end(answer.json["ingest_id"])["indexed"] == 1, answer
    return answer.told("stream")


@routes.check("http.ingest.socket", "the progress of an ingest as it happens", "WS /ws/ingest/{id}")
def _(w):
    answer = w.main.post("/ingest", {"source": str(w.file("progress.md", "# Heron\n\nA heron stands still.\n")), "collection": "progress"})
    wait_for(lambda: w.main.server.get(f"/ingest/{answer.json['ingest_id']}").status == 200, 30, "the ingest to be known")
    heard = w.main.socket(f"/ws/ingest/{answer.json['ingest_id']}")
    assert heard.kinds()[0] == "start" and heard.kinds()[-1] == "final" and heard.messages[-1]["ingest"]["indexed"] == 1, heard
    return heard.told()


@routes.check("http.documents", "documents with their versions and chunks", "GET /documents", "GET /documents/{id}")
def _(w):
    listed = w.main.get(f"/documents?collection={w.handbook}")
    has(listed.json, "items next_cursor")
    one = w.main.get(f"/documents/{listed.json['items'][0]['document_id']}")
    has(one.json, "document_id source versions chunks")
    assert len(listed.json["items"]) == 8 and len(one.json["versions"]) == 1 and one.json["chunks"] > 0, one
    return [listed.told("items"), one.told("source", "chunks", "versions")]


@routes.check("http.removal", "removing a document or a collection answers with what went from each index", "DELETE /documents/{id}", "DELETE /collections/{name}")
def _(w):
    for name in ("a", "b"):
        w.main.server.ingest(w.file(f"removal/{name}.md", f"# {name}\n\nThe ibis {name} wades.\n"), "removal")
    document = w.main.get("/documents?collection=removal").json["items"][0]["document_id"]
    one, rest = w.main.delete(f"/documents/{document}"), w.main.delete("/collections/removal")
    for answer in (one, rest):
        assert answer.status == 200 and answer.json["documents"] == 1 and answer.json["vectors"] == answer.json["keywords"] > 0, answer
    assert w.main.get("/documents?collection=removal").status == 404 or not w.main.get("/documents?collection=removal").json["items"]
    return [one.told("documents", "vectors", "keywords"), rest.told("documents", "vectors", "keywords")]


# ---- warehouse and memory ------------------------------------------------------------------------------------------------

@routes.check("http.warehouse", "the tables, and rows of one reading statement", "GET /warehouse/tables", "POST /warehouse/query")
def _(w):
    tables = w.main.get("/warehouse/tables")
    answer = w.main.post("/warehouse/query", {"sql": f"SELECT name, fee FROM {w.people} ORDER BY fee", "limit": 1})
    has(answer.json, "columns rows truncated")
    has(answer.json["columns"][0], "name type")
    assert answer.json["rows"] == [["Jane Doe", "1.50"]] and answer.json["truncated"] is True, answer
    return [w.main.get("/warehouse/tables").told("items") if not tables.json["items"] else tables.told("items"), answer.told("columns", "rows", "truncated")]


@routes.check("http.warehouse.refused", "anything but one reading statement is refused with the reason")
def _(w):
    told = []
    for sql in (f"DROP TABLE {w.people}", "SELECT 1; SELECT 2"):
        answer = w.main.post("/warehouse/query", {"sql": sql})
        told.append(answer.problem(422, "statement_refused"))
    return told


@routes.check("http.memory", "a turn is kept, and the context has turns, summary and episodes", "POST /memory/turns", "GET /memory/context")
def _(w):
    turn = w.main.post("/memory/turns", {"role": "user", "text": "the rope is red", "namespace": "team", "session": "route"})
    context = w.main.get("/memory/context?query=rope&namespace=team&session=route")
    has(turn.json, "turn_id seq role text")
    has(context.json, "turns summary episodes")
    assert turn.status == 200 and context.json["turns"][0]["text"] == "the rope is red", context
    return [turn.told("role", "text"), context.told("turns", "summary", "episodes")]


# ---- fine-tuning ---------------------------------------------------------------------------------------------------------

@routes.check("http.finetune-jobs", "202 with id and stream; every field of the request is taken", "POST /finetune/jobs")
def _(w):
    answer, _, job = w.training
    has(answer.json, "job_id stream")
    assert answer.json["stream"] == f"/ws/finetune/{answer.json['job_id']}" and job.json["status"] == "succeeded", job
    return answer.told("stream")


@routes.check("http.finetune-jobs.gpu", "methods that need a GPU are refused where there is none")
def _(w):
    return [w.main.post("/finetune/jobs", training("numbers", method=method)).problem(422, "cuda_required") for method in ("qlora", "rlhf")]


@routes.check("http.finetune.socket", "start, each step with its loss, and the job at its end; from any step", "WS /ws/finetune/{id}")
def _(w):
    answer, heard, _ = w.training
    steps = [message for message in heard.messages if message["type"] == "progress"]
    for message in steps:
        has(message, "seq step max_steps loss learning_rate tokens_per_s eta_s")
    assert heard.kinds()[0] == "start" and heard.kinds()[-1] == "final" and [step["seq"] for step in steps] == list(range(1, 7)), heard
    has(heard.messages[-1], "job")
    later = w.main.socket(f"/ws/finetune/{answer.json['job_id']}?after=4")
    assert [message["seq"] for message in later.messages if message["type"] == "progress"] == [5, 6], later
    return [heard.told(), later.told()]


@routes.check("http.finetune-registry", "the versions of models with where they come from", "GET /finetune/registry")
def _(w):
    w.training
    answer = w.main.get("/finetune/registry")
    for item in answer.json["items"]:
        has(item, "model version base_model method metrics dataset_sha256 adapter_sha256 size_bytes job_id created_at stage")
    at = next(at for at, item in enumerate(answer.json["items"]) if item["model"] == "numbers")
    return answer.told(f"items.{at}.model", f"items.{at}.version", f"items.{at}.base_model", f"items.{at}.stage")


# ---- projects ------------------------------------------------------------------------------------------------------------

def zipped():
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("plain.py", PLAIN)
    return archive.getvalue()


@routes.check("http.projects-import", "takes a folder of the server, or a zip by multipart, and gives an id", "POST /projects/import")
def _(w):
    folder = w.main.post("/projects/import", {"source": str(w.code)})
    body, headers = multipart([("name", "handed in")], [("code.zip", zipped())])
    handed = w.main.request("POST", "/projects/import", body, headers)
    for answer, files in ((folder, 3), (handed, 1)):
        assert answer.status in (200, 202) and w.imported(answer.json["project_id"])["files"] == files, answer
    return [folder.told("project_id"), handed.told("project_id")]


@routes.check("http.projects-import.shape", "what was imported: files, languages and size")
def _(w):
    answer = w.main.post("/projects/import", {"source": str(w.code)})
    return promised({"project_id", "files", "languages", "size_bytes"} <= set(answer.json), answer.told(said=fields(answer)))


@routes.check("http.projects-view", "an imported project has its files, languages and size")
def _(w):
    answer = w.main.get(f"/projects/{w.project}")
    has(answer.json, "project_id files languages size_bytes status")
    assert answer.json["files"] == 3 and answer.json["size_bytes"] > 0, answer
    return answer.told("status", "files", "languages", "size_bytes")


@routes.check("http.projects-analyze", "analyzes in the background; the report has summary, findings and metrics", "POST /projects/{id}/analyze")
def _(w):
    asked, report = w.analysis
    has(report.json, "summary findings metrics")
    for finding in report.json["findings"]:
        has(finding, "tool rule severity file line column message / fix")
    assert any(finding["rule"] == "fit-before-split" for finding in report.json["findings"]), report
    return [asked.told("analysis_id"), report.told("summary.findings", "findings", "metrics")]


@routes.check("http.projects-analyze.shape", "the answer to an analysis is its report")
def _(w):
    answer = w.main.post(f"/projects/{w.project}/analyze", {"review": False}, headers={"idempotency-key": "shape"})
    return promised({"summary", "findings", "metrics"} <= set(answer.json), answer.told(said=fields(answer)))


@routes.check("http.projects-analyze.sarif", "the report as SARIF for who accepts that")
def _(w):
    _, report = w.analysis
    accepts = {"accept": "application/sarif+json"}
    analyzed = w.main.post(f"/projects/{w.project}/analyze", {"review": False}, headers=accepts | {"prefer": "wait=120"})
    again = w.main.get(report.sent.removeprefix("GET "), headers=accepts)
    for answer in (analyzed, again):
        rules = {found["ruleId"] for run in answer.json["runs"] for found in run.get("results", [])}
        assert answer.status == 200 and answer.headers["content-type"].startswith("application/sarif+json"), answer
        assert answer.json["version"] == "2.1.0" and "fit-before-split" in rules, answer
    return [answer.told("version", "runs") for answer in (analyzed, again)]


@routes.check("http.projects-improve", "asks a model for a rewrite; the proposal has a unified diff and findings before and after", "POST /projects/{id}/improve")
def _(w):
    asked, proposal = w.proposed(PLAIN.replace("return 1", "return 3"), "route-improve")
    has(proposal.json, "proposal_id file diff before_sha256 findings_before findings_after")
    assert proposal.json["status"] == "proposed" and "-        return 1\n+        return 3" in proposal.json["diff"], proposal
    return [asked.told("proposal_id"), proposal.told("status", "file", "findings_before", "findings_after")]


@routes.check("http.projects-improve.shape", "the answer to a wish for a rewrite is the proposal")
def _(w):
    answer = w.main.post(f"/projects/{w.project}/improve", {"file": "plain.py", "instruction": "say why [[steps=0 id=route-shape]]"})
    shape = {"proposal_id", "file", "diff", "before_sha256", "findings_before", "findings_after"}
    return promised(shape <= set(answer.json), answer.told(said=fields(answer)))


@routes.check("http.projects-apply", "writes a proposal to the copy once that is confirmed", "POST /projects/{id}/apply")
def _(w):
    _, proposal = w.proposed(PLAIN.replace("return 2", "return 4"), "route-apply")
    body = {"file": "plain.py", "proposal_id": proposal.json["proposal_id"]}
    unsure, answer = (w.main.post(f"/projects/{w.project}/apply", body | {"confirm": confirm}) for confirm in (False, True))
    has(answer.json, "file after_sha256")
    assert answer.status == 200 and answer.json["after_sha256"] == proposal.json["after_sha256"], answer
    w.main.post(f"/projects/{w.project}/revert", {"file": "plain.py", "confirm": True})
    return [unsure.problem(422), answer.told("file", "after_sha256")]


# ---- other clients' API --------------------------------------------------------------------------------------------------

@routes.check("http.v1", "agents and models for clients of OpenAI's API", "POST /v1/chat/completions", "GET /v1/models")
def _(w):
    models = w.main.get("/v1/models")
    names = [model["id"] for model in models.json["data"]]
    assert {f"agent/{name}" for name in ("react", "plan_execute", "reflexion", "critic")} <= set(names), names
    body = {"model": "agent/react", "messages": [{"role": "user", "content": "add [[steps=1 id=route-v1]]"}]}
    answer = w.main.post("/v1/chat/completions", body)
    assert answer.json["object"] == "chat.completion" and answer.json["choices"][0]["message"]["content"] == "done after 1 steps", answer
    return [models.told("data", said="agent/react among them"), answer.told("object", "choices.0.message.content", "choices.0.finish_reason")]


# ---- WebSocket -----------------------------------------------------------------------------------------------------------

@routes.check("ws.agent", "the first message is a run request; then start with the run's id, each step, and the result", "WS /ws/agent")
def _(w):
    heard = w.main.socket("/ws/agent", {"task": "add [[steps=2 id=ws-agent]]", "agent": "react"})
    start, *steps, final = heard.messages
    has(start, "type run_id")
    assert start["type"] == "start" and all(message["type"] == "step" for message in steps), heard
    has(final["result"], RUN)
    assert final["type"] == "final" and final["result"]["steps"] == [message["step"] for message in steps], heard
    return heard.told()


@routes.check("ws.runs", "the steps of a run while it goes on", "WS /ws/runs/{id}")
def _(w):
    run_id = w.main.server.start_run("add [[steps=2 delay_ms=100 id=ws-runs]]")
    wait_for(lambda: w.main.server.get(f"/runs/{run_id}").status == 200, 30, "the run to be known")
    heard = w.main.socket(f"/ws/runs/{run_id}")
    seqs = [message["step"]["seq"] for message in heard.messages if message["type"] == "step"]
    assert heard.kinds()[0] == "start" and heard.kinds()[-1] == "final" and seqs == list(range(1, len(seqs) + 1)), heard
    assert json.dumps(heard.messages[-1]["result"]["steps"]) and len(seqs) == len(heard.messages[-1]["result"]["steps"]), heard
    return heard.told()
