//! Whether a rewrite has fewer findings: what analyzers saw before and after, where not all could look both times.

use crate::analyzers::{Analyzed, is_build_error};

/// The linter that builds what it looks at.
const CLIPPY: &str = "clippy";

/// Findings after a rewrite. What an analyzer found before that could not look again counts as still there. A linter that builds says
/// little of a package that is not built: what an error hides is still there, what the end of one shows is not new, and errors that a
/// rewrite brings to other files are findings of the rewrite.
pub(crate) fn left(before: &Analyzed, after: &Analyzed) -> usize {
    let ran = |analyzed: &Analyzed, name: &str| analyzed.tools.iter().any(|run| run.name == name && run.has_run());
    let unseen = before.findings.iter().filter(|one| !ran(after, &one.tool)).count();
    let errors = |analyzed: &Analyzed| analyzed.findings.iter().filter(|one| is_build_error(one)).count();
    let lints =
        |analyzed: &Analyzed| analyzed.findings.iter().filter(|one| one.tool == CLIPPY).count() - errors(analyzed);
    let elsewhere = |analyzed: &Analyzed| analyzed.build_errors.saturating_sub(errors(analyzed));
    let brought = elsewhere(after).saturating_sub(elsewhere(before));
    let is_comparable = ran(before, CLIPPY) && ran(after, CLIPPY);
    let (hidden, shown) = match (before.build_errors > 0, after.build_errors > 0) {
        _ if !is_comparable => (0, 0),
        (_, true) => (lints(before).saturating_sub(lints(after)), 0),
        (true, false) => (0, lints(after).saturating_sub(lints(before))),
        (false, false) => (0, 0),
    };
    after.findings.len() + unseen + hidden + brought - shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzers::ToolRun;
    use crate::finding::{Finding, Severity};

    fn analyzed(tools: &[(&str, &str, usize)]) -> Analyzed {
        let mut all = Analyzed::default();
        for (name, status, count) in tools {
            let finding = Finding::new((*name, "rule", Severity::Low), ("a.py", 1, 1), "m", "");
            all.findings.extend(std::iter::repeat_n(finding, *count));
            all.tools.push(ToolRun { status: (*status).to_owned(), ..ToolRun::ran(name, *count) });
        }
        all
    }

    #[test]
    fn given_an_analyzer_that_could_not_look_again_when_findings_are_counted_then_its_own_are_still_there() {
        let before = analyzed(&[("ruff", "ran", 3), ("syntax", "ran", 1)]);
        for (after, expected) in [
            (analyzed(&[("ruff", "ran", 1), ("syntax", "ran", 0)]), 1),
            (analyzed(&[("ruff", "failed", 0), ("syntax", "ran", 0)]), 3),
            (analyzed(&[]), 4),
        ] {
            assert_eq!(left(&before, &after), expected);
        }
    }

    /// What clippy says of a file: lints, errors in it, and errors of the whole build.
    fn built(lints: usize, errors: usize, everywhere: usize) -> Analyzed {
        let mut all = analyzed(&[("clippy", "ran", lints)]);
        let error = Finding::new(("clippy", "E0425", Severity::High), ("a.rs", 1, 1), "m", "");
        all.findings.extend(std::iter::repeat_n(error, errors));
        all.build_errors = everywhere;
        all
    }

    #[test]
    fn given_rewrites_that_break_or_mend_the_build_when_findings_are_counted_then_nothing_that_it_hides_is_gained() {
        for (before, after, expected) in [
            (built(3, 0, 0), built(1, 0, 0), 1),
            // It does not build any more: here, or where others use it.
            (built(3, 0, 0), built(0, 1, 1), 4),
            (built(3, 0, 0), built(0, 0, 2), 5),
            (built(0, 0, 0), built(0, 0, 1), 1),
            // It did not before: what is seen now is not new.
            (built(0, 2, 2), built(4, 0, 0), 0),
            (built(0, 2, 2), built(0, 1, 1), 1),
            (built(1, 0, 2), built(1, 0, 2), 1),
            // It could not look at one of them.
            (built(3, 0, 0), analyzed(&[("clippy", "failed", 0)]), 3),
            (analyzed(&[("clippy", "skipped", 0)]), analyzed(&[("clippy", "skipped", 0)]), 0),
        ] {
            assert_eq!(left(&before, &after), expected, "{before:?} {after:?}");
        }
    }
}
