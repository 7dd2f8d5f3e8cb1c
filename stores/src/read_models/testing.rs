//! Events for tests.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use proptest::prelude::*;
use riverrun_schemas::agent::*;
use riverrun_schemas::ingest::*;
use riverrun_schemas::{BlobRef, Collection, EventSet, Failure, IngestId, RunId, Usage};
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, Column, Connection, Executor, Row, ValueRef};
use url::Url;

use crate::read_models::{LogRecord, Projected};
use crate::sql::Sql;

/// The server that the suite runs against a second time; unset, it runs on files.
const SERVER: &str = "RIVERRUN_TEST_DATABASE_URL";

/// An empty database: of the server that is named, else a file.
pub(crate) async fn fresh() -> (tempfile::TempDir, Sql) {
    let folder = tempfile::tempdir().unwrap();
    let sql = match std::env::var(SERVER) {
        Ok(server) => Sql::connect(&new_database(&server).await).await.unwrap(),
        Err(_) => Sql::open(folder.path().join("read.db")).await.unwrap(),
    };
    (folder, sql)
}

/// Events as the records of one partition, from offset 0.
pub(crate) fn records<E: EventSet>(events: impl IntoIterator<Item = E>, body: fn(E) -> Projected) -> Vec<LogRecord> {
    let record = |(event, offset)| LogRecord { topic: E::TOPIC, partition: 0, offset, body: body(event) };
    events.into_iter().zip(0..).map(record).collect()
}

/// What statements find, every row as text.
pub(crate) async fn rows(sql: &Sql, statements: &[&'static str]) -> String {
    let mut text = String::new();
    for statement in statements {
        text.push_str(statement);
        for row in sqlx::query(*statement).fetch_all(sql.reader()).await.unwrap() {
            text.push('\n');
            for column in row.columns() {
                let value = row.try_get_raw(column.ordinal()).unwrap();
                let shown = if value.is_null() {
                    "null".to_owned()
                } else {
                    let number = row.try_get::<i64, _>(column.ordinal()).map(|n| n.to_string());
                    number
                        .or_else(|_| row.try_get::<f64, _>(column.ordinal()).map(|n| n.to_string()))
                        .or_else(|_| row.try_get::<String, _>(column.ordinal()))
                        .unwrap()
                };
                text.push_str(&format!("{}={shown} ", column.name()));
            }
        }
        text.push('\n');
    }
    text
}

async fn new_database(server: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = format!("t{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let mut connection = PgConnection::connect(server).await.unwrap();
    connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name} TEMPLATE template0"))).await.unwrap();
    connection.close().await.unwrap();
    let mut url = Url::parse(server).unwrap();
    url.set_path(&name);
    url.to_string()
}

pub(crate) fn run_id() -> RunId {
    RunId::derive(&["the run"])
}

pub(crate) fn request() -> RunRequest {
    RunRequest {
        task: "add two numbers".into(),
        namespace: "default".parse().unwrap(),
        model: Some("tiny".into()),
        temperature: Some(0.2),
        max_iters: Some(8),
        metadata_json: Some(r#"{"ticket":7}"#.into()),
        ..RunRequest::default()
    }
}

pub(crate) fn accepted() -> AgentEvent {
    RunAccepted { run_id: run_id(), request: request(), forked_from: None, at: 1_000 }.into()
}

pub(crate) fn claimed(epoch: i64, worker: &str) -> AgentEvent {
    RunClaimed { run_id: run_id(), epoch, worker: worker.into(), at: 1_001 }.into()
}

pub(crate) fn step(epoch: i64, seq: i64) -> Step {
    let tool = ToolUse {
        call_id: format!("call-{seq}"),
        name: "calculator".into(),
        arguments_json: r#"{"expression":"1+1"}"#.into(),
        effect: ToolEffect::None,
        result_json: (seq % 2 == 0).then(|| "2".into()),
        result_blob: None,
        error: None,
        duration_ms: (seq % 2 == 0).then_some(3),
    };
    Step {
        seq,
        kind: if seq % 2 == 0 { StepKind::ToolResult } else { StepKind::ToolCall },
        agent: "react".into(),
        text: Some(format!("epoch {epoch}")),
        tool: Some(tool),
        usage: (seq % 2 == 1).then_some(Usage {
            prompt_tokens: 10,
            completion_tokens: seq,
            cost_usd: None,
            ..Usage::default()
        }),
        at: 1_002 + seq,
    }
}

pub(crate) fn advanced(epoch: i64, seqs: Range<i64>) -> AgentEvent {
    RunAdvanced { run_id: run_id(), epoch, steps: seqs.map(|seq| step(epoch, seq)).collect() }.into()
}

/// Steps that each ask for approval of a call.
pub(crate) fn asked(epoch: i64, seqs: Range<i64>) -> AgentEvent {
    let ask =
        |seq| Step { kind: StepKind::Approval, text: Some("pay has an effect outside".into()), ..step(epoch, seq) };
    RunAdvanced { run_id: run_id(), epoch, steps: seqs.map(ask).collect() }.into()
}

pub(crate) fn decided(step: i64) -> AgentEvent {
    RunApprovalDecided { run_id: run_id(), step, decision: Decision::Approve, note: None, at: 1_400 }.into()
}

pub(crate) fn cancel() -> AgentEvent {
    RunCancelRequested { run_id: run_id(), reason: None, at: 1_500 }.into()
}

pub(crate) fn finished(epoch: i64) -> AgentEvent {
    let citation = Citation {
        n: 1,
        chunk_id: riverrun_schemas::ChunkId::derive(&["c"]),
        document_id: riverrun_schemas::DocumentId::derive(&["d"]),
        source: "/a.md".into(),
        start: 4,
        end: 9,
        page: None,
        quote: "words".into(),
        supported: true,
    };
    RunFinished {
        run_id: run_id(),
        epoch,
        status: RunOutcome::Succeeded,
        agent: "react".into(),
        answer: Some("2 [1]".into()),
        citations: vec![citation],
        usage: Usage { prompt_tokens: 40, completion_tokens: 5, cost_usd: None, ..Usage::default() },
        stop_reason: "answered".into(),
        error: None,
        at: 2_000,
    }
    .into()
}

pub(crate) fn snapshotted(epoch: i64, seq: i64) -> AgentEvent {
    RunSnapshotted { run_id: run_id(), epoch, seq, accepted_offset: 0, next_offset: 0, state: blob("fold"), at: 1_700 }
        .into()
}

pub(crate) fn any_event() -> impl Strategy<Value = AgentEvent> {
    prop_oneof![
        1 => Just(accepted()),
        3 => (0i64..5, prop::sample::select(vec!["a", "b", "c"])).prop_map(|(epoch, worker)| claimed(epoch, worker)),
        6 => (0i64..5, 0i64..6, 0i64..4).prop_map(|(epoch, first, steps)| advanced(epoch, first..first + steps)),
        2 => (0i64..5, 0i64..6, 0i64..3).prop_map(|(epoch, first, steps)| asked(epoch, first..first + steps)),
        2 => (0i64..6).prop_map(decided),
        1 => Just(RunResumed { run_id: run_id(), at: 1_600 }.into()),
        1 => (0i64..5, 0i64..6).prop_map(|(epoch, seq)| snapshotted(epoch, seq)),
        1 => Just(cancel()),
        1 => (0i64..5).prop_map(finished),
    ]
}

/// The same event of another run.
pub(crate) fn of_run(event: AgentEvent, run_id: RunId) -> AgentEvent {
    match event {
        AgentEvent::RunAccepted(event) => RunAccepted { run_id, ..event }.into(),
        AgentEvent::RunClaimed(event) => RunClaimed { run_id, ..event }.into(),
        AgentEvent::RunAdvanced(event) => RunAdvanced { run_id, ..event }.into(),
        AgentEvent::RunCancelRequested(event) => RunCancelRequested { run_id, ..event }.into(),
        AgentEvent::RunApprovalDecided(event) => RunApprovalDecided { run_id, ..event }.into(),
        AgentEvent::RunResumed(event) => RunResumed { run_id, ..event }.into(),
        AgentEvent::RunSnapshotted(event) => RunSnapshotted { run_id, ..event }.into(),
        AgentEvent::RunFinished(event) => RunFinished { run_id, ..event }.into(),
    }
}

pub(crate) fn notes() -> Collection {
    Collection::new("default".parse().unwrap(), "notes".parse().unwrap())
}

pub(crate) fn ingest_id(number: u32) -> IngestId {
    IngestId::derive(&[&number.to_string()])
}

fn blob(what: &str) -> BlobRef {
    BlobRef { sha256: what.into(), size_bytes: 5, media_type: "text/plain".into() }
}

/// What happens to a document, in the words of its event.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Happens {
    Queued,
    Unchanged,
    Chunked(i64),
    Embedded(i64),
    Indexed(i64),
    Failed,
    Withdrawn,
    Deleted,
}

macro_rules! document_event {
    ($name:ident, $ingest:expr, $source:expr, $at:expr, { $($field:ident: $value:expr),* }) => {
        $name {
            document_id: document_id(&notes(), $source),
            ingest_id: ingest_id($ingest),
            namespace: notes().namespace,
            collection: notes().name,
            source: $source.into(),
            $($field: $value,)*
            at: $at,
        }
        .into()
    };
}

pub(crate) fn document_event(ingest: u32, source: &str, at: i64, happens: Happens) -> IngestEvent {
    let version = |chunks: i64| format!("v{chunks}");
    match happens {
        Happens::Queued => document_event!(DocumentQueued, ingest, source, at, { content: blob("content") }),
        Happens::Unchanged => document_event!(DocumentUnchanged, ingest, source, at, { version: version(0) }),
        Happens::Chunked(chunks) => document_event!(DocumentChunked, ingest, source, at, {
            version: version(chunks), text: blob(&version(chunks)), chunks: chunks, embed_model: "mini".into(), title: None, metadata_json: Some(r#"{"a":1}"#.into()),
            author: None, pages: None, encoding: None, read_as: None, fetched_at: None,
            source_type: None, strategy: None, chunk_size: 800, chunk_overlap: 100, chunk_unit: None, table: None,
            notes: vec!["3 of 4 pages are pictures without text".into()]
        }),
        Happens::Embedded(chunks) => {
            document_event!(DocumentEmbedded, ingest, source, at, { version: version(chunks), chunks: chunks, dimensions: 8 })
        }
        Happens::Indexed(chunks) => document_event!(DocumentIndexed, ingest, source, at, {
            version: version(chunks), chunks: chunks, removed_chunks: 0, embed_model: "mini".into(), dimensions: 8
        }),
        Happens::Failed => document_event!(DocumentFailed, ingest, source, at, {
            stage: "embed".into(), error: Failure::new("model_runtime_down", "no model runtime at 127.0.0.1:1").with_hint("start it")
        }),
        Happens::Withdrawn => document_event!(DocumentWithdrawn, ingest, source, at, { tables: 1, rows: 2 }),
        Happens::Deleted => {
            document_event!(DocumentDeleted, ingest, source, at, { vectors: 3, keywords: 3, tables: 1, rows: 2 })
        }
    }
}

pub(crate) fn scanned(ingest: u32, documents: i64, at: i64) -> IngestEvent {
    let Collection { namespace, name } = notes();
    IngestScanned {
        ingest_id: ingest_id(ingest),
        namespace,
        collection: name,
        source: "/notes".into(),
        documents,
        skipped: 1,
        left_out: vec![LeftOut { reason: "no_reader".into(), extension: Some(".doc".into()), files: 1 }],
        at,
    }
    .into()
}

pub(crate) fn unreadable(ingest: u32, at: i64) -> IngestEvent {
    let Collection { namespace, name } = notes();
    let error = Failure::new("source_not_found", "/notes does not exist");
    IngestFailed { ingest_id: ingest_id(ingest), namespace, collection: name, source: "/notes".into(), error, at }
        .into()
}

pub(crate) fn request_to_tune(number: u8) -> IngestId {
    IngestId::derive(&["tune", &number.to_string()])
}

pub(crate) fn begun(number: u8, at: i64) -> IngestEvent {
    let Collection { namespace, name } = notes();
    CollectionTuning { ingest_id: request_to_tune(number), namespace, collection: name, queries: 10, at }.into()
}

/// The matrix is called as `matrix` says; 0 is none.
pub(crate) fn tuned(number: u8, matrix: u8, at: i64) -> IngestEvent {
    let Collection { namespace, name } = notes();
    CollectionTuned {
        ingest_id: request_to_tune(number),
        namespace,
        collection: name,
        embed_model: "m".to_owned(),
        adapter: (matrix > 0).then(|| blob(&matrix.to_string())),
        queries: 10,
        gains: Vec::new(),
        at,
    }
    .into()
}

pub(crate) fn failed(number: u8, at: i64) -> IngestEvent {
    let Collection { namespace, name } = notes();
    let error = Failure::new("tuning_failed", "it failed");
    CollectionTuneFailed { ingest_id: request_to_tune(number), namespace, collection: name, error, at }.into()
}

pub(crate) fn any_ingest_event() -> impl Strategy<Value = IngestEvent> {
    let happens = prop_oneof![
        Just(Happens::Queued),
        Just(Happens::Unchanged),
        (1i64..4).prop_map(Happens::Chunked),
        (1i64..4).prop_map(Happens::Embedded),
        (1i64..4).prop_map(Happens::Indexed),
        Just(Happens::Failed),
        Just(Happens::Withdrawn),
        Just(Happens::Deleted),
    ];
    prop_oneof![
        8 => (0u32..3, prop::sample::select(vec!["/a", "/b", "/c"]), 0i64..5, happens).prop_map(|(ingest, source, at, happens)| document_event(ingest, source, at, happens)),
        1 => (0u32..3, 0i64..4, 0i64..5).prop_map(|(ingest, documents, at)| scanned(ingest, documents, at)),
        1 => (0u32..3, 0i64..5).prop_map(|(ingest, at)| unreadable(ingest, at)),
        1 => (0u8..3, 0i64..5).prop_map(|(number, at)| begun(number, at)),
        1 => (0u8..3, 0u8..3, 0i64..5).prop_map(|(number, matrix, at)| tuned(number, matrix, at)),
        1 => (0u8..3, 0i64..5).prop_map(|(number, at)| failed(number, at)),
    ]
}
