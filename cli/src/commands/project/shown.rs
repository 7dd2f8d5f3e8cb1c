//! A report as people read it in a terminal.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use riverrun_api::wire::{FindingView, ReportView};
use riverrun_schemas::counted;

use super::trend;
use crate::output::{clip, stdout_is_terminal, table};

/// So few findings need no summary by their rules.
const FEW: usize = 10;
/// Rules of a summary.
const MAX_RULES: usize = 15;
/// Findings that are listed where people look; files and programs get all.
const MAX_ROWS: usize = 200;

/// A line of a table of findings.
pub(super) fn row(one: &FindingView) -> [String; 4] {
    [
        one.severity.clone(),
        format!("{}:{}", one.file, one.line),
        format!("{}/{}", one.tool, one.rule),
        match &one.fix {
            Some(fix) => format!("{} → {}", clip(&one.message, 100), clip(fix, 100)),
            None => clip(&one.message, 100),
        },
    ]
}

/// How often each rule speaks, the worst first and of those the most frequent; nothing where a look at the findings tells it.
fn by_rule(findings: &[FindingView]) -> String {
    if findings.len() <= FEW {
        return String::new();
    }
    // The worst come first in a report, so a severity's first place is its rank.
    let mut severities: Vec<&str> = Vec::new();
    let mut counts: BTreeMap<(usize, &str, &str), usize> = BTreeMap::new();
    for one in findings {
        let known = severities.iter().position(|name| *name == one.severity);
        let rank = known.unwrap_or_else(|| {
            severities.push(one.severity.as_str());
            severities.len() - 1
        });
        *counts.entry((rank, one.tool.as_str(), one.rule.as_str())).or_default() += 1;
    }
    let mut rules: Vec<_> = counts.into_iter().collect();
    rules.sort_by_key(|((rank, ..), count)| (*rank, Reverse(*count)));
    let row = |((rank, tool, rule), count): &((usize, &str, &str), usize)| {
        [severities[*rank].to_owned(), count.to_string(), format!("{tool}/{rule}")]
    };
    let shown = rules.iter().take(MAX_RULES).map(row).collect();
    let left_out = rules.len().saturating_sub(MAX_RULES);
    let more = if left_out > 0 { format!("\nand {}", counted(left_out, "other rule")) } else { String::new() };
    format!("{}{more}\n\n", table(["severity", "times", "rule"], shown, "").trim_end())
}

/// The worst of them, and how many there are besides.
fn listed(findings: &[FindingView], most: usize) -> String {
    let rows = findings.iter().take(most).map(row).collect();
    let text = table(["severity", "place", "rule", "message"], rows, "nothing was found");
    match findings.len().saturating_sub(most) {
        0 => text,
        more => {
            let others = counted(more, "other finding");
            format!("{}\nand {others}, no worse than these: --json and --sarif list them all", text.trim_end())
        }
    }
}

pub(super) fn report(report: &ReportView) -> String {
    let counts: Vec<String> = ["critical", "high", "medium", "low", "info"]
        .iter()
        .map(|name| format!("{} {name}", report.summary.by_severity.get(*name).copied().unwrap_or(0)))
        .collect();
    let by_tool: Vec<String> = report.summary.by_tool.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let findings = counted(report.summary.findings, "finding");
    let mut text = format!("{findings}: {}\n{}\n\n", counts.join(", "), by_tool.join(", "));
    text.push_str(&by_rule(&report.findings));
    text.push_str(&listed(&report.findings, if stdout_is_terminal() { MAX_ROWS } else { usize::MAX }));
    if let Some(surface) = &report.surface {
        text.push_str(&format!("\n{} that others can use", counted(surface.count, "name")));
        text.push_str(&report.surface_change.as_ref().map(trend::names).unwrap_or_default());
    }
    if let Some(imports) = report.imports.as_ref().filter(|imports| imports.count > 0) {
        text.push_str(&format!("\n{} between its files", counted(imports.count, "import")));
    }
    // One that ran and has something to tell did not do all of it.
    for tool in report.tools.iter().filter(|tool| tool.status != "ran" || tool.detail.is_some()) {
        let why: Vec<&str> = [tool.detail.as_deref(), tool.fix.as_deref()].into_iter().flatten().collect();
        text.push_str(&format!("\n{} {}: {}", tool.name, tool.status, why.join("; ")));
    }
    if let Some(review) = &report.review {
        text.push_str(&format!("\n\nReview ({}):\n{}", review.model, review.text));
        for one in &review.citations {
            text.push_str(&format!("\n[{}] {}:{}", one.n, one.file, one.line));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(severity: &str, rule: &str) -> FindingView {
        FindingView {
            id: "fnd_1".into(),
            tool: "t".into(),
            rule: rule.into(),
            severity: severity.into(),
            file: "a.py".into(),
            line: 1,
            column: 1,
            message: "m".into(),
            fix: None,
        }
    }

    #[test]
    fn given_findings_with_and_without_a_fix_when_they_are_listed_then_what_to_do_stands_behind_what_is_wrong() {
        let told = FindingView { fix: Some("split it\nby what it decides".into()), ..finding("low", "complexity") };
        assert_eq!(row(&told), ["low", "a.py:1", "t/complexity", "m → split it by what it decides"]);
        assert_eq!(row(&finding("low", "r"))[3], "m");
    }

    #[test]
    fn given_more_findings_than_a_terminal_is_for_when_they_are_listed_then_the_rest_is_counted() {
        let all: Vec<FindingView> = (0..7).map(|number| finding("low", &format!("rule{number}"))).collect();
        let text = listed(&all, 3);
        assert!(
            text.contains("t/rule2")
                && !text.contains("t/rule3")
                && text.contains("and 4 other findings")
                && !text.contains("--html"),
            "{text}"
        );
        assert!(!listed(&all, 7).contains("other findings") && listed(&all, usize::MAX).contains("t/rule6"));
        assert_eq!(listed(&[], 3), "");
    }

    #[test]
    fn given_many_findings_when_they_are_summed_then_the_worst_rules_come_first_and_then_the_most_frequent() {
        let of = |severity: &str, rule: &str, count: usize| std::iter::repeat_n(finding(severity, rule), count);
        let all: Vec<FindingView> =
            of("high", "rare", 1).chain(of("low", "some", 4)).chain(of("low", "most", 6)).collect();
        let lines: Vec<String> =
            by_rule(&all).lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines, ["high 1 t/rare", "low 6 t/most", "low 4 t/some", ""]);
        assert_eq!(by_rule(&all[..FEW]), "");
        let many: Vec<FindingView> = (0..20).map(|number| finding("low", &format!("rule{number}"))).collect();
        assert!(by_rule(&many).contains("and 5 other rules"));
    }
}
