"""What is promised, as a list: each item must be covered by a check, or stand in `ELSEWHERE` with the test that shows it."""

ROUTES = """
GET /health
GET /agents
GET /tools
GET /collections
POST /agent/run
POST /rag/search
POST /rag/ask
POST /ingest
GET /ingest/{id}
POST /runs
GET /runs
GET /runs/{id}
GET /runs/{id}/events
POST /runs/{id}/cancel
POST /runs/{id}/resume
POST /runs/{id}/fork
POST /runs/{id}/approvals/{step}
GET /documents
GET /documents/{id}
DELETE /documents/{id}
DELETE /collections/{name}
POST /finetune/jobs
GET /finetune/registry
POST /projects/import
POST /projects/{id}/analyze
POST /projects/{id}/improve
POST /projects/{id}/apply
GET /warehouse/tables
POST /warehouse/query
POST /memory/turns
GET /memory/context
GET /docs
GET /openapi.json
GET /metrics
POST /v1/chat/completions
GET /v1/models
WS /ws/runs/{id}
WS /ws/agent
WS /ws/ingest/{id}
WS /ws/finetune/{id}
""".strip().splitlines()

# Each with its options.
COMMANDS = {
    "diagnose": "",
    "serve": "",
    "providers": "",
    "models": "--provider",
    "chat": "--provider --model --no-stream -t",
    "embed": "",
    "ingest": "-c --table -t --type --query --strategy --embed-backend",
    "collections": "",
    "search": "-c -k",
    "warehouse tables": "",
    "warehouse query": "",
    "stream consume": "--collection --idle-timeout",
    "stream produce": "--topic",
    "rag search": "-c -k --namespace",
    "rag ask": "-c --namespace",
    "memory add": "-n -s",
    "memory chat": "-n -s",
    "memory context": "--query -n -s",
    "agents": "",
    "tools": "",
    "agent run": "--agent --steps --namespace",
    "finetune dataset": "--jsonl --format",
    "finetune train": "--dataset --name --max-steps",
    "finetune jobs": "",
    "finetune registry": "",
    "finetune eval": "--metrics",
    "project import": "",
    "project analyze": "--no-review",
    "project report": "--json",
    "project improve": "--file",
    "project apply": "--file --yes",
    "runs ls": "",
    "runs show": "",
    "runs watch": "",
    "runs cancel": "",
    "runs resume": "",
    "runs fork": "",
    "runs approve": "",
    "worker": "",
    "dlq ls": "",
    "dlq show": "",
    "dlq redrive": "",
    "dlq drop": "",
    "topics": "",
    "docs ls": "",
    "docs rm": "",
    "models pull": "",
    "models ls": "",
    "completion": "",
    "openapi": "",
}

SETTINGS = """
RIVERRUN_AGENT_MAX_ITERS
RIVERRUN_AGENT_TEMPERATURE
RIVERRUN_API_HOST
RIVERRUN_API_PORT
RIVERRUN_API_TOKENS
RIVERRUN_BROKER_PORT
RIVERRUN_CHUNK_SIZE
RIVERRUN_CHUNK_OVERLAP
RIVERRUN_DATA_DIR
RIVERRUN_DATABASE_URL
RIVERRUN_DEFAULT_CHAT_MODEL
RIVERRUN_DEFAULT_EMBED_MODEL
RIVERRUN_KAFKA_BROKERS
RIVERRUN_MEMORY_WINDOW_TOKENS
RIVERRUN_MODELS_DIR
RIVERRUN_MODEL_RUNTIME_BASE_URL
RIVERRUN_MONGODB_URL
RIVERRUN_QDRANT_URL
RIVERRUN_RAG_TOP_K
RIVERRUN_REDIS_URL
RIVERRUN_SCHEMA_REGISTRY_URL
RIVERRUN_TRACING_ENDPOINT
RIVERRUN_TRACING_PROJECT
RIVERRUN_TRACING_PUBLIC_KEY
RIVERRUN_TRACING_SECRET_KEY
RIVERRUN_OPENAI_API_KEY
RIVERRUN_COHERE_API_KEY
""".split()

# Promises that are no part of the surface, by the ids of their checks.
PROMISES = """
setting.dotenv
setting.unreadable-value
rule.agent.omitted
rule.agent.named
rule.agent.catalog
rule.approval
rule.namespace.run-tools
rule.namespace.run-memory
rule.namespace.run-collections
rule.namespace.rag
rule.namespace.physical-name
rule.tabular
rule.project.analyzers
rule.project.no-review
rule.project.review
rule.project.improve-is-preview
rule.project.apply-copy-only
rule.project.confirm
rule.training.sft-lora
rule.training.dpo
rule.training.gpu
rule.training.streams
rule.training.versions
rule.models.providers
rule.models.hosted-opt-in
rule.models.temperature
rule.models.default-dimensions
rule.models.fetched-at-first-use
rule.ingest.both-indexes
rule.retrieval.hybrid
rule.retrieval.rerank-hosted
rule.retrieval.rerank-local
rule.answer.cites
rule.memory.turns
rule.memory.summary
rule.memory.recall
rule.memory.apart
rule.tools.manifests
rule.tracing.every-run
rule.tracing.project-and-keys
rule.tracing.id-derived
rule.tracing.steps-logged
rule.topic.documents
rule.canvas.exchange
rule.canvas.served
rule.canvas.palette
rule.canvas.api-base
rule.names.ids
rule.names.derived
rule.names.json
rule.names.topics
rule.idempotency.runs
rule.idempotency.writes
rule.idempotency.answers
rule.lists
rule.lists.cursors
rule.access.loopback-open
rule.access.tokens
rule.access.scopes
rule.access.scope.read
rule.access.scope.run
rule.access.scope.ingest
rule.access.scope.train
rule.access.scope.admin
rule.access.sockets
rule.access.namespaces
rule.access.host-origin
rule.websocket.order
rule.websocket.after
rule.websocket.steps
rule.websocket.kinds
rule.websocket.tokens
rule.websocket.slow
rule.cli.streams
rule.cli.json
rule.cli.json.work
rule.cli.bars
rule.cli.service-down
error.tracing-down
error.tracing-misconfigured
error.model-runtime-down
error.service-down
error.model-missing
error.no-tool-action
error.gpu-needed
error.package-missing
error.package-missing.tools
error.frontend-offline
error.problem-document
error.status.400
error.status.401
error.status.403
error.status.404
error.status.409.embedding
error.status.409.key
error.status.409.ended
error.status.413
error.status.413.limits
error.status.415
error.status.422
error.status.422.types
error.status.429
error.status.429.rate
error.status.503
error.socket.1007
error.socket.1008
error.exit.0
error.exit.1
error.exit.2
error.exit.3
error.exit.4
error.exit.130
error.exit.130.commands
error.hint
error.voice
state.run.queued
state.run.running
state.run.waiting
state.run.succeeded
state.run.failed
state.run.cancelled
state.run.one-end
state.document.path
state.document.failed
state.document.unchanged
state.job.succeeded
state.job.failed
state.job.cancelled
state.project.imported
state.project.analyzed
state.proposal.proposed
state.proposal.applied
state.proposal.stale
state.terminal-events
""".split()

# Promises that need more than a server and a command line, with the tests that show them.
ELSEWHERE = {
    "rule.canvas.palette": ("a browser draws, runs and exports a canvas", "test_web.py::test_a_user_walks_through_the_pages"),
    "rule.canvas.api-base": ("the pages are built with an address", "test_web.py::test_a_user_walks_through_the_pages"),
    "error.frontend-offline": ("the walk in a browser ends the server under the page", "test_web.py::test_a_user_walks_through_the_pages"),
    "rule.websocket.slow": ("a client that does not read needs megabytes and minutes", "test_faults.py::test_watchers_that_do_not_read_or_vanish_disturb_nobody"),
}


def items():
    """Everything on the surface that is promised."""
    flags = [f"{command} {flag}" for command, flags in COMMANDS.items() for flag in flags.split()]
    return [*ROUTES, *COMMANDS, *flags, *SETTINGS]
