//! The analyzers: one file each, from the files of a copy to findings. They run side by side and execute nothing of the project.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::time::Instant;

use riverrun_agents::tools::sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use crate::copy::Files;
use crate::finding::{Counts, Finding, sort_worst_first};
use crate::imports::Imports;
use crate::language::Language;
use crate::progress::Progress;
use crate::settings::ProjectSettings;
use crate::surface::{Surface, surface};
use limits::too_large;

mod advisories;
mod broken_manifests;
mod cvss;
mod dead_code;
mod declared_packages;
mod dependencies;
mod external;
mod go_imports;
mod import_graph;
mod leakage;
mod licences;
mod limits;
mod node_locks;
mod node_packages;
mod package_licences;
mod packages;
mod python_manifests;
mod python_packages;
mod rust_imports;
mod script_imports;
mod secrets;
mod snapshot;
mod spdx;
mod syntax;
mod undeclared_go;
mod undeclared_rust;

use external::Reads;
pub(crate) use external::is_build_error;
pub(crate) use external::{KnownTool, known_tools};
pub use package_licences::LicenceTable;
pub(crate) use package_licences::is_vendored;
pub(crate) use secrets::{TOOL as SECRETS, secrets_in};
pub(crate) use snapshot::Snapshot;

/// Findings of one analyzer that a report lists, the worst; what is beyond is counted.
pub const MAX_FINDINGS: usize = 5_000;

/// Our own, but for the look-up of versions, in the order of a report.
const OWN: [&str; 7] = ["syntax", "dead-code", "dependencies", leakage::TOOL, "imports", "licences", secrets::TOOL];
/// Analyzers that look at one file at a time.
const BY_FILE: [&str; 2] = [leakage::TOOL, secrets::TOOL];

/// What an analyzer did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRun {
    /// Its name.
    pub name: String,
    /// `ran`, `missing`, `failed` or `skipped`.
    pub status: String,
    /// Findings, those too that a report does not list.
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

    /// One that did not come to its end.
    fn broken_off(name: &str) -> Self {
        let detail = Some("the analyzer broke off; this is a defect".to_owned());
        Self { status: "failed".to_owned(), detail, ..Self::ran(name, 0) }
    }

    /// Adds to what there is to say of it.
    fn tell(&mut self, what: String) {
        self.detail = Some(match self.detail.take() {
            Some(known) => format!("{known}; {what}"),
            None => what,
        });
    }

    /// Whether it did its work: without that it says nothing of the project.
    pub fn has_run(&self) -> bool {
        self.status == "ran"
    }
}

/// What all of them found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Analyzed {
    /// Findings in no order: the worst [`MAX_FINDINGS`] of each analyzer.
    pub findings: Vec<Finding>,
    /// The others.
    pub left_out: Counts,
    /// Errors with which a build ended that a linter asked for; where one file was looked at those in other files, too.
    pub build_errors: usize,
    /// What each analyzer did.
    pub tools: Vec<ToolRun>,
    /// Complexity of files whose syntax is known.
    pub complexity: BTreeMap<String, usize>,
    /// What the project offers to others.
    pub surface: Surface,
    /// Which files import which.
    pub imports: Imports,
}

/// What the analyzers that only read find. Blocks.
pub fn deterministic(files: &Files) -> Analyzed {
    reading(files, None, &LicenceTable::default(), &Progress::default())
}

/// The same, with a table of licences; with a focus only what concerns that file.
fn reading(files: &Files, focus: Option<&str>, table: &LicenceTable, progress: &Progress) -> Analyzed {
    type Analyzer<'a> = &'a (dyn Fn(&Snapshot<'_>) -> Vec<Finding> + Sync);
    let licences = |snapshot: &Snapshot<'_>| licences::analyze(snapshot.files(), table);
    let secrets = |snapshot: &Snapshot<'_>| secrets::analyze(snapshot.files());
    let complexity = OnceLock::new();
    let syntax = |snapshot: &Snapshot<'_>| {
        let (found, ways) = syntax::analyze(snapshot);
        // It is set once.
        let _ = complexity.set(ways);
        found
    };
    let graph = OnceLock::new();
    let imports = |snapshot: &Snapshot<'_>| {
        let (found, all) = import_graph::analyze(snapshot);
        // It is set once.
        let _ = graph.set(all);
        found
    };
    let ours: [Analyzer<'_>; OWN.len()] =
        [&syntax, &dead_code::analyze, &dependencies::analyze, &leakage::analyze, &imports, &licences, &secrets];
    progress.expect(OWN.len());
    let lone = focus.map(|file| only(file, files));
    let (snapshot, lone) = (Snapshot::new(files), lone.as_ref().map(Snapshot::new));
    let by_file = lone.as_ref().unwrap_or(&snapshot);
    let (runs, offered) = std::thread::scope(|scope| {
        // Figures are those of a whole project.
        let offered = scope.spawn(|| if focus.is_none() { surface(&snapshot) } else { Surface::default() });
        let started: Vec<_> = OWN
            .into_iter()
            .zip(ours)
            .map(|(name, analyze)| {
                let seen = if BY_FILE.contains(&name) { by_file } else { &snapshot };
                let work = move || {
                    let begun = Instant::now();
                    let found = analyze(seen);
                    progress.step();
                    (found, u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX))
                };
                (name, scope.spawn(work))
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
        (runs, offered.join().unwrap_or_default())
    });
    let complexity = complexity.into_inner().unwrap_or_default();
    // One that broke off leaves none.
    let imports = graph.into_inner().unwrap_or_default();
    let mut analyzed = Analyzed { complexity, surface: offered, imports, ..Analyzed::default() };
    for (name, found, took_ms) in runs {
        let run = match &found {
            Some(_) => ToolRun { took_ms, detail: too_large(name, files), ..ToolRun::ran(name, 0) },
            None => ToolRun::broken_off(name),
        };
        let mut found = found.unwrap_or_default();
        found.retain(|one| focus.is_none_or(|file| one.concerns(file)));
        analyzed.take(run, found);
    }
    analyzed
}

/// One file of a copy.
fn only(file: &str, files: &Files) -> Files {
    files.get_key_value(file).map(|(path, content)| (path.clone(), content.clone())).into_iter().collect()
}

/// The same and what installed programs say, in a sandbox; what does not run is told in the report. Counts the analyzers.
pub async fn analyze(
    files: Files,
    sandbox: Option<&Sandbox>,
    settings: &ProjectSettings,
    progress: &Progress,
) -> Analyzed {
    gathered(files, None, (sandbox, settings), progress).await
}

/// What concerns one file: what our own analyzers and type checkers find in it or elsewhere about it, with the whole project at hand,
/// and what linters say that look at one file at a time. Of public names that nothing uses only those that `may_remove` has.
pub(crate) async fn of_file(
    (file, may_remove): (&str, &[String]),
    files: &Files,
    sandbox: Option<&Sandbox>,
    settings: &ProjectSettings,
) -> Analyzed {
    let settings = ProjectSettings { advisories: None, licences: None, ..settings.clone() };
    let mut about = gathered(files.clone(), Some(file), (sandbox, &settings), &Progress::default()).await;
    // A rewrite keeps the other public names, so that it can't mend one that nobody uses.
    about.findings.retain(|one| one.rule != dead_code::PUBLIC || dead_code::is_about(one, may_remove));
    about
}

async fn gathered(
    files: Files,
    focus: Option<&str>,
    (sandbox, settings): (Option<&Sandbox>, &ProjectSettings),
    progress: &Progress,
) -> Analyzed {
    // The versions, which are looked up beside ours.
    progress.expect(1);
    let counted = progress.clone();
    let (folder, table) = (settings.advisories.clone(), settings.licences.clone());
    let (own, file) = (files.clone(), focus.map(str::to_owned));
    let work = tokio::task::spawn_blocking(move || {
        let look_up = || {
            let begun = Instant::now();
            let (mut run, found) = advisories::analyze(&own, folder.as_deref());
            run.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
            counted.step();
            (run, found)
        };
        let (table, unread) = match LicenceTable::load(table.as_deref()) {
            Ok(table) => (table, None),
            Err(why) => (LicenceTable::default(), Some(why)),
        };
        // An index of versions may be hundreds of thousands of files: nobody waits for it who does not need it.
        let (mut analyzed, versions) = std::thread::scope(|scope| {
            let versions = scope.spawn(look_up);
            let analyzed = reading(&own, file.as_deref(), &table, &counted);
            (analyzed, versions.join())
        });
        let versions = versions.unwrap_or_else(|_| (ToolRun::broken_off(advisories::TOOL), Vec::new()));
        let licences = analyzed.tools.iter_mut().find(|tool| tool.name == "licences");
        if let (Some(licences), Some(why)) = (licences, unread) {
            licences.tell(format!("the table of licences is not used: {why}"));
            licences.fix = Some("correct the file that RIVERRUN_PROJECT_LICENCES names".to_owned());
        }
        (analyzed, versions)
    });
    // Ours and those of others side by side.
    let (external, work) = tokio::join!(installed(&files, focus, (sandbox, settings), progress), work);
    let (mut analyzed, versions) = match work {
        Ok((analyzed, versions)) => (analyzed, Some(versions)),
        Err(_) => (nothing_of_ours(), None),
    };
    for (run, mut found) in versions.into_iter().chain(external) {
        analyzed.build_errors += found.iter().filter(|one| is_build_error(one)).count();
        found.retain(|one| focus.is_none_or(|file| one.concerns(file)));
        analyzed.take(run, found);
    }
    analyzed
}

/// What is left where ours broke off together: none of them has run, and the project is not clean.
fn nothing_of_ours() -> Analyzed {
    let tools = OWN.into_iter().chain([advisories::TOOL]).map(ToolRun::broken_off).collect();
    Analyzed { tools, ..Analyzed::default() }
}

/// What installed programs find; with a focus those that are of use for that file.
async fn installed(
    files: &Files,
    focus: Option<&str>,
    (sandbox, settings): (Option<&Sandbox>, &ProjectSettings),
    progress: &Progress,
) -> Vec<(ToolRun, Vec<Finding>)> {
    let Some(file) = focus else {
        return external::analyze(files, Reads::Projects, (sandbox, settings), progress).await;
    };
    let Some(language) = Language::of(file) else { return Vec::new() };
    let lone = only(file, files);
    let (mut runs, around) = tokio::join!(
        external::analyze(&lone, Reads::Files, (sandbox, settings), progress),
        external::analyze(files, Reads::Around(language), (sandbox, settings), progress),
    );
    runs.extend(around);
    runs
}

impl Analyzed {
    /// Takes what an analyzer found: the worst, and how many there are besides.
    fn take(&mut self, mut run: ToolRun, mut found: Vec<Finding>) {
        run.findings = found.len();
        if found.len() > MAX_FINDINGS {
            sort_worst_first(&mut found);
            let beyond = found.split_off(MAX_FINDINGS);
            run.tell(format!("the worst {MAX_FINDINGS} findings are listed, {} are left out", beyond.len()));
            beyond.iter().for_each(|one| self.left_out.add(one));
        }
        self.findings.extend(found);
        self.tools.push(run);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::limits::MAX_PARSED;
    use super::*;
    use crate::finding::Severity;
    use crate::report::Report;

    /// As a linter answers: in the order of the files, the worst at the end.
    fn found(low: usize, high: usize) -> Vec<Finding> {
        let of = |severity: Severity, number: usize| {
            let file = format!("f{}.py", number % 7);
            Finding::new(("ruff", "r", severity), (file.as_str(), number + 1, 1), format!("m{number}x"), "")
        };
        let mild = (0..low).map(|number| of(Severity::Low, number));
        mild.chain((low..low + high).map(|number| of(Severity::High, number))).collect()
    }

    #[test]
    fn given_more_findings_of_a_tool_than_a_report_lists_when_they_are_taken_then_the_worst_stay_and_all_are_counted() {
        let mut analyzed = Analyzed::default();
        let run = ToolRun { detail: Some("it was asked twice".to_owned()), ..ToolRun::ran("ruff", 0) };
        analyzed.take(run, found(MAX_FINDINGS + 2, 5));
        analyzed.take(ToolRun::ran("mypy", 0), Vec::new());
        let report = Report::new(&Files::new(), analyzed, 1);

        assert_eq!((report.findings.len(), report.findings_truncated), (MAX_FINDINGS, true));
        assert!(report.findings[..5].iter().all(|one| one.severity == Severity::High), "the worst are listed");
        let summary = &report.summary;
        assert_eq!((summary.findings, summary.by_tool["ruff"]), (MAX_FINDINGS + 7, MAX_FINDINGS + 7));
        assert_eq!((summary.by_severity["high"], summary.by_severity["low"]), (5, MAX_FINDINGS + 2));
        let run = &report.tools[0];
        let told = "it was asked twice; the worst 5000 findings are listed, 7 are left out";
        assert_eq!((run.findings, run.detail.as_deref()), (MAX_FINDINGS + 7, Some(told)));
        let sarif = report.sarif();
        assert_eq!(sarif["runs"][0]["results"].as_array().unwrap().len(), MAX_FINDINGS);
        let notifications = &sarif["runs"][0]["invocations"][0]["toolExecutionNotifications"];
        assert_eq!(notifications[0]["message"]["text"], told);
        assert!(sarif["runs"][1].get("invocations").is_none(), "nothing is left out there");
    }

    #[test]
    fn given_as_many_findings_as_a_report_lists_when_they_are_taken_then_nothing_is_said_to_be_left_out() {
        let mut analyzed = Analyzed::default();
        analyzed.take(ToolRun::ran("ruff", 0), found(MAX_FINDINGS, 0));
        let report = Report::new(&Files::new(), analyzed, 1);
        assert_eq!((report.findings.len(), report.findings_truncated), (MAX_FINDINGS, false));
        assert_eq!(report.tools[0].detail, None);
    }

    #[tokio::test]
    async fn given_findings_elsewhere_about_a_file_when_it_is_looked_at_then_they_are_its_own_and_uses_elsewhere_count()
    {
        let body = "    x = 1\n    y = 2\n    z = 3\n    u = 4\n    v = 5\n    return x + y + z + u + v\n";
        let files: Files = [
            ("a.py", format!("import b\n\n\ndef f():\n{body}\n\nb.g()\n")),
            ("b.py", format!("import a\nimport os\nfrom m import shared\n\n\ndef g():\n{body}\n\na.f()\n")),
            ("c.py", "import json\nfrom b import shared\nprint(shared)\n".to_owned()),
        ]
        .into_iter()
        .map(|(path, text)| (path.to_owned(), Bytes::from(text)))
        .collect();
        let both = [("duplicate-code", "b.py"), ("import-cycle", "a.py")];
        for (file, own) in [("a.py", vec![]), ("b.py", vec![("unused-import", "b.py")])] {
            let about = of_file((file, &[]), &files, None, &ProjectSettings::default()).await;
            let mut found: Vec<(&str, &str)> = about
                .findings
                .iter()
                .filter(|one| one.tool != "licences")
                .map(|one| (one.rule.as_str(), one.file.as_str()))
                .collect();
            found.sort_unstable();
            assert_eq!(found, [both.to_vec(), own].concat(), "{file}");
        }
    }

    #[test]
    fn given_analyzers_that_broke_off_together_when_a_report_is_made_then_each_of_them_has_failed_and_sarif_says_so() {
        let files = Files::from([("a.py".to_owned(), "y = 1\n".into())]);
        let ran: Vec<String> = deterministic(&files).tools.into_iter().map(|run| run.name).collect();
        assert_eq!(ran, OWN, "each that runs has its place in the list");
        let report = Report::new(&files, nothing_of_ours(), 1);
        let failed: Vec<&str> =
            report.tools.iter().filter(|run| run.status == "failed").map(|run| run.name.as_str()).collect();
        assert_eq!(failed, [&OWN[..], &[advisories::TOOL][..]].concat());
        let sarif = report.sarif();
        let runs = sarif["runs"].as_array().unwrap();
        let says_so = |run: &serde_json::Value| run["invocations"][0]["executionSuccessful"] == false;
        assert!(runs.len() == failed.len() && runs.iter().all(says_so), "{sarif}");
    }

    #[tokio::test]
    async fn given_public_names_that_nothing_uses_when_some_may_go_then_findings_are_about_those_alone() {
        let text = "def f(): return 1\n\n\ndef g(): return 2\n";
        let files = Files::from([("a.py".to_owned(), Bytes::from(text))]);
        for (may_remove, lines) in [(vec![], vec![]), (vec!["g".to_owned()], vec![4])] {
            let about = of_file(("a.py", &may_remove), &files, None, &ProjectSettings::default()).await;
            let unused = about.findings.iter().filter(|one| one.rule == dead_code::PUBLIC);
            assert_eq!(unused.map(|one| one.line).collect::<Vec<usize>>(), lines, "{may_remove:?}");
        }
    }

    #[test]
    fn given_a_source_that_is_too_large_when_a_project_is_analyzed_then_the_report_and_its_sarif_say_that_it_was_left_out()
     {
        let large = "x = 1\n".repeat(MAX_PARSED / 6 + 1);
        let files = Files::from([("a.py".to_owned(), "y = 1\n".into()), ("b.py".to_owned(), large.into())]);
        let report = Report::new(&files, deterministic(&files), 1);
        let told = "1 file left out: larger than 2 MiB";
        let detail = |tool: &str| report.tools.iter().find(|run| run.name == tool).unwrap().detail.as_deref();
        assert_eq!((detail("syntax"), detail("leakage"), detail("secrets")), (Some(told), Some(told), None));
        assert!(report.sarif().to_string().contains(told));
    }
}
