-- Tokens of calls that a service charges for and whose price is not known, and what of those read were in the provider's cache or went into it.
-- What was counted before says none.
ALTER TABLE runs ADD COLUMN unpriced_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cached_prompt_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE runs ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE model_calls ADD COLUMN unpriced_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE model_calls ADD COLUMN cached_prompt_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE model_calls ADD COLUMN cache_write_tokens BIGINT NOT NULL DEFAULT 0;
