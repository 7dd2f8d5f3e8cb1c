use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use riverrun_schemas::agent::{AgentEvent, Decision, RunApprovalDecided};
use riverrun_schemas::ingest::IngestEvent;
use riverrun_schemas::{EventSet, RunId, Topic};

use super::testing::{
    Happens, accepted, advanced, any_event, any_ingest_event, cancel, claimed, document_event, finished, fresh,
    ingest_id, notes, of_run, rows, run_id, scanned, unreadable,
};
use super::*;
use crate::StoreError;
use crate::read_models::run_fold::RunGate;
use crate::sql::Sql;

/// A log of a few partitions: records lie by key, as on the broker.
#[derive(Default)]
struct Log(Vec<LogRecord>);

impl Log {
    const PARTITIONS: usize = 3;

    fn push(&mut self, topic: Topic, key: &str, body: Projected) {
        let partition = key.bytes().map(usize::from).sum::<usize>() % Self::PARTITIONS;
        let offset =
            self.0.iter().filter(|record| record.topic == topic && record.partition == partition as i32).count();
        self.0.push(LogRecord { topic, partition: partition as i32, offset: offset as i64, body });
    }

    fn agent(&mut self, event: AgentEvent) {
        self.push(Topic::AgentEvents, &event.key(), Projected::Agent(event));
    }

    fn ingest(&mut self, event: IngestEvent) {
        self.push(Topic::IngestEvents, &event.key(), Projected::Ingest(event));
    }

    /// The same records in another order in which readers may see them: that of each partition stays.
    fn shuffled(&self, choices: &[usize]) -> Vec<LogRecord> {
        let mut partitions: BTreeMap<(&str, i32), std::collections::VecDeque<LogRecord>> = BTreeMap::new();
        for record in &self.0 {
            partitions.entry((record.topic.name(), record.partition)).or_default().push_back(record.clone());
        }
        let mut order = Vec::new();
        let mut choices = choices.iter().copied().cycle();
        while !partitions.is_empty() {
            let which = choices.next().unwrap_or(0) % partitions.len();
            let key = *partitions.keys().nth(which).unwrap();
            let queue = partitions.get_mut(&key).unwrap();
            order.extend(queue.pop_front());
            if queue.is_empty() {
                partitions.remove(&key);
            }
        }
        order
    }
}

async fn dump(sql: &Sql) -> String {
    rows(
        sql,
        &[
            "SELECT * FROM checkpoints ORDER BY 1, 2, 3",
            "SELECT * FROM runs ORDER BY 1",
            "SELECT * FROM run_steps ORDER BY 1, 2",
            "SELECT * FROM run_after ORDER BY 1, 2",
            "SELECT * FROM documents ORDER BY 1",
            "SELECT * FROM document_versions ORDER BY 1, 2",
            "SELECT * FROM collections ORDER BY 1, 2",
            "SELECT * FROM ingests ORDER BY 1",
            "SELECT * FROM ingest_documents ORDER BY 1, 2",
            "SELECT * FROM deletions ORDER BY 1",
            "SELECT * FROM reembeddings ORDER BY 1",
            "SELECT * FROM rebuilds ORDER BY 1",
            "SELECT * FROM tunings ORDER BY 1",
            "SELECT * FROM deleted_documents ORDER BY 1, 2",
        ],
    )
    .await
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn log_of(agent: Vec<(u8, AgentEvent)>, ingest: Vec<IngestEvent>) -> Log {
    let mut log = Log::default();
    log.agent(accepted());
    for (run, event) in agent {
        log.agent(of_run(event, RunId::derive(&[&run.to_string()])));
    }
    ingest.into_iter().for_each(|event| log.ingest(event));
    log.push(Topic::AgentEvents, "x", Projected::Nothing);
    log
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// READ-1, READ-2, READ-3.
    #[test]
    fn whatever_was_written_then_a_rebuild_gives_the_same_rows(
        agent in prop::collection::vec((0u8..3, any_event()), 0..40),
        ingest in prop::collection::vec(any_ingest_event(), 0..40),
        choices in prop::collection::vec(0usize..12, 1..40),
        batch in 1usize..20,
    ) {
        runtime().block_on(async {
            let (_folder, sql) = fresh().await;
            let log = log_of(agent, ingest);
            apply(&sql, &log.0).await.unwrap();
            let first = dump(&sql).await;

            apply(&sql, &log.0).await.unwrap();
            prop_assert_eq!(&dump(&sql).await, &first, "handed in twice");

            rebuild(&sql).await.unwrap();
            prop_assert!(checkpoints(&sql).await.unwrap().is_empty());
            // Other batches, another order of the partitions, and each batch handed in again as after a crash.
            for records in log.shuffled(&choices).chunks(batch) {
                apply(&sql, records).await.unwrap();
                apply(&sql, records).await.unwrap();
            }
            prop_assert_eq!(&dump(&sql).await, &first, "rebuilt");
            Ok(())
        })?;
    }
}

#[tokio::test]
async fn given_a_batch_that_fails_then_neither_rows_nor_checkpoint_change() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    log.agent(accepted());
    log.agent(claimed(1, "a"));
    apply(&sql, &log.0[..1]).await.unwrap();
    let before = dump(&sql).await;
    // A table that is gone stands for any statement that fails in the middle.
    let mut transaction = sql.begin().await.unwrap();
    sqlx::query("ALTER TABLE run_steps RENAME TO away").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    log.agent(advanced(1, 1..2));
    assert_eq!(apply(&sql, &log.0).await.unwrap_err().code(), "database_failed");
    let mut transaction = sql.begin().await.unwrap();
    sqlx::query("ALTER TABLE away RENAME TO run_steps").execute(&mut *transaction).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(dump(&sql).await, before);
    let applied = apply(&sql, &log.0).await.unwrap();
    assert_eq!((applied.known, applied.applied), (1, 2));
}

#[tokio::test]
async fn given_a_run_then_it_reads_as_its_events_say_at_every_point() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    let mut seen = Vec::new();
    for event in [
        accepted(),
        claimed(1, "a"),
        advanced(1, 1..3),
        cancel(),
        claimed(2, "b"),
        advanced(1, 3..4),
        advanced(2, 3..4),
        finished(2),
        finished(2),
    ] {
        log.agent(event);
        apply(&sql, &log.0[log.0.len() - 1..]).await.unwrap();
        let run = runs::run(&sql, Within::EveryNamespace, run_id()).await.unwrap().unwrap();
        seen.push((run.status, run.steps.len(), run.usage.total_tokens));
    }
    use RunStatus::*;
    assert_eq!(
        seen,
        [
            (Queued, 0, 0),
            (Running, 0, 0),
            (Running, 2, 11),
            (Running, 2, 11),
            (Running, 2, 11),
            (Running, 2, 11),
            (Running, 3, 24),
            (Succeeded, 3, 45),
            (Succeeded, 3, 45)
        ]
    );
    let run = runs::run(&sql, Within::EveryNamespace, run_id()).await.unwrap().unwrap();
    let (AgentEvent::RunAccepted(accepted), AgentEvent::RunFinished(end)) = (accepted(), finished(2)) else {
        unreachable!()
    };
    let steps = [testing::step(1, 1), testing::step(1, 2), testing::step(2, 3)];
    assert_eq!(run, result_view(&accepted, &steps, &end), "a stream and the read model show the same");
    assert_eq!(runs::steps(&sql, run_id(), 1).await.unwrap(), run.steps[1..]);
    let place = "SELECT log_offset, status FROM runs";
    assert_eq!(rows(&sql, &[place]).await, format!("{place}\nlog_offset=0 status=succeeded \n"));
}

#[tokio::test]
async fn given_questions_that_are_answered_then_each_shows_its_first_answer_also_after_the_end_and_a_rebuild() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    let decided = |step, decision, note: Option<&str>, at| -> AgentEvent {
        RunApprovalDecided { run_id: run_id(), step, decision, note: note.map(str::to_owned), at }.into()
    };
    for event in [
        accepted(),
        claimed(1, "a"),
        advanced(1, 1..2),
        testing::asked(1, 2..5),
        decided(3, Decision::Deny, Some("too dear"), 1_400),
        decided(3, Decision::Approve, Some("after all"), 1_500),
        decided(1, Decision::Approve, Some("nobody asked"), 1_500),
        decided(2, Decision::Approve, None, 1_600),
        finished(1),
    ] {
        log.agent(event);
    }
    let said = |decision, note: Option<&str>, at| {
        Some(DecisionView { decision, note: note.map(str::to_owned), decided_at: Timestamp(at) })
    };
    let expected = [None, said(Decision::Approve, None, 1_600), said(Decision::Deny, Some("too dear"), 1_400), None];
    for time in ["first", "again"] {
        apply(&sql, &log.0).await.unwrap();
        let run = runs::run(&sql, Within::EveryNamespace, run_id()).await.unwrap().unwrap();
        let shown: Vec<Option<DecisionView>> = run.steps.iter().map(|step| step.decision.clone()).collect();
        assert_eq!(shown, expected, "{time}");
        assert_eq!(runs::steps(&sql, run_id(), 2).await.unwrap(), run.steps[2..], "{time}");
        let json = serde_json::to_value(&run.steps).unwrap();
        assert_eq!(
            json[2]["decision"],
            serde_json::json!({"decision": "deny", "note": "too dear", "decided_at": "1970-01-01T00:00:01.400Z"})
        );
        assert_eq!(json[3].get("decision"), None, "left out where nobody answered");
        rebuild(&sql).await.unwrap();
    }
}

#[tokio::test]
async fn given_many_ids_when_it_is_asked_whether_they_are_runs_then_the_first_that_is_none_is_named() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    // More than one statement asks for.
    let runs: BTreeSet<RunId> = (0..1_100).map(|number: u32| RunId::derive(&[&number.to_string()])).collect();
    for run in &runs {
        log.agent(of_run(accepted(), *run));
    }
    apply(&sql, &log.0).await.unwrap();
    let namespace = riverrun_schemas::Namespace::default();
    let own = Within::Namespace(&namespace);
    assert_eq!(runs::first_missing(&sql, own, &BTreeSet::new()).await.unwrap(), None);
    assert_eq!(runs::first_missing(&sql, own, &runs).await.unwrap(), None);
    let other = "team".parse().unwrap();
    let first = runs.first().copied();
    assert_eq!(runs::first_missing(&sql, Within::Namespace(&other), &runs).await.unwrap(), first);
    let missing = RunId::derive(&["never accepted"]);
    let with_one_that_is_none = runs.iter().copied().chain([missing]).collect();
    assert_eq!(runs::first_missing(&sql, own, &with_one_that_is_none).await.unwrap(), Some(missing));
}

#[tokio::test]
async fn given_a_run_then_its_json_is_that_of_the_api() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    for event in [accepted(), claimed(1, "a"), advanced(1, 1..3), finished(1)] {
        log.agent(event);
    }
    apply(&sql, &log.0).await.unwrap();
    let run = serde_json::to_value(runs::run(&sql, Within::EveryNamespace, run_id()).await.unwrap().unwrap()).unwrap();
    let expected = serde_json::json!({
        "run_id": run_id().to_string(), "status": "succeeded", "namespace": "default", "task": "add two numbers", "agent": "react", "answer": "2 [1]",
        "citations": [{"n": 1, "chunk_id": riverrun_schemas::ChunkId::derive(&["c"]).to_string(), "document_id": riverrun_schemas::DocumentId::derive(&["d"]).to_string(),
            "source": "/a.md", "span": {"start": 4, "end": 9}, "quote": "words", "supported": true}],
        "steps": [
            {"seq": 1, "kind": "tool_call", "agent": "react", "text": "epoch 1", "tool": {"call_id": "call-1", "name": "calculator", "arguments": {"expression": "1+1"}},
                "usage": {"prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11}, "at": "1970-01-01T00:00:01.003Z"},
            {"seq": 2, "kind": "tool_result", "agent": "react", "text": "epoch 1",
                "tool": {"call_id": "call-2", "name": "calculator", "arguments": {"expression": "1+1"}, "result": 2, "duration_ms": 3}, "at": "1970-01-01T00:00:01.004Z"},
        ],
        "usage": {"prompt_tokens": 40, "completion_tokens": 5, "total_tokens": 45},
        "stop_reason": "answered", "trace_id": null, "metadata": {"ticket": 7},
        "created_at": "1970-01-01T00:00:01.000Z", "finished_at": "1970-01-01T00:00:02.000Z",
    });
    assert_eq!(run, expected);
    let back: RunView = serde_json::from_value(run).unwrap();
    assert_eq!(serde_json::to_value(back).unwrap(), expected);
}

#[tokio::test]
async fn given_numbers_beyond_reason_then_runs_and_collections_can_still_be_read() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    log.agent(accepted());
    log.agent(claimed(1, "a"));
    for seq in 1..4 {
        let AgentEvent::RunAdvanced(mut event) = advanced(1, seq..seq + 1) else { unreachable!() };
        event.steps[0].usage = Some(riverrun_schemas::Usage {
            prompt_tokens: i64::MAX,
            completion_tokens: i64::MIN,
            cost_usd: Some(f64::NAN),
            unpriced_tokens: i64::MAX,
            cached_prompt_tokens: i64::MIN,
            cache_write_tokens: i64::MAX,
        });
        event.steps[0].at = i64::MAX;
        log.agent(event.into());
    }
    for source in ["/a", "/b", "/c"] {
        log.ingest(document_event(1, source, i64::MAX, Happens::Indexed(i64::MAX)));
    }
    apply(&sql, &log.0).await.unwrap();
    assert_eq!(runs::run(&sql, Within::EveryNamespace, run_id()).await.unwrap().unwrap().steps.len(), 3);
    assert_eq!(
        runs::list(&sql, Within::EveryNamespace, &runs::RunFilter::default(), &PageRequest::default())
            .await
            .unwrap()
            .items
            .len(),
        1
    );
    assert_eq!(documents::collection(&sql, &notes()).await.unwrap().unwrap().documents, 3);
}

#[tokio::test]
async fn given_open_and_ended_runs_then_the_open_ones_are_told_with_their_gates_and_the_offsets_of_that_moment() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    let other = RunId::derive(&["other"]);
    for event in [accepted(), claimed(1, "a"), finished(1)] {
        log.agent(event);
    }
    let mut gate = RunGate::default();
    for event in [accepted(), claimed(1, "a"), advanced(1, 1..3), claimed(2, "b")] {
        gate.admit(&event);
        log.agent(of_run(event, other));
    }
    apply(&sql, &log.0).await.unwrap();
    let open = run_heads::open_runs(&sql).await.unwrap();
    assert_eq!(open.gates, [(other, gate)]);
    assert_eq!(open.checkpoints, checkpoints(&sql).await.unwrap());
    let head = run_heads::head(&sql, other).await.unwrap().unwrap();
    assert_eq!((head.status, head.request), (RunStatus::Running, testing::request()));
}

#[tokio::test]
async fn given_many_runs_then_pages_show_each_once_newest_first_and_filters_hold() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    for number in 0..25u32 {
        let id = RunId::derive(&["page", &number.to_string()]);
        let AgentEvent::RunAccepted(mut event) = accepted() else { unreachable!() };
        event.run_id = id;
        event.at = i64::from(number / 3); // several at the same time
        event.request.namespace = if number % 5 == 0 { "other" } else { "default" }.parse().unwrap();
        log.agent(event.into());
        if number % 2 == 0 {
            log.agent(of_run(claimed(1, "a"), id));
        }
    }
    apply(&sql, &log.0).await.unwrap();
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = runs::list(
            &sql,
            Within::EveryNamespace,
            &runs::RunFilter::default(),
            &PageRequest { limit: Some(4), cursor },
        )
        .await
        .unwrap();
        found.extend(page.items);
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(found.len(), 25);
    assert!(found.windows(2).all(
        |pair| (pair[0].created_at, pair[0].run_id.to_string()) > (pair[1].created_at, pair[1].run_id.to_string())
    ));

    let other = "other".parse().unwrap();
    let running = runs::RunFilter { status: Some(RunStatus::Running), ..Default::default() };
    let page = runs::list(&sql, Within::Namespace(&other), &running, &PageRequest::default()).await.unwrap();
    assert_eq!((page.items.len(), page.next_cursor), (3, None));
    assert!(page.items.iter().all(|run| run.namespace == "other" && run.status == RunStatus::Running));
    assert!(
        runs::run(&sql, Within::Namespace(&"default".parse().unwrap()), page.items[0].run_id).await.unwrap().is_none(),
        "a run of another namespace"
    );
    let bad = PageRequest { limit: None, cursor: Some("'; DROP TABLE runs".into()) };
    assert!(matches!(
        runs::list(&sql, Within::EveryNamespace, &runs::RunFilter::default(), &bad).await,
        Err(StoreError::Cursor(_))
    ));
}

#[tokio::test]
async fn given_documents_then_collection_and_request_add_up() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    let source = |n: u32| format!("/notes/{n}.md");
    for n in 0..3 {
        for (at, happens) in
            [Happens::Queued, Happens::Chunked(2), Happens::Embedded(2), Happens::Indexed(2)].into_iter().enumerate()
        {
            log.ingest(document_event(1, &source(n), 10 + at as i64, happens));
        }
    }
    log.ingest(document_event(1, &source(3), 20, Happens::Queued));
    log.ingest(document_event(1, &source(3), 21, Happens::Failed));
    log.ingest(document_event(1, &source(4), 22, Happens::Queued));
    apply(&sql, &log.0).await.unwrap();
    let view = documents::ingest(&sql, Within::EveryNamespace, ingest_id(1)).await.unwrap().unwrap();
    assert_eq!((view.status, view.documents.total, view.finished_at), (IngestStatus::Running, None, None));

    log.ingest(scanned(1, 5, 15));
    apply(&sql, &log.0).await.unwrap();
    assert_eq!(
        documents::ingest(&sql, Within::EveryNamespace, ingest_id(1)).await.unwrap().unwrap().status,
        IngestStatus::Running
    );
    log.ingest(document_event(1, &source(4), 30, Happens::Unchanged));
    apply(&sql, &log.0).await.unwrap();
    let view = documents::ingest(&sql, Within::EveryNamespace, ingest_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (view.status, view.documents.indexed, view.documents.unchanged, view.documents.failed),
        (IngestStatus::Partial, 3, 1, 1)
    );
    assert_eq!(view.finished_at, Some(Timestamp(30)));
    let noted: Vec<_> = view.notes.iter().map(|note| (note.source.as_str(), note.notes.len())).collect();
    assert_eq!(noted, [("/notes/0.md", 1), ("/notes/1.md", 1), ("/notes/2.md", 1)], "{:?}", view.notes);
    let left_out: Vec<_> = view.left_out.iter().map(|row| (row.reason.as_str(), row.extension.as_deref())).collect();
    assert_eq!((view.skipped, left_out), (Some(1), vec![("no_reader", Some(".doc"))]));
    assert_eq!(view.failures.len(), 1);
    assert_eq!(
        (view.failures[0].source.as_str(), view.failures[0].stage.as_str(), view.failures[0].error.code.as_str()),
        ("/notes/3.md", "embed", "model_runtime_down")
    );

    let collection = documents::collection(&sql, &notes()).await.unwrap().unwrap();
    assert_eq!(
        (collection.documents, collection.chunks, collection.embedding.model.as_str(), collection.embedding.dimensions),
        (3, 6, "mini", 8)
    );
    assert_eq!(collection.physical_name, "default__notes");

    // The same source again, changed: it stays searchable in its old version until the new one is indexed.
    log.ingest(document_event(2, &source(0), 40, Happens::Queued));
    log.ingest(document_event(2, &source(0), 41, Happens::Chunked(3)));
    // Late copies of what the first request said.
    log.ingest(document_event(1, &source(0), 12, Happens::Embedded(2)));
    log.ingest(document_event(1, &source(0), 13, Happens::Indexed(2)));
    apply(&sql, &log.0).await.unwrap();
    let page = documents::documents(&sql, &notes(), &PageRequest::default()).await.unwrap();
    assert_eq!(page.items.len(), 5);
    let document = &page.items[0];
    assert_eq!(
        (document.status, document.version.as_deref(), document.indexed_version.as_deref()),
        (DocumentStatus::Chunked, Some("v3"), Some("v2"))
    );
    log.ingest(document_event(2, &source(0), 43, Happens::Indexed(3)));
    apply(&sql, &log.0).await.unwrap();
    let collection = documents::collection(&sql, &notes()).await.unwrap().unwrap();
    assert_eq!((collection.documents, collection.chunks, collection.updated_at), (3, 7, Timestamp(43)));
    let text = documents::document_text(&sql, &notes(), document.document_id, "v2").await.unwrap().unwrap();
    assert_eq!(text.sha256, "v2");
    let metadata = documents::document_metadata(&sql, &notes(), &[document.document_id]).await.unwrap();
    assert_eq!(metadata[&document.document_id], serde_json::json!({"a": 1}));
}

#[tokio::test]
async fn given_a_source_that_can_not_be_read_or_is_empty_then_the_request_ends() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    log.ingest(unreadable(1, 5));
    log.ingest(scanned(2, 0, 6));
    log.ingest(scanned(3, 1, 7));
    log.ingest(document_event(3, "/a", 8, Happens::Failed));
    apply(&sql, &log.0).await.unwrap();
    let mut ends = Vec::new();
    for number in 1..=3 {
        let view = documents::ingest(&sql, Within::EveryNamespace, ingest_id(number)).await.unwrap().unwrap();
        ends.push((view.status, view.finished_at.map(|at| at.0)));
    }
    assert_eq!(
        ends,
        [(IngestStatus::Failed, Some(5)), (IngestStatus::Succeeded, Some(6)), (IngestStatus::Failed, Some(8))]
    );
    assert!(documents::ingest(&sql, Within::EveryNamespace, ingest_id(9)).await.unwrap().is_none());
    assert!(documents::collections(&sql, Within::EveryNamespace).await.unwrap().is_empty());
}

#[tokio::test]
async fn given_a_request_that_failed_when_its_command_is_sent_again_and_done_then_nothing_is_told_of_the_failure() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    log.ingest(unreadable(1, 5));
    apply(&sql, &log.0).await.unwrap();
    let told = || async { documents::ingest(&sql, Within::EveryNamespace, ingest_id(1)).await.unwrap().unwrap() };
    assert_eq!(told().await.error.unwrap().code, "source_not_found");
    log.ingest(scanned(1, 1, 9));
    log.ingest(document_event(1, "/a", 10, Happens::Indexed(2)));
    apply(&sql, &log.0).await.unwrap();
    let view = told().await;
    assert_eq!((view.status, view.error, view.finished_at), (IngestStatus::Succeeded, None, Some(Timestamp(10))));
}

#[tokio::test]
async fn given_a_document_that_failed_when_it_is_handed_in_again_then_it_stays_failed_until_all_of_it_can_be_found() {
    let (_folder, sql) = fresh().await;
    let mut log = Log::default();
    let happens = |log: &mut Log, at: i64, happens: Happens| log.ingest(document_event(1, "/a.md", at, happens));
    log.ingest(scanned(1, 1, 1));
    // Before it was read, and once more on its way to the index.
    for (at, what) in [(2, Happens::Queued), (3, Happens::Failed), (4, Happens::Queued), (5, Happens::Chunked(2))] {
        happens(&mut log, at, what);
    }
    apply(&sql, &log.0).await.unwrap();
    let told = || async {
        let view = documents::ingest(&sql, Within::EveryNamespace, ingest_id(1)).await.unwrap().unwrap();
        let document = documents::documents(&sql, &notes(), &PageRequest::default()).await.unwrap().items.remove(0);
        (view.status, view.failures.len(), document)
    };
    let (status, failures, document) = told().await;
    assert_eq!((status, failures, document.status), (IngestStatus::Failed, 1, DocumentStatus::Failed));
    assert_eq!(document.chunks, 0, "it was split, and nothing finds it");
    happens(&mut log, 6, Happens::Embedded(2));
    happens(&mut log, 7, Happens::Failed);
    happens(&mut log, 8, Happens::Indexed(2));
    apply(&sql, &log.0).await.unwrap();
    let (status, failures, document) = told().await;
    assert_eq!((status, failures, document.status), (IngestStatus::Succeeded, 0, DocumentStatus::Indexed));
    assert_eq!((document.version.as_deref(), document.indexed_version.as_deref()), (Some("v2"), Some("v2")));
    assert!(document.error.is_none(), "{document:?}");
    let collection = documents::collection(&sql, &notes()).await.unwrap().unwrap();
    assert_eq!((collection.documents, collection.chunks), (1, 2));
    let text = documents::document_text(&sql, &notes(), document.document_id, "v2").await.unwrap();
    assert!(text.is_some(), "its text is there for who cites it");
    // What ended with success stays so, and late words of a request do not reach what another one made.
    happens(&mut log, 9, Happens::Failed);
    log.ingest(document_event(2, "/a.md", 10, Happens::Queued));
    log.ingest(document_event(2, "/a.md", 11, Happens::Failed));
    log.ingest(document_event(3, "/a.md", 12, Happens::Queued));
    log.ingest(document_event(3, "/a.md", 13, Happens::Chunked(5)));
    log.ingest(document_event(2, "/a.md", 14, Happens::Chunked(9)));
    apply(&sql, &log.0).await.unwrap();
    let (status, failures, document) = told().await;
    assert_eq!((status, failures, document.status), (IngestStatus::Succeeded, 0, DocumentStatus::Chunked));
    assert_eq!((document.version.as_deref(), document.indexed_version.as_deref()), (Some("v5"), Some("v2")));
    assert_eq!(document.chunks, 2, "those of the version that is found");
}
