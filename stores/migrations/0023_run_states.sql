-- What a run waits for, its session, and the run it branched off. Numbers of migrations need not be without gaps.
ALTER TABLE runs ADD COLUMN waiting TEXT NOT NULL DEFAULT '{}'; -- the gate's unanswered approval steps: {seq: call_id}
ALTER TABLE runs ADD COLUMN session TEXT;
ALTER TABLE runs ADD COLUMN forked_from TEXT;
ALTER TABLE runs ADD COLUMN forked_at_seq BIGINT;
CREATE INDEX runs_by_fork ON runs (forked_from) WHERE forked_from IS NOT NULL;
CREATE INDEX runs_by_session ON runs (namespace, session, created_at) WHERE session IS NOT NULL;
