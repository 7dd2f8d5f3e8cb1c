//! Runs a program that a tool definition names, in a process group of its own and with as little as the kernel can be told
//! to leave it: no shell, an empty temporary folder, a cleared environment, limits, and, where the kernel has them, Landlock
//! for files and TCP and seccomp for everything that leads out.
//!
//! The limits are set by a process of our own program (`<program> __sandbox -- …`, [`launch`]) that then becomes the tool:
//! nothing runs between fork and exec of this one, which has many threads.
//!
//! - `SANDBOX-1` when a call ends, for whatever reason, no process of its group is left.
//! - `SANDBOX-2` what the kernel can't enforce is left out, and [`Support`] says so.

mod launch;
mod os;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

pub use launch::{FAILED, LAUNCH, Support, launch, support};

/// Carries the [`Confinement`] to the launcher; the tool does not see it.
const CONFINEMENT: &str = "RIVERRUN_SANDBOX";
/// What is kept of what a program says on its standard error.
const MAX_STDERR: usize = 4 << 10;
/// Longest argument, in bytes: the kernel's limit is 128 KiB.
pub const MAX_ARGUMENT: usize = 100 << 10;

/// What a program may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// Read and executed, besides what programs of the system need.
    pub read: Vec<PathBuf>,
    /// Written, besides its own folder.
    pub write: Vec<PathBuf>,
    /// Whether it may open sockets.
    pub network: bool,
    /// Address space; 0 is without a limit, for runtimes that reserve more than they use.
    pub memory_bytes: u64,
    /// Processor time.
    pub cpu_seconds: u64,
    /// Largest file that it writes.
    pub file_bytes: u64,
    /// Files that each of its processes may have open at once.
    pub open_files: u64,
    /// Processes and threads that it adds.
    pub processes: u64,
}

impl Default for Confinement {
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            network: false,
            memory_bytes: 512 << 20,
            cpu_seconds: 60,
            file_bytes: 64 << 20,
            open_files: 256,
            processes: 64,
        }
    }
}

/// A program to run.
#[derive(Debug, Clone)]
pub struct Invocation {
    /// Absolute path.
    pub program: PathBuf,
    /// Its arguments, as they are.
    pub arguments: Vec<String>,
    /// Its environment, and nothing else but a plain `PATH`, `HOME`, `TMPDIR` and `LANG`.
    pub environment: BTreeMap<String, String>,
    /// What it reads on its standard input.
    pub stdin: Option<Vec<u8>>,
    /// What it may use.
    pub confinement: Confinement,
    /// Most bytes that it may write to its standard output.
    pub max_output: usize,
}

/// A program that ran to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finished {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// The signal.
    pub signal: Option<i32>,
    /// Its output.
    pub stdout: Vec<u8>,
    /// The beginning of what it said on standard error.
    pub stderr: String,
}

/// A program did not run to its end.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// It can't be started.
    #[error("{program} can't be started: {reason}")]
    NotStarted {
        /// The program.
        program: String,
        /// Why.
        reason: String,
    },
    /// It wrote more than allowed.
    #[error("{program} wrote more than {limit} bytes, which is the limit")]
    TooMuchOutput {
        /// The program.
        program: String,
        /// The limit.
        limit: usize,
    },
}

/// Starts programs through a launcher.
#[derive(Debug, Clone)]
pub struct Sandbox {
    launcher: PathBuf,
}

/// A group of processes, ended when this is dropped.
pub(crate) struct ProcessGroup(u32);

impl ProcessGroup {
    /// The group that a process leads, which was started as the leader of one.
    pub(crate) fn new(leader: u32) -> Self {
        Self(leader)
    }

    fn end(&self) {
        os::kill_group(self.0);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
    }
}

impl Sandbox {
    /// `launcher` is a program whose `main` calls [`launch`]: riverrun itself.
    pub fn new(launcher: impl Into<PathBuf>) -> Self {
        Self { launcher: launcher.into() }
    }

    /// Runs a program to its end. Dropping the call ends the program and all that it started.
    ///
    /// # Errors
    /// When it does not start, or writes too much. A bad exit code is none.
    pub async fn run(&self, invocation: Invocation) -> Result<Finished, SandboxError> {
        self.run_at(invocation, None).await
    }

    /// The same with another folder to begin in, which it may write too. Its home stays a folder of its own.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub async fn run_in(&self, invocation: Invocation, place: &Path) -> Result<Finished, SandboxError> {
        self.run_at(invocation, Some(place)).await
    }

    async fn run_at(&self, invocation: Invocation, place: Option<&Path>) -> Result<Finished, SandboxError> {
        let program = invocation.program.display().to_string();
        let not_started = |reason: String| SandboxError::NotStarted { program: program.clone(), reason };
        let folder = tempfile::Builder::new()
            .prefix("riverrun-tool-")
            .tempdir()
            .map_err(|error| not_started(format!("it gets no folder of its own: {error}")))?;
        let mut child = self
            .spawn(&invocation, folder.path(), place)
            .map_err(|error| not_started(format!("the launcher: {error}")))?;
        let group = ProcessGroup::new(child.id().unwrap_or(0));
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let feed = async {
            if let (Some(mut stdin), Some(text)) = (stdin, invocation.stdin.as_deref()) {
                // A program need not read what it is given.
                let _ = stdin.write_all(text).await;
            }
        };
        let ending = async {
            let status = child.wait().await;
            group.end();
            status
        };
        let reading = async {
            let read = read_up_to(stdout, invocation.max_output).await;
            if read.is_none() {
                group.end();
            }
            read
        };
        let errors = async { read_some(stderr, MAX_STDERR).await };
        let ((), status, stdout, stderr) = tokio::join!(feed, ending, reading, errors);
        let status = status.map_err(|error| not_started(error.to_string()))?;
        let stdout =
            stdout.ok_or(SandboxError::TooMuchOutput { program: program.clone(), limit: invocation.max_output })?;
        let stderr = String::from_utf8_lossy(&stderr).trim().to_owned();
        if status.code() == Some(i32::from(FAILED)) && stderr.starts_with(launch::SAYS) {
            return Err(not_started(stderr.trim_start_matches(launch::SAYS).trim().to_owned()));
        }
        let signal = std::os::unix::process::ExitStatusExt::signal(&status);
        Ok(Finished { code: status.code(), signal, stdout, stderr })
    }

    fn spawn(&self, invocation: &Invocation, folder: &Path, place: Option<&Path>) -> std::io::Result<Child> {
        let mut confinement = invocation.confinement.clone();
        confinement.write.push(folder.to_owned());
        confinement.write.extend(place.map(Path::to_owned));
        confinement.read.push(invocation.program.clone());
        let mut command = Command::new(&self.launcher);
        command
            .arg(LAUNCH)
            .arg(&invocation.program)
            .args(&invocation.arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("LANG", "C.UTF-8")
            .env("HOME", folder)
            .env("TMPDIR", folder)
            .envs(&invocation.environment)
            .env(CONFINEMENT, serde_json::to_string(&confinement)?)
            .current_dir(place.unwrap_or(folder))
            .process_group(0)
            .stdin(if invocation.stdin.is_some() { Stdio::piped() } else { Stdio::null() })
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // The launcher may need it to find its own libraries; the tool does not get it.
        if let Some(path) = std::env::var_os("LD_LIBRARY_PATH") {
            command.env(launch::LIBRARIES, &path).env("LD_LIBRARY_PATH", path);
        }
        command.spawn()
    }
}

/// All of it, or nothing when it is longer.
async fn read_up_to(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(pipe) = pipe {
        let most = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        let _ = pipe.take(most).read_to_end(&mut bytes).await;
    }
    (bytes.len() <= limit).then_some(bytes)
}

/// The beginning of it; the rest is read and forgotten, so that the program is not held up.
async fn read_some(pipe: Option<impl AsyncRead + Unpin>, limit: usize) -> Vec<u8> {
    let mut kept = Vec::new();
    let Some(mut pipe) = pipe else { return kept };
    let mut piece = [0; 4096];
    while let Ok(read @ 1..) = pipe.read(&mut piece).await {
        let room = limit.saturating_sub(kept.len());
        kept.extend_from_slice(&piece[..read.min(room)]);
    }
    kept
}
