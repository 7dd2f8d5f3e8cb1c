CREATE TABLE projects (
    project_id TEXT PRIMARY KEY,
    namespace TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    view TEXT NOT NULL
);
CREATE INDEX projects_by_time ON projects (namespace, created_at DESC, project_id);
CREATE TABLE project_analyses (
    analysis_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    view TEXT NOT NULL
);
CREATE INDEX project_analyses_by_time ON project_analyses (project_id, created_at DESC);
CREATE TABLE project_proposals (
    proposal_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    view TEXT NOT NULL
);
CREATE INDEX project_proposals_by_time ON project_proposals (project_id, created_at DESC);
CREATE TABLE project_changes (
    change_id TEXT PRIMARY KEY,
    project_id TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    view TEXT NOT NULL
);
