//! What is different between two reports. Only analyzers that ran for both are compared: what one of them did not look for is neither
//! new nor gone.

use std::collections::{BTreeSet, HashSet};

use super::Report;
use crate::analyzers::MAX_FINDINGS;
use crate::finding::Finding;
use crate::review;
use crate::surface::SurfaceChange;

/// An analyzer whose findings are no part of a comparison.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotCompared {
    /// Its name.
    pub tool: String,
    /// Why, for people.
    pub why: String,
}

/// What is different between two reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trend {
    /// Findings that were not there.
    pub new: Vec<Finding>,
    /// Findings that are gone.
    pub fixed: Vec<Finding>,
    /// Findings that stayed.
    pub unchanged: usize,
    /// Analyzers that only one of the reports can speak for: their findings are in none of the lists.
    pub not_compared: Vec<NotCompared>,
    /// What became of the names that the project offers, when both reports say it.
    pub surface: Option<SurfaceChange>,
}

/// Compares by the findings' ids, which do not change when lines move.
pub fn trend(from: &Report, to: &Report) -> Trend {
    let not_compared = not_compared(from, to);
    let left_out: HashSet<&str> = not_compared.iter().map(|one| one.tool.as_str()).collect();
    let (before, after) = (without_tools(from, &left_out), without_tools(to, &left_out));
    let (new, fixed) = (missing_in(&before, &after), missing_in(&after, &before));
    let unchanged = after.len() - new.len();
    Trend { new, fixed, unchanged, not_compared, surface: to.surface_since(from) }
}

fn without_tools<'r>(report: &'r Report, left_out: &HashSet<&str>) -> Vec<&'r Finding> {
    report.findings.iter().filter(|finding| !left_out.contains(finding.tool.as_str())).collect()
}

/// The findings of `these` that `others` does not have.
fn missing_in(others: &[&Finding], these: &[&Finding]) -> Vec<Finding> {
    let known: HashSet<&str> = others.iter().map(|finding| finding.id.as_str()).collect();
    these.iter().filter(|finding| !known.contains(finding.id.as_str())).map(|finding| (*finding).clone()).collect()
}

fn not_compared(from: &Report, to: &Report) -> Vec<NotCompared> {
    let tools: BTreeSet<&str> = from.tools.iter().chain(&to.tools).map(|run| run.name.as_str()).collect();
    // A review has no findings of its own.
    let tools = tools.into_iter().filter(|tool| *tool != review::TOOL);
    tools.filter_map(|tool| Some(NotCompared { tool: tool.to_owned(), why: obstacle(from, to, tool)? })).collect()
}

/// Why the findings of an analyzer can't be compared; none where neither report has any, or both have all.
fn obstacle(from: &Report, to: &Report, tool: &str) -> Option<String> {
    match (from.has_run(tool), to.has_run(tool)) {
        (false, false) => None,
        (true, false) => Some(absence("later", to, tool)),
        (false, true) => Some(absence("earlier", from, tool)),
        (true, true) => {
            let cut = [("earlier", from), ("later", to)].into_iter().find(|(_, report)| is_cut(report, tool));
            cut.map(|(which, _)| format!("the {which} analysis does not list all of its findings"))
        }
    }
}

fn absence(which: &str, report: &Report, tool: &str) -> String {
    match report.tools.iter().find(|run| run.name == tool) {
        Some(run) => format!("{} in the {which} analysis", run.status),
        None => format!("no part of the {which} analysis"),
    }
}

/// Whether a report lists only the worst findings of an analyzer: others may have been there without being listed.
fn is_cut(report: &Report, tool: &str) -> bool {
    let listed = || report.findings.iter().filter(|finding| finding.tool == tool).count();
    report.findings_truncated && listed() >= MAX_FINDINGS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzers::{Analyzed, ToolRun};
    use crate::copy::Files;
    use crate::finding::Severity;

    /// A report of runs: name, status and messages of findings.
    fn report(runs: &[(&str, &str, &[&str])]) -> Report {
        let mut analyzed = Analyzed::default();
        for (name, status, messages) in runs {
            let rule = (*name, "rule", Severity::Low);
            analyzed.findings.extend(messages.iter().map(|message| Finding::new(rule, ("a.py", 1, 1), *message, "")));
            analyzed.tools.push(ToolRun { status: (*status).to_owned(), ..ToolRun::ran(name, messages.len()) });
        }
        Report::new(&Files::new(), analyzed, 1)
    }

    fn messages(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|one| one.message.as_str()).collect()
    }

    #[test]
    fn given_a_tool_that_ran_only_once_when_reports_are_compared_then_its_findings_are_neither_gone_nor_new_and_it_is_named()
     {
        let both = report(&[("syntax", "ran", &["a", "b"]), ("ruff", "ran", &["x", "y"])]);
        for (status, why) in [
            (Some("missing"), "missing in the later analysis"),
            (Some("failed"), "failed in the later analysis"),
            (Some("skipped"), "skipped in the later analysis"),
            (None, "no part of the later analysis"),
        ] {
            let mut runs = vec![("syntax", "ran", &["b", "c"][..])];
            runs.extend(status.map(|status| ("ruff", status, &[] as &[&str])));
            let one = report(&runs);
            let change = trend(&both, &one);
            assert_eq!((messages(&change.new), messages(&change.fixed), change.unchanged), (vec!["c"], vec!["a"], 1));
            let named: Vec<_> = change.not_compared.iter().map(|one| (one.tool.as_str(), one.why.as_str())).collect();
            assert_eq!(named, [("ruff", why)]);

            let back = trend(&one, &both);
            assert_eq!((messages(&back.new), messages(&back.fixed), back.unchanged), (vec!["a"], vec!["c"], 1));
            assert!(back.not_compared[0].why.ends_with("the earlier analysis"), "{:?}", back.not_compared);
        }
    }

    #[test]
    fn given_tools_that_ran_twice_or_never_when_reports_are_compared_then_none_is_named() {
        let before = report(&[("ruff", "ran", &["x"]), ("clippy", "skipped", &[]), (review::TOOL, "ran", &[])]);
        let after = report(&[("ruff", "ran", &[]), ("clippy", "skipped", &[])]);
        let change = trend(&before, &after);
        assert_eq!((messages(&change.fixed), change.not_compared), (vec!["x"], vec![]));
    }

    #[test]
    fn given_a_report_that_lists_only_the_worst_of_a_tool_when_it_is_compared_then_the_tool_is_named_and_not_compared()
    {
        let many: Vec<String> = (0..MAX_FINDINGS).map(|number| format!("m{number}x")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        let cut =
            Report { findings_truncated: true, ..report(&[("ruff", "ran", &many[..]), ("syntax", "ran", &["a"])]) };
        let whole = report(&[("ruff", "ran", &["other"]), ("syntax", "ran", &["a"])]);
        let change = trend(&cut, &whole);
        assert_eq!((change.new, change.fixed, change.unchanged), (vec![], vec![], 1));
        assert_eq!(change.not_compared[0].why, "the earlier analysis does not list all of its findings");
        assert!(trend(&whole, &cut).not_compared[0].why.contains("the later analysis"));
    }
}
