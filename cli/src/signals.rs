//! SIGINT and SIGTERM: the first asks, the second insists.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Exit};

/// Signals as they come.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From here on, signals do not end the process by themselves.
    pub fn listen() -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::new(Exit::Failed, format!("signals can't be received: {error}"));
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
