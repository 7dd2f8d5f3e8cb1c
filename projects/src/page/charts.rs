//! Charts as SVG: bars in parts, and curves. Each says its numbers in words too.

use super::escaped;
use crate::finding::Severity;

const WIDTH: usize = 720;
/// Where bars begin: left of it stand their names.
const LEFT: usize = 230;
/// Longest bar.
const LENGTH: usize = 420;
const ROW: usize = 24;
/// Longest name, in characters; of longer ones the end is shown.
const MAX_NAME: usize = 34;
const HEIGHT: usize = 180;

/// A name with how many of each severity.
pub(super) struct Bar<'n> {
    pub(super) name: &'n str,
    /// As [`Severity::ALL`] is ordered.
    pub(super) counts: [usize; 5],
}

impl Bar<'_> {
    pub(super) fn total(&self) -> usize {
        self.counts.iter().sum()
    }

    /// Each severity that is there, with its number.
    fn parts(&self) -> impl Iterator<Item = (Severity, usize)> {
        Severity::ALL.into_iter().zip(self.counts).filter(|(_, count)| *count > 0)
    }

    fn words(&self) -> String {
        self.parts().map(|(severity, count)| format!("{count} {}", severity.as_str())).collect::<Vec<_>>().join(", ")
    }
}

/// Values over time.
pub(super) struct Curve {
    pub(super) name: &'static str,
    /// Which says its colour.
    pub(super) class: &'static str,
    pub(super) values: Vec<u64>,
}

pub(super) fn bars(label: &str, bars: &[Bar<'_>]) -> String {
    let most = bars.iter().map(Bar::total).max().unwrap_or(0).max(1);
    let rows: String = bars.iter().enumerate().map(|(index, bar)| row(bar, index * ROW, most)).collect();
    let height = (bars.len() * ROW).max(1);
    let words: String = bars.iter().map(|bar| format!("; {}: {}", bar.name, bar.words())).collect();
    format!(
        "<svg role=\"img\" aria-label=\"{}{}\" viewBox=\"0 0 {WIDTH} {height}\">{rows}</svg>",
        escaped(label),
        escaped(&words)
    )
}

fn row(bar: &Bar<'_>, top: usize, most: usize) -> String {
    let mut at = LEFT;
    let mut parts = String::new();
    for (severity, count) in bar.parts() {
        // What is there is seen.
        let width = (count * LENGTH / most).max(1);
        parts.push_str(&format!(
            "<rect class=\"{name}\" x=\"{at}\" y=\"{}\" width=\"{width}\" height=\"16\"><title>{count} {name}</title></rect>",
            top + 4,
            name = severity.as_str()
        ));
        at += width;
    }
    format!(
        "<text x=\"{}\" y=\"{y}\" text-anchor=\"end\">{}<title>{}</title></text>{parts}<text x=\"{}\" y=\"{y}\">{}</text>",
        LEFT - 8,
        escaped(&shortened(bar.name)),
        escaped(bar.name),
        at + 6,
        bar.total(),
        y = top + 16
    )
}

/// The end of a long name: of paths it is what tells them apart.
fn shortened(name: &str) -> String {
    let length = name.chars().count();
    if length <= MAX_NAME {
        return name.to_owned();
    }
    let end: String = name.chars().skip(length - MAX_NAME).collect();
    format!("…{end}")
}

pub(super) fn curves(label: &str, curves: &[Curve], (first, last): (&str, &str)) -> String {
    let most = curves.iter().flat_map(|curve| curve.values.iter().copied()).max().unwrap_or(0).max(1);
    let (bottom, right) = (HEIGHT - 40, WIDTH - 20);
    let mut inner = format!(
        "<line class=\"axis\" x1=\"40\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\"/><text x=\"34\" y=\"20\" text-anchor=\"end\">{most}</text>\
         <text x=\"34\" y=\"{bottom}\" text-anchor=\"end\">0</text><text x=\"40\" y=\"{below}\">{}</text>\
         <text x=\"{right}\" y=\"{below}\" text-anchor=\"end\">{}</text>",
        escaped(first),
        escaped(last),
        below = bottom + 18
    );
    let mut words = String::new();
    for (index, curve) in curves.iter().enumerate() {
        let points: Vec<String> = place(&curve.values, most, (right - 40, bottom - 15));
        inner.push_str(&format!("<polyline class=\"{}\" points=\"{}\"/>", curve.class, points.join(" ")));
        let (from, to) = (curve.values.first().unwrap_or(&0), curve.values.last().unwrap_or(&0));
        inner.push_str(&format!(
            "<text x=\"{}\" y=\"{HEIGHT}\">{}: {to}</text><line class=\"{}\" stroke-width=\"2\" x1=\"{}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\"/>",
            70 + index * 220,
            curve.name,
            curve.class,
            40 + index * 220,
            62 + index * 220,
            y = HEIGHT - 4
        ));
        words.push_str(&format!("; {} from {from} to {to}", curve.name));
    }
    format!(
        "<svg role=\"img\" aria-label=\"{}{}\" viewBox=\"0 0 {WIDTH} {}\">{inner}</svg>",
        escaped(label),
        escaped(&words),
        HEIGHT + 4
    )
}

/// The points of a curve in a field of that width and height, whose lower left corner is at the axes.
fn place(values: &[u64], most: u64, (width, height): (usize, usize)) -> Vec<String> {
    let steps = values.len().saturating_sub(1).max(1) as f64;
    let point = |(index, value): (usize, &u64)| {
        let x = 40.0 + index as f64 * width as f64 / steps;
        let y = 15.0 + height as f64 * (1.0 - *value as f64 / most as f64);
        format!("{x:.1},{y:.1}")
    };
    values.iter().enumerate().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_counts_when_bars_are_drawn_then_their_lengths_are_in_proportion_and_each_that_is_there_is_seen() {
        let drawn = bars(
            "a",
            &[Bar { name: "x", counts: [1, 0, 0, 0, 99_999] }, Bar { name: "y", counts: [0, 0, 50_000, 0, 0] }],
        );
        let widths: Vec<&str> = drawn.split("width=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(widths, ["1", "419", "210"]);
    }

    #[test]
    fn given_values_when_a_curve_is_drawn_then_the_first_is_left_the_last_right_and_the_most_on_top() {
        assert_eq!(place(&[0, 5, 10], 10, (100, 50)), ["40.0,65.0", "90.0,40.0", "140.0,15.0"]);
        assert_eq!(place(&[3], 3, (100, 50)), ["40.0,15.0"]);
        assert_eq!(shortened("é".repeat(40).as_str()).chars().count(), MAX_NAME + 1);
    }
}
