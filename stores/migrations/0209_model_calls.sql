-- What model calls outside of runs used, as it was told: a row is the sum of some calls.
CREATE TABLE model_calls (
    use_id            TEXT   NOT NULL PRIMARY KEY,
    namespace         TEXT   NOT NULL,
    session           TEXT,
    purpose           TEXT   NOT NULL,
    provider          TEXT   NOT NULL,
    model             TEXT   NOT NULL,
    calls             BIGINT NOT NULL,
    prompt_tokens     BIGINT NOT NULL,
    completion_tokens BIGINT NOT NULL,
    cost_usd          DOUBLE PRECISION,
    at_ms             BIGINT NOT NULL
);
CREATE INDEX model_calls_at ON model_calls (namespace, at_ms);
