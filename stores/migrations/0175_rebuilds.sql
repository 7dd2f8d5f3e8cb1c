-- Requests to make keywords and vectors of collections again from the log. `result` is what it came to, as JSON.
CREATE TABLE rebuilds (
    rebuild_id  TEXT   NOT NULL PRIMARY KEY,
    namespace   TEXT   NOT NULL,
    collection  TEXT   NOT NULL,
    reason      TEXT, -- null when nothing was heard of its beginning
    result      TEXT,
    error       TEXT,
    created_at  BIGINT NOT NULL,
    finished_at BIGINT
);
CREATE INDEX rebuilds_by_collection ON rebuilds (namespace, collection, finished_at);
