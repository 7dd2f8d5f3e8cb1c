//! Checks of the repository that the compiler does not make. `cargo xtask check` runs them all.

mod dependencies;
mod events;
mod files;
mod layers;
mod links;
mod messages;
mod names;
mod proofs;
mod routes;
mod settings;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Checks of the repository that the compiler does not make")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Clone, Copy, Subcommand)]
enum Command {
    /// All of the checks below.
    Check,
    /// Every dependency is named by code of the crate that lists it.
    CheckDependencies,
    /// The table of topics names every topic and every type of event.
    CheckEvents,
    /// Crates use only crates above them, and libraries with one keeper stay in its crate.
    CheckLayers,
    /// Relative links in Markdown files lead somewhere.
    CheckLinks,
    /// Messages of errors and logs are lowercase and end without a full stop.
    CheckMessages,
    /// What ARCHITECTURE.md names is in the code, and every invariant of the code is in it.
    CheckNames,
    /// The tests that the tables of faults and attacks name are there.
    CheckProofs,
    /// The page of the API names every operation, and no other path.
    CheckRoutes,
    /// The page of the configuration lists every setting that the code reads, and no other.
    CheckSettings,
    /// Lists Rust files of more than 500 lines; a list, not a failure.
    CheckFiles,
}

/// A check answers with what is wrong, one line a finding; an error means that it could not look.
type Findings = anyhow::Result<Vec<String>>;
type Check = (&'static str, fn(&Path) -> Findings);

const CHECKS: [Check; 9] = [
    ("dependencies", dependencies::check),
    ("events", events::check),
    ("layers", layers::check),
    ("links", links::check),
    ("messages", messages::check),
    ("names", names::check),
    ("proofs", proofs::check),
    ("routes", routes::check),
    ("settings", settings::check),
];

fn main() -> ExitCode {
    let root = root();
    let named = |wanted: &str| CHECKS.iter().filter(|(name, _)| *name == wanted).copied().collect::<Vec<_>>();
    let checks = match Arguments::parse().command {
        Command::Check => {
            files::report(&root);
            CHECKS.to_vec()
        }
        Command::CheckDependencies => named("dependencies"),
        Command::CheckEvents => named("events"),
        Command::CheckLayers => named("layers"),
        Command::CheckLinks => named("links"),
        Command::CheckMessages => named("messages"),
        Command::CheckNames => named("names"),
        Command::CheckProofs => named("proofs"),
        Command::CheckRoutes => named("routes"),
        Command::CheckSettings => named("settings"),
        Command::CheckFiles => {
            files::report(&root);
            return ExitCode::SUCCESS;
        }
    };
    // Every check runs, so that one run tells everything.
    let failures = checks.into_iter().filter(|check| !passes(*check, &root)).count();
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes((name, check): Check, root: &Path) -> bool {
    match check(root) {
        Ok(findings) if findings.is_empty() => {
            eprintln!("{name}: ok");
            true
        }
        Ok(findings) => {
            findings.iter().for_each(|finding| eprintln!("{name}: {finding}"));
            false
        }
        Err(error) => {
            eprintln!("{name}: cannot check: {error:#}");
            false
        }
    }
}

/// The repository's root: this crate lies in `<root>/xtask`.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Files under `root` with one of these endings; hidden folders, build output and installed packages are left out.
fn files_ending<'a>(root: &Path, endings: &'a [&str]) -> impl Iterator<Item = PathBuf> + use<'a> {
    walkdir::WalkDir::new(root)
        .sort_by_file_name()
        .into_iter()
        .filter_entry(|entry| {
            let name = entry.file_name().to_string_lossy();
            entry.depth() == 0 || !(name.starts_with('.') || name == "target" || name == "node_modules")
        })
        .filter_map(Result::ok)
        .map(walkdir::DirEntry::into_path)
        .filter(|path| path.extension().is_some_and(|end| endings.iter().any(|wanted| end == *wanted)))
}
