"""What is offered besides the contract, each with the reason: neither routes nor commands nor options come to be without a check or a line here."""

# Operations of the OpenAPI document.
ROUTES = {
    "behind the command line": """
        GET /diagnose
        GET /providers
        GET /models
        POST /chat
        POST /embed
        GET /topics
        GET /memory/turns
        POST /memory/chat
        GET /memory/why
        DELETE /memory
        GET /usage
        GET /dlq
        GET /dlq/{id}
        POST /dlq/{id}/drop
        POST /dlq/{id}/redrive""",
    "what has begun, looked at again": """
        GET /runs/{id}/steps
        GET /runs/{id}/tree
        GET /runs/{id}/compare
        GET /deletions/{id}
        GET /documents/{id}/text
        GET /finetune/datasets
        POST /finetune/datasets
        GET /finetune/datasets/{name}
        GET /finetune/defaults
        POST /finetune/estimate
        GET /finetune/jobs
        GET /finetune/jobs/{id}
        POST /finetune/jobs/{id}/cancel
        GET /finetune/registry/{model}/{version}
        GET /finetune/registry/{model}/{version}/files/{file}
        POST /finetune/registry/{model}/{version}/stage
        GET /projects
        GET /projects/{id}
        DELETE /projects/{id}
        GET /projects/{id}/report
        GET /projects/{id}/analyses
        GET /projects/{id}/trend
        GET /projects/{id}/files
        GET /projects/{id}/file
        GET /projects/{id}/proposals
        GET /projects/{id}/proposals/{proposal}
        POST /projects/{id}/revert
        GET /projects/{id}/patch""",
    "linters and type checkers on request": "GET /projects/tools\nPOST /projects/tools\nDELETE /projects/tools/{name}",
    "canvases and chains of runs that are kept": """
        GET /canvases
        GET /canvases/{id}
        PUT /canvases/{id}
        DELETE /canvases/{id}
        POST /chains
        GET /chains/{id}
        POST /chains/{id}/cancel""",
    "collections made again": """
        GET /collections/{name}/check
        GET /collections/{name}/standing
        POST /collections/{name}/reembed
        GET /reembeddings/{id}
        POST /collections/{name}/tune
        GET /tunings/{id}
        POST /collections/{name}/rebuild
        GET /rebuilds/{id}""",
    "models measured": "GET /models/cards\nPOST /models/probe",
    "tools called by hand": "POST /tools/{name}/call",
    "clients of OpenAI's API": "POST /v1/embeddings",
    "login from a browser": "GET /auth/session\nPOST /auth/session\nDELETE /auth/session",
    "operators": "GET /ready\nGET /blobs\nGET /blobs/check\nPOST /blobs/sweep",
    "the schema registry that Kafka's clients ask": """
        GET /schemas/types
        GET /schemas/ids/{id}
        GET /schemas/ids/{id}/schema
        GET /schemas/ids/{id}/subjects
        GET /schemas/ids/{id}/versions
        GET /subjects
        POST /subjects/{subject}
        GET /subjects/{subject}/versions
        POST /subjects/{subject}/versions
        GET /subjects/{subject}/versions/{version}
        GET /subjects/{subject}/versions/{version}/schema
        GET /config
        GET /config/{subject}
        GET /mode""",
}

# Commands, with all of their options.
COMMANDS = {
    "canvases on the command line": "canvas run\ncanvas check\ncanvas save\ncanvas ls\ncanvas show\ncanvas rm",
    "chains of runs": "chains show\nchains watch\nchains cancel",
    "branches of runs": "runs tree\nruns compare",
    "proof under kills": "chaos run\nchaos load",
    "more of conversations": "memory turns\nmemory why\nmemory forget",
    "more of trainings": "finetune datasets\nfinetune watch\nfinetune cancel\nfinetune show\nfinetune stage\nfinetune export",
    "more of documents and collections": "docs show\ncollections ls\ncollections rm\ncollections check\ncollections rebuild\ncollections reembed\ncollections tune",
    "more of projects": """
        project ls
        project trend
        project revert
        project rm
        project patch
        project tools ls
        project tools install
        project tools rm""",
    "how good retrieval is": "rag eval",
    "models measured": "models rm\nmodels show\nmodels probe",
    "tools of users": "tools ls\ntools check\nmcp",
    "operators": "blobs ls\nblobs check\nblobs sweep\nexport\nimport\ntokens create\ntokens ls\ntokens revoke\nusage",
}

# Further options of commands that the contract has.
FLAGS = {
    "a namespace, as everywhere": """
        ingest --namespace
        collections --namespace
        search --namespace
        tools --namespace
        warehouse tables --namespace
        warehouse query --namespace
        stream consume --namespace
        docs ls --namespace
        docs rm --namespace
        runs ls --namespace
        runs show --namespace
        runs watch --namespace
        runs cancel --namespace
        runs approve --namespace
        runs resume --namespace
        runs fork --namespace
        project import --namespace
        project analyze --namespace
        project report --namespace
        project improve --namespace
        project apply --namespace""",
    "what the HTTP request has, too": """
        embed --provider
        embed --model
        models ls --provider
        chat --file
        chat --max-tokens
        chat --timeout
        search --filter
        search --fusion
        search --mode
        search --rerank
        search --no-rerank
        search --wording
        search --rewrite
        search --untuned
        search --context
        search --per-document
        rag search --filter
        rag search --fusion
        rag search --mode
        rag search --rerank
        rag search --no-rerank
        rag search --wording
        rag search --rewrite
        rag search --untuned
        rag search --context
        rag search --per-document
        rag ask -k
        rag ask --filter
        rag ask --fusion
        rag ask --mode
        rag ask --rerank
        rag ask --no-rerank
        rag ask --wording
        rag ask --rewrite
        rag ask --untuned
        rag ask --context
        rag ask --per-document
        rag ask --provider
        rag ask --model
        rag ask --no-stream
        memory chat --provider
        memory chat --model
        memory chat --temperature
        memory chat --no-stream
        memory context -k
        agent run --session
        agent run --session-policy
        agent run --provider
        agent run --model
        agent run --temperature
        agent run --max-iters
        agent run --tool
        agent run --collection
        agent run --budget-tokens
        agent run --budget-seconds
        agent run --approval
        agent run --metadata
        project import --name
        project improve --instruction
        project improve --candidates
        project improve --may-remove
        project improve --tests
        warehouse query --limit
        warehouse query --csv
        warehouse tables --csv""",
    "more of what may be read": """
        ingest --include
        ingest --exclude
        ingest --depth
        ingest --sitemap
        ingest --follow
        ingest --prune
        ingest --chunk-size
        ingest --chunk-overlap
        ingest --chunk-unit
        ingest --metadata
        stream consume --topic
        stream consume --from-beginning
        stream consume --create-topic
        stream consume --type
        stream consume --metadata
        stream consume --chunk-size
        stream consume --chunk-overlap
        stream consume --chunk-unit
        stream consume --embed-backend
        stream produce --key
        stream produce --format
        stream produce --content-type
        stream produce --metadata""",
    "numbers of a training": """
        finetune dataset --base-model
        finetune dataset --from-runs
        finetune train --format
        finetune train --method
        finetune train --base-model
        finetune train --rank
        finetune train --alpha
        finetune train --dropout
        finetune train --target
        finetune train --learning-rate
        finetune train --batch-size
        finetune train --accumulation
        finetune train --seq-len
        finetune train --seed
        finetune train --require-gain
        finetune train --estimate
        finetune train --detach
        finetune jobs --status
        finetune jobs --limit
        finetune jobs --cursor
        finetune registry --limit
        finetune registry --cursor
        finetune eval --stem
        finetune eval --encoder
        finetune eval --layer
        finetune eval --idf
        finetune eval --baseline
        finetune eval --each
        finetune eval --judge-provider
        finetune eval --judge-model""",
    "other forms of a report": "project report --sarif\nproject report --html",
    "which runs, and how": """
        runs ls --status
        runs ls --agent
        runs ls --session
        runs ls --chain
        runs ls --limit
        runs ls --cursor
        runs watch --after
        runs watch --tokens
        runs cancel --reason
        runs approve --watch
        runs fork --model
        runs fork --provider
        runs fork --agent
        runs fork --task
        runs fork --watch""",
    "processes": "serve --no-workers\nserve --host-log\nworker --concurrency\nworker --health-port\nworker --hangs-after",
    "dead letters": "dlq ls --topic\ndlq ls --limit\ndlq show --to\ndlq redrive --again",
    "which documents": "docs ls --collection\ndocs ls --limit\ndocs ls --cursor",
}


def listed(table):
    """What stands in one of the tables."""
    return {line.strip() for lines in table.values() for line in lines.splitlines() if line.strip()}
