//! What changed between two analyses, for people.

use riverrun_api::wire::{FindingView, SurfaceChangeView, TrendView};

use super::shown::row;
use crate::output::table;

/// Names that a report lists; `--json` has more.
const MAX_NAMES: usize = 20;

pub(super) fn shown(trend: &TrendView) -> String {
    let mut text = format!("{} new, {} gone, {} as before\n", trend.new.len(), trend.fixed.len(), trend.unchanged);
    for (title, findings) in [("new", &trend.new), ("gone", &trend.fixed)] {
        if !findings.is_empty() {
            text.push_str(&format!("\n{title}:\n{}", listed(findings)));
        }
    }
    if let Some(change) = &trend.surface {
        text.push_str(&names(change));
    }
    text
}

fn listed(findings: &[FindingView]) -> String {
    table(["severity", "place", "rule", "message"], findings.iter().map(row).collect(), "")
}

/// Public names that came and went since the analysis before; nothing when there are none.
pub(super) fn names(change: &SurfaceChangeView) -> String {
    let mut text = String::new();
    for (what, count, names) in
        [("new", change.added_count, &change.added), ("gone", change.removed_count, &change.removed)]
    {
        if count > 0 {
            let some: Vec<String> =
                names.iter().take(MAX_NAMES).map(|one| format!("{}: {}", one.file, one.name)).collect();
            let more = if count > some.len() as u64 { ", …" } else { "" };
            text.push_str(&format!("\n{count} public names are {what}: {}{more}", some.join(", ")));
        }
    }
    text
}
