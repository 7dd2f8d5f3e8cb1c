-- What models can do, as it was measured last on each kind of machine.
CREATE TABLE model_cards (
    provider              TEXT   NOT NULL,
    model                 TEXT   NOT NULL,
    machine               TEXT   NOT NULL,
    context_tokens        BIGINT,
    usable_context_tokens BIGINT,
    questions             BIGINT NOT NULL,
    valid_json            BIGINT NOT NULL,
    valid_tool_calls      BIGINT NOT NULL,
    prompt_tokens_per_s   DOUBLE PRECISION,
    tokens_per_s          DOUBLE PRECISION,
    measured_at           BIGINT NOT NULL,
    PRIMARY KEY (provider, model, machine)
);
