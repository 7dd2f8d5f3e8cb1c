//! Installing a tool: the client in the sandbox, with the network and nothing to write but the new folder; a look whether what came
//! starts, without the network; then the folder is renamed into place.

use std::path::Path;
use std::time::{Duration, SystemTime};

use riverrun_agents::tools::sandbox::{Confinement, Finished, Invocation, Sandbox};
use tokio::sync::Semaphore;

use super::catalog::{Client, Package};
use super::{MANIFEST, MAX_TIME, clients, folder, installed, manifest_of, no_place, refused, started_by, wanted};
use crate::error::ProjectError;
use crate::settings::ProjectSettings;

/// How long a tool may take to say its version.
const MAX_START_TIME: Duration = Duration::from_secs(60);
/// What a folder is called that is not yet a tool.
const UNFINISHED: &str = ".new-";
/// One that is older was left by a process that ended.
const MAX_AGE: Duration = Duration::from_secs(3_600);
/// What is told of what a client said, in characters.
const MAX_TOLD: usize = 600;

/// One installation at a time: each takes network, disk and time of its own.
static SLOT: Semaphore = Semaphore::const_new(1);

/// Installs tools of the table, one after the other; one that is there in its version is left as it is. Dropping the call ends the
/// client, and leaves what was there before.
///
/// # Errors
/// When a name is none of the table's (then nothing is installed), another installation is at work, a client is missing, the
/// registry does not answer, or what came does not start. Tools that were named before the one that failed are installed.
pub async fn install(
    names: &[String],
    settings: &ProjectSettings,
    sandbox: Option<&Sandbox>,
) -> Result<(), ProjectError> {
    let folder = folder(settings)?;
    let packages = names.iter().map(|name| wanted(name)).collect::<Result<Vec<&'static Package>, ProjectError>>()?;
    let Some(sandbox) = sandbox else {
        return Err(refused("no_sandbox", "this process has no sandbox", "use the riverrun binary"));
    };
    let Ok(_slot) = SLOT.try_acquire() else {
        return Err(refused("tools_busy", "another installation is at work", "try it again when it is done"));
    };
    std::fs::create_dir_all(folder).map_err(|error| no_place(folder, &error))?;
    remove_unfinished(folder);
    for package in packages {
        let is_there = installed(Some(folder), package.name).is_some_and(|one| one.version == package.version);
        if !is_there {
            install_one(package, folder, sandbox).await?;
        }
    }
    Ok(())
}

async fn install_one(package: &'static Package, folder: &Path, sandbox: &Sandbox) -> Result<(), ProjectError> {
    let failed = |error: std::io::Error| no_place(folder, &error);
    // Whatever happens, it goes with all that is in it.
    let unfinished = tempfile::Builder::new().prefix(UNFINISHED).tempdir_in(folder).map_err(failed)?;
    let new = unfinished.path().join("tool");
    std::fs::create_dir(&new).map_err(failed)?;
    let ready = clients::ready(package, &new).await?;
    let answer = tokio::time::timeout(MAX_TIME, sandbox.run_in(ready.invocation, &new)).await;
    match answer {
        Err(_) => {
            let message = format!("{} took more than {} s", named(package), MAX_TIME.as_secs());
            return Err(refused("install_timed_out", message, "try it again, or use a registry that is nearer"));
        }
        Ok(Err(error)) => return Err(not_installed(package, &error.to_string())),
        Ok(Ok(finished)) if finished.code != Some(0) => return Err(not_installed(package, &said(&finished))),
        Ok(Ok(_)) => {}
    }
    let manifest = manifest_of(package, ready.interpreter);
    // Texts: can't fail.
    let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    std::fs::write(new.join(MANIFEST), text).map_err(failed)?;
    let Some(found) = started_by(&new, manifest) else {
        return Err(not_installed(package, "it ended without what starts the tool"));
    };
    let invocation = Invocation {
        program: found.program,
        arguments: found.first.into_iter().chain([package.version_argument.to_owned()]).collect(),
        environment: found.environment,
        stdin: None,
        confinement: Confinement {
            read: found.read,
            memory_bytes: 0,
            cpu_seconds: MAX_START_TIME.as_secs(),
            processes: 256,
            ..Confinement::default()
        },
        max_output: 1 << 20,
    };
    let started = tokio::time::timeout(MAX_START_TIME, sandbox.run(invocation)).await;
    let why = match started {
        Err(_) => Some(format!("no answer within {} s", MAX_START_TIME.as_secs())),
        Ok(Err(error)) => Some(error.to_string()),
        Ok(Ok(finished)) => (finished.code != Some(0)).then(|| said(&finished)),
    };
    if let Some(why) = why {
        let message = format!("{} was fetched and does not start here: {why}", named(package));
        return Err(refused("tool_does_not_start", message, "install it for this system by hand, on the PATH"));
    }
    let place = folder.join(package.name);
    if place.exists() {
        std::fs::rename(&place, unfinished.path().join("old")).map_err(failed)?;
    }
    std::fs::rename(&new, &place).map_err(failed)
}

fn named(package: &Package) -> String {
    format!("installing {} {} with {}", package.name, package.version, package.client.name())
}

/// What was left by processes that ended. What can't be removed is no reason to install nothing.
fn remove_unfinished(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let is_unfinished = entry.file_name().to_string_lossy().starts_with(UNFINISHED);
        let changed = entry.metadata().and_then(|about| about.modified());
        let age = changed.ok().and_then(|at| SystemTime::now().duration_since(at).ok());
        if is_unfinished && age.is_some_and(|age| age > MAX_AGE) {
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// What clients say when the registry can't be reached.
const UNREACHED: [&str; 16] = [
    "NewConnectionError",
    "ConnectTimeoutError",
    "Failed to establish a new connection",
    "Name or service not known",
    "name resolution",
    "Network is unreachable",
    "network is unreachable",
    "Connection refused",
    "connection refused",
    "Read timed out",
    "ECONNREFUSED",
    "ECONNRESET",
    "ENOTFOUND",
    "EAI_AGAIN",
    "ETIMEDOUT",
    "dial tcp",
];

fn not_installed(package: &Package, why: &str) -> ProjectError {
    let (code, what) = if UNREACHED.iter().any(|sign| why.contains(sign)) {
        ("registry_unreachable", "the registry can't be reached: ")
    } else {
        ("tool_not_installed", "")
    };
    let message = format!("{} failed: {what}{}", named(package), told(why));
    let hint = match package.client {
        Client::Pip => "check the network; behind a proxy or a mirror set HTTPS_PROXY or PIP_INDEX_URL for riverrun",
        Client::Npm => {
            "check the network; behind a proxy or a mirror set HTTPS_PROXY or NPM_CONFIG_REGISTRY for riverrun"
        }
        Client::Go => "check the network; behind a proxy or a mirror set HTTPS_PROXY or GOPROXY for riverrun",
    };
    refused(code, message, format!("{hint}; or install {} by hand, on the PATH", package.name))
}

fn said(finished: &Finished) -> String {
    let stdout = String::from_utf8_lossy(&finished.stdout);
    match (finished.stderr.trim(), stdout.trim()) {
        ("", "") => format!("exit code {}, without a word", finished.code.unwrap_or(-1)),
        ("", stdout) => stdout.to_owned(),
        (stderr, _) => stderr.to_owned(),
    }
}

/// On one line, without control characters, and without what stands before an `@` in addresses. Of a long text the beginning and
/// the end: clients say in either what went wrong.
fn told(text: &str) -> String {
    let words: Vec<String> = text.split_whitespace().map(without_user).collect();
    let line: Vec<char> = words.join(" ").chars().filter(|c| !c.is_control()).collect();
    match line.len().checked_sub(MAX_TOLD) {
        None | Some(0) => line.into_iter().collect(),
        Some(over) => {
            let beginning = MAX_TOLD / 3;
            let rest = &line[beginning + over + 1..];
            line[..beginning].iter().chain(&['…']).chain(rest).collect()
        }
    }
}

/// In each address of a word: settings of proxies have several with commas between them.
fn without_user(word: &str) -> String {
    let mut parts = word.split("://");
    let mut said = parts.next().unwrap_or_default().to_owned();
    for rest in parts {
        let host = rest.split('/').next().unwrap_or_default();
        let user = host.rsplit_once('@').map(|(user, _)| user);
        said.push_str(if user.is_some() { "://***" } else { "://" });
        said.push_str(&rest[user.unwrap_or_default().len()..]);
    }
    said
}

#[cfg(test)]
mod tests {
    use super::super::catalog::package;
    use super::*;

    fn settings(folder: &Path) -> ProjectSettings {
        ProjectSettings { tools: Some(folder.to_owned()), ..ProjectSettings::default() }
    }

    #[tokio::test]
    async fn given_names_that_are_not_in_the_table_when_they_are_installed_then_nothing_is_begun() {
        let folder = tempfile::tempdir().unwrap();
        let none = folder.path().join("tools");
        for (names, code) in [
            (vec!["ruff", "left-pad"], "tool_not_found"),
            (vec!["../ruff"], "tool_not_found"),
            (vec!["ruff==1.0"], "tool_not_found"),
            (vec!["--index-url=http://h"], "tool_not_found"),
            (vec!["clippy"], "not_installable"),
            (vec!["ruff"], "no_sandbox"),
        ] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let Err(error) = install(&names, &settings(&none), None).await else { panic!("{names:?} are installed") };
            assert_eq!(error.failure().code, code, "{names:?}");
            assert!(!none.exists());
        }
    }

    #[test]
    fn given_what_clients_say_without_a_network_when_it_is_told_then_it_names_the_registry_and_the_fix() {
        for (name, text, code) in [
            (
                "ruff",
                "WARNING: Retrying after connection broken by 'NewConnectionError: [Errno 111] Connection refused': /simple/ruff/\nERROR: No matching distribution found for ruff==0.1",
                "registry_unreachable",
            ),
            (
                "eslint",
                "npm error code ENOTFOUND\nnpm error request to https://h/eslint failed",
                "registry_unreachable",
            ),
            ("staticcheck", "go: Get \"https://h\": dial tcp: lookup h: no such host", "registry_unreachable"),
            ("mypy", "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE", "tool_not_installed"),
        ] {
            let failure = not_installed(package(name).unwrap(), text).failure();
            assert_eq!(failure.code, code, "{name}");
            assert!(failure.message.contains(name) && !failure.message.contains('\n'), "{}", failure.message);
            let hint = failure.hint.unwrap();
            assert!(hint.contains("network") && hint.contains("PATH"), "{hint}");
        }
    }

    #[test]
    fn given_an_address_with_a_password_when_it_is_told_then_the_password_is_not() {
        let text =
            told("Looking in indexes: https://ann:secret@host.example/simple/a@b, \u{1b}[31mhttps://plain.example/x");
        assert_eq!(text, "Looking in indexes: https://***@host.example/simple/a@b, [31mhttps://plain.example/x");
        let several =
            told("GOPROXY=https://a.example,https://ann:secret@b.example/go|https://bob:pass@c.example,direct");
        assert_eq!(several, "GOPROXY=https://a.example,https://***@b.example/go|https://***@c.example,direct");
        let long = told(&format!("in the beginning {}the end", "é ".repeat(2 * MAX_TOLD)));
        assert_eq!(long.chars().count(), MAX_TOLD);
        assert!(long.starts_with("in the beginning") && long.ends_with("the end"), "{long}");
    }

    #[test]
    fn given_folders_that_were_left_when_something_is_installed_then_new_ones_and_tools_stay() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".new-1", "ruff"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        remove_unfinished(folder.path());
        assert!(folder.path().join(".new-1").is_dir() && folder.path().join("ruff").is_dir());
        remove_unfinished(&folder.path().join("no-such-folder"));
    }
}
