"""The load form of `riverrun chaos`, done to DBOS Transact: a workflow with a step for each model call and each tool call.

As its documentation describes it: the runs are enqueued on a durable queue, each worker process is an executor with an id of
its own, and one that comes back under the id of a killed one recovers, when it is launched, what that one had in hand. No
process of another id does that without Conductor, a service of its own that is not used here.

    chaos_dbos.py [--runs 200] [--steps 10] [--kill-every 2] [--workers 4] [--tool-ms 20] [--seed 4] [--json]
                  [--in-hand 10] [--database-url postgresql://user:password@host:5432/database]

Its system database is SQLite, as without any setting, or PostgreSQL, which its documentation recommends for production. There a
schema is made in the database, and dropped at the end.
"""

import importlib.metadata
import threading
import uuid
from dataclasses import dataclass

import chaos_peers

APP, VERSION, QUEUE = "chaos", "1", "runs"

POLL_S = 0.1
"""How often an executor looks for work. Its default of a second would be what is measured, with runs shorter than that."""

OPEN = ["ENQUEUED", "DELAYED", "PENDING"]


@dataclass(frozen=True)
class Store:
    """The system database. SQLite knows no schema."""

    url: str
    schema: str


def work(load, name, store):
    from dbos import DBOS

    DBOS(config={"name": APP, "application_version": VERSION, "executor_id": name, "log_level": "ERROR",
                 "system_database_url": store.url, "dbos_system_schema": store.schema})

    @DBOS.step()
    def model():
        chaos_peers.think()

    @DBOS.step()
    def tool(run, number):
        return chaos_peers.use_tool(load, run, number)

    @DBOS.workflow(name="agent")
    def agent(run):
        for number in range(load.calls):
            model()
            tool(run, number)
        model()

    DBOS.launch()
    threading.Event().wait()


class Dbos(chaos_peers.Peer):
    name, version = "DBOS Transact", importlib.metadata.version("dbos")
    limits = (
        "a step is done at least once: an effect outside, in a step that a kill interrupts, is repeated",
        "a workflow has one row of status: a second end of a run could not be seen, so its terminal events are at most its runs",
    )

    def __init__(self, load, runs, in_hand, database_url):
        from dbos import DBOS, DBOSClient

        self.load, self.runs_in_hand, self.on_server = load, in_hand, database_url is not None
        self.store = "PostgreSQL" if self.on_server else "SQLite"
        url = database_url or f"sqlite:///{load.folder}/dbos.sqlite"
        self.system = Store(url, f"riverrun_chaos_{uuid.uuid4().hex[:8]}")
        DBOS.migrate(url, schema=self.system.schema)
        self.client = DBOSClient(system_database_url=url, dbos_system_schema=self.system.schema, application_name=APP)
        self.client.register_queue(QUEUE, worker_concurrency=in_hand, polling_interval_sec=POLL_S)
        for run in range(runs):
            self.client.enqueue({"workflow_name": "agent", "queue_name": QUEUE, "workflow_id": str(run), "app_version": VERSION}, run)

    def worker(self, name):
        return work, (self.load, name, self.system)

    def all_ended(self):
        return not self.workflows(status=OPEN, limit=1)

    def ends(self):
        ended = [workflow for workflow in self.workflows() if workflow.status not in OPEN]
        return {workflow.workflow_id: 1 for workflow in ended}, sum(workflow.status == "SUCCESS" for workflow in ended)

    def workflows(self, **which):
        return self.client.list_workflows(load_input=False, load_output=False, **which)

    def close(self):
        self.client.destroy()
        if self.on_server:
            self.drop_schema()

    def drop_schema(self):
        import sqlalchemy

        engine = sqlalchemy.create_engine(sqlalchemy.make_url(self.system.url).set(drivername="postgresql+psycopg"))
        with engine.begin() as connection:
            connection.execute(sqlalchemy.text(f"DROP SCHEMA IF EXISTS {self.system.schema} CASCADE"))
        engine.dispose()


def main():
    parser = chaos_peers.options(__doc__)
    parser.add_argument("--in-hand", type=int, default=10, help="runs that a worker has in hand at most: the queue's worker_concurrency")
    parser.add_argument("--database-url", help="of PostgreSQL; without, SQLite in a temporary folder")
    chosen = parser.parse_args()
    chaos_peers.run(chosen, lambda load: Dbos(load, chosen.runs, chosen.in_hand, chosen.database_url))


if __name__ == "__main__":
    main()
