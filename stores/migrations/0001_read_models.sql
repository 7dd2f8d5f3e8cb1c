-- Read models: rebuilt from the log at any time, so a change here may as well drop and create.
-- Types and statements are those that SQLite and PostgreSQL share. Times are milliseconds since the epoch.

-- How far each projection has read: written in the same transaction as its rows.
CREATE TABLE checkpoints (
    projection  TEXT   NOT NULL,
    topic       TEXT   NOT NULL,
    partition   BIGINT NOT NULL,
    next_offset BIGINT NOT NULL,
    PRIMARY KEY (projection, topic, partition)
);

CREATE TABLE runs (
    run_id              TEXT   NOT NULL PRIMARY KEY,
    namespace           TEXT   NOT NULL,
    status              TEXT   NOT NULL,
    agent               TEXT,
    request             TEXT   NOT NULL, -- RunRequest as JSON
    epoch               BIGINT NOT NULL, -- the fold's gate: epoch, owner, last_seq and ended (status)
    owner               TEXT,
    last_seq            BIGINT NOT NULL,
    cancel_requested_at BIGINT,
    prompt_tokens       BIGINT NOT NULL,
    completion_tokens   BIGINT NOT NULL,
    cost_usd            DOUBLE PRECISION,
    answer              TEXT,
    citations           TEXT   NOT NULL, -- Citation[] as JSON
    stop_reason         TEXT,
    error               TEXT,            -- Failure as JSON
    ignored_events      BIGINT NOT NULL, -- events of the run that the fold left out
    log_partition       BIGINT NOT NULL, -- where RunAccepted lies: who wants the run's events reads from here
    log_offset          BIGINT NOT NULL,
    created_at          BIGINT NOT NULL,
    finished_at         BIGINT
);
CREATE INDEX runs_newest_first ON runs (created_at, run_id);
CREATE INDEX runs_open ON runs (run_id) WHERE finished_at IS NULL;
CREATE INDEX runs_by_namespace ON runs (namespace, created_at, run_id);

CREATE TABLE run_steps (
    run_id TEXT   NOT NULL REFERENCES runs (run_id),
    seq    BIGINT NOT NULL,
    kind   TEXT   NOT NULL,
    step   TEXT   NOT NULL, -- Step as JSON
    at     BIGINT NOT NULL,
    PRIMARY KEY (run_id, seq)
);

-- One row a source; `ingest_id`, `status`, `version` and `error` are those of the request that touched it last.
CREATE TABLE documents (
    document_id     TEXT   NOT NULL PRIMARY KEY,
    namespace       TEXT   NOT NULL,
    collection      TEXT   NOT NULL,
    source          TEXT   NOT NULL,
    ingest_id       TEXT   NOT NULL,
    status          TEXT   NOT NULL,
    version         TEXT,
    chunks          BIGINT NOT NULL, -- of `version`
    indexed_version TEXT,            -- what a search finds now, whatever became of later requests
    indexed_chunks  BIGINT NOT NULL,
    title           TEXT,
    metadata        TEXT,            -- the caller's JSON object
    error           TEXT,            -- Failure as JSON
    created_at      BIGINT NOT NULL,
    updated_at      BIGINT NOT NULL
);
CREATE INDEX documents_by_collection ON documents (namespace, collection, source);

-- The stored text that chunk spans of a version count in.
CREATE TABLE document_versions (
    document_id     TEXT   NOT NULL,
    version         TEXT   NOT NULL,
    chunks          BIGINT NOT NULL,
    text_sha256     TEXT   NOT NULL,
    text_size_bytes BIGINT NOT NULL,
    text_media_type TEXT   NOT NULL,
    created_at      BIGINT NOT NULL,
    PRIMARY KEY (document_id, version)
);

-- One row a collection that holds something. Documents of one collection lie in many partitions, which are read in any
-- order relative to each other: every update of this table gives the same row in any order.
CREATE TABLE collections (
    namespace   TEXT   NOT NULL,
    name        TEXT   NOT NULL,
    documents   BIGINT NOT NULL,
    chunks      BIGINT NOT NULL,
    embed_model TEXT   NOT NULL,
    dimensions  BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (namespace, name)
);

-- One row a request; what its documents came to is counted from `ingest_documents`. Any order gives the same row here too.
CREATE TABLE ingests (
    ingest_id  TEXT   NOT NULL PRIMARY KEY,
    namespace  TEXT   NOT NULL,
    collection TEXT   NOT NULL,
    source     TEXT,
    documents  BIGINT, -- how many must end, once the source was read
    skipped    BIGINT,
    scanned_at BIGINT,
    error      TEXT,   -- Failure as JSON, when the source could not be read
    failed_at  BIGINT,
    created_at BIGINT NOT NULL
);

CREATE TABLE ingest_documents (
    ingest_id   TEXT   NOT NULL,
    document_id TEXT   NOT NULL,
    source      TEXT   NOT NULL,
    status      TEXT   NOT NULL,
    stage       TEXT,            -- where it failed
    error       TEXT,            -- Failure as JSON
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (ingest_id, document_id)
);
