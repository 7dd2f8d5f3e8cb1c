-- The chain that a run was started with, and the runs that it waits for. Of runs from before, the request tells what they
-- wait for; who waits for them is there again once the read models have been made again from the log.
ALTER TABLE runs ADD COLUMN chain_id TEXT;
CREATE INDEX runs_by_chain ON runs (chain_id, created_at, run_id) WHERE chain_id IS NOT NULL;

CREATE TABLE run_after (
    run_id    TEXT   NOT NULL REFERENCES runs (run_id),
    place     BIGINT NOT NULL, -- counts from 0, in the order of the answers
    before_id TEXT   NOT NULL,
    PRIMARY KEY (run_id, place)
);
CREATE INDEX run_after_by_before ON run_after (before_id, run_id);
