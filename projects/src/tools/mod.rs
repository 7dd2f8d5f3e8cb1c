//! Linters and type checkers in a folder of our own, where analyses look before the `PATH`. They get there only when somebody asks
//! ([`install()`]), never during an analysis, and nothing outside of the folder is written.
//!
//! - `TOOLS-1` what is installed is a version of our table, locked by hashes, and nothing of a package is executed on the way.
//! - `TOOLS-2` a tool is there whole and after it was seen to start, or it is not there: its folder is renamed into place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::analyzers::{KnownTool, known_tools};
use crate::error::ProjectError;
use crate::folder::{homes, on_path};
use crate::settings::ProjectSettings;
use catalog::{Package, Starter, package};

mod catalog;
mod clients;
mod install;

pub use install::install;

/// Name of the folder within a data folder.
pub const FOLDER: &str = "project-tools";
/// How long the installation of one tool may take.
const MAX_TIME: Duration = Duration::from_secs(300);
/// Describes a tool in its folder.
const MANIFEST: &str = "installed.json";

/// What was installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    version: String,
    /// What starts it, within its folder.
    starter: String,
    /// What runs the starter, when it is a script.
    interpreter: Option<PathBuf>,
    /// Whether the script is one of Python.
    python: bool,
}

/// How a tool of the folder is started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) version: String,
    pub(crate) program: PathBuf,
    /// Arguments that come first.
    pub(crate) first: Vec<String>,
    pub(crate) environment: BTreeMap<String, String>,
    /// What it reads besides what it checks.
    pub(crate) read: Vec<PathBuf>,
    /// Settings of ours.
    pub(crate) config: Option<PathBuf>,
}

/// A linter or type checker, and where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolEntry {
    /// As reports name it.
    pub name: &'static str,
    /// Languages that it reads.
    pub languages: Vec<&'static str>,
    /// `installed` in the folder of our own, `path` or `missing`.
    pub status: &'static str,
    /// The version in the folder of our own.
    pub installed_version: Option<String>,
    /// The version that would be installed; `None` when it can't be.
    pub version: Option<&'static str>,
    /// What would install it.
    pub client: Option<&'static str>,
    /// What is started.
    pub program: Option<String>,
    /// Whether an operator allows it.
    pub allowed: bool,
    /// What to do when it is missing or not allowed.
    pub fix: Option<String>,
}

/// Every tool that analyses know.
pub fn entries(settings: &ProjectSettings) -> Vec<ToolEntry> {
    known_tools().map(|tool| entry(tool, settings)).collect()
}

fn entry(tool: KnownTool, settings: &ProjectSettings) -> ToolEntry {
    let package = package(tool.name);
    let installed = installed(settings.tools.as_deref(), tool.name);
    let on_path = on_path(tool.program).filter(|_| !tool.is_private);
    let status = match (&installed, &on_path) {
        (Some(_), _) => "installed",
        (None, Some(_)) => "path",
        (None, None) => "missing",
    };
    let allowed = settings.programs.allows(tool.program);
    let fix = if allowed {
        (status == "missing").then(|| fix(tool.name, tool.install))
    } else {
        Some(format!("an operator can name {} in RIVERRUN_PROJECT_PROGRAMS", tool.program))
    };
    ToolEntry {
        name: tool.name,
        languages: tool.languages,
        status,
        version: package.map(|package| package.version),
        client: package.map(|package| package.client.name()),
        program: installed.as_ref().map(starter_of).or_else(|| on_path.map(|path| path.display().to_string())),
        installed_version: installed.map(|installed| installed.version),
        allowed,
        fix,
    }
}

fn starter_of(installed: &Installed) -> String {
    installed.first.first().cloned().unwrap_or_else(|| installed.program.display().to_string())
}

/// What to do about a tool that is missing.
pub(crate) fn fix(name: &str, otherwise: &str) -> String {
    match package(name) {
        Some(_) => format!("riverrun project tools install {name}"),
        None => otherwise.to_owned(),
    }
}

/// A tool of the folder; `None` when it is not there, or what runs it or its settings are gone.
pub(crate) fn installed(folder: Option<&Path>, name: &str) -> Option<Installed> {
    let package = package(name)?;
    let own = folder?.join(package.name);
    let manifest: Manifest = serde_json::from_slice(&std::fs::read(own.join(MANIFEST)).ok()?).ok()?;
    let found = started_by(&own, manifest)?;
    let config = package.config.map(|(file, _)| own.join(file));
    let is_whole = config.as_ref().is_none_or(|path| path.is_file());
    is_whole.then_some(Installed { config, ..found })
}

fn started_by(own: &Path, manifest: Manifest) -> Option<Installed> {
    let starter = own.join(&manifest.starter);
    if !starter.is_file() {
        return None;
    }
    let mut read = vec![own.to_owned()];
    let mut environment = BTreeMap::new();
    let (program, first) = match manifest.interpreter {
        None => (starter, Vec::new()),
        Some(interpreter) => {
            if !interpreter.is_file() {
                return None;
            }
            read.extend(homes(&interpreter));
            (interpreter, vec![starter.display().to_string()])
        }
    };
    if manifest.python {
        environment.insert("PYTHONPATH".to_owned(), own.join("site").display().to_string());
        environment.insert("PYTHONDONTWRITEBYTECODE".to_owned(), "1".to_owned());
    }
    Some(Installed { version: manifest.version, program, first, environment, read, config: None })
}

fn manifest_of(package: &Package, interpreter: Option<PathBuf>) -> Manifest {
    let is_script = !matches!(package.starter, Starter::Program(_));
    Manifest {
        version: package.version.to_owned(),
        starter: package.starter.path().to_owned(),
        interpreter: interpreter.filter(|_| is_script),
        python: matches!(package.starter, Starter::Python(_)),
    }
}

/// Removes a tool from the folder. Blocks.
///
/// # Errors
/// When no tool has that name, it is not in the folder, or can't be removed.
pub fn remove(name: &str, settings: &ProjectSettings) -> Result<(), ProjectError> {
    let folder = folder(settings)?;
    let own = folder.join(wanted(name)?.name);
    if !own.is_dir() {
        let message = format!("{name} is not installed in {}", folder.display());
        return Err(refused("tool_not_found", message, "riverrun project tools ls shows what is"));
    }
    // What is half removed has no manifest any more and counts as not there.
    let gone = std::fs::remove_file(own.join(MANIFEST)).or_else(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    });
    gone.and_then(|()| std::fs::remove_dir_all(&own)).map_err(|error| no_place(&own, &error))
}

fn folder(settings: &ProjectSettings) -> Result<&Path, ProjectError> {
    let none = || refused("no_tools_folder", "this process has no folder for tools", "use the riverrun binary");
    settings.tools.as_deref().ok_or_else(none)
}

/// The entry of the table; whoever names another one learns which there are.
fn wanted(name: &str) -> Result<&'static Package, ProjectError> {
    if let Some(package) = package(name) {
        return Ok(package);
    }
    if let Some(tool) = known_tools().find(|tool| tool.name == name) {
        let message =
            format!("{name} can't be installed into a folder of its own: it is a part of its language's tools");
        return Err(refused("not_installable", message, tool.install));
    }
    let shown: String = name.chars().filter(|c| !c.is_control()).take(60).collect();
    let names: Vec<&str> = catalog::PACKAGES.iter().map(|package| package.name).collect();
    Err(refused("tool_not_found", format!("there is no tool {shown:?}"), format!("one of {}", names.join(", "))))
}

fn no_place(path: &Path, error: &std::io::Error) -> ProjectError {
    let message = format!("{} can't be written: {error}", path.display());
    refused("no_place", message, "free some space, or correct the rights of the data folder")
}

fn refused(code: &'static str, message: impl Into<String>, hint: impl Into<String>) -> ProjectError {
    ProjectError::refused(code, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(folder: &Path) -> ProjectSettings {
        ProjectSettings { tools: Some(folder.to_owned()), ..ProjectSettings::default() }
    }

    fn lay(folder: &Path, name: &str, interpreter: Option<PathBuf>) {
        let package = package(name).unwrap();
        let starter = folder.join(name).join(package.starter.path());
        std::fs::create_dir_all(starter.parent().unwrap()).unwrap();
        std::fs::write(&starter, "").unwrap();
        let manifest = serde_json::to_vec(&manifest_of(package, interpreter)).unwrap();
        std::fs::write(folder.join(name).join(MANIFEST), manifest).unwrap();
    }

    #[test]
    fn given_tools_of_the_table_when_each_can_be_installed_then_analyses_know_it() {
        for package in catalog::PACKAGES {
            assert!(known_tools().any(|tool| tool.name == package.name), "{}", package.name);
        }
    }

    #[test]
    fn given_a_tool_of_the_folder_when_it_is_looked_for_then_it_is_found_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let shell = PathBuf::from("/bin/sh");
        assert_eq!(installed(Some(folder.path()), "ruff"), None);
        assert_eq!(installed(None, "ruff"), None);
        lay(folder.path(), "ruff", Some(shell.clone()));
        let ruff = installed(Some(folder.path()), "ruff").unwrap();
        // A program needs no interpreter.
        assert_eq!((ruff.program, ruff.first.len()), (folder.path().join("ruff/site/bin/ruff"), 0));
        lay(folder.path(), "mypy", Some(shell.clone()));
        let mypy = installed(Some(folder.path()), "mypy").unwrap();
        assert_eq!(mypy.program, shell);
        assert_eq!(mypy.first, [folder.path().join("mypy/site/bin/mypy").display().to_string()]);
        assert_eq!(mypy.environment["PYTHONPATH"], folder.path().join("mypy/site").display().to_string());
        lay(folder.path(), "ty", None);
        std::fs::remove_file(folder.path().join("ty/site/bin/ty")).unwrap();
        assert_eq!(installed(Some(folder.path()), "ty"), None, "half of it is nothing");
        lay(folder.path(), "eslint", Some(PathBuf::from("/no/such/node")));
        assert_eq!(installed(Some(folder.path()), "eslint"), None, "what runs it is gone");
        std::fs::write(folder.path().join("mypy").join(MANIFEST), "{").unwrap();
        assert_eq!(installed(Some(folder.path()), "mypy"), None);
    }

    #[test]
    fn given_the_folder_when_tools_are_listed_then_each_says_where_it_is_and_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        lay(folder.path(), "ruff", None);
        let found = entries(&settings(folder.path()));
        let of = |name: &str| found.iter().find(|one| one.name == name).unwrap();
        assert_eq!((of("ruff").status, of("ruff").fix.clone()), ("installed", None));
        assert_eq!(of("ruff").installed_version.as_deref(), of("ruff").version);
        assert!(!of("clippy").allowed && of("clippy").version.is_none());
        for one in found.iter().filter(|one| one.status == "missing") {
            assert!(one.fix.is_some(), "{one:?}");
        }
        remove("ruff", &settings(folder.path())).unwrap();
        assert_ne!(
            entries(&settings(folder.path())).iter().find(|one| one.name == "ruff").unwrap().status,
            "installed"
        );
    }

    #[test]
    fn given_names_of_no_tool_when_they_are_removed_then_each_is_refused_and_nothing_else_is_touched() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("kept"), "").unwrap();
        for (name, code) in [
            ("../kept", "tool_not_found"),
            ("kept", "tool_not_found"),
            ("", "tool_not_found"),
            ("ruff", "tool_not_found"),
            ("clippy", "not_installable"),
        ] {
            let Err(error) = remove(name, &settings(folder.path())) else { panic!("{name:?} was removed") };
            assert_eq!(error.failure().code, code, "{name:?}");
        }
        assert!(folder.path().join("kept").is_file());
        assert_eq!(remove("ruff", &ProjectSettings::default()).unwrap_err().failure().code, "no_tools_folder");
    }
}
