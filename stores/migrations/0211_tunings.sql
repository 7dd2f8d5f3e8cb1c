-- Requests to tune the searches of collections to judgements. `gains` is what it does, as JSON. The one that ended last without an error says
-- how a collection is searched: with its adapter, or with none. The end of a collection stands here, too, with no number of queries.
CREATE TABLE tunings (
    tuning_id    TEXT   NOT NULL PRIMARY KEY,
    namespace    TEXT   NOT NULL,
    collection   TEXT   NOT NULL,
    queries      BIGINT,
    embed_model  TEXT,
    adapter      TEXT, -- SHA-256 of the matrix; null where searches are as without
    adapter_size BIGINT,
    gains        TEXT,
    error        TEXT,
    created_at   BIGINT NOT NULL,
    finished_at  BIGINT
);
CREATE INDEX tunings_by_collection ON tunings (namespace, collection, finished_at);
