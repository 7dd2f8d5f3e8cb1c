//! Web pages: what a reader sees, as Markdown, without scripts, hidden parts and addresses of links.

use std::sync::Arc;

use encoding_rs::Encoding;
use htmd::element_handler::Handlers;
use htmd::options::{BrStyle, BulletListMarker, Options};
use htmd::{Element, HtmlToMarkdown};
use parking_lot::Mutex;

use super::builder::{MAX_TEXT_BYTES, one_line};
use super::{ExtractedText, Fault, Source, SourceError, decode, html_table, markdown};
use crate::chunking::{self, Chunker};

/// Most elements that stand in each other; browsers stop at 512. The walk through them takes stack for each.
const MAX_DEPTH: usize = 512;

/// Bytes in which a page may say its encoding (<https://html.spec.whatwg.org/multipage/parsing.html#prescan-a-byte-stream-to-determine-its-encoding>).
const PRESCAN_BYTES: usize = 1024;

/// Stack of the walk: some kilobytes for each of [`MAX_DEPTH`] levels.
const STACK_BYTES: usize = 32 << 20;

/// What no reader sees.
const UNSEEN: &[&str] = &[
    "script", "style", "noscript", "template", "iframe", "object", "embed", "svg", "math", "canvas", "audio", "video",
    "select", "datalist", "img", "picture", "map", "dialog",
];

/// Elements that are looked at for being hidden.
const BLOCKS: &[&str] = &[
    "div",
    "p",
    "span",
    "section",
    "article",
    "aside",
    "main",
    "header",
    "footer",
    "nav",
    "ul",
    "ol",
    "li",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "pre",
    "blockquote",
    "b",
    "i",
    "em",
    "strong",
    "small",
    "font",
    "label",
    "form",
    "figure",
    "details",
    "center",
];

/// HTML.
pub(super) struct Html;

impl Source for Html {
    fn name(&self) -> &'static str {
        "html"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["html", "htm", "xhtml"]
    }

    fn media_type(&self) -> &'static str {
        "text/html"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let declared = declared_encoding(bytes);
        let page = decode::decode_any(name, bytes, declared)?;
        let seen = visible(name, &page)?;
        if seen.text.trim().is_empty() {
            return Err(SourceError::no_text(name, "nothing in it can be seen without running its scripts"));
        }
        Ok(seen.decoded_from(decode::encoding_of_any(bytes, declared)))
    }
}

/// What a reader of a page sees; blank where that is nothing.
pub(super) fn visible(name: &str, page: &str) -> Result<ExtractedText, SourceError> {
    let converted = std::thread::scope(|scope| {
        let walk = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, || convert(name, page));
        let crashed = || {
            SourceError::fault(
                name,
                Fault::ExtractionFailed,
                "made the reader of HTML fail",
                "convert it to plain text and ingest that",
            )
        };
        walk.map_err(|_| crashed()).and_then(|walk| walk.join().unwrap_or_else(|_| Err(crashed())))
    });
    let (text, title) = converted?;
    if text.len() > MAX_TEXT_BYTES {
        return Err(SourceError::fault(
            name,
            Fault::LimitExceeded,
            format!("has more than {MAX_TEXT_BYTES} bytes of text, the limit of one document"),
            "split it",
        ));
    }
    let outline = markdown::outline(&text);
    let title = title
        .or_else(|| outline.sections.iter().find(|section| section.level == 1).map(|section| section.heading.clone()));
    Ok(ExtractedText { title, sections: outline.sections, ..ExtractedText::plain(text) })
}

fn convert(name: &str, page: &str) -> Result<(String, Option<String>), SourceError> {
    let title: Arc<Mutex<Option<String>>> = Arc::default();
    let converter = converter(title.clone());
    let tree = converter.html_to_tree(page).map_err(|error| SourceError::malformed(name, "HTML", error))?;
    if is_too_deep(&tree) {
        return Err(SourceError::fault(
            name,
            Fault::LimitExceeded,
            format!("has more than {MAX_DEPTH} elements in each other"),
            "save it with less nesting, or as plain text",
        ));
    }
    let text = converter.tree_to_markdown(&tree).replace('\0', "");
    let title = title.lock().take();
    Ok((text, title.filter(|title| !title.is_empty())))
}

fn converter(title: Arc<Mutex<Option<String>>>) -> HtmlToMarkdown {
    let options = Options {
        br_style: BrStyle::Backslash,
        bullet_list_marker: BulletListMarker::Dash,
        ul_bullet_spacing: 1,
        ol_number_spacing: 1,
        ..Options::default()
    };
    let builder = HtmlToMarkdown::builder()
        .options(options)
        .skip_tags(UNSEEN.to_vec())
        .add_handler(vec!["title"], move |handlers: &dyn Handlers, element: Element| {
            let mut title = title.lock();
            title.get_or_insert_with(|| one_line(&handlers.walk_children(element.node).content));
            None
        })
        // The address of a link is no text of the page.
        .add_handler(vec!["a"], |handlers: &dyn Handlers, element: Element| {
            if is_hidden(&element) { None } else { Some(handlers.walk_children(element.node)) }
        })
        .add_handler(BLOCKS.to_vec(), |handlers: &dyn Handlers, element: Element| {
            if is_hidden(&element) { None } else { handlers.fallback(element) }
        });
    html_table::with_tables(builder).build()
}

/// Whether the element itself says that it is not shown.
pub(super) fn is_hidden(element: &Element<'_>) -> bool {
    element.attrs.iter().any(|attribute| match &*attribute.name.local {
        "hidden" => true,
        "style" => {
            let style: String =
                attribute.value.chars().filter(|c| !c.is_whitespace()).collect::<String>().to_lowercase();
            style.contains("display:none")
                || style.contains("visibility:hidden")
                || style.contains("font-size:0;")
                || style.ends_with("font-size:0")
        }
        _ => false,
    })
}

fn is_too_deep(tree: &std::rc::Rc<htmd::Node>) -> bool {
    let mut open = vec![(tree.clone(), 0)];
    while let Some((node, depth)) = open.pop() {
        if depth > MAX_DEPTH {
            return true;
        }
        open.extend(node.children.borrow().iter().map(|child| (child.clone(), depth + 1)));
    }
    false
}

/// What a `meta` element, or an XML declaration, at the beginning says.
fn declared_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(PRESCAN_BYTES)]).to_lowercase();
    let label =
        ["charset=", "encoding="].iter().find_map(|mark| head.split_once(mark))?.1.trim_start_matches(['"', '\'', ' ']);
    let end = label.find(['"', '\'', ' ', '>', ';', '/', '?']).unwrap_or(label.len());
    Encoding::for_label(&label.as_bytes()[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(page: &str) -> Result<ExtractedText, SourceError> {
        Html.extract("a.html", page.as_bytes())
    }

    #[test]
    fn given_a_page_when_read_then_what_is_seen_is_its_text() {
        let page = "<!doctype html><html><head><title> A  page </title><style>p{color:red}</style><script>var secret='hunter2'</script></head>\
            <body><h1>Gliding</h1><p>Wings &amp; <b>wind</b>, see <a href='http://evil.example/x'>the club</a>.</p>\
            <div hidden>invisible one</div><p style='display: none'>invisible two</p><span style=\"VISIBILITY:hidden\">invisible three</span>\
            <h2>Costs</h2><table><tr><th>Launch</th><th>Price</th></tr><tr><td>Winch</td><td>9</td></tr></table>\
            <ul><li>one</li><li>two</li></ul><noscript>turn on scripts</noscript><!-- comment --></body></html>";
        let text = read(page).unwrap();
        assert_eq!(text.title.as_deref(), Some("A page"));
        for seen in ["# Gliding", "Wings & **wind**, see the club", "## Costs", "Winch", "- one"] {
            assert!(text.text.contains(seen), "{seen:?} is not in {:?}", text.text);
        }
        for unseen in ["hunter2", "color", "invisible", "evil.example", "comment", "turn on", "A page"] {
            assert!(!text.text.contains(unseen), "{unseen:?} is in {:?}", text.text);
        }
        let headings: Vec<_> = text.sections.iter().map(|section| (section.level, section.heading.as_str())).collect();
        assert_eq!(headings, [(1, "Gliding"), (2, "Costs")]);
        for section in &text.sections {
            assert!(text.text[section.start..].starts_with('#'));
        }
    }

    #[test]
    fn given_pages_without_anything_to_see_when_read_then_each_has_its_code() {
        assert_eq!(read("<script>alert(1)</script>").unwrap_err().code(), "no_text");
        assert_eq!(read("<p hidden>x</p>").unwrap_err().code(), "no_text");
        assert_eq!(read("  ").unwrap_err().code(), "empty_document");
        assert_eq!(read(&"<div>".repeat(5_000)).unwrap_err().code(), "limit_exceeded");
        assert_eq!(Html.extract("a.html", b"<p>\0</p>").unwrap_err().code(), "binary_content");
    }

    #[test]
    fn given_a_declared_encoding_when_read_then_it_counts() {
        let (bytes, ..) = encoding_rs::SHIFT_JIS
            .encode("<html><head><meta charset=\"Shift_JIS\"></head><body>日本語のテキスト</body></html>");
        assert!(Html.extract("a.html", &bytes).unwrap().text.contains("日本語のテキスト"));
        assert!(Html.extract("a.html", b"<p>caf\xe9</p>").unwrap().text.contains("caf\u{e9}"));
    }
}
