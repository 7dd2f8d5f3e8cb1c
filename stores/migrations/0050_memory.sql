-- Conversations. Every key begins with namespace and session in columns of their own: they are compared whole and never
-- joined. What was forgotten stays as a row without words, so that a late copy of its event does not bring it back.

CREATE TABLE memory_turns (
    namespace TEXT   NOT NULL,
    session   TEXT   NOT NULL,
    turn_id   TEXT   NOT NULL,
    seq       BIGINT NOT NULL, -- from 1, in the order of the log
    role      TEXT   NOT NULL,
    text      TEXT   NOT NULL,
    run_id    TEXT,
    forgotten BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (namespace, session, turn_id)
);
CREATE UNIQUE INDEX memory_turns_in_order ON memory_turns (namespace, session, seq);
CREATE INDEX memory_turns_kept ON memory_turns (namespace, session) WHERE forgotten = 0;

-- The one in force is that with the greatest through_seq among those not forgotten.
CREATE TABLE memory_summaries (
    namespace   TEXT   NOT NULL,
    session     TEXT   NOT NULL,
    summary_id  TEXT   NOT NULL,
    through_seq BIGINT NOT NULL,
    text        TEXT   NOT NULL,
    model       TEXT   NOT NULL,
    forgotten   BIGINT NOT NULL,
    at          BIGINT NOT NULL,
    PRIMARY KEY (namespace, session, summary_id)
);

-- Episodes and notes: what is found by similarity.
CREATE TABLE memory_items (
    namespace TEXT   NOT NULL,
    session   TEXT   NOT NULL,
    item_id   TEXT   NOT NULL,
    kind      TEXT   NOT NULL,
    text      TEXT   NOT NULL,
    run_id    TEXT,
    forgotten BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (namespace, session, item_id)
);

CREATE TABLE memory_sources (
    namespace TEXT NOT NULL,
    session   TEXT NOT NULL,
    item_id   TEXT NOT NULL,
    turn_id   TEXT NOT NULL,
    PRIMARY KEY (namespace, session, item_id, turn_id)
);
CREATE INDEX memory_sources_by_turn ON memory_sources (namespace, session, turn_id);

CREATE TABLE memory_receipts (
    namespace TEXT   NOT NULL,
    session   TEXT   NOT NULL,
    forget_id TEXT   NOT NULL,
    target    TEXT,            -- null: the whole conversation
    turns     BIGINT NOT NULL, -- how many of each kind are gone
    summaries BIGINT NOT NULL,
    episodes  BIGINT NOT NULL,
    notes     BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    PRIMARY KEY (namespace, session, forget_id)
);
