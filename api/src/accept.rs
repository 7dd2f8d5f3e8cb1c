//! Accepting work: the command on the log, then the answer. With an idempotency key the id of the work follows from the
//! key, so that a repeat meets what it started before, in this process and in any other.

use std::time::Duration;

use riverrun_log::Outgoing;
use riverrun_schemas::agent::{RunRequest, SessionPolicy};
use riverrun_schemas::ingest::{IngestCommand, StartIngest};
use riverrun_schemas::{BlobRef, IngestId, Namespace, RunId};
use riverrun_stores::read_models::keyed::KeyedTable;
use riverrun_stores::read_models::runs::{self, RunFilter};
use riverrun_stores::read_models::{PageRequest, Within, documents};
use serde_json::json;

use crate::error::ApiError;
use crate::keyed::Keyed;
use crate::routes::collections::existing;
use crate::state::AppState;
use crate::submit::{self, IngestTarget};
use crate::wire::{IngestBody, RunBody, RunStatus};

/// What commands of the API name as their writer.
pub const COMPONENT: &str = "api";
/// How long a run with a key is watched for an acceptance by another process.
const ACCEPTANCE: Duration = Duration::from_secs(2);

/// A run whose command is on the log.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedRun {
    /// The run.
    pub run_id: RunId,
    /// Where it is.
    pub status: RunStatus,
}

/// The parts of an id that follows from an idempotency key.
fn key_parts<'k>(namespace: &'k Namespace, key: &'k str) -> [&'k str; 3] {
    ["idempotency-key", namespace.as_str(), key]
}

/// Puts a command about collections and their documents on the log.
pub(crate) async fn hand_in(state: &AppState, command: impl Into<IngestCommand>) -> Result<(), ApiError> {
    state.parts().producer.send(&command.into(), COMPONENT, None).await?;
    Ok(())
}

/// 409 for a key that stands for something else.
pub(crate) fn key_conflict(key: &str, what: &str) -> ApiError {
    key_taken(&format!("the idempotency key {key:?}"), what)
}

/// The same where only what follows from the key is at hand.
pub(crate) fn key_taken(key: &str, what: &str) -> ApiError {
    ApiError::conflict("idempotency_key_reused", format!("{key} was used for another {what}"))
        .hint("use a new key for a new request, and the same key only to repeat the very same one")
}

/// Starts a run, or finds the one that the same key started.
pub async fn run(state: &AppState, key: Option<&str>, body: RunBody) -> Result<AcceptedRun, ApiError> {
    let request = submit::run_request(body, &state.core().known())?;
    check_collections(state, &request).await?;
    let Some(key) = key else {
        check_session(state, &request).await?;
        return start(state, submit::run_id_for(&request, |_| RunId::new()), request).await;
    };
    let draw = |n: u32| {
        let [kind, namespace, key] = key_parts(&request.namespace, key);
        match n {
            0 => RunId::derive(&[kind, namespace, key]),
            n => RunId::derive(&[kind, namespace, key, &n.to_string()]),
        }
    };
    let run_id = submit::run_id_for(&request, draw);
    if let Some(known) = state.hub().request(run_id).await? {
        return repeat(state, run_id, &request, &known, key).await;
    }
    for other in submit::possible_run_ids(draw).into_iter().filter(|other| *other != run_id) {
        if state.hub().request(other).await?.is_some() {
            return Err(key_conflict(key, "run").about_run(other));
        }
    }
    check_session(state, &request).await?;
    let body = serde_json::to_vec(&request).map_err(|error| ApiError::internal(error.to_string()))?;
    // Where the first request with the key is on its way, the same command twice is one run.
    let reserved = state.reservations().reserve(&run_id.to_string(), &body);
    let held = reserved.ok_or_else(|| key_conflict(key, "run"))?;
    let accepted = start(state, run_id, request.clone()).await?;
    held.keep();
    // Another process may have used the key at the same moment: the log says whose request it is.
    if let Some(known) = state.hub().accepted_request(run_id, ACCEPTANCE).await?
        && !submit::same_request(&request, &known)
    {
        return Err(key_conflict(key, "run"));
    }
    Ok(accepted)
}

async fn repeat(
    state: &AppState,
    run_id: RunId,
    asked: &RunRequest,
    known: &RunRequest,
    key: &str,
) -> Result<AcceptedRun, ApiError> {
    if !submit::same_request(asked, known) {
        return Err(key_conflict(key, "run").about_run(run_id));
    }
    let status = state.hub().run(run_id).await?.map_or(RunStatus::Queued, |run| run.status);
    Ok(AcceptedRun { run_id, status })
}

/// A run that wants no other beside it in its session is refused at once where another is known; the worker that takes
/// its command knows better, and has the last word.
async fn check_session(state: &AppState, request: &RunRequest) -> Result<(), ApiError> {
    let (Some(session), SessionPolicy::Reject) = (&request.session, request.session_policy) else { return Ok(()) };
    let filter = RunFilter { session: Some(session.clone()), ..RunFilter::default() };
    let within = Within::Namespace(&request.namespace);
    let newest = runs::list(&state.parts().sql, within, &filter, &PageRequest::default()).await?;
    match newest.items.iter().find(|run| !run.status.ended()) {
        None => Ok(()),
        Some(other) => Err(ApiError::conflict(
            "session_busy",
            format!("run {} of session {session:?} is {}", other.run_id, other.status.as_str()),
        )
        .hint(format!("riverrun runs watch {}, or leave session_policy out to wait for it", other.run_id))
        .about_run(other.run_id)),
    }
}

async fn start(state: &AppState, run_id: RunId, request: RunRequest) -> Result<AcceptedRun, ApiError> {
    let command = submit::submit_run(&state.parts().producer, run_id, request, COMPONENT).await?;
    state.hub().remember_accepted(run_id, &command.request, command.at);
    Ok(AcceptedRun { run_id, status: RunStatus::Queued })
}

/// Collections that a run names must be there: a misspelt one would silently be an empty one.
pub(crate) async fn check_collections(state: &AppState, request: &RunRequest) -> Result<(), ApiError> {
    let Some(names) = &request.collections else { return Ok(()) };
    let there = documents::collections(&state.parts().sql, Within::Namespace(&request.namespace)).await?;
    let Some(missing) =
        names.iter().find(|name| !there.iter().any(|collection| collection.name.as_str() == name.as_str()))
    else {
        return Ok(());
    };
    let hint = existing(&there).unwrap_or_else(|| {
        format!("the namespace has no collections yet; make one: riverrun ingest <source> -c {missing}")
    });
    Err(ApiError::not_found(
        "collection_not_found",
        format!("collection {missing:?} in namespace {:?} does not exist", request.namespace.as_str()),
    )
    .hint(hint))
}

/// An ingest whose command is on the log.
#[derive(Debug, Clone, Copy)]
pub struct AcceptedIngest {
    /// The request.
    pub ingest_id: IngestId,
    /// How many documents it has, where that is known.
    pub documents: Option<i64>,
}

/// Makes the records of documents that were handed in.
pub type MakeRecords = Box<dyn FnOnce(IngestId, &IngestTarget) -> Result<Vec<Outgoing>, ApiError> + Send>;

/// What an ingest reads.
pub enum Content {
    /// A path or address that the caller may have read.
    Source(String),
    /// An archive that was handed in: its name as a source, and its bytes.
    Archive {
        /// `upload/<name>`.
        source: String,
        /// Where its bytes are.
        content: BlobRef,
    },
    /// Documents that were handed in: what to put on the log for an ingest id, and how many they are.
    Uploaded {
        /// Makes the records.
        records: MakeRecords,
        /// Names and hashes, for telling two requests apart.
        fingerprint: String,
        /// How many they are.
        documents: i64,
    },
}

/// Starts an ingest, or finds the one that the same key started.
pub async fn ingest(
    state: &AppState,
    key: Option<&str>,
    body: &IngestBody,
    target: IngestTarget,
    content: Content,
) -> Result<AcceptedIngest, ApiError> {
    let documents = match &content {
        Content::Source(_) | Content::Archive { .. } => None,
        Content::Uploaded { documents, .. } => Some(*documents),
    };
    let Some(key) = key else {
        let ingest_id = IngestId::new();
        put(state, ingest_id, target, content).await?;
        return Ok(AcceptedIngest { ingest_id, documents });
    };
    let (source, fingerprint) = match &content {
        Content::Source(source) => (source.clone(), String::new()),
        Content::Archive { source, content } => (source.clone(), content.sha256.clone()),
        Content::Uploaded { fingerprint, .. } => (UPLOAD.to_owned(), fingerprint.clone()),
    };
    let asked = json!({ "body": body, "source": &source, "files": fingerprint });
    let keyed: Keyed<'_, IngestId> = Keyed::new(key, "ingest", &key_parts(&target.namespace, key), &asked)?;
    let sql = &state.parts().sql;
    let ingest_id = keyed.id(sql, KeyedTable::Ingests).await?;
    if let Some(known) = documents::ingest(sql, Within::EveryNamespace, ingest_id).await? {
        // That of an earlier version has an id which does not say all that was asked for.
        let same = known.namespace == target.namespace
            && known.collection == target.collection
            && known.source.as_ref().is_none_or(|known| *known == source);
        return if same {
            Ok(AcceptedIngest { ingest_id, documents: known.documents.total })
        } else {
            Err(key_conflict(key, "ingest"))
        };
    }
    // Where the first request with the key is on its way, nobody knows whether it gets there; the same records twice are one ingest.
    let held = keyed.reserve(state.reservations())?;
    put(state, ingest_id, target, content).await?;
    held.keep();
    Ok(AcceptedIngest { ingest_id, documents })
}

/// The source of an ingest whose documents were handed in.
pub const UPLOAD: &str = "upload";

async fn put(state: &AppState, ingest_id: IngestId, target: IngestTarget, content: Content) -> Result<(), ApiError> {
    let producer = &state.parts().producer;
    match content {
        Content::Source(source) => {
            let command = submit::ingest_command(&source, target.clone(), ingest_id);
            submit::submit_ingest(producer, command, COMPONENT).await?;
        }
        Content::Archive { source, content } => {
            let command = submit::ingest_command(&source, target.clone(), ingest_id);
            submit::submit_ingest(producer, StartIngest { content: Some(content), ..command }, COMPONENT).await?;
        }
        Content::Uploaded { records, .. } => {
            producer.send_many(records(ingest_id, &target)?).await?;
        }
    }
    state.hub().remember_ingest(ingest_id, &target);
    Ok(())
}
