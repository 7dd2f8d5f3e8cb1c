//! The binary `riverrun`: parse, build, run.

// Nothing of a program is reached from outside: `pub` says what a module offers to the others.
#![allow(unreachable_pub)]

mod args;
mod awaited;
mod client;
mod commands;
mod cores;
mod error;
mod host;
mod input;
mod judged;
mod lock;
mod open_files;
mod output;
mod paging;
mod progress;
mod secure_broker;
mod serve;
mod settings;
mod shared;
mod signals;
mod start_pages;

#[cfg(test)]
#[path = "../../fuzz/harness.rs"]
mod fuzz;
#[cfg(test)]
mod fuzz_tests;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use riverrun_agents::tools::sandbox;
use riverrun_api::config::Misspelt;
use riverrun_knowledge::sources::{self, ISOLATED_COMMAND};
use tracing_subscriber::EnvFilter;

use crate::args::{Cli, Command};
use crate::error::{CliError, Exit};
use crate::output::{Output, tell, tell_error};
use crate::settings::Settings;

fn main() -> ExitCode {
    // Before anything is read or opened: a process that becomes a tool, or reads one hostile document, has nothing else.
    let mut arguments = std::env::args_os().skip(1);
    let first = arguments.next();
    if first.as_ref().is_some_and(|first| first == sandbox::LAUNCH) {
        // This process becomes a tool, or says why not.
        eprintln!("{}", sandbox::launch(arguments));
        return ExitCode::from(sandbox::FAILED);
    }
    if first.is_some_and(|first| first == ISOLATED_COMMAND) {
        let told = sources::run_isolated(&arguments.collect::<Vec<_>>());
        return if told { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    cores::name();
    if let Ok(program) = std::env::current_exe() {
        sources::isolate_with(program);
    }
    let matches = match Cli::command().try_get_matches() {
        Ok(matches) => matches,
        Err(error) => return not_run(error),
    };
    let asked = asked(&matches);
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => return not_run(error),
    };
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let error = error.or_help_of(&asked);
            tell_error(&error);
            ExitCode::from(error.exit.code())
        }
    }
}

/// Shows a help or the version, or says why the line can't be understood.
fn not_run(error: clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            error.exit()
        }
        _ => {
            let error = CliError::of_command_line(error, &asked_in(std::env::args_os().skip(1)));
            tell_error(&error);
            ExitCode::from(error.exit.code())
        }
    }
}

/// The command that a line asks for which can't be understood, as far as its words name one.
fn asked_in(words: impl Iterator<Item = OsString>) -> String {
    let root = Cli::command();
    let mut at = &root;
    let mut asked = vec![root.get_name()];
    for word in words {
        if let Some(below) = at.find_subcommand(&word) {
            asked.push(below.get_name());
            at = below;
        }
    }
    asked.join(" ")
}

/// The command that was asked for, as it is written without its arguments.
fn asked(matches: &ArgMatches) -> String {
    let mut words = vec!["riverrun"];
    let mut at = matches;
    while let Some((name, below)) = at.subcommand() {
        words.push(name);
        at = below;
    }
    words.join(" ")
}

fn run(cli: Cli) -> Result<(), CliError> {
    let folder = std::env::current_dir().map_err(|error| {
        CliError::new(Exit::Failed, format!("the working folder can't be read: {error}"))
            .hint("change into a folder that is there")
    })?;
    let settings = Settings::load(&folder)?;
    start_logging(&settings, &cli)?;
    tell_misspelt(&settings, &cli.command);
    if let Err(error) = open_files::raise() {
        tracing::warn!(%error, "the limit on open files stays as it is; raise it with ulimit -n");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| CliError::new(Exit::Failed, format!("threads can't be started: {error}")))?;
    let result = runtime.block_on(commands::run(cli.command, &settings, Output { json: cli.json }));
    // Whatever still runs was told to stop already, or is not to be waited for.
    runtime.shutdown_background();
    result
}

/// What libraries say of their inside; what concerns us they also return as errors.
const QUIET: &str = "rdkafka=off,librdkafka=off,qdrant_edge=error,sqlx=warn,tantivy=warn,hyper_util=warn,rustls=warn,rustls_platform_verifier=warn";

fn is_server(command: &Command) -> bool {
    matches!(command, Command::Serve(_) | Command::Worker(_))
}

/// Says once which variables were meant for settings and are not read. It is no failure: a later version may read them.
fn tell_misspelt(settings: &Settings, command: &Command) {
    let misspelt = &settings.api.misspelt;
    if misspelt.is_empty() {
        return;
    }
    let text = Misspelt::told(misspelt);
    // A server's stderr is its log, which may be read line by line; people at a terminal are shown no log.
    if is_server(command) { tracing::warn!("{text}") } else { tell(&format!("warning: {text}")) }
}

fn start_logging(settings: &Settings, cli: &Cli) -> Result<(), CliError> {
    let server = is_server(&cli.command);
    let usual = match (cli.verbose, server) {
        // People at a terminal are told of failures alone, not of a slow query.
        (0, false) => "error,rdkafka=off,librdkafka=off".to_owned(),
        (0, true) => format!("info,{QUIET}"),
        (1, _) => format!("debug,{QUIET}"),
        _ => "debug".to_owned(),
    };
    let filter = settings.log_filter.clone().unwrap_or(usual);
    let filter: EnvFilter = filter.parse().map_err(|error| {
        CliError::new(Exit::Usage, format!("setting RIVERRUN_LOG is {filter:?}, which is no filter: {error}"))
            .hint("RIVERRUN_LOG=info, or debug,riverrun_broker=warn")
    })?;
    let logging = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    // It would be told of on stderr, by a call that panics when that can't be written: a full disk or a reader of the log that is gone would
    // end whatever has something to log.
    let logging = logging.log_internal_errors(false);
    let started = if settings.log_json { logging.json().try_init() } else { logging.try_init() };
    started.map_err(|error| CliError::new(Exit::Failed, format!("logging can't be started: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_line_that_can_not_be_understood_when_its_command_is_looked_for_then_it_is_what_its_words_name() {
        for (line, asked) in [
            ("no-such", "riverrun"),
            ("agent run x --max-iters abc", "riverrun agent run"),
            ("--json runs watch", "riverrun runs watch"),
            ("tools -n team nothing", "riverrun tools"),
            ("runs no-such", "riverrun runs"),
            ("chat runs", "riverrun chat"),
        ] {
            assert_eq!(asked_in(line.split(' ').map(OsString::from)), asked, "{line}");
        }
    }
}
