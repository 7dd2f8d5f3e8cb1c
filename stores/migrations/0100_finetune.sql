-- Fine-tuning: datasets, trainings with their steps, versions of models.

CREATE TABLE finetune_datasets (
    name           TEXT   NOT NULL PRIMARY KEY,
    format         TEXT   NOT NULL,
    sha256         TEXT   NOT NULL,
    size_bytes     BIGINT NOT NULL,
    media_type     TEXT   NOT NULL,
    examples       BIGINT NOT NULL,
    train_examples BIGINT NOT NULL,
    eval_examples  BIGINT NOT NULL,
    duplicates     BIGINT NOT NULL,
    tokens         TEXT,
    warnings       TEXT   NOT NULL,
    created_at     BIGINT NOT NULL
);

CREATE TABLE finetune_jobs (
    job_id           TEXT   NOT NULL PRIMARY KEY,
    name             TEXT   NOT NULL,
    dataset          TEXT   NOT NULL,
    dataset_sha256   TEXT   NOT NULL,
    base_model       TEXT   NOT NULL,
    plan             TEXT   NOT NULL,
    status           TEXT   NOT NULL,
    epoch            BIGINT NOT NULL,
    step             BIGINT NOT NULL,
    loss             DOUBLE PRECISION,
    eval_loss        DOUBLE PRECISION,
    learning_rate    DOUBLE PRECISION,
    tokens_per_s     DOUBLE PRECISION,
    eta_s            DOUBLE PRECISION,
    model            TEXT,
    error            TEXT,
    created_at       BIGINT NOT NULL,
    started_at       BIGINT,
    finished_at      BIGINT
);
CREATE INDEX finetune_jobs_by_time ON finetune_jobs (created_at, job_id);

CREATE TABLE finetune_steps (
    job_id        TEXT   NOT NULL,
    step          BIGINT NOT NULL,
    loss          DOUBLE PRECISION NOT NULL,
    learning_rate DOUBLE PRECISION NOT NULL,
    tokens_per_s  DOUBLE PRECISION NOT NULL,
    eta_s         DOUBLE PRECISION NOT NULL,
    eval_loss     DOUBLE PRECISION,
    PRIMARY KEY (job_id, step)
);

CREATE TABLE finetune_models (
    model          TEXT    NOT NULL,
    version        BIGINT  NOT NULL,
    job_id         TEXT    NOT NULL UNIQUE,
    base_model     TEXT    NOT NULL,
    method         TEXT    NOT NULL,
    dataset_sha256 TEXT    NOT NULL,
    metrics        TEXT    NOT NULL,
    adapter_sha256 TEXT    NOT NULL,
    adapter_bytes  BIGINT  NOT NULL,
    adapter_type   TEXT    NOT NULL,
    adapter_config TEXT    NOT NULL,
    merged_bytes   BIGINT  NOT NULL,
    gate_passed    BIGINT  NOT NULL,
    gate_reason    TEXT,
    stage          TEXT    NOT NULL,
    created_at     BIGINT  NOT NULL,
    PRIMARY KEY (model, version)
);
CREATE INDEX finetune_models_by_time ON finetune_models (created_at, job_id);
