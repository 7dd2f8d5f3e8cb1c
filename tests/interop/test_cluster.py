"""A system of processes that share nothing but servers: an API without workers and a worker process of each kind do everything that one process
does, and what a worker process leaves half done is done by another."""

import json
import os
import subprocess
import uuid

import pytest

import cluster as clusters
import log_client
from cluster import KINDS, SILENCE_MS, Cluster
from server import BINARY, ROOT, Server, free_ports, wait_for

# Until a worker that was killed is missed, and others have its partitions and have done its work.
TAKEN_OVER_S = SILENCE_MS / 1000 + 120


@pytest.fixture(scope="module")
def cluster(tmp_path_factory, model):
    why = clusters.missing()
    if why:
        pytest.skip(why)
    made = Cluster(tmp_path_factory.mktemp("cluster"), model)
    try:
        made.add_each()
        yield made
    finally:
        made.stop()


@pytest.fixture
def collection():
    """The index is shared with other clusters."""
    return f"c{uuid.uuid4().hex[:8]}"


def write(folder, count, word):
    folder.mkdir()
    for number in range(count):
        (folder / f"note-{number}.md").write_text(f"# Note {number}\n\nThe keyword of this note is {word}{number}.\n")
    return folder


def test_given_a_process_of_each_kind_then_each_is_ready_and_no_group_is_left_without_a_worker(cluster):
    assert len(cluster.workers) == len(KINDS)
    names = set()
    for worker in cluster.workers:
        report = worker.wait_ready()
        assert report["hanging"] == [] and worker.ask("/health")[0] == 200, report
        names |= {one["group"] for one in report["workers"]}
    # Who has no workers of its own tells how far those of others are: whatever is asked for below comes to its end.
    groups = set(cluster.api.lag())
    assert len(groups) >= 12 and groups <= names, (groups - names, names)
    assert wait_for(lambda: cluster.api.get("/ready").status == 200, 60, "the API to be ready")


def test_given_workers_elsewhere_when_documents_come_then_they_are_found_asked_rebuilt_and_removed(cluster, collection):
    api = cluster.api
    file = cluster.folder / "bird.md"
    file.write_text("# Birds\n\nThe quetzal is a bird of the cloud forest.\n")
    assert api.ingest(file, collection)["indexed"] == 1
    question = {"query": "bird of the cloud forest", "collection": collection}
    items = wait_for(lambda: api.post("/rag/search", question).json.get("items"), 30, "the document to be found")
    assert "quetzal" in json.dumps(items)
    asked = api.post("/rag/ask", question)
    assert asked.status == 200 and asked.json["answer"], asked
    done = api.cli("collections", "rebuild", collection, "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["status"] == "done", done
    assert api.cli("docs", "rm", items[0]["document_id"]).returncode == 0
    # The API learns by and by that what is gone was removed, and not lost.
    assert wait_for(lambda: api.post("/rag/search", question).status == 404, 60, "the collection to be gone")


def test_given_a_tuner_elsewhere_when_a_collection_is_tuned_then_the_api_has_what_came_of_it(cluster, collection):
    things = ("winch", "glider", "tarmac", "altimeter", "parachute", "rudder", "thermal", "hangar", "canopy", "wheel", "rope", "radio")
    notes = cluster.folder / collection
    notes.mkdir()
    for thing in things:
        (notes / f"{thing}.md").write_text(f"# Note\n\nThe {thing} is looked after daily.\n")
    assert cluster.api.ingest(notes, collection)["indexed"] == len(things)
    judgements = [{"query": f"who cares for a {thing}?", "documents": {thing: 2}} for thing in things]
    reply = cluster.api.post(f"/collections/{collection}/tune", {"judgements": judgements}, timeout=150)
    assert reply.status in (200, 202), reply

    def ended():
        view = cluster.api.get(f"/tunings/{reply.json['tuning_id']}").json
        return view["status"] != "running" and view
    view = wait_for(ended, 120, "the tuning to end")
    assert (view["status"], view["queries"], len(view["gains"])) == ("done", len(things), 3), view


def test_given_an_ingester_elsewhere_when_summaries_are_wanted_then_they_are_built(cluster, collection):
    place = cluster.folder / "rivers.txt"
    place.write_text("\n\n".join(f"River number {n} rises in the hills of county {n} and {'flows on ' * 25}to the sea." for n in range(20)))
    assert cluster.api.ingest(place, collection, strategy="raptor", chunk_size=300, chunk_overlap=0)["indexed"] == 1
    found = cluster.api.post("/rag/search", {"query": "rivers that flow to the sea", "collection": collection, "k": 100, "rerank": False})
    assert [item for item in found.json["items"] if item["metadata"].get("layer")], found


def test_given_an_ingester_without_a_warehouse_when_a_table_is_wanted_then_the_document_fails_with_the_fix(cluster, collection):
    file = cluster.folder / "prices.csv"
    file.write_text("region,amount\nnorth,3\n")
    view = cluster.api.ingest(file, collection, table="prices")
    assert view["failed"] == 1 and "warehouse_missing" in json.dumps(view), view
    reply = cluster.api.get("/warehouse/tables")
    assert reply.status == 503 and reply.json["code"] == "warehouse_elsewhere" and "RIVERRUN_WAREHOUSE_URL" in reply.json["hint"], reply


def test_given_a_process_with_the_tables_when_an_api_without_workers_and_its_tools_are_asked_then_they_answer_as_it_does(tmp_path, model, collection):
    why = clusters.missing()
    if why:
        pytest.skip(why)
    settings = Cluster.settings_for(tmp_path, model)
    owner = Server(tmp_path / "owner", settings)
    api = clusters.Host(tmp_path / "api", settings | {"RIVERRUN_WAREHOUSE_URL": owner.url})
    owner.env["RIVERRUN_KAFKA_BROKERS"] = api.brokers
    try:
        api.start()
        owner.start()
        file = tmp_path / "prices.csv"
        file.write_text("region,amount\nnorth,3\nsouth,4\n")
        assert api.ingest(file, collection, table="prices")["indexed"] == 1
        statement = {"sql": "SELECT region, amount FROM prices ORDER BY amount"}
        found = api.post("/warehouse/query", statement)
        assert found.status == 200 and found.json["rows"] == [["north", 3], ["south", 4]], found
        assert found.json == owner.post("/warehouse/query", statement).json
        assert [table["name"] for table in api.get("/warehouse/tables").json["items"]] == ["prices"]
        row = next(row for row in api.get("/diagnose").json["services"] if row["name"] == "warehouse")
        assert (row["kind"], row["status"], row["address"]) == ("riverrun", "up", owner.url), row
        refused = api.post("/warehouse/query", {"sql": "DROP TABLE prices"})
        assert refused.status == 422 and refused.json["code"] == "statement_refused", refused
        owner.stop()
        away = api.post("/warehouse/query", statement)
        assert away.status == 503 and away.json["code"] == "warehouse_unreachable" and owner.url in away.json["detail"], away
    finally:
        owner.stop()
        api.stop()


def test_given_agents_elsewhere_when_runs_are_started_then_they_search_remember_and_end(cluster, collection):
    api = cluster.api
    file = cluster.folder / "winch.md"
    file.write_text("# Winch\n\nA winch launch costs 9 crowns.\n")
    # A run searches everything in its namespace.
    assert api.ingest(file, collection, namespace=collection)["indexed"] == 1
    run_id = api.start_run(f'look [[steps=1 tool=knowledge_search args={{"query":"winch"}} id={collection}]]', namespace=collection)
    run = api.run_end(run_id, 120)
    assert run["status"] == "succeeded" and "9 crowns" in json.dumps(run["steps"]), run
    talk = {"namespace": "interop", "session": collection}
    api.post("/memory/turns", {"role": "user", "text": "the altimeter reads 300", **talk})
    run = api.run_end(api.start_run(f"say it [[steps=1 id=memory-{collection}]]", **talk), 120)
    assert run["steps"][0]["tool"]["name"] == "memory_recall" and "altimeter" in json.dumps(run["steps"][1]), run

    def joined():
        return len(api.get(f"/memory/turns?namespace=interop&session={collection}").json["items"]) >= 3
    wait_for(joined, 60, "the run to join its conversation")


def test_given_an_analyzer_elsewhere_when_a_project_comes_then_it_is_analyzed(cluster):
    folder = cluster.folder / f"project-{uuid.uuid4().hex[:8]}"
    folder.mkdir()
    (folder / "main.py").write_text("def half(x):\n    return x / 2\n")
    done = cluster.api.cli("project", "import", str(folder), "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["project_id"], done
    # Of all groups, although the marks of transactions lie behind the last records of some partitions.
    cluster.api.settle(120)


def test_given_a_projector_elsewhere_when_a_canvas_is_saved_then_every_api_has_it_and_one_of_two_savers_is_told(cluster, collection):
    canvas = {"format": "riverrun.canvas", "version": 1, "name": collection, "namespace": "default", "nodes": [], "edges": []}
    path = cluster.folder / f"{collection}.json"
    path.write_text(json.dumps(canvas))
    api, other = cluster.api, cluster.add_api()
    assert api.cli("canvas", "save", path).returncode == 0
    kept = other.get(f"/canvases/{collection}").json
    assert (kept["revision"], kept["document"]) == (1, canvas), kept
    late = other.cli("canvas", "save", path)
    assert late.returncode == 4 and "revision 1" in late.stderr, late
    assert api.cli("canvas", "rm", collection).returncode == 0
    assert other.get(f"/canvases/{collection}").status == 404


def test_given_two_apis_when_a_run_is_started_at_one_then_the_other_shows_it(cluster):
    other = cluster.add_api()
    run = other.run_end(cluster.api.start_run("[[steps=2 id=two-apis]]"), 120)
    assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, len(run["steps"]) + 1)), run


def test_given_two_agent_processes_when_one_is_killed_then_the_other_ends_every_run_once(cluster):
    api = cluster.api
    second = cluster.add("agent")
    second.wait_ready()
    wait_for(lambda: second.partitions("agent") >= 2, 60, "the second process to have partitions")
    mark = uuid.uuid4().hex[:6]
    run_ids = [api.start_run(f"[[steps=4 delay_ms=300 id={mark}-{number}]]") for number in range(16)]
    # In the middle of the work: some has been done, none is at its end.
    wait_for(lambda: any((reply := api.get(f"/runs/{run_id}")).status == 200 and reply.json["steps"] for run_id in run_ids), 60, "a step")
    second.kill()
    cluster.workers.remove(second)
    for run_id in run_ids:
        run = api.run_end(run_id, TAKEN_OVER_S)
        assert run["status"] == "succeeded" and [step["seq"] for step in run["steps"]] == list(range(1, len(run["steps"]) + 1)), run
    on_log = log_client.runs(api.brokers, api.url)
    assert all(on_log[run_id].end for run_id in run_ids)
    counts = [len(on_log[run_id].steps) for run_id in run_ids]
    assert set(counts) == {counts[0]}, counts


def test_given_two_embedder_processes_when_one_is_killed_then_every_document_is_found_once(cluster, collection):
    api = cluster.api
    second = cluster.add("embedder")
    second.wait_ready()
    wait_for(lambda: second.partitions("embedder") >= 2, 60, "the second process to have partitions")
    count = 30
    notes = write(cluster.folder / collection, count, "zebra")
    reply = api.post("/ingest", {"source": str(notes), "collection": collection})
    assert reply.status == 202, reply
    second.kill()
    cluster.workers.remove(second)
    view = api.ingest_end(reply.json["ingest_id"], TAKEN_OVER_S)
    assert view["indexed"] == count, view
    found = api.post("/rag/search", {"query": "the keyword of this note", "collection": collection, "k": 100, "rerank": False})
    items = found.json["items"]
    assert len({item["document_id"] for item in items}) == count and len(items) == count, len(items)
    assert api.cli("collections", "check", collection).returncode == 0


def test_the_example_starts_a_system_that_ingests_searches_and_runs(cluster, model):
    api_port, broker_port = free_ports(2)
    own = Cluster.settings_for(cluster.folder, model)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RIVERRUN_")} | own
    env |= {"RIVERRUN": str(BINARY), "RIVERRUN_API_PORT": str(api_port), "RIVERRUN_BROKER_PORT": str(broker_port), "RIVERRUN_MODELS_OFFLINE": "true"}
    done = subprocess.run([ROOT / "examples/cluster.sh"], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0 and "winch" in done.stdout.lower(), done
