//! A report as one HTML page: no script, nothing from elsewhere, and every text of a project escaped.

use std::collections::BTreeMap;

use riverrun_schemas::words;

use crate::analyzers::MAX_FINDINGS as MAX_LISTED;
use crate::finding::{Finding, Severity};
use crate::report::{NotCompared, Report, Trend};
use crate::surface::{PublicName, SurfaceChange};
use charts::{Bar, Curve, bars, curves};

mod charts;

/// Findings of the page; the others are in the JSON and SARIF forms.
const MAX_FINDINGS: usize = 2_000;
/// Findings and names of each list of changes.
const MAX_CHANGES: usize = 100;
/// Files with a bar.
const MAX_FILES: usize = 20;
/// Nothing may be loaded, sent, framed or run, even if a text were not escaped.
pub const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#1c2430;--soft:#5d6878;--line:#d8dee6;--ground:#ffffff;--raised:#f4f6f9;\
--critical:#a3123a;--high:#b83a10;--medium:#8a5a00;--low:#2563b8;--info:#5d6878}\
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf0;--soft:#9aa6b6;--line:#343d4a;--ground:#151a21;--raised:#1e252e;\
--critical:#ff7d97;--high:#ff9b6b;--medium:#e0ad3e;--low:#86b0f5;--info:#9aa6b6}}\
body{font:14px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--ground);max-width:72rem;margin:2rem auto;padding:0 1rem}\
h1{font-size:1.5rem;margin:0}h2{font-size:1.1rem;margin:2rem 0 .5rem}p,dd{color:var(--soft)}\
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.25rem .5rem;border-bottom:1px solid var(--line)}\
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}code{font:12px ui-monospace,monospace;overflow-wrap:anywhere}\
.tiles{display:flex;flex-wrap:wrap;gap:.75rem;margin:1rem 0;padding:0;list-style:none}\
.tiles li{background:var(--raised);border-radius:.5rem;padding:.5rem 1rem}.tiles b{display:block;font-size:1.3rem}\
svg{display:block;width:100%;max-width:60rem;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .axis{stroke:var(--line)}\
.critical{fill:var(--critical);color:var(--critical)}.high{fill:var(--high);color:var(--high)}\
.medium{fill:var(--medium);color:var(--medium)}.low{fill:var(--low);color:var(--low)}.info{fill:var(--info);color:var(--info)}\
.all{stroke:var(--low)}.serious{stroke:var(--high)}\
polyline{fill:none;stroke-width:2}pre{white-space:pre-wrap;overflow-wrap:anywhere;background:var(--raised);padding:.75rem;border-radius:.5rem}";

/// An analysis among others of its project.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Point {
    /// When, for people.
    pub at: String,
    /// All findings.
    pub findings: u64,
    /// Those that are high or critical.
    pub serious: u64,
}

/// What a page shows.
#[derive(Debug, Clone, Copy)]
pub struct Page<'p> {
    /// How people call the project.
    pub name: &'p str,
    /// When it was analyzed, for people.
    pub at: &'p str,
    /// What the analysis came to.
    pub report: &'p Report,
    /// The analyses up to this one, oldest first.
    pub history: &'p [Point],
    /// What changed since the one before; none for the first.
    pub trend: Option<&'p Trend>,
}

/// The page.
pub fn html(page: &Page<'_>) -> String {
    let Page { name, at, report, .. } = page;
    let title = escaped(name);
    let body: String = [
        format!(
            "<h1>{title}</h1><p>analyzed {} in {:.1} s: {}, {}</p>",
            escaped(at),
            report.took_ms as f64 / 1_000.0,
            words::counted(report.summary.files, "file"),
            words::counted(report.summary.lines, "line")
        ),
        tiles(report),
        by_analyzer(report),
        by_file(report),
        over_time(page),
        surface(report),
        tools(report),
        review(report),
        findings(report),
    ]
    .concat();
    format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style></head><body>{body}</body></html>\n",
        escaped(POLICY)
    )
}

/// A text as it stands in HTML, in elements and in attributes. Marks that reorder or hide what is read are shown as such.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            // Bidirectional controls (Boucher and Anderson, "Trojan Source", 2021).
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => {
                out.push('\u{fffd}')
            }
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

fn section(title: &str, inner: &str) -> String {
    format!("<section><h2>{}</h2>{inner}</section>", escaped(title))
}

fn table(head: &str, rows: &str) -> String {
    format!("<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>")
}

fn tiles(report: &Report) -> String {
    let tile = |severity: Severity| {
        let (name, count) = (severity.as_str(), report.summary.by_severity.get(severity.as_str()).unwrap_or(&0));
        format!("<li><b class=\"{name}\">{count}</b>{name}</li>")
    };
    format!("<ul class=\"tiles\">{}</ul>", Severity::ALL.map(tile).concat())
}

/// How many findings of each severity there are, by what `of` says of a finding; those with the most and worst first.
fn counted<'r>(report: &'r Report, of: fn(&Finding) -> &str) -> Vec<Bar<'r>> {
    let mut rows: BTreeMap<&str, [usize; 5]> = BTreeMap::new();
    for one in &report.findings {
        let counts = rows.entry(of(one)).or_default();
        for (count, severity) in counts.iter_mut().zip(Severity::ALL) {
            *count += usize::from(severity == one.severity);
        }
    }
    let mut bars: Vec<Bar<'r>> = rows.into_iter().map(|(name, counts)| Bar { name, counts }).collect();
    bars.sort_by_key(|bar| (std::cmp::Reverse(bar.total()), std::cmp::Reverse(bar.counts)));
    bars
}

fn by_analyzer(report: &Report) -> String {
    section("Severity by analyzer", &bars("findings of each severity by analyzer", &counted(report, |one| &one.tool)))
}

fn by_file(report: &Report) -> String {
    let all = counted(report, |one| &one.file);
    let shown = &all[..all.len().min(MAX_FILES)];
    let more = all.len() - shown.len();
    let rest = if more > 0 {
        format!("<p>{} {} findings.</p>", words::counted(more, "more file"), words::agreed(more, "has", "have"))
    } else {
        String::new()
    };
    section("Findings by file", &(bars("findings of each severity by file", shown) + &rest))
}

fn over_time(page: &Page<'_>) -> String {
    let lines = [
        Curve { name: "all", class: "all", values: page.history.iter().map(|point| point.findings).collect() },
        Curve {
            name: "high and critical",
            class: "serious",
            values: page.history.iter().map(|point| point.serious).collect(),
        },
    ];
    let ends = page.history.first().zip(page.history.last());
    let chart = match ends {
        Some((first, last)) if page.history.len() > 1 => {
            curves("findings over time", &lines, (first.at.as_str(), last.at.as_str()))
        }
        _ => "<p>This is the first analysis.</p>".to_owned(),
    };
    let changes = page.trend.map(changes).unwrap_or_default();
    section("Trend", &(chart + &changes))
}

fn changes(trend: &Trend) -> String {
    let list = |title: &str, findings: &[Finding]| {
        if findings.is_empty() {
            return String::new();
        }
        format!("<h3>{title}</h3>{}", rows_of(findings, MAX_CHANGES))
    };
    format!(
        "<p>Since the analysis before: {} new, {} gone, {} as before.</p>{}{}{}",
        trend.new.len(),
        trend.fixed.len(),
        trend.unchanged,
        not_compared(&trend.not_compared),
        list("New", &trend.new),
        list("Gone", &trend.fixed)
    )
}

/// Analyzers that nothing is said of.
fn not_compared(tools: &[NotCompared]) -> String {
    let named: Vec<String> = tools.iter().map(|one| escaped(&format!("{} ({})", one.tool, one.why))).collect();
    if named.is_empty() { String::new() } else { format!("<p>Not compared: {}.</p>", named.join(", ")) }
}

fn surface(report: &Report) -> String {
    let Some(surface) = &report.surface else { return String::new() };
    let row = |module: &crate::surface::Module| {
        let names = escaped(&module.names.join(", "));
        format!(
            "<tr><td><code>{}</code></td><td class=\"n\">{}</td><td><code>{names}</code></td></tr>",
            escaped(&module.file),
            module.names.len()
        )
    };
    let rows: String = surface.modules.iter().take(MAX_FINDINGS).map(row).collect();
    let change = report.surface_change.as_ref().map(surface_change).unwrap_or_default();
    let (names, files) = (words::counted(surface.count, "name"), words::counted(surface.modules.len(), "file"));
    let head = format!("<p>{names} that others can use, in {files}.</p>");
    let list = table("<th>file</th><th class=\"n\">how many</th><th>names</th>", &rows);
    section("Public names", &format!("{head}{change}<details><summary>All of them</summary>{list}</details>"))
}

fn surface_change(change: &SurfaceChange) -> String {
    let list = |what: &str, count: usize, names: &[PublicName]| {
        let items: String = names
            .iter()
            .take(MAX_CHANGES)
            .map(|one| format!("<li><code>{}: {}</code></li>", escaped(&one.file), escaped(&one.name)))
            .collect();
        if count == 0 { String::new() } else { format!("<p>{count} {what}:</p><ul>{items}</ul>") }
    };
    list("are new", change.added_count, &change.added) + &list("are gone", change.removed_count, &change.removed)
}

fn tools(report: &Report) -> String {
    let row = |tool: &crate::analyzers::ToolRun| {
        let why = [tool.detail.as_deref(), tool.fix.as_deref()].into_iter().flatten().collect::<Vec<&str>>().join("; ");
        format!(
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{} ms</td><td>{}</td></tr>",
            escaped(&tool.name),
            escaped(&tool.status),
            tool.findings,
            tool.took_ms,
            escaped(&why)
        )
    };
    let rows: String = report.tools.iter().map(row).collect();
    let head = "<th>analyzer</th><th>status</th><th class=\"n\">findings</th><th class=\"n\">time</th><th>what there is to say</th>";
    section("Analyzers", &table(head, &rows))
}

fn review(report: &Report) -> String {
    let Some(review) = &report.review else { return String::new() };
    let cited: String = review
        .citations
        .iter()
        .map(|one| format!("<li>[{}] <code>{}:{}</code></li>", one.n, escaped(&one.file), one.line))
        .collect();
    let inner = format!("<pre>{}</pre><ul>{cited}</ul>", escaped(&review.text));
    section(&format!("Review by {}", review.model), &inner)
}

fn findings(report: &Report) -> String {
    if report.findings.is_empty() {
        return section("Findings", "<p>Nothing was found.</p>");
    }
    let rest = match report.summary.findings.saturating_sub(report.findings.len()) {
        0 => String::new(),
        count => {
            let (others, are) = (words::counted(count, "other"), words::agreed(count, "is", "are"));
            format!("<p>{others} {are} only counted: a report lists the worst {MAX_LISTED} of an analyzer.</p>")
        }
    };
    section("Findings", &(rows_of(&report.findings, MAX_FINDINGS) + &rest))
}

fn rows_of(findings: &[Finding], most: usize) -> String {
    let row = |one: &Finding| {
        let fix = one.fix.as_deref().map(|fix| format!("<br><small>{}</small>", escaped(fix))).unwrap_or_default();
        format!(
            "<tr><td><b class=\"{severity}\">{severity}</b></td><td><code>{}:{}</code></td><td>{} {}</td><td>{}{fix}</td></tr>",
            escaped(&one.file),
            one.line,
            escaped(&one.tool),
            escaped(&one.rule),
            escaped(&one.message),
            severity = one.severity.as_str()
        )
    };
    let rows: String = findings.iter().take(most).map(row).collect();
    let more = findings.len().saturating_sub(most);
    let rest = if more > 0 { format!("<p>{more} more are in the JSON and SARIF forms.</p>") } else { String::new() };
    table("<th>severity</th><th>place</th><th>rule</th><th>what</th>", &rows) + &rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analyzers::{Analyzed, Snapshot};
    use crate::copy::Files;
    use crate::report::trend;

    const EVIL: &str = "</style><script>alert(1)</script>\"'&\u{202e}\u{61c}\u{7}";

    fn report(lines: &[usize]) -> Report {
        let rule = ("syntax", "r", Severity::High);
        let findings = lines.iter().map(|line| Finding::new(rule, (EVIL, *line, 1), EVIL, EVIL)).collect();
        let files = Files::from([(format!("{EVIL}.py"), format!("def f(): pass # {EVIL}\n").into())]);
        Report::new(
            &files,
            Analyzed { findings, surface: crate::surface::surface(&Snapshot::new(&files)), ..Analyzed::default() },
            5,
        )
    }

    #[test]
    fn given_hostile_texts_when_a_page_is_made_then_they_are_texts_and_nothing_is_loaded_or_run() {
        let (before, now) = (report(&[1]), report(&[1, 2, 9]));
        let point = |findings| Point { at: EVIL.to_owned(), findings, serious: 1 };
        let history = [point(1), point(3)];
        let change = Trend {
            not_compared: vec![NotCompared { tool: EVIL.to_owned(), why: "missing".to_owned() }],
            ..trend(&before, &now)
        };
        let page = Page { name: EVIL, at: EVIL, report: &now, history: &history, trend: Some(&change) };
        let text = html(&page);
        for banned in ["<script", "\u{202e}", "\u{61c}", "\u{7}", "src=", "href=", "url(", "@import", "onload"] {
            assert!(!text.contains(banned), "{banned}");
        }
        assert!(text.contains("&lt;script&gt;") && text.contains("2 new, 0 gone, 1 as before"), "{text}");
        assert!(text.contains("<p>Not compared: &lt;/style&gt;") && text.contains("(missing).</p>"), "{text}");
        assert!(!text.contains("<th></th>"), "every column has a name");
        let words = "aria-label=\"findings of each severity by analyzer; syntax: 3 high\"";
        assert!(text.contains(words), "who does not see a chart hears its numbers: {text}");
        for chart in
            ["findings of each severity by analyzer", "findings of each severity by file", "findings over time"]
        {
            assert!(text.contains(&format!("aria-label=\"{chart}")), "{chart}");
        }
        for (open, close) in
            [("<svg", "</svg>"), ("<section>", "</section>"), ("<table>", "</table>"), ("<tr>", "</tr>")]
        {
            assert_eq!(text.matches(open).count(), text.matches(close).count(), "{open}");
        }
    }

    /// Relative luminance and contrast as WCAG 2.2 defines them.
    fn contrast(one: &str, other: &str) -> f64 {
        let luminance = |color: &str| {
            let part = |at: usize| f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
            let linear = |part: f64| if part <= 0.04045 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) };
            0.2126 * linear(part(0)) + 0.7152 * linear(part(2)) + 0.0722 * linear(part(4))
        };
        let (one, other) = (luminance(one), luminance(other));
        (one.max(other) + 0.05) / (one.min(other) + 0.05)
    }

    #[test]
    fn given_the_colours_of_either_theme_when_words_have_them_then_they_are_read_on_every_ground() {
        let themes: Vec<&str> = STYLE.split(":root{").skip(1).map(|rest| rest.split('}').next().unwrap()).collect();
        assert_eq!(themes.len(), 2);
        for theme in themes {
            let of = |name: &str| theme.split(&format!("--{name}:#")).nth(1).and_then(|rest| rest.get(..6)).unwrap();
            for name in Severity::ALL.map(Severity::as_str).into_iter().chain(["ink", "soft"]) {
                for ground in ["ground", "raised"] {
                    let found = contrast(of(name), of(ground));
                    assert!(found >= 4.5, "{name} on {ground}: {found:.2}");
                }
            }
        }
        let others = STYLE.split([';', '{']).filter(|one| one.starts_with("color:") || one.starts_with("fill:"));
        assert!(others.clone().count() > 6);
        for one in others {
            assert!(one.contains(":var(--") || one == "fill:none", "{one} is of one theme");
        }
    }

    #[test]
    fn given_findings_that_are_only_counted_when_a_page_is_made_then_it_says_how_many() {
        let mut report = report(&[1, 2]);
        let shown = |report: &Report| html(&Page { name: "p", at: "now", report, history: &[], trend: None });
        assert!(!shown(&report).contains("only counted"));
        report.summary.findings += 3;
        assert!(
            shown(&report).contains("<p>3 others are only counted: a report lists the worst 5000 of an analyzer.</p>")
        );
    }

    #[test]
    fn given_nothing_that_was_found_when_a_page_is_made_then_it_says_so() {
        let report = report(&[]);
        let page = Page { name: "p", at: "now", report: &report, history: &[], trend: None };
        let text = html(&page);
        assert!(text.contains("Nothing was found.") && text.contains("This is the first analysis."), "{text}");
    }
}
