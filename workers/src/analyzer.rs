//! The analyzer: imports code into copies, analyzes and improves them, and changes copies.
//!
//! What a project is, is folded from its events before every command, never asked of a read model. A command that was answered
//! before gets no second answer.

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use riverrun_agents::tools::sandbox::Sandbox;
use riverrun_knowledge::web::GuardedClient;
use riverrun_knowledge::{LanguageModels, charged_to};
use riverrun_log::{BlobStore, Outgoing};
use riverrun_models::{Account, Purpose};
use riverrun_projects::copy::{CopyStore, Executables, Files};
use riverrun_projects::improve::{Rewrite, Task, improve};
use riverrun_projects::language::Language;
use riverrun_projects::masks::Masks;
use riverrun_projects::own_tests::{self, TestRuns};
use riverrun_projects::progress::Progress;
use riverrun_projects::report::lines;
use riverrun_projects::review::{self, review};
use riverrun_projects::surface::SurfaceChange;
use riverrun_projects::{ProjectError, ProjectSettings, Report, analyzers, aside, import};
use riverrun_schemas::projects::{
    AnalyzeProject, ImportProject, ImproveFile, ProjectAnalyzed, ProjectCommand, ProjectEvent, ProjectImported,
    ProjectRemoved, ProposalMade, RemoveProject,
};
use riverrun_schemas::{Failure, Namespace, now_ms};
use serde_json::json;

use crate::runtime::{Context, Delivery, Lanes, WorkError, Worker};
use answers::{failed, progressed, subject};
use progress::Teller;
use state::{State, fold};

mod answers;
mod changes;
mod progress;
mod state;

const NAME: &str = "analyzer";
/// Projects that are worked on at a time.
const PARALLEL: usize = 4;

/// Imports, analyzes and changes projects.
pub struct Analyzer {
    copies: CopyStore,
    blobs: Arc<dyn BlobStore>,
    models: Arc<dyn LanguageModels>,
    client: Option<GuardedClient>,
    sandbox: Option<Sandbox>,
    settings: ProjectSettings,
}

impl Analyzer {
    /// Without a client no repository is cloned, without a sandbox no program is started.
    pub fn new(
        blobs: Arc<dyn BlobStore>,
        models: Arc<dyn LanguageModels>,
        client: Option<GuardedClient>,
        sandbox: Option<Sandbox>,
        settings: ProjectSettings,
    ) -> Self {
        Self { copies: CopyStore::new(blobs.clone()), blobs, models, client, sandbox, settings }
    }

    /// The models, charged to a project's namespace.
    fn models_for(&self, namespace: &Namespace) -> Arc<dyn LanguageModels> {
        charged_to(&self.models, Account::of(namespace, Purpose::Project))
    }

    async fn import(&self, e: &ImportProject, progress: &Progress) -> Result<ProjectEvent, ProjectError> {
        let read = match &e.content {
            Some(blob) => {
                let (source, bytes, progress) = (e.source.clone(), self.blobs.get(blob).await?, progress.clone());
                aside("unpacking the archive", move || import::unpack(&source, &bytes, &progress)).await??
            }
            None => import::read(&e.source, self.client.as_ref(), progress).await?,
        };
        let (blob, tree) = self.copies.keep(&read.files, &read.executables).await?;
        Ok(ProjectImported {
            project_id: e.project_id,
            namespace: e.namespace.clone(),
            name: e.name.clone(),
            source: e.source.clone(),
            source_sha256: read.sha256,
            tree: blob,
            files: count(tree.entries.len()),
            size_bytes: i64::try_from(tree.size_bytes()).unwrap_or(i64::MAX),
            skipped: count(read.skipped),
            languages_json: languages(&read.files),
            at: now_ms(),
        }
        .into())
    }

    async fn analyze(
        &self,
        e: &AnalyzeProject,
        state: &State,
        progress: &Progress,
    ) -> Result<ProjectEvent, ProjectError> {
        let begun = Instant::now();
        progress.expect(usize::from(e.review));
        let tree = self.copies.tree(state.tree()?).await?;
        let files = self.copies.files(&tree).await?;
        let analyzed = analyzers::analyze(files.clone(), self.sandbox.as_ref(), &self.settings, progress).await;
        let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let counted = files.clone();
        let mut report = aside("counting what was found", move || Report::new(&counted, analyzed, took_ms)).await?;
        report.surface_change = self.surface_change(&report, state).await;
        if e.review {
            let begun = Instant::now();
            let reviewed = review(self.models_for(&e.namespace).as_ref(), e.model.as_deref(), &files, &report).await;
            let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            let mut run = analyzers::ToolRun { took_ms, ..analyzers::ToolRun::ran(review::TOOL, 0) };
            match reviewed {
                Ok(review) => report.review = review,
                // The findings stand without it.
                Err(error) => {
                    let failure = error.failure();
                    run.status = "failed".to_owned();
                    run.detail = Some(failure.message);
                    run.fix = failure.hint.or_else(|| Some("leave it out: --no-review".to_owned()));
                }
            }
            report.tools.push(run);
            progress.step();
        }
        let counts = json!({ "by_severity": report.summary.by_severity, "metrics": report.metrics });
        // Texts and numbers: can't fail.
        let body = serde_json::to_vec(&report).unwrap_or_default();
        Ok(ProjectAnalyzed {
            project_id: e.project_id,
            namespace: e.namespace.clone(),
            analysis_id: e.analysis_id,
            report: self.copies.put(body.into()).await?,
            findings: count(report.summary.findings),
            counts_json: counts.to_string(),
            at: now_ms(),
        }
        .into())
    }

    /// What became of the names that the project offers since its last analysis. When that one can't be read any more, nothing is known.
    async fn surface_change(&self, report: &Report, state: &State) -> Option<SurfaceChange> {
        let earlier = self.blobs.get(state.report.as_ref()?).await.ok()?;
        report.surface_since(&serde_json::from_slice(&earlier).ok()?)
    }

    async fn propose(&self, e: &ImproveFile, state: &State) -> Result<ProjectEvent, ProjectError> {
        let tree = self.copies.tree(state.tree()?).await?;
        let files = self.copies.files(&tree).await?;
        let before_sha256 = tree.entry(&e.file)?.sha256.clone();
        let task = Task {
            file: e.file.clone(),
            instruction: e.instruction.clone(),
            model: e.model.clone(),
            candidates: e.candidates,
            may_remove: e.may_remove.clone(),
        };
        if !e.tests.is_empty() {
            own_tests::check(&e.tests, &self.settings.programs)?;
        }
        let settings = (self.sandbox.as_ref(), &self.settings);
        let made = improve(self.models_for(&e.namespace).as_ref(), &task, &files, settings).await?;
        let (number, tests) = match e.tests.is_empty() || made.rewrites.is_empty() {
            true => (0, None),
            false => {
                let (number, runs) = self.test(e, tree.executables(), files, &made.rewrites).await?;
                (number, Some(runs))
            }
        };
        let chosen = made.rewrites.into_iter().nth(number);
        let breaks = tests.as_ref().is_some_and(TestRuns::breaks);
        let has_fewer = chosen.as_ref().is_some_and(|rewrite| rewrite.findings < made.findings_before);
        let note = match &chosen {
            None => made.note,
            Some(_) if breaks => {
                Some("the project's tests pass without it and fail with it: do not take it as it is".to_owned())
            }
            Some(_) if !has_fewer => Some("it has no fewer findings than before: look whether it helps".to_owned()),
            Some(_) if number > 0 => Some(format!(
                "{number} with fewer findings, or as many and a shorter diff, were left out: the project's tests fail with them"
            )),
            Some(_) => None,
        };
        let removed = chosen.as_ref().map(|rewrite| rewrite.removed.as_slice()).unwrap_or_default();
        let note = with_masked(with_removed(note, removed), made.masked);
        let improves = has_fewer && !breaks;
        let findings_after = chosen.as_ref().map_or(made.findings_before, |rewrite| rewrite.findings);
        let (after, diff) = match chosen {
            Some(rewrite) => (Some(self.copies.put(rewrite.content.into()).await?), rewrite.diff),
            None => (None, String::new()),
        };
        Ok(ProposalMade {
            project_id: e.project_id,
            namespace: e.namespace.clone(),
            proposal_id: e.proposal_id,
            file: e.file.clone(),
            before_sha256,
            after,
            diff,
            findings_before: count(made.findings_before),
            findings_after: count(findings_after),
            improves,
            note,
            model: made.model,
            prompt_tokens: i64::try_from(made.prompt_tokens).unwrap_or(i64::MAX),
            completion_tokens: i64::try_from(made.completion_tokens).unwrap_or(i64::MAX),
            // Texts and numbers: can't fail.
            tests_json: tests.and_then(|runs| serde_json::to_string(&runs).ok()),
            at: now_ms(),
        }
        .into())
    }

    /// The project's own tests, without and with rewrites, and the number of the one that they stand.
    async fn test(
        &self,
        e: &ImproveFile,
        executables: Executables,
        files: Files,
        rewrites: &[Rewrite],
    ) -> Result<(usize, TestRuns), ProjectError> {
        let Some(sandbox) = &self.sandbox else {
            return Err(ProjectError::refused(
                "tests_not_run",
                "this process has no sandbox",
                "use the riverrun binary",
            ));
        };
        // A test that fails shows what it compared.
        let texts = files.clone();
        let masks = aside("looking for secrets", move || Masks::of_all(&texts)).await?;
        let start = (sandbox, &self.settings.programs);
        let contents: Vec<&[u8]> = rewrites.iter().map(|rewrite| rewrite.content.as_slice()).collect();
        let rewrites = (e.file.as_str(), contents.as_slice());
        let (number, mut runs) = own_tests::compare(start, &e.tests, (files, &executables), rewrites).await?;
        for run in [&mut runs.before, &mut runs.after] {
            run.output = masks.redact(&run.output).into_owned();
        }
        Ok((number, runs))
    }

    async fn answer(
        &self,
        delivery: &Delivery<ProjectCommand>,
        context: &Context,
    ) -> Result<Option<Outgoing>, WorkError> {
        let cause = &delivery.envelope;
        let state = fold(delivery, context).await?;
        let (phase, about) = subject(&delivery.event);
        // Whatever was asked of a project that is gone needs no answer: nobody can look at it.
        if state.removed && !matches!(delivery.event, ProjectCommand::RemoveProject(_)) {
            return Ok(None);
        }
        let is_import = matches!(delivery.event, ProjectCommand::ImportProject(_));
        if is_import && (state.tree.is_some() || state.failed) || !is_import && state.is_answered(&about) {
            return Ok(None);
        }
        if let Some(begun) = progressed(&delivery.event, (0, 0)) {
            context.producer.send_one(self.outgoing(begun, cause)?).await?;
        }
        let (teller, progress) = (Teller { command: &delivery.event, cause, context }, Progress::default());
        let done = match &delivery.event {
            ProjectCommand::ImportProject(e) => teller.watch(&progress, self.import(e, &progress)).await,
            ProjectCommand::AnalyzeProject(e) => teller.watch(&progress, self.analyze(e, &state, &progress)).await,
            ProjectCommand::ImproveFile(e) => self.propose(e, &state).await,
            ProjectCommand::ApplyProposal(e) => self.write(e, &state).await,
            ProjectCommand::RevertFile(e) => self.revert(e, &state).await,
            ProjectCommand::RemoveProject(e) => Ok(removed(e)),
        };
        let event = match done {
            Ok(event) => event,
            Err(error) if error.retryable() => return Err(WorkError::retry(error.failure().code, &error)),
            Err(error) => failed(&delivery.event, phase, about, error.failure()),
        };
        Ok(Some(self.outgoing(event, cause)?))
    }
}

fn removed(e: &RemoveProject) -> ProjectEvent {
    let (project_id, namespace) = (e.project_id, e.namespace.clone());
    ProjectRemoved { project_id, namespace, change_id: e.change_id, at: now_ms() }.into()
}

/// What there is to say of a proposal, with the public names that it takes out.
fn with_removed(note: Option<String>, removed: &[String]) -> Option<String> {
    if removed.is_empty() {
        return note;
    }
    let told = format!("it takes out {}, which was asked for: what uses that elsewhere breaks", removed.join(", "));
    Some(note.map_or_else(|| told.clone(), |note| format!("{note}; {told}")))
}

/// What there is to say of a proposal, with that the model did not see all of the file.
fn with_masked(note: Option<String>, masked: usize) -> Option<String> {
    if masked == 0 {
        return note;
    }
    let of =
        if masked == 1 { "a secret of the file is".to_owned() } else { format!("{masked} secrets of the file are") };
    let told =
        format!("{of} masked in the diff, and the model did not see it; the copy and its patch have the file as it is");
    Some(note.map_or_else(|| told.clone(), |note| format!("{note}; {told}")))
}

fn count(items: usize) -> i64 {
    i64::try_from(items).unwrap_or(i64::MAX)
}

fn languages(files: &Files) -> String {
    let mut found = std::collections::BTreeMap::<&str, (usize, usize)>::new();
    for (file, content) in files {
        let Some(language) = Language::of(file) else { continue };
        let counts = found.entry(language.name()).or_default();
        counts.0 += 1;
        counts.1 += lines(file, content);
    }
    let list: Vec<_> = found
        .into_iter()
        .map(|(name, (files, lines))| json!({ "name": name, "files": files, "lines": lines }))
        .collect();
    json!(list).to_string()
}

#[async_trait]
impl Worker for Analyzer {
    type Input = ProjectCommand;

    fn name(&self) -> &'static str {
        NAME
    }

    fn lanes(&self) -> Lanes {
        Lanes::PerKey { parallel: PARALLEL, max_batch: 1 }
    }

    async fn handle(&self, batch: &[Delivery<ProjectCommand>], context: &Context) -> Result<Vec<Outgoing>, WorkError> {
        let mut out = Vec::new();
        for delivery in batch {
            out.extend(self.answer(delivery, context).await?);
        }
        Ok(out)
    }

    fn dead(&self, delivery: &Delivery<ProjectCommand>, code: &str, reason: &str) -> Vec<Outgoing> {
        let (phase, about) = subject(&delivery.event);
        let event = failed(&delivery.event, phase, about, Failure::new(code, reason));
        self.outgoing(event, &delivery.envelope).into_iter().collect()
    }
}
