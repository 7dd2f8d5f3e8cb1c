-- Requests to embed collections with another model. Documents and chunks are those that it began with, later those that it ended with.
CREATE TABLE reembeddings (
    reembedding_id TEXT   NOT NULL PRIMARY KEY,
    namespace      TEXT   NOT NULL,
    collection     TEXT   NOT NULL,
    from_model     TEXT, -- null when there was nothing to do
    embed_model    TEXT   NOT NULL,
    dimensions     BIGINT,
    documents      BIGINT NOT NULL,
    chunks         BIGINT NOT NULL,
    error          TEXT,
    created_at     BIGINT NOT NULL,
    finished_at    BIGINT
);
