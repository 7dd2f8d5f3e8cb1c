//! How far an import or an analysis is, on stderr, where people look.

use std::borrow::Cow;

use indicatif::ProgressBar;
use riverrun_api::wire::{ProjectProgressView, ProjectView};
use riverrun_schemas::counted;

use crate::output::Output;
use crate::progress;

/// A line that is gone when the work is done.
pub(super) struct Seen {
    line: ProgressBar,
    what: &'static str,
}

impl Seen {
    /// `what` is counted; one of it.
    pub(super) fn new(output: Output, what: &'static str) -> Self {
        Self { line: progress::line(output), what }
    }

    pub(super) fn say(&self, what: impl Into<Cow<'static, str>>) {
        self.line.set_message(what);
        self.line.tick();
    }

    pub(super) fn show(&self, view: &ProjectView) {
        self.say(words(view, self.what));
    }
}

impl Drop for Seen {
    fn drop(&mut self) {
        self.line.finish_and_clear();
    }
}

fn words(view: &ProjectView, what: &str) -> String {
    match &view.progress {
        None => view.status.clone(),
        Some(ProjectProgressView { done: 0, total: None }) => view.status.clone(),
        Some(ProjectProgressView { done, total: Some(total) }) => {
            format!("{}: {done} of {}", view.status, counted(total, what))
        }
        Some(ProjectProgressView { done, total: None }) => format!("{}: {}", view.status, counted(done, what)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_work_that_gets_on_when_it_is_shown_then_what_is_known_is_said() {
        let of = |progress: serde_json::Value| {
            let view: ProjectView = serde_json::from_value(serde_json::json!({
                "project_id": "prj_1", "name": "n", "source": "s", "status": "analyzing", "files": 1, "languages": [],
                "size_bytes": 1, "skipped": 0, "source_sha256": null, "error": null, "analyses": 0, "progress": progress,
                "created_at": "2026-01-01T00:00:00Z", "updated_at": "2026-01-01T00:00:00Z",
            }))
            .unwrap();
            words(&view, "analyzer")
        };
        assert_eq!(of(serde_json::Value::Null), "analyzing");
        assert_eq!(of(serde_json::json!({ "done": 0 })), "analyzing");
        assert_eq!(of(serde_json::json!({ "done": 1 })), "analyzing: 1 analyzer");
        assert_eq!(of(serde_json::json!({ "done": 7 })), "analyzing: 7 analyzers");
        assert_eq!(of(serde_json::json!({ "done": 7, "total": 9 })), "analyzing: 7 of 9 analyzers");
    }
}
