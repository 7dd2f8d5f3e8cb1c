//! Tool manifests, and calls of tools by whoever asks.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use axum::Json as Reply;
use axum::extract::{FromRef, State};
use axum::http::StatusCode;
use riverrun_agents::Verdict;
use riverrun_agents::memory::{ContextRequest, Memory, MemoryContext, MemoryError, NewNote};
use riverrun_agents::state::Reading;
use riverrun_agents::tools::{
    Dependencies, Document, Documents, Passages, ReadFailure, Search, SearchFailure, ToolContext, ToolError,
    ToolManifest, Toolbox,
};
use riverrun_schemas::agent::{RunRequest, ToolEffect};
use riverrun_schemas::{CollectionName, DocumentId, EventId, Namespace, Session};
use riverrun_stores::warehouse::{QueryLimits, QueryResult, TableInfo};
use riverrun_stores::{Warehouse, WarehouseError};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::error::ApiError;
use crate::extract::{IdempotencyKey, Json, Path, Query};
use crate::state::{AppState, Core};
use crate::submit::{self, Checks};
use crate::wire::{Items, Problem, ToolCallBody, ToolCallDone, ToolEntry, ToolLimitsEntry};

pub(super) fn router<S>() -> OpenApiRouter<S>
where
    S: Clone + Send + Sync + 'static,
    Core: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(tools))
}

pub(super) fn stack_router() -> OpenApiRouter<AppState> {
    OpenApiRouter::new().routes(routes!(call))
}

/// Describing a tool calls nothing; whoever calls tools has a real one.
struct Uncalled;

const UNCALLED: &str = "the catalog of tools calls none";

#[async_trait]
impl Search for Uncalled {
    async fn search(
        &self,
        _: &Namespace,
        _: Option<&[CollectionName]>,
        _: &str,
        _: usize,
    ) -> Result<Passages, SearchFailure> {
        Err(SearchFailure(UNCALLED.to_owned()))
    }
}

#[async_trait]
impl Documents for Uncalled {
    async fn read(
        &self,
        _: &Namespace,
        _: Option<&[CollectionName]>,
        _: DocumentId,
    ) -> Result<Option<Document>, ReadFailure> {
        Err(ReadFailure(UNCALLED.to_owned()))
    }
}

#[async_trait]
impl Memory for Uncalled {
    async fn context(&self, session: &Session, _: &ContextRequest) -> Result<MemoryContext, MemoryError> {
        Err(MemoryError::Full { session: session.clone(), what: "turns", count: 0 })
    }

    async fn note(&self, session: &Session, _: NewNote) -> Result<(), MemoryError> {
        Err(MemoryError::Full { session: session.clone(), what: "notes", count: 0 })
    }
}

#[async_trait]
impl Warehouse for Uncalled {
    async fn tables(&self, _: &Namespace) -> Result<Vec<TableInfo>, WarehouseError> {
        Err(uncalled_warehouse())
    }

    async fn query(&self, _: &Namespace, _: &str, _: QueryLimits) -> Result<QueryResult, WarehouseError> {
        Err(uncalled_warehouse())
    }
}

fn uncalled_warehouse() -> WarehouseError {
    WarehouseError::Refused { reason: UNCALLED.to_owned() }
}

/// The tools that a process has, to be described and not to be called.
pub(crate) fn catalog(core: &Core) -> Toolbox {
    let uncalled = Arc::new(Uncalled);
    core.toolbox(Dependencies {
        documents: Some(uncalled.clone()),
        memory: Some(uncalled.clone()),
        warehouse: Some(uncalled.clone()),
        ..Dependencies::new(uncalled)
    })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
struct ToolsQuery {
    /// The namespace whose tools are shown; `default` when left out.
    namespace: Option<String>,
}

/// The tools that agents of a namespace can use. Starts the MCP servers of the namespace, to ask them for theirs.
#[utoipa::path(get, path = "/tools", tag = "agents", params(ToolsQuery), responses((status = 200, body = Items<ToolEntry>)))]
async fn tools(State(core): State<Core>, Query(query): Query<ToolsQuery>) -> Result<Reply<Items<ToolEntry>>, ApiError> {
    let namespace = submit::namespace(query.namespace.as_deref())?;
    let catalog = catalog(&core);
    catalog.prepare(&namespace).await;
    let known = catalog.select(&namespace, None).unwrap_or_default(); // naming none, nothing can be unknown
    Ok(Reply(Items { items: known.iter().map(|tool| entry(&core, tool, &namespace)).collect() }))
}

fn entry(core: &Core, tool: &ToolManifest, namespace: &Namespace) -> ToolEntry {
    let effect = match tool.effect {
        ToolEffect::None => "none",
        ToolEffect::Idempotent => "idempotent",
        ToolEffect::External | ToolEffect::Unknown => "external",
    };
    let word = |permission| match serde_json::to_value(permission) {
        Ok(Value::String(word)) => word,
        _ => String::new(),
    };
    ToolEntry {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        effect: effect.to_owned(),
        source: tool.source.to_string(),
        limits: ToolLimitsEntry {
            timeout_ms: u64::try_from(tool.limits.timeout.as_millis()).unwrap_or(u64::MAX),
            result_bytes: tool.limits.result_bytes,
        },
        needs_approval: core.tools().policy.judge(&by_hand(namespace), tool, Reading::Request) != Verdict::Allow,
        permissions: tool.permissions.iter().map(word).collect(),
        namespace: namespace.to_string(),
    }
}

/// Calls a tool, outside of any run. One that changes something outside wants `confirm`, unless the policy allows it.
#[utoipa::path(post, path = "/tools/{name}/call", tag = "agents", request_body = ToolCallBody,
    params(("name" = String, Path, description = "a name of GET /tools"),
        ("Idempotency-Key" = Option<String>, Header, description = "a repeat with the same key is the same call; the key that the tool is handed follows from it")),
    responses((status = 200, body = ToolCallDone), (status = 403, description = "the policy denies it", body = Problem),
        (status = 404, description = "no such tool", body = Problem), (status = 409, description = "it wants `confirm`", body = Problem),
        (status = 422, description = "the arguments are not what its schema says, or it failed", body = Problem)))]
async fn call(
    State(state): State<AppState>,
    Path(name): Path<String>,
    key: IdempotencyKey,
    Json(body): Json<ToolCallBody>,
) -> Result<Reply<ToolCallDone>, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    checks.finish()?;
    let _slot = state.stream_slot()?;
    let toolbox = &state.parts().toolbox;
    toolbox.prepare(&namespace).await;
    let manifest = find(toolbox, &namespace, &name)?;
    permit(&state, &namespace, &manifest, body.confirm.unwrap_or(false))?;
    let cancel = CancellationToken::new();
    let _stop = cancel.clone().drop_guard(); // a caller that goes away stops the tool
    let arguments = if body.arguments.is_null() { json!({}) } else { body.arguments };
    let call_id = call_id(key.0.as_deref(), &namespace, &name, &arguments);
    let context = ToolContext { namespace, collections: None, call_id: call_id.clone(), cancel, memory: None };
    let since = Instant::now();
    let result = toolbox.call(&name, arguments, &context).await.map_err(|error| failed(&name, &error))?;
    let took_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Reply(ToolCallDone { call_id, result, took_ms }))
}

/// The key of a call. One that the caller names stands for this call alone: whoever serves a tool may answer a key that it knows with
/// what it has answered before, and that may be of another namespace.
fn call_id(key: Option<&str>, namespace: &Namespace, tool: &str, arguments: &Value) -> String {
    let Some(key) = key else { return format!("call_{}", EventId::new()) };
    let mut arguments = arguments.clone();
    arguments.sort_all_objects(); // their order makes no other call
    let arguments = arguments.to_string();
    format!("key_{}", EventId::derive(&["idempotency-key", "tool", namespace.as_str(), tool, key, &arguments]))
}

fn find(toolbox: &Toolbox, namespace: &Namespace, name: &str) -> Result<ToolManifest, ApiError> {
    let asked = [name.to_owned()];
    match toolbox.select(namespace, Some(&asked)) {
        Ok(found) => found.into_iter().next().ok_or_else(|| ApiError::internal("a tool was found and is not there")),
        Err(unknown) => {
            Err(ApiError::not_found("tool_not_found", unknown.to_string())
                .hint(format!("riverrun tools -n {namespace}")))
        }
    }
}

/// What the policy says of a call that no run makes: whoever calls decides, and says so where it counts.
fn permit(state: &AppState, namespace: &Namespace, tool: &ToolManifest, confirmed: bool) -> Result<(), ApiError> {
    match state.core().tools().policy.judge(&by_hand(namespace), tool, Reading::Request) {
        Verdict::Allow => Ok(()),
        Verdict::Ask { .. } if confirmed => Ok(()),
        Verdict::Ask { reason } => {
            Err(ApiError::conflict("approval_needed", format!("{} was not called: {reason}", tool.name))
                .hint("send \"confirm\": true to call it all the same"))
        }
        Verdict::Deny { reason } => {
            Err(ApiError::new(StatusCode::FORBIDDEN, "tool_denied", format!("{} was not called: {reason}", tool.name))
                .hint("the policy file (RIVERRUN_POLICY_FILE) has the rule"))
        }
    }
}

/// A request that stands for a call by hand when the policy is asked.
fn by_hand(namespace: &Namespace) -> RunRequest {
    RunRequest { namespace: namespace.clone(), ..RunRequest::default() }
}

fn failed(name: &str, error: &ToolError) -> ApiError {
    let text = format!("{name}: {error}");
    let code = match error {
        ToolError::Arguments(_) => "bad_arguments",
        ToolError::Failed(_) | ToolError::NotSent(_) | ToolError::Lost(_) => "tool_failed",
        ToolError::TimedOut(_) => "tool_timed_out",
        ToolError::TooLarge { .. } => "result_too_large",
        ToolError::Cancelled => "cancelled",
    };
    ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, code, text).hint(format!("riverrun tools shows what {name} takes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_key_when_it_is_used_for_other_calls_then_each_has_a_key_of_its_own_and_a_repeat_has_the_same() {
        let of = |key: Option<&str>, namespace: &str, tool: &str, arguments: Value| {
            call_id(key, &namespace.parse().unwrap(), tool, &arguments)
        };
        let first = of(Some("1"), "team", "pay", json!({"a": 1, "b": {"c": 2, "d": 3}}));
        assert_eq!(of(Some("1"), "team", "pay", json!({"b": {"d": 3, "c": 2}, "a": 1})), first);
        let others = [
            of(Some("2"), "team", "pay", json!({"a": 1, "b": {"c": 2, "d": 3}})),
            of(Some("1"), "other", "pay", json!({"a": 1, "b": {"c": 2, "d": 3}})),
            of(Some("1"), "team", "paid", json!({"a": 1, "b": {"c": 2, "d": 3}})),
            of(Some("1"), "team", "pay", json!({"a": 2, "b": {"c": 2, "d": 3}})),
        ];
        assert!(!others.contains(&first), "{others:?}");
        assert_ne!(of(None, "team", "pay", json!({})), of(None, "team", "pay", json!({})));
    }
}
