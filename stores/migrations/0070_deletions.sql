-- Removals of documents and collections, with what each removed.

-- One row a request. `documents` is how many of them end; null until that is known.
CREATE TABLE deletions (
    deletion_id TEXT   NOT NULL PRIMARY KEY,
    namespace   TEXT   NOT NULL,
    collection  TEXT   NOT NULL,
    documents   BIGINT,
    created_at  BIGINT NOT NULL
);

CREATE TABLE deleted_documents (
    deletion_id TEXT   NOT NULL,
    document_id TEXT   NOT NULL,
    source      TEXT   NOT NULL,
    vectors     BIGINT, -- null until everything of it is gone
    keywords    BIGINT,
    tables      BIGINT NOT NULL,
    row_count   BIGINT NOT NULL,
    updated_at  BIGINT NOT NULL,
    PRIMARY KEY (deletion_id, document_id)
);
