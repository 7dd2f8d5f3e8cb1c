//! `riverrun project`.

use std::convert::Infallible;
use std::path::{Path, PathBuf};

use clap::Subcommand;
use riverrun_api::wire::{
    AnalysisAccepted, AnalyzeBody, ApplyBody, FileChangedView, ImportBody, ImproveBody, Page, ProjectRemovedView,
    ProjectView, ProposalAccepted, ProposalView, ReportView, RevertBody, TestRunView, TrendView,
};
use riverrun_schemas::counted;

use crate::client::{Client, encode, with_query};
use crate::commands::runs::approve::{read_line, somebody_is_there};
use crate::error::{CliError, Exit, WRITABLE};
use crate::host::Connection;
use crate::output::{Output, print_bytes, print_json, print_line, print_piece, table, tell};
use crate::paging::PageArgs;
use crate::settings::Settings;

mod import;
mod progress;
mod shown;
pub(crate) mod tools;
mod trend;
mod waiting;

use waiting::Waiting;

/// What to do with projects.
#[derive(Debug, Subcommand)]
pub enum ProjectCommand {
    /// Copy a folder, a .zip or a git repository; the original is only read
    Import {
        /// A folder, a .zip, or the https address of a repository
        source: String,
        /// How to call it
        #[arg(long)]
        name: Option<String>,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// List the projects of a namespace
    Ls {
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
        #[command(flatten)]
        page: PageArgs,
    },
    /// Analyze the copy
    Analyze {
        /// An id of `riverrun project ls`
        id: String,
        /// Leave the model's review out
        #[arg(long)]
        no_review: bool,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Show the newest report, the worst first
    Report {
        /// An id of `riverrun project ls`
        id: String,
        /// As SARIF 2.1.0, to a file or, without a name, to stdout
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
        sarif: Option<PathBuf>,
        /// As a page with charts, to a file or, without a name, to stdout
        #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", conflicts_with = "sarif")]
        html: Option<PathBuf>,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Show what changed between two analyses: findings and public names that came and went
    Trend {
        /// An id of `riverrun project ls`
        id: String,
        /// The earlier analysis; the one before the later when left out
        #[arg(long, value_name = "ANALYSIS")]
        from: Option<String>,
        /// The later analysis; the last when left out
        #[arg(long, value_name = "ANALYSIS")]
        to: Option<String>,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Ask a model for a rewrite of one file and show it as a diff
    Improve {
        /// An id of `riverrun project ls`
        id: String,
        /// Path within the copy
        #[arg(long, value_parser = within)]
        file: String,
        /// What is wanted; the findings are corrected when left out
        #[arg(long)]
        instruction: Option<String>,
        /// Rewrites to choose from, 1 to 4
        #[arg(long, value_name = "N")]
        candidates: Option<i64>,
        /// A public name that the rewrite may take out, such as f or C.m; may be repeated. All others stay
        #[arg(long, value_name = "NAME")]
        may_remove: Vec<String>,
        /// Run the project's own tests before and after, in the sandbox: a program and its arguments, as the last thing on the line
        #[arg(long, num_args = 1.., allow_hyphen_values = true, value_name = "CMD")]
        tests: Option<Vec<String>>,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Write the newest proposal for a file to the copy
    Apply {
        /// An id of `riverrun project ls`
        id: String,
        /// Path within the copy
        #[arg(long, value_parser = within)]
        file: String,
        /// Do it without asking; otherwise the diff is shown, and a terminal is asked
        #[arg(long)]
        yes: bool,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Take the last change of a file back
    Revert {
        /// An id of `riverrun project ls`
        id: String,
        /// Path within the copy
        #[arg(long, value_parser = within)]
        file: String,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Remove a project with its analyses and proposals; the original stays as it is
    Rm {
        /// An id of `riverrun project ls`
        id: String,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
    /// Linters and type checkers in the data folder: list, install, remove
    #[command(subcommand)]
    Tools(tools::ToolsCommand),
    /// Print what was changed, as `git apply` takes it
    Patch {
        /// An id of `riverrun project ls`
        id: String,
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
    },
}

/// A path within the copy, also as shells complete it.
fn within(path: &str) -> Result<String, Infallible> {
    let mut path = path;
    while let Some(rest) = path.strip_prefix("./") {
        path = rest.trim_start_matches('/');
    }
    Ok(path.to_owned())
}

/// Looks at what can be looked at before anything is started.
pub fn prepare(command: ProjectCommand, settings: &Settings) -> Result<(ProjectCommand, Settings), CliError> {
    let mut settings = settings.clone();
    let command = match command {
        ProjectCommand::Import { source, name, namespace } => {
            ProjectCommand::Import { source: import::prepare(source, &mut settings)?, name, namespace }
        }
        other => other,
    };
    Ok((command, settings))
}

fn path(id: &str, rest: &str, namespace: Option<String>) -> String {
    with_query(&format!("/projects/{}{rest}", encode(id)), &[("namespace", namespace)])
}

pub async fn run(connection: &Connection, command: ProjectCommand, output: Output) -> Result<(), CliError> {
    let client = &connection.client;
    match command {
        ProjectCommand::Import { source, name, namespace } => {
            import::run(connection, ImportBody { source, name, namespace }, output).await
        }
        ProjectCommand::Ls { namespace, page } => {
            let [limit, cursor] = page.query();
            let path = with_query("/projects", &[("namespace", namespace), limit, cursor]);
            let found: Page<ProjectView> = client.get(&path).await?;
            output.show(&found, |found| {
                let row = |one: &ProjectView| {
                    [one.project_id.clone(), one.name.clone(), one.status.clone(), one.files.to_string()]
                };
                table(
                    ["project", "name", "status", "files"],
                    found.items.iter().map(row).collect(),
                    "there are no projects; import one: riverrun project import <folder>",
                )
            })?;
            output.tell_rest(found.next_cursor.as_deref());
            Ok(())
        }
        ProjectCommand::Analyze { id, no_review, namespace } => {
            let body = AnalyzeBody { review: Some(!no_review), model: None };
            let accepted: AnalysisAccepted = client.post(&path(&id, "/analyze", namespace.clone()), &body).await?;
            let seen = progress::Seen::new(output, "analyzer");
            let report = Waiting::at(client).report(&id, &accepted.analysis_id, namespace, seen).await?;
            output.show(&report, shown::report)
        }
        ProjectCommand::Report { id, sarif, html, namespace } => {
            if output.json && html.as_deref() == Some(Path::new("-")) {
                return Err(CliError::new(Exit::Usage, "--html and --json are two forms of the same")
                    .hint("leave one of them out, or give --html a file"));
            }
            let form = sarif.map(|file| ("sarif", file)).or(html.map(|file| ("html", file)));
            let format = form.as_ref().map(|(name, _)| (*name).to_owned());
            let place = with_query(
                &format!("/projects/{}/report", encode(&id)),
                &[("namespace", namespace), ("format", format)],
            );
            match form {
                Some((_, file)) => write_to(&file, &client.bytes(&place).await?),
                None => output.show(&client.get::<ReportView>(&place).await?, shown::report),
            }
        }
        ProjectCommand::Trend { id, from, to, namespace } => {
            let place = with_query(
                &format!("/projects/{}/trend", encode(&id)),
                &[("namespace", namespace), ("from", from), ("to", to)],
            );
            output.show(&client.get::<TrendView>(&place).await?, trend::shown)
        }
        ProjectCommand::Improve { id, file, instruction, candidates, may_remove, tests, namespace } => {
            let may_remove = (!may_remove.is_empty()).then_some(may_remove);
            let body = ImproveBody { file, instruction, model: None, candidates, tests, may_remove };
            let accepted: ProposalAccepted = client.post(&path(&id, "/improve", namespace.clone()), &body).await?;
            let seen = progress::Seen::new(output, "rewrites");
            let proposal = Waiting::at(client).proposal(&id, &accepted.proposal_id, namespace, seen).await?;
            // Blanks at the end of a diff are a line of the file.
            if output.json {
                print_json(&proposal)?
            } else {
                print_piece(&proposal.diff)?
            }
            if let Some(error) = &proposal.error {
                return Err(CliError::new(Exit::of_failure(&error.code), error.message.clone())
                    .hint("riverrun diagnose shows what is down")
                    .maybe_hint(error.hint.clone()));
            }
            tell_proposal(&proposal);
            if proposal.status == "refused" {
                return Err(CliError::new(
                    Exit::Failed,
                    proposal.note.unwrap_or_else(|| "there is no rewrite".to_owned()),
                )
                .hint("try --candidates 4, another --instruction, or a stronger model"));
            }
            Ok(())
        }
        ProjectCommand::Apply { id, file, yes, namespace } => {
            apply(connection, &id, file, (yes, namespace), output).await
        }
        ProjectCommand::Revert { id, file, namespace } => {
            let body = RevertBody { file, confirm: true };
            let done: FileChangedView = client.post(&path(&id, "/revert", namespace), &body).await?;
            output.show(&done, |done| format!("{}  {}", done.file, done.after_sha256))
        }
        ProjectCommand::Rm { id, namespace } => {
            let receipt: ProjectRemovedView = client.delete(&path(&id, "", namespace)).await?;
            output.show(&receipt, |receipt| {
                format!(
                    "removed {} · {}, {} · {} · {} · {}",
                    receipt.name,
                    counted(receipt.files, "file"),
                    counted(receipt.size_bytes, "byte"),
                    counted(receipt.analyses, "analysis"),
                    counted(receipt.proposals, "proposal"),
                    counted(receipt.changes, "change")
                )
            })
        }
        ProjectCommand::Tools(command) => tools::run(connection, command, output).await,
        ProjectCommand::Patch { id, namespace } => {
            let patch = client.bytes(&path(&id, "/patch", namespace)).await?;
            if output.json {
                return print_line(&patch_as_json(&patch)?);
            }
            print_bytes(&patch)
        }
    }
}

/// JSON has no other bytes than those of UTF-8: a patch of a file in Latin-1 would not fit any more.
fn patch_as_json(patch: &[u8]) -> Result<String, CliError> {
    let text = std::str::from_utf8(patch).map_err(|error| {
        let what = format!("the patch is no UTF-8 from byte {} on, and JSON can't hold it", error.valid_up_to());
        CliError::new(Exit::Refused, what).hint("leave --json out")
    })?;
    Ok(serde_json::json!({ "patch": text }).to_string())
}

fn write_to(file: &Path, content: &[u8]) -> Result<(), CliError> {
    if file == Path::new("-") {
        return print_bytes(content);
    }
    std::fs::write(file, content).map_err(|error| {
        CliError::new(Exit::Failed, format!("{} can't be written: {error}", file.display())).hint(WRITABLE)
    })?;
    tell(&format!("wrote {}", file.display()));
    Ok(())
}

/// The newest proposal for a file that may be applied.
async fn open_proposal(
    client: &Client,
    id: &str,
    file: &str,
    namespace: Option<String>,
) -> Result<Option<ProposalView>, CliError> {
    let mut cursor = None;
    loop {
        let place = format!("/projects/{}/proposals", encode(id));
        let place = with_query(&place, &[("namespace", namespace.clone()), ("cursor", cursor)]);
        let found: Page<ProposalView> = client.get(&place).await?;
        let newest = found.items.into_iter().find(|one| one.file == file && one.status == "proposed");
        if newest.is_some() || found.next_cursor.is_none() {
            return Ok(newest);
        }
        cursor = found.next_cursor;
    }
}

async fn apply(
    connection: &Connection,
    id: &str,
    file: String,
    (yes, namespace): (bool, Option<String>),
    output: Output,
) -> Result<(), CliError> {
    let Some(newest) = open_proposal(&connection.client, id, &file, namespace.clone()).await? else {
        return Err(CliError::new(Exit::Refused, format!("there is no proposal for {file:?}"))
            .hint(format!("riverrun project improve {id} --file {}", shell_word(&file))));
    };
    let is_wanted = yes || {
        // With --json, stdout is for what comes of it.
        if output.json {
            tell(newest.diff.trim_end_matches('\n'))
        } else {
            print_piece(&newest.diff)?
        }
        confirmed(&file).await
    };
    if !is_wanted {
        return Err(CliError::new(Exit::Refused, format!("{file:?} was not changed: it was not confirmed"))
            .hint(format!("riverrun project apply {id} --file {} --yes", shell_word(&file))));
    }
    let body = ApplyBody { file, proposal_id: Some(newest.proposal_id), confirm: true };
    let done: FileChangedView = connection.client.post(&path(id, "/apply", namespace), &body).await?;
    output.show(&done, |done| format!("{}  {}", done.file, done.after_sha256))
}

/// A text as one word of a POSIX shell: names of imported files have any characters, and a hint is copied.
fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// What a person answers; nobody is no.
async fn confirmed(file: &str) -> bool {
    if !somebody_is_there() {
        return false;
    }
    tell(&format!("write this to {file} of the copy? [y]es, [n]o: "));
    let answer = read_line().await.unwrap_or_default();
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

fn tell_proposal(proposal: &ProposalView) {
    tell(&format!("{}: findings {} → {}", proposal.status, proposal.findings_before, proposal.findings_after));
    if let Some(tests) = &proposal.tests {
        let word = |run: &TestRunView| if run.passed { "passed" } else { "failed" };
        tell(&format!("tests: {} → {}", word(&tests.before), word(&tests.after)));
        if !tests.after.passed {
            tell(&tests.after.output);
        }
    }
    if let Some(note) = &proposal.note {
        tell(note);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_path_as_a_shell_completes_it_when_it_is_read_then_it_is_the_one_within_the_copy() {
        for (given, path) in [
            ("a.py", "a.py"),
            ("./a.py", "a.py"),
            (".//./src/a.py", "src/a.py"),
            ("../a.py", "../a.py"),
            (".a", ".a"),
            ("", ""),
        ] {
            assert_eq!(within(given), Ok(path.to_owned()));
        }
    }

    #[test]
    fn given_a_patch_when_it_is_asked_for_as_json_then_it_is_whole_or_refused() {
        let text = patch_as_json("+caf\u{e9}\r\n".as_bytes()).unwrap();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap()["patch"], "+caf\u{e9}\r\n");
        let error = patch_as_json(b"+caf\xe9\n").unwrap_err();
        assert!(error.message.contains("byte 4"), "{}", error.message);
        assert_eq!(error.hint.as_deref(), Some("leave --json out"));
    }

    #[test]
    fn given_names_of_files_when_they_stand_in_a_hint_then_a_shell_takes_each_as_one_word() {
        for (name, word) in [
            ("src/a_b-1.py", "src/a_b-1.py"),
            ("my file.py", "'my file.py'"),
            ("$(touch x);.py", "'$(touch x);.py'"),
            ("it's.py", r"'it'\''s.py'"),
            ("caf\u{e9}.py", "'caf\u{e9}.py'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
