//! What changed between two analyses, for people.

use riverrun_api::wire::{FindingView, NotComparedView, SurfaceChangeView, TrendView};

use super::shown::row;
use crate::output::table;

/// Names that a report lists; `--json` has more.
const MAX_NAMES: usize = 20;

pub(super) fn shown(trend: &TrendView) -> String {
    if trend.from == trend.to {
        return format!(
            "nothing to compare {} with but itself; the next `riverrun project analyze` tells what changed\n",
            trend.to
        );
    }
    let mut text = format!("{} new, {} gone, {} as before\n", trend.new.len(), trend.fixed.len(), trend.unchanged);
    text.push_str(&not_compared(&trend.not_compared));
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

/// Analyzers that nothing is said of; nothing when there are none.
fn not_compared(tools: &[NotComparedView]) -> String {
    let named: Vec<String> = tools.iter().map(|one| format!("{} ({})", one.tool, one.why)).collect();
    if named.is_empty() { String::new() } else { format!("not compared: {}\n", named.join(", ")) }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(not_compared: Vec<NotComparedView>) -> TrendView {
        TrendView {
            from: "a".into(),
            to: "b".into(),
            new: Vec::new(),
            fixed: Vec::new(),
            unchanged: 3,
            not_compared,
            surface: None,
        }
    }

    #[test]
    fn given_analyzers_that_are_not_compared_when_a_trend_is_shown_then_they_are_named_with_their_reasons() {
        let why = "missing in the later analysis";
        let left_out = vec![NotComparedView { tool: "ruff".into(), why: why.into() }];
        assert_eq!(shown(&trend(left_out)), format!("0 new, 0 gone, 3 as before\nnot compared: ruff ({why})\n"));
        assert_eq!(shown(&trend(Vec::new())), "0 new, 0 gone, 3 as before\n");
    }

    #[test]
    fn given_one_analysis_when_its_trend_is_shown_then_it_is_not_said_to_be_as_before() {
        let alone = TrendView { to: "a".into(), ..trend(Vec::new()) };
        assert!(shown(&alone).starts_with("nothing to compare a with but itself"));
    }
}
