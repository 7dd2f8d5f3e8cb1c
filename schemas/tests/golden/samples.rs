//! What is written into the golden files.

use super::values::{blob, finetune, forked_from, memory, projects, request, start_finetune, steps};
use super::*;

/// One value of every record that this build writes.
pub(super) fn samples() -> Vec<(&'static str, Vec<u8>, String)> {
    fn sample<E: EventSet>(events: Vec<E>) -> Vec<(&'static str, Vec<u8>, String)> {
        events.into_iter().map(|e| (e.record_name(), e.encode().expect("encodes"), format!("{e:#?}"))).collect()
    }
    let run_id = RunId::derive(&["golden"]);
    let ingest_id = IngestId::derive(&["golden"]);
    let collection: riverrun_schemas::CollectionName = "docs".parse().unwrap();
    let namespace: riverrun_schemas::Namespace = "team-a".parse().unwrap();
    let document_id = DocumentId::derive(&["golden"]);
    let chunk_id = ChunkId::derive(&["golden"]);
    let at = 1_700_000_000_000;
    macro_rules! doc {
        ($name:ident { $($field:ident: $value:expr),* }) => {
            $name { document_id, ingest_id, namespace: namespace.clone(), collection: collection.clone(), source: "/data/a.md".into(), at, $($field: $value),* }
        };
    }
    macro_rules! batch {
        ($name:ident { $($field:ident: $value:expr),* }) => {
            $name { document_id, ingest_id, namespace: namespace.clone(), collection: collection.clone(), source: "/data/a.md".into(), at,
                version: "v1".into(), embed_model: "all-mpnet-base-v2".into(), batch: 0, batches: 1, metadata_json: Some("{\"team\":\"a\"}".into()), $($field: $value),* }
        };
    }
    let chunk = Chunk {
        chunk_id,
        ordinal: 0,
        start: 0,
        end: 5,
        text: "hello".into(),
        page: Some(1),
        heading: Some("A > B".into()),
        layer: 1,
        leaves: vec![LeafRun { first: 0, last: 2, start: 0, end: 5 }],
    };
    let citation = Citation {
        n: 1,
        chunk_id,
        document_id,
        source: "/data/a.md".into(),
        start: 0,
        end: 5,
        page: None,
        quote: "hello".into(),
        supported: true,
    };
    let start_ingest = StartIngest {
        ingest_id,
        namespace: namespace.clone(),
        collection: collection.clone(),
        source: "/data".into(),
        source_type: None,
        embed_model: "all-mpnet-base-v2".into(),
        chunk_size: 800,
        chunk_overlap: 100,
        metadata_json: None,
        query: Some("SELECT 1".into()),
        include: vec!["**/*.md".into()],
        exclude: vec![],
        depth: Some(1),
        sitemap: true,
        content: Some(blob()),
        table: Some("prices".into()),
        strategy: Some("late".into()),
        chunk_unit: Some("tokens".into()),
        at,
    };
    let mut all = sample::<AgentCommand>(vec![
        StartRun { run_id, request: request(), at }.into(),
        CancelRun { run_id, reason: Some("enough".into()), at }.into(),
        DecideApproval { run_id, step: 3, decision: Decision::Deny, note: Some("too dear".into()), at }.into(),
        ForkRun {
            run_id,
            forked_from: forked_from(),
            request: request(),
            steps: steps(),
            steps_blob: Some(blob()),
            at,
        }
        .into(),
        ResumeRun { run_id, at }.into(),
    ]);
    all.extend(sample::<AgentEvent>(vec![
        RunAccepted { run_id, request: request(), forked_from: Some(forked_from()), at }.into(),
        RunClaimed { run_id, epoch: 2, worker: "w1".into(), at }.into(),
        RunAdvanced { run_id, epoch: 2, steps: steps() }.into(),
        RunCancelRequested { run_id, reason: None, at }.into(),
        RunApprovalDecided { run_id, step: 3, decision: Decision::Approve, note: None, at }.into(),
        RunResumed { run_id, at }.into(),
        RunSnapshotted { run_id, epoch: 2, seq: 1_000, accepted_offset: 7, next_offset: 2_007, state: blob(), at }
            .into(),
        RunFinished {
            run_id,
            epoch: 2,
            status: RunOutcome::Failed,
            agent: "react".into(),
            answer: Some("42 [1]".into()),
            citations: vec![citation],
            usage: Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: Some(0.01), ..Usage::default() },
            stop_reason: "error".into(),
            error: Some(Failure::new("model_runtime_down", "no answer").with_hint("start it")),
            at,
        }
        .into(),
    ]));
    all.extend(sample::<IngestCommand>(vec![
        start_ingest.into(),
        doc!(SubmitDocument {
            source_type: Some("text".into()),
            content: blob(),
            embed_model: "m".into(),
            chunk_size: 800,
            chunk_overlap: 100,
            metadata_json: None,
            table: Some("prices".into()),
            strategy: None,
            chunk_unit: Some("tokens".into()),
            again: true
        })
        .into(),
        doc!(DeleteDocument {}).into(),
        DeleteCollection { ingest_id, namespace: namespace.clone(), collection: collection.clone(), at }.into(),
        ReembedCollection {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            embed_model: "n".into(),
            at,
        }
        .into(),
        RebuildCollection { ingest_id, namespace: namespace.clone(), collection: collection.clone(), afresh: true, at }
            .into(),
        TuneCollection {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            judgements: Some(blob()),
            at,
        }
        .into(),
        doc!(BuildTree {
            version: "v1".into(),
            embed_model: "n".into(),
            metadata_json: None,
            tree: Some(blob()),
            last: Some(blob()),
            next: 3,
            step: 7,
            done: true
        })
        .into(),
    ]));
    all.extend(sample::<IngestEvent>(vec![
        IngestScanned {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            source: "/data".into(),
            documents: 2,
            skipped: 1,
            left_out: vec![LeftOut { reason: "no_reader".into(), extension: Some(".doc".into()), files: 1 }],
            at,
        }
        .into(),
        IngestFailed {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            source: "/data".into(),
            error: Failure::new("not_found", "no such file"),
            at,
        }
        .into(),
        doc!(DocumentQueued { content: blob() }).into(),
        doc!(DocumentUnchanged { version: "v1".into() }).into(),
        doc!(DocumentChunked {
            version: "v1".into(),
            text: blob(),
            chunks: 3,
            embed_model: "m".into(),
            title: Some("T".into()),
            metadata_json: None,
            author: Some("A".into()),
            pages: Some(12),
            encoding: Some("UTF-16LE".into()),
            read_as: Some("text/plain".into()),
            fetched_at: Some(1_700_000_000_000),
            source_type: Some("csv".into()),
            strategy: Some("recursive".into()),
            chunk_size: 200,
            chunk_overlap: 25,
            chunk_unit: Some("tokens".into()),
            table: Some("prices".into()),
            notes: vec!["1 of 12 pages is a picture without text: page 7".into()]
        })
        .into(),
        doc!(DocumentEmbedded { version: "v1".into(), chunks: 3, dimensions: 768 }).into(),
        doc!(DocumentIndexed {
            version: "v1".into(),
            chunks: 3,
            removed_chunks: 1,
            embed_model: "m".into(),
            dimensions: 768
        })
        .into(),
        doc!(DocumentFailed { stage: "ingest".into(), error: Failure::new("binary", "not text") }).into(),
        doc!(DocumentWithdrawn { tables: 1, rows: 20 }).into(),
        doc!(DocumentDeleted { vectors: 3, keywords: 3, tables: 1, rows: 20 }).into(),
        CollectionWithdrawn {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            documents: 2,
            at,
        }
        .into(),
        CollectionReembedding {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            from_model: "m".into(),
            embed_model: "n".into(),
            documents: 2,
            chunks: 6,
            at,
        }
        .into(),
        CollectionReembedded {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            embed_model: "n".into(),
            dimensions: 384,
            documents: 2,
            chunks: 6,
            at,
        }
        .into(),
        CollectionReembedFailed {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            embed_model: "n".into(),
            error: Failure::new("model_missing", "model 'n' is not on this machine")
                .with_hint("riverrun models pull n"),
            at,
        }
        .into(),
        CollectionRebuilding {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            reason: "its vectors are gone".into(),
            at,
        }
        .into(),
        CollectionRebuilt {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            embed_model: "n".into(),
            documents: 2,
            chunks: 6,
            vectors: 6,
            keywords: 3,
            embedded: 1,
            removed: 1,
            missing: 1,
            missing_documents: vec![document_id],
            at,
        }
        .into(),
        CollectionRebuildFailed {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            error: Failure::new("model_missing", "model 'n' is not on this machine")
                .with_hint("riverrun models pull n"),
            at,
        }
        .into(),
        CollectionTuning { ingest_id, namespace: namespace.clone(), collection: collection.clone(), queries: 12, at }
            .into(),
        CollectionTuned {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            embed_model: "n".into(),
            adapter: Some(blob()),
            queries: 12,
            gains: vec![SearchGain {
                search: "hybrid".into(),
                ndcg_before: 0.5,
                ndcg_after: 0.625,
                recall_before: 0.75,
                recall_after: 0.875,
            }],
            at,
        }
        .into(),
        CollectionTuneFailed {
            ingest_id,
            namespace: namespace.clone(),
            collection: collection.clone(),
            error: Failure::new("too_few_judgements", "3 judged questions have a relevant document"),
            at,
        }
        .into(),
    ]));
    all.extend(sample::<ChunkEvent>(vec![
        batch!(ChunksReady { chunks: vec![chunk.clone()], context: Some(blob()) }).into(),
        doc!(ChunksWithdrawn { tables: 1, rows: 20 }).into(),
    ]));
    all.extend(sample::<EmbeddingEvent>(vec![
        batch!(ChunksEmbedded { dimensions: 2, chunks: vec![EmbeddedChunk::new(chunk, &[0.5, -1.0])] }).into(),
        doc!(EmbeddingsWithdrawn { tables: 1, rows: 20 }).into(),
    ]));
    all.extend(sample::<MemoryEvent>(memory(run_id)));
    all.extend(sample::<FinetuneCommand>(vec![start_finetune().into()]));
    all.extend(sample::<FinetuneEvent>(finetune()));
    let (commands, events) = projects();
    all.extend(sample(commands));
    all.extend(sample(events));
    all.extend(sample::<TokenEvent>(vec![TokenDelta { run_id, seq: 4, text: "4".into() }.into()]));
    all.extend(sample::<ToolCall>(vec![
        ToolCalled {
            call_id: "call_1".into(),
            tool: "stock".into(),
            namespace: namespace.clone(),
            arguments_json: "{\"part\":\"A7\"}".into(),
            deadline: at + 60_000,
            at,
        }
        .into(),
    ]));
    all.extend(sample::<ToolAnswer>(vec![
        ToolAnswered { call_id: "call_1".into(), result_json: Some("{\"left\":3}".into()), error: None, at }.into(),
    ]));
    all.extend(sample::<CanvasEvent>(vec![
        CanvasSaved {
            canvas_id: "board".parse().unwrap(),
            namespace: namespace.clone(),
            save_id: EventId::derive(&["golden"]),
            name: "Board".into(),
            revision: 2,
            document: "{\"format\":\"riverrun.canvas\"}".into(),
            at,
        }
        .into(),
        CanvasDeleted {
            canvas_id: "board".parse().unwrap(),
            namespace: namespace.clone(),
            delete_id: EventId::derive(&["golden", "gone"]),
            at,
        }
        .into(),
    ]));
    all.extend(sample::<DocumentMessage>(vec![
        PublishDocument {
            name: "a".into(),
            text: "hello".into(),
            content_type: Some("text/markdown".into()),
            metadata_json: None,
            at,
        }
        .into(),
    ]));
    all
}
