//! What the samples are made of.

use super::*;

pub(super) fn blob() -> BlobRef {
    BlobRef { sha256: "ab".repeat(32), size_bytes: 7, media_type: "text/plain".into() }
}

pub(super) fn request() -> RunRequest {
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

pub(super) fn forked_from() -> ForkedFrom {
    ForkedFrom { run_id: RunId::derive(&["source"]), at_seq: 4 }
}

pub(super) fn steps() -> Vec<Step> {
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
            usage: Some(Usage { prompt_tokens: 10, completion_tokens: 5, cost_usd: None, ..Usage::default() }),
            ..step(1, StepKind::Thought, Some("multiply"), None)
        },
        step(2, StepKind::ToolCall, None, Some(tool(None))),
        step(3, StepKind::ToolResult, None, Some(tool(Some("42")))),
        step(4, StepKind::Compaction, Some("left out\n{\"dropped_steps\":[2,3]}"), None),
        step(5, StepKind::Answer, Some("42 [1]"), None),
    ]
}

pub(super) fn memory(run_id: RunId) -> Vec<MemoryEvent> {
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

pub(super) fn start_finetune() -> StartFinetune {
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

pub(super) fn finetune() -> Vec<FinetuneEvent> {
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
        ModelUsed {
            use_id: EventId::derive(&["golden"]),
            namespace: "team-a".parse().unwrap(),
            session: Some("talk".into()),
            purpose: "memory".into(),
            provider: "openai".into(),
            model: "gpt-4o-mini".into(),
            calls: 2,
            usage: Usage { prompt_tokens: 1_200, completion_tokens: 34, cost_usd: Some(0.25), ..Usage::default() },
            at,
        }
        .into(),
    ]
}

pub(super) fn projects() -> (Vec<ProjectCommand>, Vec<ProjectEvent>) {
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
            may_remove: vec!["may_remove".into()],
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
