//! The project's own tests, run in the sandbox on a temporary copy: the one place where code of a project is executed, and only
//! because somebody asked for it and said how.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bytes::Bytes;
use riverrun_agents::tools::sandbox::{Confinement, Finished, Invocation, MAX_ARGUMENT, Sandbox, support};
use serde::{Deserialize, Serialize};

use crate::copy::{Executables, Files};
use crate::error::ProjectError;
use crate::folder::{homes, lay_out, on_path, remove};
use crate::settings::Programs;

/// Most arguments of a test command, its program among them.
pub const MAX_ARGUMENTS: usize = 64;
/// How long one run may take.
pub const MAX_TIME: Duration = Duration::from_secs(300);
/// Most bytes that a run may write to its standard output.
const MAX_OUTPUT: usize = 4 << 20;
/// What is kept of the end of an output, in characters.
const KEPT: usize = 4_000;

/// One run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestRun {
    /// Whether its exit code was 0.
    pub passed: bool,
    /// Its exit code; none when it was ended.
    pub exit_code: Option<i32>,
    /// How long it took.
    pub took_ms: u64,
    /// The end of what it wrote, or why it was ended.
    pub output: String,
}

/// The same command before and after a rewrite.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestRuns {
    /// Program and arguments.
    pub command: Vec<String>,
    /// On the copy as it is.
    pub before: TestRun,
    /// With the rewrite.
    pub after: TestRun,
}

impl TestRuns {
    /// Whether the rewrite breaks what worked.
    pub fn breaks(&self) -> bool {
        self.before.passed && !self.after.passed
    }
}

/// Checks a command before anything is asked of a model.
///
/// # Errors
/// When it can't be run here.
pub fn check(command: &[String], programs: &Programs) -> Result<(), ProjectError> {
    program(command, programs).map(|_| ())
}

/// Runs a command on the files as they are, and with `file` being one rewrite after the other, each in a folder of its own, until
/// the tests pass. Answers with the number of that rewrite, or of the first when they pass with none.
///
/// # Errors
/// When it can't be started, or there is no rewrite. Tests that fail, take too long or write too much are a result.
pub async fn compare(
    (sandbox, programs): (&Sandbox, &Programs),
    command: &[String],
    (files, executables): (Files, &Executables),
    (file, rewrites): (&str, &[&[u8]]),
) -> Result<(usize, TestRuns), ProjectError> {
    let program = program(command, programs)?;
    let before = run(sandbox, (program.as_path(), command), (files.clone(), executables)).await?;
    let mut first = None;
    for (number, rewrite) in rewrites.iter().enumerate() {
        let mut changed = files.clone();
        changed.insert(file.to_owned(), Bytes::copy_from_slice(rewrite));
        let after = run(sandbox, (program.as_path(), command), (changed, executables)).await?;
        let runs = TestRuns { command: command.to_vec(), before: before.clone(), after };
        if runs.after.passed {
            return Ok((number, runs));
        }
        first = first.or(Some(runs));
    }
    let none = || ProjectError::refused("tests_not_run", "there is no rewrite to test", "ask for another one");
    first.map(|runs| (0, runs)).ok_or_else(none)
}

fn program(command: &[String], programs: &Programs) -> Result<PathBuf, ProjectError> {
    let refused = |what: String, fix: &str| ProjectError::refused("tests_not_run", what, fix);
    let support = support();
    if !(support.landlock && support.seccomp) {
        let what = format!("code of a project is run only where the kernel confines it: {support}");
        return Err(refused(what, "leave the tests out, or use a kernel with Landlock and seccomp"));
    }
    let Some(name) = command.first() else {
        return Err(refused("the test command is empty".to_owned(), "name a program and its arguments"));
    };
    if command.len() > MAX_ARGUMENTS || command.iter().any(|one| one.len() > MAX_ARGUMENT || one.contains('\0')) {
        let what = format!("the test command has more than {MAX_ARGUMENTS} arguments, or one that is no argument");
        return Err(refused(what, "put it into a script of the project"));
    }
    let shown: String = name.chars().filter(|c| !c.is_control()).take(200).collect();
    if let Some((_, last)) = name.rsplit_once('/') {
        let what = format!("{shown:?} is a path, and a program is named as the server's PATH has it");
        let last: String = last.chars().filter(|c| !c.is_control()).take(200).collect();
        let named = if last.is_empty() { "python3" } else { last.as_str() };
        return Err(refused(
            what,
            &format!("write its name alone: {named}; a script of the project is an argument of its program"),
        ));
    }
    let found = on_path(name);
    if found.is_some() && !programs.allows(name) {
        let what = format!("the program {shown:?} is not one that may be started for a project");
        return Err(refused(what, "an operator can name it in RIVERRUN_PROJECT_PROGRAMS"));
    }
    found.ok_or_else(|| {
        refused(format!("there is no program {shown:?} on the server's PATH"), "name an installed one, such as python3")
    })
}

async fn run(
    sandbox: &Sandbox,
    (program, command): (&Path, &[String]),
    (files, executables): (Files, &Executables),
) -> Result<TestRun, ProjectError> {
    let failed = |what: String| ProjectError::refused("tests_not_run", what, "free some space in the temporary folder");
    let executables = executables.clone();
    let laid_out = tokio::task::spawn_blocking(move || lay_out(files.iter(), &executables)).await;
    let folder = match laid_out {
        Ok(Ok(folder)) => folder,
        Ok(Err(error)) => return Err(failed(format!("there is no place for the project: {error}"))),
        Err(_) => return Err(failed("laying out the project broke off".to_owned())),
    };
    let confinement = Confinement {
        read: homes(program),
        // Runtimes reserve more than they use.
        memory_bytes: 0,
        cpu_seconds: MAX_TIME.as_secs(),
        processes: 256,
        ..Confinement::default()
    };
    let invocation = Invocation {
        program: program.to_owned(),
        arguments: command.get(1..).unwrap_or_default().to_vec(),
        environment: BTreeMap::new(),
        stdin: None,
        confinement,
        max_output: MAX_OUTPUT,
    };
    let begun = Instant::now();
    let done = tokio::time::timeout(MAX_TIME, sandbox.run_in(invocation, folder.path())).await;
    let took_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    remove(folder).await;
    let ended = |why: String| TestRun { passed: false, exit_code: None, took_ms, output: why };
    Ok(match done {
        Err(_) => ended(format!("it was ended after {} s", MAX_TIME.as_secs())),
        Ok(Err(error)) => ended(error.to_string()),
        Ok(Ok(finished)) => {
            TestRun { passed: finished.code == Some(0), exit_code: finished.code, took_ms, output: said(&finished) }
        }
    })
}

/// The end of both outputs.
fn said(finished: &Finished) -> String {
    let mut text = String::from_utf8_lossy(&finished.stdout).trim().to_owned();
    if !finished.stderr.is_empty() {
        text.push('\n');
        text.push_str(&finished.stderr);
    }
    let skipped = text.chars().count().saturating_sub(KEPT);
    text.chars().skip(skipped).filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(passed: bool) -> TestRun {
        TestRun { passed, exit_code: Some(i32::from(!passed)), took_ms: 1, output: String::new() }
    }

    #[test]
    fn given_runs_when_they_are_compared_then_only_what_worked_before_can_break() {
        for (before, after, breaks) in
            [(true, true, false), (true, false, true), (false, false, false), (false, true, false)]
        {
            let runs = TestRuns { command: vec!["x".into()], before: run(before), after: run(after) };
            assert_eq!(runs.breaks(), breaks, "{runs:?}");
        }
    }

    #[test]
    fn given_commands_that_name_no_installed_program_when_they_are_checked_then_each_is_refused() {
        let long: Vec<String> = std::iter::repeat_n("true".to_owned(), MAX_ARGUMENTS + 1).collect();
        let named = |name: &str| vec![name.to_owned()];
        let programs = Programs::default();
        for command in [Vec::new(), named(""), named("../sh"), named("/bin/sh"), named("no-such-program\u{1b}"), long] {
            assert!(
                matches!(check(&command, &programs), Err(ProjectError::Refused { code: "tests_not_run", .. })),
                "{command:?}"
            );
        }
    }

    #[test]
    fn given_a_program_by_its_path_when_it_is_checked_then_the_refusal_says_that_names_are_taken() {
        let support = support();
        if !(support.landlock && support.seccomp) {
            return;
        }
        for (path, named) in [("/usr/bin/python3", "alone: python3;"), ("./run.sh", "alone: run.sh;"), ("/", "python3")]
        {
            let Err(error) = check(&[path.to_owned()], &Programs::default()) else { panic!("{path} may run") };
            let failure = error.failure();
            assert!(failure.code == "tests_not_run" && failure.message.contains("is a path"), "{failure:?}");
            assert!(failure.hint.is_some_and(|hint| hint.contains(named)), "{path}");
        }
    }

    #[test]
    fn given_an_installed_program_that_is_not_allowed_when_it_is_checked_then_it_is_refused_with_the_setting() {
        let Err(error) = check(&["sh".to_owned(), "-c".to_owned()], &Programs::default()) else { panic!("sh may run") };
        let failure = error.failure();
        assert_eq!(failure.code, "tests_not_run");
        let support = support();
        if support.landlock && support.seccomp {
            assert!(failure.hint.is_some_and(|hint| hint.contains("RIVERRUN_PROJECT_PROGRAMS")));
        }
    }

    #[test]
    fn given_much_output_when_it_is_kept_then_it_is_the_end_without_control_characters() {
        let stdout = ["é".repeat(2 * KEPT), "\u{1b}[31mlast".to_owned()].concat().into_bytes();
        let text = said(&Finished { code: Some(0), signal: None, stdout, stderr: "err".into() });
        assert!(text.chars().count() <= KEPT && text.ends_with("[31mlast\nerr"), "{text}");
    }
}
