//! How a download shows.

use std::io::IsTerminal;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// Told about the progress of fetching a model. Calls come in order for each file; they must not block.
pub trait PullProgress: Send + Sync {
    /// A file begins. `done` bytes are there already from an earlier try.
    fn start(&self, model: &str, file: &str, done: u64, total: Option<u64>);
    /// `bytes` more have come.
    fn advance(&self, bytes: u64);
    /// The file is complete and checked.
    fn finish(&self);
}

/// Shows nothing.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl PullProgress for NoProgress {
    fn start(&self, _model: &str, _file: &str, _done: u64, _total: Option<u64>) {}
    fn advance(&self, _bytes: u64) {}
    fn finish(&self) {}
}

/// A progress bar on stderr.
#[derive(Debug, Default)]
pub struct TerminalProgress {
    bar: Mutex<Option<ProgressBar>>,
}

/// A bar when stderr is a terminal, else nothing.
pub fn default_progress() -> Arc<dyn PullProgress> {
    if std::io::stderr().is_terminal() { Arc::new(TerminalProgress::default()) } else { Arc::new(NoProgress) }
}

impl PullProgress for TerminalProgress {
    fn start(&self, model: &str, file: &str, done: u64, total: Option<u64>) {
        let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
        if let Ok(style) =
            ProgressStyle::with_template("[{wide_bar}] {bytes}/{total_bytes} · {msg} · {bytes_per_sec} · {elapsed}")
        {
            bar.set_style(style);
        }
        bar.set_message(format!("{model} {file}"));
        bar.set_position(done);
        *self.bar.lock() = Some(bar);
    }

    fn advance(&self, bytes: u64) {
        if let Some(bar) = &*self.bar.lock() {
            bar.inc(bytes);
        }
    }

    fn finish(&self) {
        if let Some(bar) = self.bar.lock().take() {
            bar.finish_and_clear();
        }
    }
}
