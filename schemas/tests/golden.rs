//! Old bytes are read for ever: every `golden/<Record>.v<N>.bin` decodes to the value in its `.json`, whatever the
//! schemas have become since. `UPDATE_GOLDEN=1` writes files for records that have none yet; it never overwrites.

use std::path::PathBuf;

use riverrun_schemas::agent::*;
use riverrun_schemas::canvases::*;
use riverrun_schemas::documents::*;
use riverrun_schemas::finetune::*;
use riverrun_schemas::ingest::*;
use riverrun_schemas::memory::*;
use riverrun_schemas::projects::*;
use riverrun_schemas::tokens::*;
use riverrun_schemas::tools::*;
use riverrun_schemas::{
    AnalysisId, BlobRef, ChainId, ChangeId, ChunkId, Decoded, DocumentId, EpisodeId, EventId, EventSet, Failure,
    FinetuneId, ForgetId, IngestId, NoteId, ProjectId, ProposalId, RunId, SessionName, SummaryId, TurnId, Usage,
    registry,
};

fn golden() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("golden")
}

fn blob() -> BlobRef {
    BlobRef { sha256: "ab".repeat(32), size_bytes: 7, media_type: "text/plain".into() }
}

fn request() -> RunRequest {
    RunRequest {
        task: "how long is the wing? ✈".into(),
        agent: Some("react".into()),
        namespace: "team-a".parse().unwrap(),
        model: Some("qwen2.5-0.5b-instruct".into()),
        temperature: Some(0.2),
        max_iters: Some(8),
        tools: Some(vec!["calculator".into(), "clock".into()]),
        budget_tokens: Some(4000),
        metadata_json: Some("{\"ticket\":7}".into()),
        session_policy: SessionPolicy::Interrupt,
        after: vec![RunId::derive(&["before"])],
        chain: Some(ChainLink { chain_id: ChainId::derive(&["golden"]), name: "last".into(), runs: 2 }),
        ..RunRequest::default()
    }
}

fn forked_from() -> ForkedFrom {
    ForkedFrom { run_id: RunId::derive(&["source"]), at_seq: 4 }
}

fn steps() -> Vec<Step> {
    let tool = |result: Option<&str>| ToolUse {
        call_id: "call-1".into(),
        name: "calculator".into(),
        arguments_json: "{\"expression\":\"6*7\"}".into(),
        effect: ToolEffect::None,
        result_json: result.map(Into::into),
        result_blob: None,
        error: None,
        duration_ms: result.map(|_| 3),
    };
    let step = |seq, kind, text: Option<&str>, tool| Step {
        seq,
        kind,
        agent: "react".into(),
        text: text.map(Into::into),
        tool,
        usage: None,
        at: 1_700_000_000_000 + seq,
    };
    vec![
        Step {
            usage: Some(Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: None }),
            ..step(1, StepKind::Thought, Some("multiply"), None)
        },
        step(2, StepKind::ToolCall, None, Some(tool(None))),
        step(3, StepKind::ToolResult, None, Some(tool(Some("42")))),
        step(4, StepKind::Compaction, Some("left out\n{\"dropped_steps\":[2,3]}"), None),
        step(5, StepKind::Answer, Some("42 [1]"), None),
    ]
}

fn memory(run_id: RunId) -> Vec<MemoryEvent> {
    let turn_id = TurnId::derive(&["golden"]);
    let session: SessionName = "ann, tuesday".parse().unwrap();
    let at = 1_700_000_000_000;
    macro_rules! of {
        ($name:ident { $($field:ident $(: $value:expr)?),* }) => {
            $name { namespace: "team-a".parse().unwrap(), session: session.clone(), at, $($field $(: $value)?),* }.into()
        };
    }
    vec![
        of!(TurnRecorded { turn_id, role: TurnRole::User, text: "my dog is Rex 🐕".into(), run_id: Some(run_id) }),
        of!(SummaryWritten {
            summary_id: SummaryId::derive(&["golden"]),
            through_seq: 12,
            previous: None,
            turn_ids: vec![turn_id],
            text: "Ann has a dog.".into(),
            model: "qwen2.5-0.5b-instruct".into()
        }),
        of!(EpisodeRemembered {
            episode_id: EpisodeId::derive(&["golden"]),
            text: "user: my dog is Rex".into(),
            turn_ids: vec![turn_id]
        }),
        of!(NoteWritten {
            note_id: NoteId::derive(&["golden"]),
            text: "the dog is called Rex".into(),
            turn_ids: vec![turn_id],
            run_id: None
        }),
        of!(MemoryForgotten { forget_id: ForgetId::derive(&["golden"]), target: Some(turn_id.to_string()) }),
    ]
}

fn start_finetune() -> StartFinetune {
    StartFinetune {
        job_id: FinetuneId::derive(&["golden"]),
        name: "poet".into(),
        dataset: "verses".into(),
        content: blob(),
        format: "sft".into(),
        base_model: "smollm2-135m-instruct".into(),
        plan_json: "{\"method\":\"sft_lora\"}".into(),
        at: 1_700_000_000_000,
    }
}

fn finetune() -> Vec<FinetuneEvent> {
    let job_id = FinetuneId::derive(&["golden"]);
    let at = 1_700_000_000_000;
    vec![
        DatasetRegistered {
            name: "verses".into(),
            format: "sft".into(),
            content: blob(),
            examples: 20,
            train_examples: 18,
            eval_examples: 2,
            duplicates: 1,
            tokens_json: Some("{\"min\":3}".into()),
            warnings_json: "[]".into(),
            at,
        }
        .into(),
        FinetuneAccepted::from(&start_finetune()).into(),
        FinetuneClaimed { job_id, epoch: 1, worker: "w1".into(), at }.into(),
        FinetuneProgressed {
            job_id,
            epoch: 1,
            step: 25,
            loss: 1.5,
            learning_rate: 0.0002,
            tokens_per_s: 400.0,
            eta_s: 12.5,
            eval_loss: Some(1.25),
            at,
        }
        .into(),
        FinetuneCancelRequested { job_id, reason: Some("enough".into()), at }.into(),
        FinetuneFinished {
            job_id,
            epoch: 1,
            status: FinetuneOutcome::Succeeded,
            steps: 200,
            loss: Some(0.5),
            eval_loss: None,
            model: Some("poet@1".into()),
            error: None,
            at,
        }
        .into(),
        ModelRegistered {
            model: "poet".into(),
            job_id,
            base_model: "smollm2-135m-instruct".into(),
            method: "sft_lora".into(),
            dataset_sha256: "ab".repeat(32),
            metrics_json: "{\"loss\":0.5}".into(),
            adapter: blob(),
            adapter_config: "{}".into(),
            merged_bytes: 7,
            gate_passed: false,
            gate_reason: Some("it does not stop".into()),
            at,
        }
        .into(),
        ModelStaged { model: "poet".into(), version: 1, stage: ModelStage::Ready, at }.into(),
        ModelProbed {
            provider: "local".into(),
            model: "qwen2.5-0.5b-instruct".into(),
            machine: "a processor, 2 threads".into(),
            context_tokens: Some(8_192),
            usable_context_tokens: Some(4_102),
            questions: 4,
            valid_json: 4,
            valid_tool_calls: 3,
            prompt_tokens_per_s: Some(112.5),
            tokens_per_s: None,
            at,
        }
        .into(),
    ]
}

fn projects() -> (Vec<ProjectCommand>, Vec<ProjectEvent>) {
    let commands = vec![
        ImportProject {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            name: "name".into(),
            source: "source".into(),
            content: Some(blob()),
            at: 1_700_000_000_000,
        }
        .into(),
        AnalyzeProject {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            analysis_id: AnalysisId::derive(&["golden"]),
            review: true,
            model: Some("model".into()),
            at: 1_700_000_000_000,
        }
        .into(),
        ImproveFile {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            proposal_id: ProposalId::derive(&["golden"]),
            file: "file".into(),
            instruction: Some("instruction".into()),
            model: Some("model".into()),
            candidates: 3,
            tests: vec!["tests".into()],
            at: 1_700_000_000_000,
        }
        .into(),
        ApplyProposal {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            proposal_id: ProposalId::derive(&["golden"]),
            file: "file".into(),
            at: 1_700_000_000_000,
        }
        .into(),
        RevertFile {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            file: "file".into(),
            at: 1_700_000_000_000,
        }
        .into(),
        RemoveProject {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            at: 1_700_000_000_000,
        }
        .into(),
    ];
    let events = vec![
        ProjectProgressed {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            phase: "phase".into(),
            about: "about".into(),
            name: "name".into(),
            source: "source".into(),
            file: "file".into(),
            done: 3,
            total: 3,
            at: 1_700_000_000_000,
        }
        .into(),
        ProjectImported {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            name: "name".into(),
            source: "source".into(),
            source_sha256: "source_sha256".into(),
            tree: blob(),
            files: 3,
            size_bytes: 3,
            skipped: 3,
            languages_json: "languages_json".into(),
            at: 1_700_000_000_000,
        }
        .into(),
        ProjectFailed {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            phase: "phase".into(),
            about: "about".into(),
            name: "name".into(),
            source: "source".into(),
            error: Failure::new("zip_refused", "a.zip"),
            at: 1_700_000_000_000,
        }
        .into(),
        ProjectAnalyzed {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            analysis_id: AnalysisId::derive(&["golden"]),
            report: blob(),
            findings: 3,
            counts_json: "counts_json".into(),
            at: 1_700_000_000_000,
        }
        .into(),
        ProposalMade {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            proposal_id: ProposalId::derive(&["golden"]),
            file: "file".into(),
            before_sha256: "before_sha256".into(),
            after: Some(blob()),
            diff: "diff".into(),
            findings_before: 3,
            findings_after: 3,
            improves: true,
            note: Some("note".into()),
            model: "model".into(),
            prompt_tokens: 3,
            completion_tokens: 3,
            tests_json: Some("tests_json".into()),
            at: 1_700_000_000_000,
        }
        .into(),
        FileChanged {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            proposal_id: Some(ProposalId::derive(&["golden"])),
            file: "file".into(),
            before_sha256: "before_sha256".into(),
            after_sha256: "after_sha256".into(),
            tree: blob(),
            at: 1_700_000_000_000,
        }
        .into(),
        ChangeRefused {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            proposal_id: Some(ProposalId::derive(&["golden"])),
            file: "file".into(),
            error: Failure::new("zip_refused", "a.zip"),
            at: 1_700_000_000_000,
        }
        .into(),
        ProjectRemoved {
            project_id: ProjectId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            change_id: ChangeId::derive(&["golden"]),
            at: 1_700_000_000_000,
        }
        .into(),
    ];
    (commands, events)
}

/// One value of every record that this build writes.
fn samples() -> Vec<(&'static str, Vec<u8>, String)> {
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
            usage: Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: Some(0.01) },
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
            table: Some("prices".into())
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

/// Decodes on whatever topic the record's schema belongs to.
fn decode(bytes: &[u8]) -> String {
    use riverrun_schemas::Topic;
    fn shown<E: EventSet>(bytes: &[u8]) -> String {
        match E::decode(bytes).expect("golden bytes decode") {
            Decoded::Event(event) => format!("{event:#?}"),
            Decoded::UnknownType { record } => panic!("{record} is not known any more"),
        }
    }
    let (id, _) = riverrun_schemas::framing::unframe(bytes).expect("framed");
    match registry::by_id(id).expect("listed").topic {
        Topic::AgentCommands => shown::<AgentCommand>(bytes),
        Topic::AgentEvents => shown::<AgentEvent>(bytes),
        Topic::IngestCommands => shown::<IngestCommand>(bytes),
        Topic::IngestEvents => shown::<IngestEvent>(bytes),
        Topic::IngestChunks => shown::<ChunkEvent>(bytes),
        Topic::IngestEmbeddings => shown::<EmbeddingEvent>(bytes),
        Topic::MemoryEvents => shown::<MemoryEvent>(bytes),
        Topic::ProjectsCommands => shown::<ProjectCommand>(bytes),
        Topic::ProjectsEvents => shown::<ProjectEvent>(bytes),
        Topic::Tokens => shown::<TokenEvent>(bytes),
        Topic::ToolsCalls => shown::<ToolCall>(bytes),
        Topic::ToolsResults => shown::<ToolAnswer>(bytes),
        Topic::Documents => shown::<DocumentMessage>(bytes),
        Topic::FinetuneCommands => shown::<FinetuneCommand>(bytes),
        Topic::FinetuneEvents => shown::<FinetuneEvent>(bytes),
        Topic::Canvases => shown::<CanvasEvent>(bytes),
    }
}

#[test]
fn every_record_survives_writing_and_reading() {
    for (record, bytes, value) in samples() {
        assert_eq!(decode(&bytes), value, "{record}");
    }
}

#[test]
fn golden_bytes_of_every_stored_version_are_read() {
    for schema in registry::all() {
        let name = schema.record.rsplit('.').next().unwrap();
        let (bin, txt) = (
            golden().join(format!("{name}.v{}.bin", schema.version)),
            golden().join(format!("{name}.v{}.txt", schema.version)),
        );
        if !bin.exists() && std::env::var_os("UPDATE_GOLDEN").is_some() {
            let (_, bytes, value) =
                samples().into_iter().find(|(record, ..)| *record == schema.record).expect("a sample of every record");
            std::fs::write(&bin, bytes).unwrap();
            std::fs::write(&txt, value).unwrap();
        }
        let bytes = std::fs::read(&bin).unwrap_or_else(|e| {
            panic!("{}: {e}; write it with UPDATE_GOLDEN=1 cargo test -p riverrun-schemas", bin.display())
        });
        assert_eq!(decode(&bytes), std::fs::read_to_string(&txt).unwrap(), "{}", bin.display());
    }
}
