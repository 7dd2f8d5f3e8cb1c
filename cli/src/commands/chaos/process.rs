//! Starting, killing, freezing and stopping child processes.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use super::harness;
use crate::error::CliError;

/// What a child says when it is there, with the broker's address behind it.
pub(super) const READY: &str = "ready ";
/// How long a child may take to be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// A child process. Dropped, it is killed.
pub(super) struct Process {
    child: Child,
    /// Address of its broker.
    pub(super) brokers: String,
}

impl Process {
    /// Starts `riverrun chaos child` and waits until it is there.
    pub(super) async fn start(data: &Path, more: &[String]) -> Result<Self, CliError> {
        let program = std::env::current_exe().map_err(|error| harness("our own program", error))?;
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(data.join("children.log"))
            .map_err(|error| harness("children.log", error))?;
        let mut child = Command::new(program)
            .args(["chaos", "child", "--data"])
            .arg(data)
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| harness("a child", error))?;
        let stdout = child.stdout.take().ok_or_else(|| harness("a child", "it has no output"))?;
        let mut lines = BufReader::new(stdout).lines();
        let first = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        match first {
            Ok(Ok(Some(line))) if line.starts_with(READY) => {
                Ok(Self { child, brokers: line[READY.len()..].to_owned() })
            }
            other => {
                let _ = child.kill().await;
                let log = data.join("children.log");
                Err(harness("a child did not start", format!("{other:?}; see {}", log.display())))
            }
        }
    }

    /// SIGKILL, and waits until it is gone.
    pub(super) async fn kill(&mut self) -> Result<(), CliError> {
        self.child.kill().await.map_err(|error| harness("killing a child", error))
    }

    /// SIGTERM, and waits until it is gone.
    pub(super) async fn stop(&mut self) -> Result<(), CliError> {
        self.signal("TERM").await?;
        self.child.wait().await.map(drop).map_err(|error| harness("a child", error))
    }

    /// SIGSTOP.
    pub(super) async fn freeze(&self) -> Result<(), CliError> {
        self.signal("STOP").await
    }

    /// SIGCONT.
    pub(super) async fn thaw(&self) -> Result<(), CliError> {
        self.signal("CONT").await
    }

    /// MiB of memory that it has now (`VmRSS`) or had at most (`VmHWM`); `None` where the system does not tell.
    pub(super) fn memory_mib(&self, which: &str) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()?)).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'))?;
        Some(line.split_whitespace().next()?.parse::<u64>().ok()? / 1024)
    }

    async fn signal(&self, name: &str) -> Result<(), CliError> {
        let Some(pid) = self.child.id() else { return Err(harness("a child", "it has ended by itself")) };
        let status = Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().await;
        match status {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(harness("kill", status)),
            Err(error) => Err(harness("kill", error)),
        }
    }
}
