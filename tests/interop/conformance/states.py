"""States: what runs, documents, trainings and projects go through, and that each ends once."""


import log_client
from conformance.core import Group, Told

from conformance.world import PLAIN, records, training
from server import wait_for

states = Group("States")


def statuses(look, ended):
    """The states that are seen, in order, until one of `ended`."""
    seen = []

    def over():
        state = look()
        if state and (not seen or seen[-1] != state):
            seen.append(state)
        return state in ended
    wait_for(over, 90, f"one of {ended}", every_s=0.01)
    return seen


def of_run(w, run_id):
    return lambda: w.main.server.get(f"/runs/{run_id}").json.get("status")


# ---- runs ----------------------------------------------------------------------------------------------------------------

@states.check("state.run.queued", "a run that waits for its turn is queued")
def _(w):
    first, _ = w.open_run("state-first", session="states")
    second = w.main.server.start_run("add [[steps=0 id=state-second]]", session="states")
    wait_for(lambda: of_run(w, second)() == "queued", 30, "the second run")
    answer = w.main.get(f"/runs/{second}")
    for run_id in (second, first):
        w.main.post(f"/runs/{run_id}/cancel", {})
    return answer.told("status", said="while another run of its session goes on")


@states.check("state.run.running", "a run that a worker drives is running")
def _(w):
    run_id = w.main.server.start_run("add [[steps=2 delay_ms=300 id=state-running]]")
    seen = statuses(of_run(w, run_id), {"succeeded", "failed"})
    assert seen[-2:] == ["running", "succeeded"] and set(seen) <= {"queued", "running", "succeeded"}, seen
    return Told(f"GET /runs/{run_id}, again and again", " → ".join(seen[-2:]))


@states.check("state.run.waiting", "a run that asks a person is waiting_approval, and running again once it is answered")
def _(w):
    run_id, step = w.open_run("state-waiting")
    waiting = w.main.get(f"/runs/{run_id}")
    w.main.post(f"/runs/{run_id}/approvals/{step}", {"decision": "approve"})
    seen = statuses(of_run(w, run_id), {"succeeded", "failed"})
    assert waiting.json["status"] == "waiting_approval" and seen[-1] == "succeeded", seen
    return [waiting.told("status", "pending_approvals"), Told(f"POST /runs/{run_id}/approvals/{step}", " → ".join(dict.fromkeys(["waiting_approval", "running", seen[-1]])))]


@states.check("state.run.succeeded", "a run with an answer has succeeded")
def _(w):
    return w.main.get(f"/runs/{w.ended['run_id']}").told("status", "answer", "finished_at")


@states.check("state.run.failed", "a run without one has failed, with the error")
def _(w):
    w.bare.post("/agent/run", {"task": "add", "agent": "react"}, timeout=180)
    answer = w.bare.get("/runs?status=failed")
    run = w.bare.get(f"/runs/{answer.json['items'][0]['run_id']}")
    assert run.json["status"] == "failed" and run.json["error"]["code"] == "model_runtime_down", run
    return run.told("status", "stop_reason", "error.code")


@states.check("state.run.cancelled", "a run that was asked to stop is cancelled")
def _(w):
    run_id, _ = w.open_run("state-cancelled")
    w.main.post(f"/runs/{run_id}/cancel", {"reason": "enough"})
    w.main.server.run_end(run_id)
    answer = w.main.get(f"/runs/{run_id}")
    assert (answer.json["status"], answer.json["stop_reason"]) == ("cancelled", "cancelled"), answer
    return answer.told("status", "stop_reason")


@states.check("state.run.one-end", "a run has one terminal event, whatever is asked of it afterwards")
def _(w):
    run_id, step = w.open_run("state-one-end")
    w.main.post(f"/runs/{run_id}/cancel", {})
    w.main.server.run_end(run_id)
    late = [w.main.post(f"/runs/{run_id}/{what}", body) for what, body in (("cancel", {}), (f"approvals/{step}", {"decision": "approve"}), ("resume", {}))]
    kinds = records(w.main.server, "riverrun.agent.events", run_id)
    assert all(answer.status == 409 for answer in late) and kinds.count("RunFinished") == 1 and kinds[0] == "RunAccepted", (late, kinds)
    return [*(answer.problem(409) for answer in late), Told("riverrun.agent.events, records with that key", " → ".join(dict.fromkeys(kinds)))]


# ---- documents -----------------------------------------------------------------------------------------------------------

@states.check("state.document.path", "a document goes from queued to chunked, embedded and indexed")
def _(w):
    view = w.main.server.ingest(w.file("state/stork.md", "# Stork\n\nA stork claps.\n"), "states")
    document = w.main.get("/documents?collection=states").json["items"][0]
    name = document["document_id"].encode()
    found = [record for record in log_client.read_topic(w.main.server.brokers, "riverrun.ingest.events") if name in record.key() + record.value()]
    kinds = [log_client.headers(record)["ce_type"].rsplit(".", 1)[1] for record in found]
    wanted = ["DocumentQueued", "DocumentChunked", "DocumentEmbedded", "DocumentIndexed"]
    assert view["indexed"] == 1 and document["status"] == "indexed" and [kind for kind in kinds if kind in wanted] == wanted, (document, kinds)
    return [Told("GET /documents?collection=states", f"status: {document['status']}"), Told("riverrun.ingest.events, records of that document", " → ".join(dict.fromkeys(kinds)))]


@states.check("state.document.failed", "a document that cannot be taken in has failed, with the reason; the others go on")
def _(w):
    w.file("state-failed/a.md", "# Good\n\nA good one.\n")
    w.file("state-failed/b.json", '{"a"')
    answer = w.main.post("/ingest", {"source": str(w.folder / "files/state-failed"), "collection": "state-failed"})
    w.main.server.ingest_end(answer.json["ingest_id"])
    seen = w.main.get(f"/ingest/{answer.json['ingest_id']}")
    assert (seen.json["indexed"], seen.json["failed"]) == (1, 1) and seen.json["failures"][0]["error"]["code"] == "malformed_document", seen
    return seen.told("status", "indexed", "failed", "failures.0.error.code")


@states.check("state.document.unchanged", "the same content again is unchanged")
def _(w):
    path = w.file("state/same.md", "# Same\n\nAlways the same.\n")
    views = [w.main.server.ingest(path, "state-same") for _ in range(2)]
    assert (views[0]["indexed"], views[1]["unchanged"], views[1]["indexed"]) == (1, 1, 0), views
    return Told("POST /ingest with the same file, twice", "indexed: 1; then unchanged: 1, indexed: 0")


# ---- trainings -----------------------------------------------------------------------------------------------------------

@states.check("state.job.succeeded", "a training goes from queued to running to succeeded")
def _(w):
    _, heard, job = w.training
    kinds = records(w.main.server, "riverrun.finetune.events", job.json["job_id"])
    begun = heard.messages[0]["job"]["status"]
    assert job.json["status"] == "succeeded" and begun in ("queued", "running"), heard
    kinds = list(dict.fromkeys(kinds))
    assert kinds[:2] == ["FinetuneAccepted", "FinetuneClaimed"] and kinds[-1] == "FinetuneFinished", kinds
    return [Told(f"WS /ws/finetune/{job.json['job_id']}, its first message", f"status: {begun}"), job.told("status"), Told("riverrun.finetune.events, records with that key", " → ".join(dict.fromkeys(kinds)))]


@states.check("state.job.failed", "a training that cannot go on has failed, with the reason")
def _(w):
    w.hand_in("doomed").ok()
    answer = w.main.post("/finetune/jobs", training("doomed", base_model="no-such-base"))
    assert answer.status == 202, answer
    w.main.socket(f"/ws/finetune/{answer.json['job_id']}")
    job = w.main.get(f"/finetune/jobs/{answer.json['job_id']}")
    assert job.json["status"] == "failed" and job.json["error"]["code"] == "model_missing", job
    return job.told("status", "error.code")


@states.check("state.job.cancelled", "a training that was asked to stop is cancelled, and registers nothing")
def _(w):
    w.hand_in("stopped").ok()
    job_id = w.main.post("/finetune/jobs", training("stopped", max_steps=100_000)).json["job_id"]
    wait_for(lambda: w.main.server.get(f"/finetune/jobs/{job_id}").json.get("step", 0) >= 1, 60, "a step")
    answer = w.main.post(f"/finetune/jobs/{job_id}/cancel", {"reason": "enough"})
    assert answer.status == 202, answer
    w.main.socket(f"/ws/finetune/{job_id}")
    job = w.main.get(f"/finetune/jobs/{job_id}")
    models = {item["model"] for item in w.main.get("/finetune/registry").json["items"]}
    assert job.json["status"] == "cancelled" and "stopped" not in models, job
    return [answer.told(), job.told("status", "model"), w.main.post(f"/finetune/jobs/{job_id}/cancel", {}).problem(409)]


# ---- projects ------------------------------------------------------------------------------------------------------------

@states.check("state.project.imported", "a project goes from importing to imported")
def _(w):
    answer = w.main.post("/projects/import", {"source": str(w.code), "name": "states"}, headers={"prefer": "respond-async"})
    seen = statuses(lambda: w.main.server.get(f"/projects/{answer.json['project_id']}").json.get("status"), {"imported", "failed"})
    kinds = records(w.main.server, "riverrun.projects.events", answer.json["project_id"])
    assert seen[-1] == "imported" and set(seen) <= {"importing", "imported"}, seen
    return Told("POST /projects/import; GET /projects/{id}, again and again", f"importing → imported · on the log: {' → '.join(dict.fromkeys(kinds))}")


@states.check("state.project.analyzed", "and from there to analyzing and analyzed")
def _(w):
    project = w.main.post("/projects/import", {"source": str(w.code), "name": "analyzed"}).json["project_id"]
    w.imported(project)
    w.main.post(f"/projects/{project}/analyze", {"review": True}, headers={"prefer": "respond-async"})
    seen = statuses(lambda: w.main.server.get(f"/projects/{project}").json.get("status"), {"analyzed", "failed"})
    # A quick analysis is over before anyone looks: then the log alone shows that it began.
    kinds = records(w.main.server, "riverrun.projects.events", project)
    assert seen[-1] == "analyzed" and set(seen) <= {"imported", "analyzing", "analyzed"}, seen
    return Told("POST /projects/{id}/analyze; GET /projects/{id}, again and again", f"analyzing → analyzed · on the log: {' → '.join(dict.fromkeys(kinds))}")


@states.check("state.proposal.proposed", "a rewrite that holds is proposed")
def _(w):
    _, proposal = w.proposed(PLAIN.replace("return 1", "return 21"), "state-proposed")
    assert proposal.json["status"] == "proposed", proposal
    return proposal.told("status")


@states.check("state.proposal.applied", "a proposal that is written is applied")
def _(w):
    _, proposal = w.proposed(PLAIN.replace("return 1", "return 22"), "state-applied")
    applied = w.main.post(f"/projects/{w.project}/apply", {"file": "plain.py", "proposal_id": proposal.json["proposal_id"], "confirm": True})
    after = w.main.get(proposal.sent.removeprefix("GET "))
    w.main.post(f"/projects/{w.project}/revert", {"file": "plain.py", "confirm": True})
    assert applied.status == 200 and after.json["status"] == "applied", after
    return [applied.told("file"), after.told("status")]


@states.check("state.proposal.stale", "a proposal is stale once the copy has changed, and is refused with 409")
def _(w):
    _, first = w.proposed(PLAIN.replace("return 1", "return 23"), "state-first-proposal")
    _, second = w.proposed(PLAIN.replace("return 1", "return 24"), "state-second-proposal")
    body = {"file": "plain.py", "confirm": True}
    w.main.post(f"/projects/{w.project}/apply", body | {"proposal_id": second.json["proposal_id"]})
    refused = w.main.post(f"/projects/{w.project}/apply", body | {"proposal_id": first.json["proposal_id"]})
    after = w.main.get(first.sent.removeprefix("GET "))
    w.main.post(f"/projects/{w.project}/revert", {"file": "plain.py", "confirm": True})
    assert after.json["status"] == "stale", after
    return [refused.problem(409), after.told("status")]


DOCUMENT_ENDS = {"DocumentIndexed", "DocumentFailed", "DocumentUnchanged"}


def kind_of(record):
    return log_client.headers(record)["ce_type"].rsplit(".", 1)[1]


def ends_of_documents(w):
    """How each document of each ingest ended, on the log: a document may be handed in again, and then it ends again."""
    decode, found = log_client.decoder(w.main.server.url), {}
    for record in log_client.read_topic(w.main.server.brokers, "riverrun.ingest.events"):
        kind = kind_of(record)
        if kind == "DocumentQueued" or kind in DOCUMENT_ENDS:
            event = decode(record)
            ends = found.setdefault((event["ingest_id"], event["document_id"]), [])
            ends += [kind] if kind in DOCUMENT_ENDS else []
    return found


@states.check("state.terminal-events", "on the log, runs, documents, trainings and imports have exactly one terminal event each")
def _(w):
    job = w.training[0].json["job_id"]
    w.file("terminal/good.md", "# Good\n\nA good one.\n")
    w.file("terminal/bad.json", '{"a"')
    for _ in range(2):
        w.main.server.ingest(w.folder / "files/terminal", "terminal")
    w.main.server.settle()
    told = []
    # Each with something that has surely ended.
    terminal = {"riverrun.agent.events": ({"RunFinished"}, w.ended["run_id"]), "riverrun.finetune.events": ({"FinetuneFinished"}, job),
                "riverrun.projects.events": ({"ProjectImported", "ProjectFailed"}, w.project)}
    for topic, (ends, known) in terminal.items():
        counts, begun = {}, set()
        for record in log_client.read_topic(w.main.server.brokers, topic):
            kind = kind_of(record)
            begun.add(kind)
            if kind in ends:
                counts[record.key()] = counts.get(record.key(), 0) + 1
        assert known.encode() in counts and set(counts.values()) == {1}, (topic, begun, counts)
        told.append(Told(topic, f"one {', '.join(sorted(ends & begun))} for each of those that have ended"))
    wait_for(lambda: all(ends_of_documents(w).values()), 60, "every document that was queued to end", every_s=0.5)
    documents = ends_of_documents(w)
    twice = {place: ends for place, ends in documents.items() if len(ends) != 1}
    assert not twice and {end for ends in documents.values() for end in ends} == DOCUMENT_ENDS, twice
    return [*told, Told("riverrun.ingest.events, by ingest and document", f"one of {', '.join(sorted(DOCUMENT_ENDS))} for each that was queued")]
