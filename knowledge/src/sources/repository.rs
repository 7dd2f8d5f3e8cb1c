//! Git repositories: the newest commit, cloned by the git program into a temporary folder that is read as any other.
//!
//! - `GIT-1` nothing of a repository is run: no hooks, no filters, no submodules, no file-system monitor, no links.
//! - `GIT-2` git asks nobody for a password and reads no configuration of the user or the machine.
//! - `GIT-3` the address that was checked is the one that git connects to; it follows no redirect and speaks https only.
//! - `GIT-4` a clone that is over its limits, or that nobody waits for any more, ends with all helpers that git started for it.

use std::net::IpAddr;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::AsyncReadExt;
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use url::Url;

use super::folder::list_folder;
use super::gather::{Gathered, Item};
use super::globs::Globs;
use super::place::GitAddress;
use super::read::read_document;
use super::{Fault, LeftOutReason, Limits, SourceError};
use crate::web::GuardedClient;

/// Most bytes that a clone may have on disk.
pub const MAX_REPOSITORY_BYTES: u64 = 1 << 30;

/// How much a clone may take.
#[derive(Debug, Clone, Copy)]
struct CloneLimits {
    time: Duration,
    bytes: u64,
}

const LIMITS: CloneLimits = CloneLimits { time: Duration::from_secs(300), bytes: MAX_REPOSITORY_BYTES };

/// How often the size of a clone is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// Bytes of what git says that are kept for the reason of a failure.
const MAX_SAID: usize = 4_096;

/// Reads the files of a repository.
pub(super) async fn read_repository(
    address: &GitAddress,
    globs: &Globs,
    client: &GuardedClient,
    limits: Limits,
    out: &mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let shown = match address {
        GitAddress::Https(url) => url.to_string(),
        GitAddress::Local(path) => path.display().to_string(),
    };
    let folder = tempfile::Builder::new()
        .prefix("riverrun-git-")
        .tempdir()
        .map_err(|error| failed(&shown, &format!("has no place to be cloned to: {error}")))?;
    clone(address, &shown, folder.path(), client).await?;
    let (globs, out, root) = (globs.clone(), out.clone(), folder.path().to_owned());
    let read = tokio::task::spawn_blocking(move || read_files(&shown, &root, &globs, limits, &out));
    let result = read.await.unwrap_or_else(|_| Err(failed("the repository", "made its reader fail")));
    drop(folder);
    result
}

fn read_files(
    shown: &str,
    root: &Path,
    globs: &Globs,
    limits: Limits,
    out: &mpsc::Sender<Item>,
) -> Result<(), SourceError> {
    let root = root.canonicalize().map_err(|error| failed(shown, &error.to_string()))?;
    let as_named = |error: SourceError| named(&error, &root, shown);
    let listing = list_folder(&root, false, globs, limits).map_err(as_named)?;
    let name = |path: &Path| format!("{shown}#{}", path.strip_prefix(&root).unwrap_or(path).display());
    let skipped: Vec<Item> = listing.left_out.iter().flat_map(items).collect();
    let refused = listing.refused.into_iter();
    let refused = refused.map(|(found, error)| Item::Refused { source: name(&found.path), error: as_named(error) });
    let documents = listing.documents.into_iter().map(|found| {
        let source = name(&found.path);
        match read_document(&found, None, limits) {
            Ok((bytes, kind)) => Item::Document(Gathered { source, bytes, kind }),
            Err(error) if error.code() == "unsupported_type" => Item::skipped(LeftOutReason::NotText),
            Err(error) => Item::Refused { source, error: as_named(error) },
        }
    });
    for item in skipped.into_iter().chain(refused).chain(documents) {
        if out.blocking_send(item).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Files that were left out, one by one; there are no more of them than a repository may have.
fn items((reason, extension, files): (LeftOutReason, Option<&str>, usize)) -> impl Iterator<Item = Item> {
    let extension = extension.map(|extension| extension.trim_start_matches('.').to_owned());
    (0..files).map(move |_| Item::Skipped { reason, extension: extension.clone() })
}

/// An error of a file in the clone, said of the repository: the folder that it was cloned to is gone by the time it is read.
fn named(error: &SourceError, root: &Path, shown: &str) -> SourceError {
    let root = root.display().to_string();
    let of_repository = |text: &str| text.replace(&format!("{root}/"), &format!("{shown}#")).replace(&root, shown);
    SourceError::Told {
        code: error.code(),
        message: of_repository(&error.to_string()),
        hint: error.hint().as_deref().map(of_repository),
    }
}

/// Clones a repository into an empty folder: the whole tree, for whoever wants files and not documents.
pub async fn clone_repository(address: &GitAddress, folder: &Path, client: &GuardedClient) -> Result<(), SourceError> {
    let shown = match address {
        GitAddress::Https(url) => url.to_string(),
        GitAddress::Local(path) => path.display().to_string(),
    };
    clone(address, &shown, folder, client).await
}

async fn clone(address: &GitAddress, shown: &str, folder: &Path, client: &GuardedClient) -> Result<(), SourceError> {
    let pinned = match address {
        GitAddress::Https(url) => Some(checked_addresses(url, shown, client).await?),
        GitAddress::Local(_) => None,
    };
    let mut git = command(address, pinned.as_deref(), folder).spawn().map_err(|error| {
        SourceError::fault(
            shown,
            Fault::SourceFailed,
            format!("needs the git program, which can't be started: {error}"),
            "install git where the ingester runs",
        )
    })?;
    let said = git.stderr.take();
    let said = tokio::spawn(async move {
        let mut text = Vec::new();
        if let Some(mut said) = said {
            let mut piece = [0; 1024];
            // To the end, so that git never waits for its reader; the end is what tells.
            while let Ok(read @ 1..) = said.read(&mut piece).await {
                text.extend_from_slice(&piece[..read]);
                text.drain(..text.len().saturating_sub(MAX_SAID));
            }
        }
        String::from_utf8_lossy(&text).into_owned()
    });
    let status = watched(&mut git, shown, folder, LIMITS).await?;
    if status {
        return Ok(());
    }
    let said = said.await.unwrap_or_default();
    let reason: String = said
        .lines()
        .rfind(|line| line.starts_with("fatal:") || line.starts_with("error:"))
        .unwrap_or("git failed")
        .chars()
        .filter(|c| !c.is_control())
        .take(300)
        .collect();
    Err(failed(shown, &format!("can't be cloned: {reason}")))
}

/// A program with all that it started: git leaves a clone to helpers, which would go on without it.
struct Group(Option<Pid>);

impl Group {
    /// The group that `leader` was started to lead.
    fn of(leader: &Child) -> Self {
        Self(leader.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    /// The leader has ended by itself: its number may be somebody else's from now on.
    fn ended(&mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Waits for git within its limits; says whether it succeeded.
async fn watched(git: &mut Child, shown: &str, folder: &Path, limits: CloneLimits) -> Result<bool, SourceError> {
    let until = tokio::time::Instant::now() + limits.time;
    let mut group = Group::of(git);
    loop {
        match tokio::time::timeout(LOOK, git.wait()).await {
            Ok(Ok(status)) => {
                group.ended();
                return Ok(status.success());
            }
            Ok(Err(error)) => return Err(failed(shown, &error.to_string())),
            Err(_) => {}
        }
        let place = folder.to_owned();
        let size = tokio::task::spawn_blocking(move || size_of(&place, 0)).await.unwrap_or(0);
        let over = if size > limits.bytes {
            Some(SourceError::fault(
                shown,
                Fault::LimitExceeded,
                format!("has more than {} bytes", limits.bytes),
                "clone what is needed of it yourself and ingest the folder",
            ))
        } else if tokio::time::Instant::now() > until {
            Some(SourceError::fault(
                shown,
                Fault::TimedOut,
                format!("takes more than {} s to clone", limits.time.as_secs()),
                "clone it yourself and ingest the folder",
            ))
        } else {
            None
        };
        if let Some(error) = over {
            drop(group);
            let _ = git.wait().await;
            return Err(error);
        }
    }
}

fn size_of(folder: &Path, depth: usize) -> u64 {
    const DEEPEST: usize = 64;
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && depth < DEEPEST => size_of(&entry.path(), depth + 1),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |metadata| metadata.len()),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

/// The addresses of the host, each of which may be connected to.
async fn checked_addresses(url: &Url, shown: &str, client: &GuardedClient) -> Result<Vec<IpAddr>, SourceError> {
    let told = |error: crate::web::WebError| SourceError::Told {
        code: error.code(),
        message: format!("{shown} can't be cloned: {error}"),
        hint: error.hint(),
    };
    client.policy().check_url(url.as_str()).map_err(told)?;
    let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
    let found = tokio::net::lookup_host((host.trim_matches(['[', ']']), port))
        .await
        .map_err(|error| failed(shown, &format!("has a host that can't be found: {error}")))?;
    let addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    for address in &addresses {
        let literal = if address.is_ipv6() { format!("https://[{address}]/") } else { format!("https://{address}/") };
        client.policy().check_url(&literal).map_err(told)?;
    }
    Ok(addresses)
}

fn command(address: &GitAddress, pinned: Option<&[IpAddr]>, folder: &Path) -> Command {
    let mut git = Command::new("git");
    git.env_clear().envs(std::env::var_os("PATH").map(|path| ("PATH", path))).envs([
        ("HOME", "/nonexistent"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_SYSTEM", "/dev/null"),
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_ASKPASS", "/bin/false"),
        ("GIT_LFS_SKIP_SMUDGE", "1"),
        ("LC_ALL", "C"),
    ]);
    let protocol = match address {
        GitAddress::Https(_) => "https",
        GitAddress::Local(_) => "file",
    };
    git.env("GIT_ALLOW_PROTOCOL", protocol);
    for setting in [
        "protocol.allow=never",
        &format!("protocol.{protocol}.allow=always"),
        "core.hooksPath=/dev/null",
        "core.fsmonitor=false",
        "core.symlinks=false",
        "core.protectNTFS=true",
        "core.protectHFS=true",
        "credential.helper=",
        "http.followRedirects=false",
        "http.proxy=",
        "http.lowSpeedLimit=1000",
        "http.lowSpeedTime=30",
        "transfer.fsckObjects=true",
        "submodule.recurse=false",
        "uploadpack.packObjectsHook=",
    ] {
        git.args(["-c", setting]);
    }
    if let (GitAddress::Https(url), Some(addresses)) = (address, pinned) {
        let (host, port) = (url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(443));
        let list: Vec<String> = addresses.iter().map(IpAddr::to_string).collect();
        git.args(["-c", &format!("http.curloptResolve={host}:{port}:{}", list.join(","))]);
    }
    git.args([
        "clone",
        "--quiet",
        "--no-tags",
        "--depth",
        "1",
        "--single-branch",
        "--no-recurse-submodules",
        "--template=",
        "--no-local",
        "--",
    ]);
    match address {
        GitAddress::Https(url) => git.arg(url.as_str()),
        // A folder is cloned by its address, so that depth counts and nothing is linked.
        GitAddress::Local(path) => git.arg(format!("file://{}", path.display())),
    };
    git.arg(folder).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    git.process_group(0).kill_on_drop(true);
    git
}

fn failed(shown: &str, reason: &str) -> SourceError {
    SourceError::fault(
        shown,
        Fault::SourceFailed,
        reason,
        "check the address; only repositories that everyone may read are cloned",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::web::WebPolicy;

    fn run(folder: &Path, arguments: &[&str]) {
        let done = std::process::Command::new("git")
            .current_dir(folder)
            .args(["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }

    async fn read(address: GitAddress) -> (Result<(), SourceError>, Vec<Item>) {
        let client = GuardedClient::new(WebPolicy::default());
        let (sender, mut receiver) = mpsc::channel(100);
        let result = read_repository(
            &address,
            &Globs::new(&[], &["*.log".into()]).unwrap(),
            &client,
            Limits::default(),
            &sender,
        )
        .await;
        drop(sender);
        let mut items = Vec::new();
        while let Some(item) = receiver.recv().await {
            items.push(item);
        }
        (result, items)
    }

    #[tokio::test]
    async fn given_a_repository_with_hooks_and_links_when_read_then_its_files_are_documents_and_nothing_ran() {
        let dir = tempfile::tempdir().unwrap();
        let (repo, proof) = (dir.path().join("repo"), dir.path().join("ran"));
        std::fs::create_dir_all(repo.join("src")).unwrap();
        run(&repo, &["init", "-q", "-b", "main"]);
        std::fs::write(repo.join("README.md"), "# Read me").unwrap();
        std::fs::write(repo.join("src/main.rs"), "fn main() {}").unwrap();
        std::fs::write(repo.join("build.log"), "log").unwrap();
        std::fs::write(repo.join("picture.png"), "x").unwrap();
        std::fs::write(repo.join(".gitattributes"), "*.md filter=evil\n").unwrap();
        std::fs::write(repo.join(".gitmodules"), "[submodule \"x\"]\n path = ../..\n url = ext::touch\n").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", repo.join("link.txt")).unwrap();
        run(&repo, &["add", "README.md", "src", "build.log", "picture.png", ".gitattributes", "link.txt"]);
        run(&repo, &["commit", "-q", "-m", "x"]);
        for hook in ["post-checkout", "pre-commit", "post-merge"] {
            let path = repo.join(".git/hooks").join(hook);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, format!("#!/bin/sh\ntouch {}\n", proof.display())).unwrap();
        }
        let (result, items) = read(GitAddress::Local(repo.clone())).await;
        result.unwrap();
        let documents: Vec<(String, &str)> = items
            .iter()
            .filter_map(|item| {
                if let Item::Document(found) = item { Some((found.source.clone(), found.kind.name())) } else { None }
            })
            .collect();
        let shown = repo.display();
        assert!(documents.contains(&(format!("{shown}#README.md"), "markdown")), "{documents:?}");
        assert!(documents.contains(&(format!("{shown}#src/main.rs"), "code")), "{documents:?}");
        assert!(!documents.iter().any(|(name, _)| name.ends_with(".log") || name.ends_with(".png")), "{documents:?}");
        let secret = std::fs::read("/etc/passwd").unwrap();
        assert!(
            items.iter().all(|item| !matches!(item, Item::Document(found) if found.bytes == secret)),
            "a link was followed"
        );
        assert!(!proof.exists(), "a hook ran");
    }

    fn is_running(process: &str) -> bool {
        let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        status.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'))
    }

    async fn until(condition: impl Fn() -> bool) {
        tokio::time::timeout(Duration::from_secs(30), async {
            while !condition() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await
        .unwrap();
    }

    #[tokio::test]
    async fn given_a_clone_over_a_limit_when_it_is_ended_then_its_helpers_end_too() {
        for (limits, code) in [
            (CloneLimits { time: Duration::ZERO, ..LIMITS }, "timed_out"),
            (CloneLimits { bytes: 1, ..LIMITS }, "limit_exceeded"),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let told = dir.path().join("helper");
            let mut program = Command::new("sh");
            program.args(["-c", "sleep 1000 & echo $! > \"$0\"; wait"]).arg(&told);
            let mut program = program.process_group(0).kill_on_drop(true).spawn().unwrap();
            let helper = || std::fs::read_to_string(&told).unwrap_or_default();
            until(|| helper().ends_with('\n')).await;
            let helper = helper().trim().to_owned();
            assert!(is_running(&helper));
            let error = watched(&mut program, "the repository", dir.path(), limits).await.unwrap_err();
            assert_eq!(error.code(), code);
            until(|| !is_running(&helper)).await;
        }
    }

    #[test]
    fn given_files_that_are_refused_when_a_clone_is_read_then_errors_name_the_repository_and_not_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        std::fs::write(root.join("a.txt"), "much too large").unwrap();
        std::fs::write(root.join("b.txt"), "b").unwrap();
        let read = |max_files: usize| {
            let (sender, mut receiver) = mpsc::channel(10);
            let limits = Limits { max_file_bytes: 4, max_files };
            let result = read_files("https://example.org/x.git", &root, &Globs::all(), limits, &sender);
            (result, std::iter::from_fn(|| receiver.try_recv().ok()).collect::<Vec<Item>>())
        };
        let (result, items) = read(10);
        result.unwrap();
        let refused: Vec<(&str, String)> = items
            .iter()
            .filter_map(|item| match item {
                Item::Refused { source, error } => Some((source.as_str(), error.to_string())),
                Item::Document(_) | Item::Skipped { .. } => None,
            })
            .collect();
        assert_eq!((refused.len(), refused[0].0), (1, "https://example.org/x.git#a.txt"));
        let (result, _) = read(1);
        let error = result.unwrap_err();
        assert_eq!(error.code(), "too_many_files");
        for message in [refused[0].1.clone(), error.to_string()] {
            assert!(message.starts_with("https://example.org/x.git"), "{message}");
            assert!(!message.contains(&root.display().to_string()), "{message}");
        }
    }

    #[tokio::test]
    async fn given_repositories_that_are_not_there_or_not_public_when_read_then_the_error_names_the_rule() {
        let dir = tempfile::tempdir().unwrap();
        let (result, items) = read(GitAddress::Local(dir.path().join("nothing"))).await;
        assert_eq!((result.unwrap_err().code(), items.len()), ("source_failed", 0));
        for address in [
            "https://127.0.0.1/x.git",
            "https://[::1]/x.git",
            "https://localhost/x.git",
            "https://169.254.169.254/x.git",
        ] {
            let (result, _) = read(GitAddress::Https(address.parse().unwrap())).await;
            assert_eq!(result.unwrap_err().code(), "address_not_allowed", "{address}");
        }
    }
}
