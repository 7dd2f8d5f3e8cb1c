//! What an ingest left out on purpose, in words.

use std::collections::BTreeMap;

use riverrun_api::wire::{IngestView, LeftOutFilesView};

/// Most extensions that are named for one reason.
const MAX_NAMED: usize = 12;

/// ` · skipped 4 (no reader: .doc .rtf (2); archives in folders are not opened: .zip)`; nothing where nothing was left out.
pub(super) fn words(view: &IngestView) -> String {
    if view.skipped == 0 {
        return String::new();
    }
    // In the order in which they came.
    let mut reasons: Vec<&str> = Vec::new();
    let mut by_reason: BTreeMap<&str, Vec<&LeftOutFilesView>> = BTreeMap::new();
    for row in &view.left_out {
        let rows = by_reason.entry(row.reason.as_str()).or_default();
        if rows.is_empty() {
            reasons.push(&row.reason);
        }
        rows.push(row);
    }
    let parts: Vec<String> =
        reasons.into_iter().map(|reason| format!("{}: {}", phrase(reason), kinds(&by_reason[reason]))).collect();
    let why = if parts.is_empty() { String::new() } else { format!(" ({})", parts.join("; ")) };
    format!(" · skipped {}{why}", view.skipped)
}

/// One that this build does not know is said as it is.
fn phrase(reason: &str) -> &str {
    match reason {
        "no_reader" => "no reader",
        "archive" => "archives in folders are not opened",
        "not_text" => "no extension and no text",
        "hidden_or_ignored" => "hidden or ignored",
        "link" => "links are not followed",
        "excluded" => "by the globs",
        "twice" => "read under another address",
        "beyond_limit" => "beyond the limit",
        other => other,
    }
}

/// Extensions with how often each came, if not once; without extensions how many there are.
fn kinds(rows: &[&LeftOutFilesView]) -> String {
    let (named, unnamed): (Vec<&LeftOutFilesView>, Vec<&LeftOutFilesView>) =
        rows.iter().copied().partition(|row| row.extension.is_some());
    let name = |row: &&LeftOutFilesView| {
        let extension = row.extension.as_deref().unwrap_or_default();
        if row.files == 1 { extension.to_owned() } else { format!("{extension} ({})", row.files) }
    };
    let mut parts: Vec<String> = named.iter().take(MAX_NAMED).map(name).collect();
    let others = named.iter().skip(MAX_NAMED).chain(&unnamed).map(|row| row.files).sum::<i64>();
    match (parts.is_empty(), others) {
        (true, others) => parts.push(others.to_string()),
        (false, 0) => {}
        (false, others) => parts.push(format!("and {others} more")),
    }
    parts.join(" ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn view(skipped: i64, left_out: serde_json::Value) -> IngestView {
        serde_json::from_value(json!({
            "ingest_id": "ing_1", "status": "done", "namespace": "default", "collection": "c", "source": "/a", "documents": 1,
            "skipped": skipped, "left_out": left_out, "queued": 0, "chunked": 0, "embedded": 0, "indexed": 1, "unchanged": 0, "failed": 0,
            "chunks": 1, "failures": [], "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
        }))
        .unwrap()
    }

    #[test]
    fn given_what_was_left_out_when_it_is_said_then_each_reason_has_its_extensions_and_all_are_counted() {
        assert_eq!(words(&view(0, json!([]))), "");
        assert_eq!(words(&view(3, json!([]))), " · skipped 3", "an older server does not say why");
        let rows = json!([
            { "reason": "no_reader", "files": 2 },
            { "reason": "no_reader", "extension": ".doc", "files": 1 },
            { "reason": "no_reader", "extension": ".rtf", "files": 2 },
            { "reason": "archive", "extension": ".zip", "files": 1 },
            { "reason": "hidden_or_ignored", "files": 3 },
            { "reason": "of_a_newer_server", "files": 1 },
        ]);
        assert_eq!(
            words(&view(10, rows)),
            " · skipped 10 (no reader: .doc .rtf (2) and 2 more; archives in folders are not opened: .zip; \
             hidden or ignored: 3; of_a_newer_server: 1)"
        );
        let many: Vec<_> =
            (10..40).map(|n| json!({ "reason": "no_reader", "extension": format!(".x{n}"), "files": 1 })).collect();
        let said = words(&view(30, many.into()));
        assert!(said.contains(".x21 and 18 more)") && !said.contains(".x22"), "{said}");
    }
}
