//! Programs that others make: linters and type checkers of a table, used where they are installed and allowed, those of the folder of
//! our own ([`crate::tools`]) before those of the `PATH`. They read a temporary folder in the sandbox, side by side, without network.
//! What does not run is said to have not run, never to be clean.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::future::join_all;
use riverrun_agents::tools::sandbox::{Confinement, Finished, Invocation, Sandbox, support};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::ToolRun;
use crate::copy::{Executables, Files};
use crate::finding::Finding;
use crate::folder::{homes, lay_out, on_path, remove};
use crate::language::Language;
use crate::progress::Progress;
use crate::settings::{Programs, ProjectSettings};
use crate::tools::{fix, installed};
use read::Said;
use table::{Again, TOOLS, Tool};

mod elements;
mod read;
mod table;
#[cfg(test)]
mod tests;

/// How long one may take.
const MAX_TIME: Duration = Duration::from_secs(120);
/// Tools that run at a time: each may take a core and some hundred megabytes.
const MAX_AT_ONCE: usize = 3;
/// Most bytes that one may say.
const MAX_OUTPUT: usize = 32 << 20;
/// The rule with which mypy ends when a file does not parse.
const NOT_PARSED: &str = "  [syntax]\n";
/// Files that are no source, and without which modules of Go are none.
const MANIFESTS: [&str; 3] = ["go.mod", "go.sum", "modules.txt"];

/// What the tools are to look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reads {
    /// All files together.
    Projects,
    /// Each by itself: only tools whose judgement needs no other file.
    Files,
    /// All files together, by tools of one language that need the others. What builds the project is one of them: it runs where an
    /// operator allowed it, as in an analysis.
    Around(Language),
}

impl Reads {
    /// Whether a tool is one of them.
    fn takes(self, tool: &Tool) -> bool {
        match self {
            Self::Projects => true,
            Self::Files => tool.by_file,
            Self::Around(language) => !tool.by_file && tool.languages.contains(&language),
        }
    }
}

/// What is to be done about one tool.
enum Plan {
    Run(Start),
    Tell(ToolRun),
}

/// How a tool is started here.
#[derive(Debug, Clone, Default)]
struct Start {
    program: PathBuf,
    /// Arguments that come first.
    first: Vec<String>,
    environment: BTreeMap<String, String>,
    read: Vec<PathBuf>,
    /// Settings of ours.
    config: Option<PathBuf>,
    /// A version in the folder of our own, and not one of the `PATH`.
    is_private: bool,
}

/// A tool of the table, for those who show or install it.
#[derive(Debug, Clone)]
pub(crate) struct KnownTool {
    pub(crate) name: &'static str,
    pub(crate) program: &'static str,
    pub(crate) languages: Vec<&'static str>,
    /// Whether the one of the `PATH` is of no use.
    pub(crate) is_private: bool,
    /// What installs it by hand.
    pub(crate) install: &'static str,
}

/// The tools of the table.
pub(crate) fn known_tools() -> impl Iterator<Item = KnownTool> {
    TOOLS.iter().map(|tool| {
        let mut languages: Vec<&'static str> = tool.languages.iter().map(|language| language.name()).collect();
        languages.dedup();
        let (program, is_private) = (tool.program, tool.is_private);
        KnownTool { name: tool.name, program, languages, is_private, install: tool.install }
    })
}

/// Whether a finding is an error with which a build ends, before the linter that asked for it looks at the rest.
pub(crate) fn is_build_error(one: &Finding) -> bool {
    table::is_error(&one.rule) && TOOLS.iter().any(|tool| tool.executes && tool.name == one.tool)
}

/// What a call works with.
struct Surroundings<'a> {
    sandbox: Option<&'a Sandbox>,
    programs: &'a Programs,
    /// Where tools are looked for before the `PATH`.
    tools: Option<&'a Path>,
}

pub(super) async fn analyze(
    files: &Files,
    reads: Reads,
    (sandbox, settings): (Option<&Sandbox>, &ProjectSettings),
    progress: &Progress,
) -> Vec<(ToolRun, Vec<Finding>)> {
    let around = Surroundings { sandbox, programs: &settings.programs, tools: settings.tools.as_deref() };
    let languages: BTreeSet<Language> = files.keys().filter_map(|path| Language::of(path)).collect();
    let rank = |tool: &Tool| {
        let start = located(tool, around.tools).filter(|_| around.programs.allows(tool.program))?;
        Some(u8::from(!start.is_private))
    };
    let chosen = choose(&languages, rank).into_iter().filter(|tool| reads.takes(tool));
    let plans: Vec<(&Tool, Plan)> = chosen.map(|tool| (tool, plan(tool, files, &around))).collect();
    progress.expect(plans.len());
    let begins =
        |builds: bool| plans.iter().any(|(tool, plan)| tool.executes == builds && matches!(plan, Plan::Run(_)));
    // What builds needs every file; what reads is not to find settings of the project, or what a build leaves, among them.
    let (reads_one, builds_one) = (begins(false), begins(true));
    let of_sources = if reads_one { Some(folder(seen(files, false)).await) } else { None };
    let of_all = if builds_one { Some(folder(seen(files, true)).await) } else { None };
    let (sources, whole) = (place_of(of_sources.as_ref()), place_of(of_all.as_ref()));
    let places = &Semaphore::new(MAX_AT_ONCE);
    let (mut reading, mut building) = (Vec::new(), Vec::new());
    for (tool, plan) in plans {
        let executes = tool.executes;
        let folder = if executes { whole } else { sources };
        let work = async move {
            let done = carry_out(tool, plan, folder, sandbox, places).await;
            progress.step();
            done
        };
        if executes { building.push(work) } else { reading.push(work) }
    }
    let mut runs = join_all(reading).await;
    for (_, found) in runs.iter_mut().filter(|(run, _)| run.name == "eslint") {
        elements::drop_used(files, found);
    }
    // What builds takes every core: only when nobody reads any more.
    for work in building {
        runs.push(work.await);
    }
    remove((of_sources, of_all)).await;
    runs
}

async fn carry_out(
    tool: &Tool,
    plan: Plan,
    folder: Option<Result<&Path, &str>>,
    sandbox: Option<&Sandbox>,
    places: &Semaphore,
) -> (ToolRun, Vec<Finding>) {
    // It is never closed, so this never fails.
    let _place = places.acquire().await;
    let begun = Instant::now();
    let (mut run, found) = match (plan, folder, sandbox) {
        (Plan::Tell(run), _, _) => (run, Vec::new()),
        (Plan::Run(begin), Some(Ok(folder)), Some(sandbox)) => start(tool, begin, folder, sandbox).await,
        (Plan::Run(_), Some(Err(why)), _) => (told(tool, "failed", why.to_owned(), "free some space"), Vec::new()),
        (Plan::Run(_), _, _) => {
            (told(tool, "failed", "it has no place to run".to_owned(), "analyze the project again"), Vec::new())
        }
    };
    run.took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    (run, found)
}

/// Where a tool is: in the folder of our own, or else on the `PATH`.
fn located(tool: &Tool, folder: Option<&Path>) -> Option<Start> {
    let mut found = match installed(folder, tool.name) {
        Some(own) => Start {
            program: own.program,
            first: own.first,
            environment: own.environment,
            read: own.read,
            config: own.config,
            is_private: true,
        },
        None => {
            let program = on_path(tool.program).filter(|_| !tool.is_private)?;
            Start { read: homes(&program), program, ..Start::default() }
        }
    };
    let helper = tool.helper.and_then(on_path);
    found.read.extend(helper.iter().flat_map(|helper| homes(helper)));
    let beside = [Some(&found.program), helper.as_ref()].into_iter().flatten().filter_map(|path| path.parent());
    // A script finds its interpreter, and a compiler its helpers, beside it.
    let folders: String = beside.map(|folder| format!("{}:", folder.display())).collect();
    found.environment.insert("PATH".to_owned(), format!("{folders}/usr/local/bin:/usr/bin:/bin"));
    Some(found)
}

/// Of tools that do the same job the one of the lowest rank, of those the first; where none can be used the first, so that its
/// absence is said once.
fn choose(languages: &BTreeSet<Language>, rank: impl Fn(&Tool) -> Option<u8>) -> Vec<&'static Tool> {
    let concerned: Vec<&'static Tool> =
        TOOLS.iter().filter(|tool| tool.languages.iter().any(|one| languages.contains(one))).collect();
    let mut chosen: Vec<&'static Tool> = Vec::new();
    for tool in &concerned {
        if chosen.iter().any(|known| known.job == tool.job) {
            continue;
        }
        let same = concerned.iter().filter(|other| other.job == tool.job);
        let ranked = same.filter_map(|other| Some((rank(other)?, *other)));
        chosen.push(ranked.min_by_key(|(rank, _)| *rank).map_or(*tool, |(_, best)| best));
    }
    chosen
}

fn plan(tool: &Tool, files: &Files, around: &Surroundings<'_>) -> Plan {
    let tell = |status: &str, detail: String, fix: &str| Plan::Tell(told(tool, status, detail, fix));
    if !around.programs.allows(tool.program) {
        let why = if tool.executes { ", since it executes code of the project" } else { "" };
        let fix = format!("an operator can name {} in RIVERRUN_PROJECT_PROGRAMS", tool.program);
        return tell("skipped", format!("{} is not allowed{why}", tool.program), &fix);
    }
    let Some(start) = located(tool, around.tools) else {
        let what = if tool.is_private { tool.name } else { tool.program };
        return tell("missing", format!("{what} is not installed"), &fix(tool.name, tool.install));
    };
    if let Some(file) = tool.needs.filter(|file| !files.contains_key(*file)) {
        return tell(
            "skipped",
            format!("there is no {file} at the top of the project"),
            "import the folder that has it",
        );
    }
    if around.sandbox.is_none() {
        return tell("skipped", "this program has no sandbox".to_owned(), "use the riverrun binary");
    }
    let support = support();
    if tool.executes && !(support.landlock && support.seccomp) {
        let why = format!("it executes code of the project, and the kernel does not confine that: {support}");
        return tell("skipped", why, "use a kernel with Landlock and seccomp");
    }
    Plan::Run(start)
}

/// The files that tools see: sources, or all where one builds the project.
fn seen(files: &Files, builds: bool) -> Files {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let is_seen = |path: &str| builds || Language::of(path).is_some() || MANIFESTS.contains(&name(path).as_str());
    let mut seen: Files =
        files.iter().filter(|(path, _)| is_seen(path)).map(|(path, content)| (path.clone(), content.clone())).collect();
    if !builds {
        seen.insert(table::TSCONFIG.to_owned(), table::TSCONFIG_TEXT.into());
    }
    seen
}

fn place_of(laid_out: Option<&Result<TempDir, String>>) -> Option<Result<&Path, &str>> {
    laid_out.map(|laid_out| laid_out.as_ref().map(TempDir::path).map_err(String::as_str))
}

async fn folder(read: Files) -> Result<TempDir, String> {
    let laid_out = tokio::task::spawn_blocking(move || lay_out(read.iter(), &Executables::new())).await;
    match laid_out {
        Ok(Ok(folder)) => Ok(folder),
        Ok(Err(error)) => Err(format!("there is no place for its files: {error}")),
        Err(_) => Err("laying out the files broke off".to_owned()),
    }
}

fn told(tool: &Tool, status: &str, detail: String, fix: &str) -> ToolRun {
    ToolRun {
        name: tool.name.to_owned(),
        status: status.to_owned(),
        findings: 0,
        took_ms: 0,
        detail: Some(detail),
        fix: Some(fix.to_owned()),
    }
}

async fn start(tool: &Tool, begin: Start, folder: &Path, sandbox: &Sandbox) -> (ToolRun, Vec<Finding>) {
    let place = folder.display().to_string();
    let answer = call(tool, &begin, &[], folder, sandbox).await;
    let is_wanted = |again: &Again| answer.as_ref().is_ok_and(|finished| breaks_off(tool, again, finished));
    let Some(again) = tool.again.as_ref().filter(|again| is_wanted(again)) else {
        return outcome(tool, answer, &place);
    };
    let (mut run, found) = outcome(tool, call(tool, &begin, again.arguments, folder, sandbox).await, &place);
    if run.has_run() {
        run.detail = Some(again.told.to_owned());
    }
    (run, found)
}

fn breaks_off(tool: &Tool, again: &Again, finished: &Finished) -> bool {
    let stdout = String::from_utf8_lossy(&finished.stdout);
    let is_done = finished.code.is_some_and(|code| tool.done.contains(&code));
    !is_done && again.signs.iter().any(|sign| stdout.contains(sign) || finished.stderr.contains(sign))
}

fn outcome(tool: &Tool, answer: Result<Finished, String>, place: &str) -> (ToolRun, Vec<Finding>) {
    match answer {
        Ok(finished) => understood(tool, &finished, place),
        Err(why) => (told(tool, "failed", why, "run it by hand to see why"), Vec::new()),
    }
}

/// Its answer, or why there is none.
async fn call(tool: &Tool, begin: &Start, more: &[&str], folder: &Path, sandbox: &Sandbox) -> Result<Finished, String> {
    let mut environment = begin.environment.clone();
    environment.extend(tool.environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    let mut readable = begin.read.clone();
    if let Some(beside) = begin.program.parent().filter(|_| tool.executes) {
        readable.push(beside.to_owned());
    }
    if let Some(toolchains) = tool.executes.then(rustup).flatten() {
        environment.insert("RUSTUP_HOME".to_owned(), toolchains.display().to_string());
        readable.push(toolchains);
    }
    let confinement = Confinement {
        read: readable,
        // Runtimes reserve more than they use.
        memory_bytes: 0,
        cpu_seconds: MAX_TIME.as_secs(),
        processes: 256,
        ..Confinement::default()
    };
    let arguments = arguments(tool, begin, more, folder);
    let program = begin.program.clone();
    let invocation = Invocation { program, arguments, environment, stdin: None, confinement, max_output: MAX_OUTPUT };
    match tokio::time::timeout(MAX_TIME, sandbox.run_in(invocation, folder)).await {
        Err(_) => Err(format!("no answer within {} s", MAX_TIME.as_secs())),
        Ok(answer) => answer.map_err(|error| error.to_string()),
    }
}

fn arguments(tool: &Tool, begin: &Start, more: &[&str], folder: &Path) -> Vec<String> {
    let mut all = begin.first.clone();
    all.extend(begin.config.iter().flat_map(|config| ["--config".to_owned(), config.display().to_string()]));
    all.extend((tool.arguments)(&folder.display().to_string()));
    all.extend(more.iter().map(|one| (*one).to_owned()));
    all
}

/// Where the toolchains of Rust are, when rustup keeps them.
fn rustup() -> Option<PathBuf> {
    let named = std::env::var_os("RUSTUP_HOME").map(PathBuf::from);
    let usual = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".rustup"));
    named.or_else(usual).filter(|folder| folder.is_absolute() && folder.is_dir())
}

/// An answer that can't be read, or an exit code that is no result, is a failure and not a clean project.
fn understood(tool: &Tool, finished: &Finished, place: &str) -> (ToolRun, Vec<Finding>) {
    let stdout = String::from_utf8_lossy(&finished.stdout);
    let prefix = format!("{place}/");
    let said = Said { stdout: &stdout, stderr: &finished.stderr, prefix: &prefix };
    let is_done = finished.code.is_some_and(|code| tool.done.contains(&code));
    let found = if is_done { (tool.read)(&said) } else { None };
    let Some(mut found) = found else {
        let told_why = if finished.stderr.is_empty() { &*stdout } else { finished.stderr.as_str() };
        let words: Vec<&str> = told_why.split_whitespace().collect();
        let why = words.join(" ").replace(place, ".");
        let why: String = why.chars().filter(|c| !c.is_control()).take(300).collect();
        let fix = match stdout.contains(NOT_PARSED) {
            true => "correct the syntax of the files that it names: it checks nothing before",
            false => "run it by hand to see why",
        };
        return (told(tool, "failed", format!("it broke off: {why}"), fix), Vec::new());
    };
    for one in found.iter_mut().filter(|one| one.fix.is_none()) {
        let is_broken = one.rule.ends_with("syntax");
        one.fix = Some(if is_broken { "correct the syntax".to_owned() } else { (tool.advice)(&one.rule) });
    }
    let mut run = ToolRun::ran(tool.name, found.len());
    let unread = tool.unread.map_or(0, |count| count(&said));
    run.detail = (unread > 0)
        .then(|| format!("{} left out: it does not understand the syntax", riverrun_schemas::counted(unread, "file")));
    (run, found)
}
