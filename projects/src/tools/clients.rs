//! What the clients of package registries are started with. They see their own settings of the environment and no others, so that
//! a mirror or a proxy is used and no key of ours is handed on.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use riverrun_agents::tools::sandbox::{Confinement, Invocation};
use tokio::process::Command;

use super::catalog::{Client, Package, Wanted};
use super::refused;
use crate::error::ProjectError;
use crate::folder::{all_on_path, homes};

/// How long a program may take to say where it is.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(20);
/// Programs of one name that are asked.
const MAX_ASKED: usize = 8;
/// Largest file of a package, in bytes: 512 MiB.
const MAX_FILE: u64 = 512 << 20;
const MAX_OUTPUT: usize = 1 << 20;

/// Variables that a client may read: where its registry is, how to get there, and whom to trust.
const EVERY: [&str; 12] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
];
const PIP: [&str; 10] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_FIND_LINKS",
    "PIP_NO_INDEX",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_PROXY",
    "PIP_TRUSTED_HOST",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
];
const NPM: [&str; 15] = [
    "NODE_EXTRA_CA_CERTS",
    "NPM_CONFIG_CAFILE",
    "NPM_CONFIG_HTTPS_PROXY",
    "NPM_CONFIG_NOPROXY",
    "NPM_CONFIG_PROXY",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_STRICT_SSL",
    "NPM_CONFIG_USERCONFIG",
    "npm_config_cafile",
    "npm_config_https_proxy",
    "npm_config_noproxy",
    "npm_config_proxy",
    "npm_config_registry",
    "npm_config_strict_ssl",
    "npm_config_userconfig",
];
const GO: [&str; 5] = ["GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE", "GONOPROXY"];

/// Settings and certificates that lie outside of what every program may read.
const SETTINGS: [&str; 10] = [
    "/etc/pip.conf",
    "/etc/xdg/pip/pip.conf",
    "/etc/npmrc",
    "/etc/pki",
    "/etc/ca-certificates",
    // pip tells its registry which system it runs on.
    "/etc/os-release",
    "/usr/lib/os-release",
    "/etc/lsb-release",
    "/etc/debian_version",
    "/etc/redhat-release",
];

/// A client, ready to be started in the folder of a tool that is to be.
pub(super) struct Ready {
    pub(super) invocation: Invocation,
    /// What runs the tool later, when a program does not.
    pub(super) interpreter: Option<PathBuf>,
}

/// Finds the client of a package and writes what it reads into the folder.
///
/// # Errors
/// When the client is not installed, or nothing can be written.
pub(super) async fn ready(package: &Package, place: &Path) -> Result<Ready, ProjectError> {
    for (name, text) in lock_files(package.wanted).into_iter().chain(package.config) {
        std::fs::write(place.join(name), text).map_err(|error| super::no_place(place, &error))?;
    }
    match package.client {
        Client::Pip => pip(place).await,
        Client::Npm => npm().await,
        Client::Go => go(package, place).await,
    }
}

fn lock_files(wanted: Wanted) -> Vec<(&'static str, &'static str)> {
    match wanted {
        Wanted::Requirements(text) => vec![("requirements.txt", text)],
        Wanted::Lock(manifest, lock) => vec![("package.json", manifest), ("package-lock.json", lock)],
        Wanted::Module(_) => Vec::new(),
    }
}

async fn pip(place: &Path) -> Result<Ready, ProjectError> {
    // The first that has pip: some systems ship Python without it.
    let asked = ["-I", "-c", "import sys, pip; print(sys.executable)"];
    let Some(python) = answer_of(&["python3", "python"], &asked).await else {
        let hint =
            "install Python with pip (Debian and Ubuntu: apt install python3-pip) where riverrun's PATH finds it";
        return Err(missing("no python3 of the PATH has pip", hint));
    };
    let arguments = [
        "-I",
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--no-deps",
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--no-compile",
        "--no-cache-dir",
        "--retries",
        "1",
        "--requirement",
        "requirements.txt",
        "--target",
    ];
    let target = place.join("site").display().to_string();
    let mut environment = taken(&PIP);
    environment.insert("PIP_ROOT_USER_ACTION".to_owned(), "ignore".to_owned());
    settings_of_home(&mut environment, "PIP_CONFIG_FILE", &[".config/pip/pip.conf", ".pip/pip.conf"]);
    let arguments = arguments.iter().map(|one| (*one).to_owned()).chain([target]).collect();
    Ok(Ready { invocation: invocation(&python, arguments, environment), interpreter: Some(python) })
}

async fn npm() -> Result<Ready, ProjectError> {
    let hint = "install Node 20 or later with npm (https://nodejs.org) where riverrun's PATH finds it";
    let Some(node) = answer_of(&["node", "nodejs"], &["-p", "process.execPath"]).await else {
        return Err(missing("no node is on the PATH", hint));
    };
    // Version managers put scripts on the PATH that read their own home; npm itself lies beside its node.
    let beside = node.parent().map(|folder| folder.join("npm")).filter(|path| path.is_file());
    let Some(npm) = beside.or_else(|| all_on_path("npm").into_iter().next()) else {
        return Err(missing("no npm is on the PATH", hint));
    };
    let arguments = [
        "ci",
        "--ignore-scripts",
        "--omit=dev",
        "--no-audit",
        "--no-fund",
        "--no-update-notifier",
        "--fetch-retries=1",
        "--fetch-retry-mintimeout=1000",
        "--loglevel=error",
    ];
    let mut environment = taken(&NPM);
    if !environment.contains_key("npm_config_userconfig") {
        settings_of_home(&mut environment, "NPM_CONFIG_USERCONFIG", &[".npmrc"]);
    }
    let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
    let mut invocation = invocation(&npm, arguments, environment);
    invocation.confinement.read.extend(homes(&node));
    invocation.confinement.read.push(node.clone());
    if let (Some(folder), Some(path)) = (node.parent(), invocation.environment.get("PATH")) {
        let path = format!("{}:{path}", folder.display());
        invocation.environment.insert("PATH".to_owned(), path);
    }
    Ok(Ready { invocation, interpreter: Some(node) })
}

async fn go(package: &Package, place: &Path) -> Result<Ready, ProjectError> {
    let Some(root) = answer_of(&["go"], &["env", "GOROOT"]).await else {
        return Err(missing("no go is on the PATH", "install Go (1.26 or later): https://go.dev/dl"));
    };
    let Wanted::Module(module) = package.wanted else {
        return Err(refused("tool_not_installed", "it is no module of Go", "this is a defect"));
    };
    let mut environment = taken(&GO);
    for (name, value) in [("CGO_ENABLED", "0"), ("GOENV", "off"), ("GOTELEMETRY", "off"), ("GOTOOLCHAIN", "local")] {
        environment.insert(name.to_owned(), value.to_owned());
    }
    environment.insert("GOFLAGS".to_owned(), "-trimpath -buildvcs=false -modcacherw".to_owned());
    environment.insert("GOBIN".to_owned(), place.join("bin").display().to_string());
    let arguments = vec!["install".to_owned(), format!("{module}@{}", package.version)];
    Ok(Ready { invocation: invocation(&root.join("bin/go"), arguments, environment), interpreter: None })
}

fn missing(what: &str, hint: &str) -> ProjectError {
    refused("client_missing", what, hint)
}

fn invocation(program: &Path, arguments: Vec<String>, mut environment: BTreeMap<String, String>) -> Invocation {
    // Certificates and settings that the environment names.
    let named = environment.values().filter(|value| value.starts_with('/')).map(PathBuf::from);
    let read = homes(program).into_iter().chain(SETTINGS.map(PathBuf::from)).chain(named).collect();
    if let Some(beside) = program.parent() {
        environment.insert("PATH".to_owned(), format!("{}:/usr/local/bin:/usr/bin:/bin", beside.display()));
    }
    let confinement = Confinement {
        read,
        network: true,
        // Runtimes reserve more than they use.
        memory_bytes: 0,
        cpu_seconds: super::MAX_TIME.as_secs(),
        file_bytes: MAX_FILE,
        // npm writes the packages of a tree side by side: for eslint 256 were too few.
        open_files: 4_096,
        processes: 256,
        ..Confinement::default()
    };
    Invocation { program: program.to_owned(), arguments, environment, stdin: None, confinement, max_output: MAX_OUTPUT }
}

fn taken(own: &[&str]) -> BTreeMap<String, String> {
    let value = |name: &&str| Some(((*name).to_owned(), std::env::var(name).ok()?));
    EVERY.iter().chain(own).filter_map(value).collect()
}

/// The home of a client is an empty folder; its user's settings are named to it.
fn settings_of_home(environment: &mut BTreeMap<String, String>, variable: &str, files: &[&str]) {
    let Some(home) = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute()) else { return };
    if let Some(file) = files.iter().map(|file| home.join(file)).find(|file| file.is_file()) {
        environment.entry(variable.to_owned()).or_insert_with(|| file.display().to_string());
    }
}

/// The path that the first of these programs answers with. What is on the `PATH` may be a script of a version manager: only
/// the program itself knows where it is.
async fn answer_of(names: &[&str], arguments: &[&str]) -> Option<PathBuf> {
    let programs: Vec<PathBuf> = names.iter().flat_map(|name| all_on_path(name)).take(MAX_ASKED).collect();
    for program in programs {
        let mut command = Command::new(&program);
        command.args(arguments).current_dir("/").stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RIVERRUN_") {
                command.env_remove(name);
            }
        }
        let Ok(Ok(answer)) = tokio::time::timeout(MAX_ANSWER_TIME, command.output()).await else { continue };
        let path = PathBuf::from(String::from_utf8_lossy(&answer.stdout).trim());
        if answer.status.success() && path.is_absolute() && path.exists() {
            return Some(path);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn given_programs_that_say_where_they_are_when_they_are_asked_then_only_a_path_is_an_answer() {
        assert_eq!(answer_of(&["echo"], &["/usr"]).await, Some(PathBuf::from("/usr")));
        for (name, argument) in
            [("echo", "no/path"), ("echo", "/no/such/folder"), ("false", "/usr"), ("no-such-one", "/")]
        {
            assert_eq!(answer_of(&[name], &[argument]).await, None, "{name} {argument}");
        }
        assert_eq!(answer_of(&["no-such-one", "echo"], &["/usr"]).await, Some(PathBuf::from("/usr")));
    }

    #[test]
    fn given_a_client_when_it_is_to_be_started_then_it_sees_no_variable_that_is_not_its_own() {
        let environment = taken(&PIP);
        assert!(environment.keys().all(|name| EVERY.contains(&name.as_str()) || PIP.contains(&name.as_str())));
        let started = invocation(Path::new("/usr/bin/python3"), Vec::new(), environment);
        assert!(started.confinement.network && started.confinement.write.is_empty());
        assert!(started.environment.keys().all(|name| !name.starts_with("RIVERRUN_")));
    }
}
