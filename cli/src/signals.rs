//! SIGINT, SIGTERM and SIGHUP: the first asks, a second SIGINT or SIGTERM insists.

// Only the system knows what this process does with a signal so far.
#![allow(unsafe_code)]

use std::future::pending;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::error::{CliError, Exit};

/// Signals as they come.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
    /// A terminal that closes: none where whoever started the process had it ignored, and once something has been asked.
    hang_up: Option<Signal>,
}

impl Signals {
    /// From here on, signals do not end the process by themselves.
    pub fn listen() -> Result<Self, CliError> {
        let failed = |error: std::io::Error| CliError::new(Exit::Failed, format!("signals can't be received: {error}"));
        // What nohup has started goes on without its terminal.
        let hang_up = if is_ignored(libc::SIGHUP) { None } else { Some(signal(SignalKind::hangup()).map_err(failed)?) };
        Ok(Self {
            interrupt: signal(SignalKind::interrupt()).map_err(failed)?,
            terminate: signal(SignalKind::terminate()).map_err(failed)?,
            hang_up,
        })
    }

    /// The next one. Cancel-safe.
    pub async fn next(&mut self) {
        let Self { interrupt, terminate, hang_up } = self;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = received(hang_up) => {}
        }
        // System and shell both send it, so a second one insists on nothing; it stays without effect.
        self.hang_up = None;
    }
}

async fn received(signal: &mut Option<Signal>) {
    match signal {
        Some(signal) => {
            signal.recv().await;
        }
        None => pending().await,
    }
}

fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: a `sigaction` of zeros is a valid one.
    let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `current` is a valid `sigaction` for the whole call, which only writes it and changes nothing.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &mut current) };
    asked == 0 && current.sa_sigaction == libc::SIG_IGN
}
