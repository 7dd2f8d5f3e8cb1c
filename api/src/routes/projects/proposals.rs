//! Proposed rewrites, and changes of the copy.

use axum::Json as Reply;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use riverrun_projects::{improve as rewriting, own_tests};
use riverrun_schemas::projects::{ApplyProposal, ImproveFile, ProjectCommand, RevertFile};
use riverrun_schemas::{ChangeId, ProposalId, now_ms};
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::projects::{self, ChangeRow, ProjectRow, ProposalRow};
use riverrun_stores::read_models::{Timestamp, failure_view};
use serde_json::{Value, json};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::{ListQuery, MAX_TEXT, PATIENCE, copies, or_gone, project, send, tree};
use crate::accept::key_conflict;
use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, NamespaceQuery, Path, Query, id};
use crate::keyed::{Keyed, once};
use crate::prefer::Patience;
use crate::routes::runs::location;
use crate::state::AppState;
use crate::submit::{self, Checks};
use crate::wait::until;
use crate::wire::{ApplyBody, FileChangedView, ImproveBody, Page, Problem, ProposalAccepted, ProposalView, RevertBody};

pub(super) fn router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(improve))
        .routes(routes!(proposals))
        .routes(routes!(proposal))
        .routes(routes!(apply))
        .routes(routes!(revert))
}

/// Asks a model for a rewrite of one file and answers with the proposal, which may be one that was refused. Waits for it, unless
/// `Prefer` says otherwise.
#[utoipa::path(post, path = "/projects/{id}/improve", tag = "projects", params(("id" = String, Path), NamespaceQuery,
        ("Prefer" = Option<String>, Header, description = "`respond-async` does not wait; `wait=N` waits N seconds, 300 at most; 30 when left out")), request_body = ImproveBody,
    responses((status = 200, description = "the proposal", body = ProposalView), (status = 202, description = "accepted, and not waited for any longer", body = ProposalAccepted), (status = 404, body = Problem),
        (status = 409, description = "it is not imported, or the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn improve(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    patience: Patience,
    Json(body): Json<ImproveBody>,
) -> Result<Response, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let candidates = body.candidates.unwrap_or(1);
    let tests = body.tests.unwrap_or_default();
    let may_remove = body.may_remove.unwrap_or_default();
    let mut checks = Checks::default();
    checks.text("file", &body.file, MAX_TEXT);
    checks.between("candidates", Some(candidates), 1..=4);
    checks.require(
        may_remove.len() <= rewriting::MAX_NAMES,
        "may_remove",
        format!("has {} names, which are more than {}", may_remove.len(), rewriting::MAX_NAMES),
    );
    checks.finish()?;
    let tree = tree(&state, &row).await?;
    // A file that is too large for a rewrite is refused by the analyzer, whatever names are in it.
    if tree.entry(&body.file)?.size_bytes <= rewriting::MAX_BYTES as u64 && !may_remove.is_empty() {
        let content = copies(&state).file(&tree, &body.file).await?;
        rewriting::check_names(&body.file, &content, &may_remove)?;
    }
    if !tests.is_empty() {
        own_tests::check(&tests, &state.core().config().projects.programs)?;
    }
    let keyed: Option<Keyed<'_, ProposalId>> = match &key.0 {
        Some(key) => {
            let asked = json!({ "file": &body.file, "instruction": &body.instruction, "model": &body.model,
                "candidates": candidates, "tests": &tests, "may_remove": &may_remove });
            Some(Keyed::new(key, "proposal", &["idempotency-key", &text, key], &asked)?)
        }
        None => None,
    };
    let proposal_id = match &keyed {
        Some(keyed) => keyed.id(&state.parts().sql, KeyedTable::Proposals).await?,
        None => ProposalId::new(),
    };
    let _slot = patience.slot(&state)?;
    let held = keyed.as_ref().map(|keyed| keyed.reserve(state.reservations())).transpose()?;
    let command = ImproveFile {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        proposal_id,
        file: body.file,
        instruction: body.instruction,
        model: body.model,
        candidates,
        tests,
        may_remove,
        at: now_ms(),
    };
    send(&state, command.into()).await?;
    if let Some(held) = held {
        held.keep();
    }
    let known = || projects::proposal(&state.parts().sql, row.project_id, proposal_id);
    until(PATIENCE, || async { or_gone(&state, &row, known().await?).await }).await?;
    let ended = patience.until(|| async {
        let proposal = known().await?;
        or_gone(&state, &row, proposal.filter(|one| one.status != "proposing")).await
    });
    if let Some(proposal) = ended.await? {
        return Ok(Reply(proposal_view(&proposal)).into_response());
    }
    let place = location(&format!("/projects/{text}/proposals/{proposal_id}"));
    let accepted = ProposalAccepted { proposal_id: proposal_id.to_string() };
    Ok((StatusCode::ACCEPTED, place, Reply(accepted)).into_response())
}

fn proposal_view(row: &ProposalRow) -> ProposalView {
    ProposalView {
        proposal_id: row.proposal_id.to_string(),
        file: row.file.clone(),
        status: row.status.clone(),
        diff: row.diff.clone(),
        before_sha256: row.before_sha256.clone(),
        after_sha256: row.after.as_ref().map(|blob| blob.sha256.clone()),
        findings_before: row.findings_before,
        findings_after: row.findings_after,
        improves: row.improves,
        note: row.note.clone(),
        error: row.error.as_ref().map(failure_view),
        model: row.model.clone(),
        total_tokens: row.prompt_tokens.saturating_add(row.completion_tokens),
        tests: row.tests_json.as_deref().and_then(|text| serde_json::from_str(text).ok()),
        created_at: Timestamp(row.created_at),
    }
}

/// The proposals of a project, newest first.
#[utoipa::path(get, path = "/projects/{id}/proposals", tag = "projects", params(("id" = String, Path), ListQuery), responses((status = 200, body = Page<ProposalView>), (status = 404, body = Problem), (status = 422, body = Problem)))]
async fn proposals(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Reply<Page<ProposalView>>, ApiError> {
    let page = submit::page(query.limit, query.cursor)?;
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let found = projects::proposals(&state.parts().sql, row.project_id, &page).await?;
    Ok(Reply(Page { items: found.items.iter().map(proposal_view).collect(), next_cursor: found.next_cursor }))
}

/// A proposal.
#[utoipa::path(get, path = "/projects/{id}/proposals/{proposal}", tag = "projects", params(("id" = String, Path), ("proposal" = String, Path), NamespaceQuery), responses((status = 200, body = ProposalView), (status = 404, body = Problem)))]
async fn proposal(
    State(state): State<AppState>,
    Path((text, proposal)): Path<(String, String)>,
    Query(query): Query<NamespaceQuery>,
) -> Result<Reply<ProposalView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    let found = projects::proposal(&state.parts().sql, row.project_id, id(&proposal)?).await?;
    found.as_ref().map(proposal_view).map(Reply).ok_or_else(|| no_proposal(&proposal))
}

fn no_proposal(what: &str) -> ApiError {
    ApiError::not_found("no_proposal", format!("there is no proposal {what}"))
        .hint("riverrun project improve <id> --file <file> makes one")
}

fn confirmed(confirm: bool) -> Result<(), ApiError> {
    let mut checks = Checks::default();
    checks.require(confirm, "confirm", "must be true: the file of the copy is changed");
    checks.finish()
}

/// A change of a file that is asked for.
struct Change<'k> {
    id: ChangeId,
    /// `None` without a key.
    keyed: Option<Keyed<'k, ChangeId>>,
}

impl<'k> Change<'k> {
    /// `place` is what the key counts for, `asked` what is asked for under it. 409 where the key was used for something else.
    async fn of(state: &AppState, key: &'k IdempotencyKey, place: &str, asked: &Value) -> Result<Self, ApiError> {
        let Some(key) = key.0.as_deref() else { return Ok(Self { id: ChangeId::new(), keyed: None }) };
        let keyed: Keyed<'k, ChangeId> = Keyed::new(key, "change", &["idempotency-key", place, key], asked)?;
        let id = keyed.id(&state.parts().sql, KeyedTable::Changes).await?;
        Ok(Self { id, keyed: Some(keyed) })
    }

    /// What came of it, where it was made before.
    async fn made(&self, state: &AppState, row: &ProjectRow) -> Result<Option<ChangeRow>, ApiError> {
        Ok(projects::change(&state.parts().sql, row.project_id, self.id).await?)
    }

    /// Asks for it and waits for what comes of it.
    async fn make(&self, state: &AppState, row: &ProjectRow, command: ProjectCommand) -> Result<ChangeRow, ApiError> {
        once(self.keyed.as_ref(), state.reservations(), send(state, command)).await?;
        let found = until(PATIENCE, || async { or_gone(state, row, self.made(state, row).await?).await }).await?;
        found.ok_or_else(|| ApiError::busy("the analyzer is at work on the project; the change is made after that"))
    }
}

/// The answer to a request that a change came of. What an earlier version made under a key has an id that does not say for which file.
fn answered(made: ChangeRow, key: &IdempotencyKey, asked: &str) -> Result<Reply<FileChangedView>, ApiError> {
    let ChangeRow { file, after_sha256, error, .. } = made;
    if let Some(key) = key.0.as_deref().filter(|_| file != asked) {
        return Err(key_conflict(key, "change"));
    }
    match error {
        None => Ok(Reply(FileChangedView { file, after_sha256 })),
        Some(failure) => {
            let status = match failure.code.as_str() {
                "file_not_found" | "no_proposal" => StatusCode::NOT_FOUND,
                _ => StatusCode::CONFLICT,
            };
            let answer = ApiError::new(status, failure.code, failure.message);
            Err(answer.hint(failure.hint.unwrap_or_else(|| "try it again".to_owned())))
        }
    }
}

/// Writes a proposal to the copy, never to the original.
#[utoipa::path(post, path = "/projects/{id}/apply", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = ApplyBody,
    responses((status = 200, body = FileChangedView), (status = 404, body = Problem), (status = 409, description = "the copy changed since the proposal, or the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn apply(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    Json(body): Json<ApplyBody>,
) -> Result<Reply<FileChangedView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    confirmed(body.confirm)?;
    tree(&state, &row).await?.entry(&body.file)?;
    let named: Option<ProposalId> = body.proposal_id.as_deref().map(id).transpose()?;
    let change = Change::of(&state, &key, &text, &json!({ "file": &body.file, "proposal": named })).await?;
    // Before a proposal is looked for: that of a repeat is not open any more.
    if let Some(made) = change.made(&state, &row).await? {
        return answered(made, &key, &body.file);
    }
    let proposal_id = match named {
        Some(proposal_id) => proposal_id,
        None => {
            let newest = projects::open_proposal(&state.parts().sql, row.project_id, &body.file).await?;
            newest.ok_or_else(|| no_proposal(&format!("for {:?}", body.file)))?.proposal_id
        }
    };
    let command = ApplyProposal {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        change_id: change.id,
        proposal_id,
        file: body.file.clone(),
        at: now_ms(),
    };
    answered(change.make(&state, &row, command.into()).await?, &key, &body.file)
}

/// Takes the last change of a file back.
#[utoipa::path(post, path = "/projects/{id}/revert", tag = "projects", params(("id" = String, Path), NamespaceQuery), request_body = RevertBody,
    responses((status = 200, body = FileChangedView), (status = 404, body = Problem), (status = 409, description = "nothing to undo, or the key was used with another body", body = Problem), (status = 422, body = Problem)))]
async fn revert(
    State(state): State<AppState>,
    Path(text): Path<String>,
    Query(query): Query<NamespaceQuery>,
    key: IdempotencyKey,
    Json(body): Json<RevertBody>,
) -> Result<Reply<FileChangedView>, ApiError> {
    let row = project(&state, query.namespace.as_deref(), &text).await?;
    confirmed(body.confirm)?;
    tree(&state, &row).await?.entry(&body.file)?;
    // The same key may stand for the change that is taken back.
    let change = Change::of(&state, &key, &format!("revert {text}"), &json!({ "file": &body.file })).await?;
    if let Some(made) = change.made(&state, &row).await? {
        return answered(made, &key, &body.file);
    }
    let command = RevertFile {
        project_id: row.project_id,
        namespace: row.namespace.clone(),
        change_id: change.id,
        file: body.file.clone(),
        at: now_ms(),
    };
    answered(change.make(&state, &row, command.into()).await?, &key, &body.file)
}
