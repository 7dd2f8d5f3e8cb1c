//! The analyzers: one file each, from the files of a copy to findings. They run side by side and execute nothing of the project.

use std::time::Instant;

use bytes::Bytes;
use riverrun_agents::tools::sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use crate::copy::Files;
use crate::finding::Finding;
use crate::language::Language;
use crate::progress::Progress;
use crate::settings::ProjectSettings;
use crate::surface::{Surface, surface};

mod advisories;
mod dead_code;
mod declared_packages;
mod dependencies;
mod external;
mod import_graph;
mod leakage;
mod licences;
mod node_packages;
mod package_licences;
mod packages;
mod python_flow;
mod python_packages;
mod script_imports;
mod secrets;
mod spdx;
mod syntax;
mod undeclared_go;
mod undeclared_rust;

pub(crate) use external::{KnownTool, known_tools};
pub use package_licences::LicenceTable;
pub(crate) use package_licences::is_vendored;

/// Most findings of one analyzer; what is beyond is counted and left out.
pub const MAX_FINDINGS: usize = 5_000;

/// Rules that say nothing without the other files of a project.
const NEEDS_PROJECT: [&str; 3] = [dead_code::PRIVATE, dead_code::PUBLIC, "unused-dependency"];

/// A file larger than this is not parsed: 2 MiB. It is generated or data.
const MAX_PARSED: usize = 2 << 20;

/// What an analyzer did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRun {
    /// Its name.
    pub name: String,
    /// `ran`, `missing`, `failed` or `skipped`.
    pub status: String,
    /// Findings.
    pub findings: usize,
    /// How long it took.
    pub took_ms: u64,
    /// Why it did not run, or what is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What to do then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl ToolRun {
    /// One that did its work.
    pub fn ran(name: &str, findings: usize) -> Self {
        Self { name: name.to_owned(), status: "ran".to_owned(), findings, took_ms: 0, detail: None, fix: None }
    }

    /// Whether it did its work: without that it says nothing of the project.
    pub fn has_run(&self) -> bool {
        self.status == "ran"
    }
}

/// What all of them found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analyzed {
    /// Findings in no order.
    pub findings: Vec<Finding>,
    /// What each analyzer did.
    pub tools: Vec<ToolRun>,
    /// Whether findings were left out.
    pub truncated: bool,
    /// Complexity of files whose syntax is known.
    pub complexity: std::collections::BTreeMap<String, usize>,
    /// What the project offers to others.
    pub surface: Surface,
}

/// A file that can be parsed, with its language.
pub(crate) fn parsed(files: &Files) -> impl Iterator<Item = (&str, Language, &[u8])> {
    files
        .iter()
        .filter(|(_, content)| content.len() <= MAX_PARSED)
        .filter_map(|(path, content)| Some((path.as_str(), Language::of(path)?, content.as_ref())))
}

/// What the analyzers that only read find. Blocks.
pub fn deterministic(files: &Files) -> Analyzed {
    reading(files, &LicenceTable::default(), &Progress::default())
}

/// The same, with a table of licences.
fn reading(files: &Files, table: &LicenceTable, progress: &Progress) -> Analyzed {
    type Analyzer<'a> = &'a (dyn Fn(&Files) -> Vec<Finding> + Sync);
    let licences = |files: &Files| licences::analyze(files, table);
    let all: [(&str, Analyzer<'_>); 7] = [
        ("syntax", &syntax::analyze),
        ("dead-code", &dead_code::analyze),
        ("dependencies", &dependencies::analyze),
        ("leakage", &leakage::analyze),
        ("imports", &import_graph::analyze),
        ("licences", &licences),
        ("secrets", &secrets::analyze),
    ];
    progress.expect(all.len());
    let (runs, complexity, offered) = std::thread::scope(|scope| {
        let complexity = scope.spawn(|| syntax::complexity(files));
        let offered = scope.spawn(|| surface(files));
        let started: Vec<_> = all
            .iter()
            .map(|(name, analyze)| {
                let work = move || {
                    let begun = Instant::now();
                    let found = analyze(files);
                    progress.step();
                    (found, u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
                };
                (*name, scope.spawn(work))
            })
            .collect();
        let runs: Vec<(&str, Option<Vec<Finding>>, u64)> = started
            .into_iter()
            .map(|(name, thread)| match thread.join() {
                Ok((found, took_ms)) => (name, Some(found), took_ms),
                Err(_) => (name, None, 0),
            })
            .collect();
        // Figures that break off leave the findings standing.
        (runs, complexity.join().unwrap_or_default(), offered.join().unwrap_or_default())
    });
    let mut analyzed = Analyzed { complexity, surface: offered, ..Analyzed::default() };
    for (name, found, took_ms) in runs {
        let failed = found.is_none();
        analyzed.take(name, found.unwrap_or_default(), took_ms);
        if let (true, Some(run)) = (failed, analyzed.tools.last_mut()) {
            run.status = "failed".to_owned();
            run.detail = Some("the analyzer broke off; this is a defect".to_owned());
        }
    }
    analyzed
}

/// The same and what installed programs say, in a sandbox; what does not run is told in the report. Counts the analyzers.
pub async fn analyze(
    files: Files,
    sandbox: Option<&Sandbox>,
    settings: &ProjectSettings,
    progress: &Progress,
) -> Analyzed {
    whole(files, external::Reads::Projects, (sandbox, settings), progress).await
}

/// What can be told of one file without the others: by our own analyzers, and by linters that look at one file at a time.
pub(crate) async fn of_file(
    file: &str,
    content: &Bytes,
    sandbox: Option<&Sandbox>,
    settings: &ProjectSettings,
) -> Analyzed {
    let settings = ProjectSettings { advisories: None, licences: None, ..settings.clone() };
    let files = Files::from([(file.to_owned(), content.clone())]);
    let mut found = whole(files, external::Reads::Files, (sandbox, &settings), &Progress::default()).await;
    // Whether others use a name can't be told from one file.
    found.findings.retain(|one| !NEEDS_PROJECT.contains(&one.rule.as_str()));
    found
}

async fn whole(
    files: Files,
    reads: external::Reads,
    (sandbox, settings): (Option<&Sandbox>, &ProjectSettings),
    progress: &Progress,
) -> Analyzed {
    // The versions, which are looked up before ours begin.
    progress.expect(1);
    let counted = progress.clone();
    let (folder, table) = (settings.advisories.clone(), settings.licences.clone());
    let own = files.clone();
    let work = tokio::task::spawn_blocking(move || {
        let begun = Instant::now();
        let (mut run, found) = advisories::analyze(&own, folder.as_deref());
        run.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        counted.step();
        let (table, unread) = match LicenceTable::load(table.as_deref()) {
            Ok(table) => (table, None),
            Err(why) => (LicenceTable::default(), Some(why)),
        };
        let mut analyzed = reading(&own, &table, &counted);
        let licences = analyzed.tools.iter_mut().find(|tool| tool.name == "licences");
        if let (Some(licences), Some(why)) = (licences, unread) {
            licences.detail = Some(format!("the table of licences is not used: {why}"));
            licences.fix = Some("correct the file that RIVERRUN_PROJECT_LICENCES names".to_owned());
        }
        (analyzed, (run, found))
    });
    // Ours and those of others side by side.
    let (external, work) = tokio::join!(external::analyze(&files, reads, (sandbox, settings), progress), work);
    let (mut analyzed, versions) = match work {
        Ok((analyzed, versions)) => (analyzed, Some(versions)),
        Err(_) => (Analyzed::default(), None),
    };
    for (mut run, mut found) in versions.into_iter().chain(external) {
        analyzed.truncated |= found.len() > MAX_FINDINGS;
        found.truncate(MAX_FINDINGS);
        run.findings = found.len();
        analyzed.findings.extend(found);
        analyzed.tools.push(run);
    }
    analyzed
}

impl Analyzed {
    fn take(&mut self, name: &str, mut found: Vec<Finding>, took_ms: u64) {
        self.truncated |= found.len() > MAX_FINDINGS;
        found.truncate(MAX_FINDINGS);
        self.tools.push(ToolRun { took_ms, ..ToolRun::ran(name, found.len()) });
        self.findings.extend(found);
    }
}
