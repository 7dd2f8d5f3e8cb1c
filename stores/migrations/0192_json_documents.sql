-- Documents that are kept whole: of a kind, in a namespace. A projection of the log with its own position beside it.
CREATE TABLE json_documents (
    kind TEXT NOT NULL,
    namespace TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    revision BIGINT NOT NULL,
    saved_at BIGINT NOT NULL,
    log_offset BIGINT NOT NULL,
    saves TEXT NOT NULL,
    size_bytes BIGINT NOT NULL,
    body TEXT NOT NULL,
    PRIMARY KEY (kind, namespace, id)
);

CREATE TABLE json_document_positions (
    topic TEXT NOT NULL,
    partition BIGINT NOT NULL,
    next_offset BIGINT NOT NULL,
    PRIMARY KEY (topic, partition)
);
