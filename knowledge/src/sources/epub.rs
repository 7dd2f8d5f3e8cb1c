//! Books (EPUB 2 and 3): the chapters in the order of the spine, each read as the page of HTML that it is.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;

use super::archive::{Package, resolve};
use super::builder::Builder;
use super::xml::{self, Node};
use super::{ExtractedText, Fault, Source, SourceError, html};
use crate::chunking::{self, Chunker};

const FORMAT: &str = "EPUB book";

/// Most chapters of a book.
const MAX_CHAPTERS: usize = 5_000;

/// Electronic books.
pub(super) struct Epub;

impl Source for Epub {
    fn name(&self) -> &'static str {
        "epub"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["epub"]
    }

    fn media_type(&self) -> &'static str {
        "application/epub+zip"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let mut package = Package::open(name, FORMAT, bytes)?;
        let encrypted = package.parts().iter().any(|part| part == "META-INF/rights.xml");
        if encrypted {
            return Err(SourceError::fault(
                name,
                Fault::Encrypted,
                "is protected by digital rights management",
                "use a copy without it",
            ));
        }
        let book = book(name, &mut package)?;
        let mut out = Builder::default();
        out.title(&book.title);
        book.authors.iter().for_each(|author| out.author(author));
        for chapter in &book.chapters {
            let page = match package.xml(&chapter.part)? {
                Some(page) => page,
                // Some write names that have a percent sign as they are.
                None => package.needed(&chapter.as_written)?,
            };
            let seen = html::visible(name, &page)?;
            if seen.text.trim().is_empty() {
                continue;
            }
            if let (true, Some(title)) = (seen.sections.is_empty(), &seen.title) {
                out.heading(1, title);
            }
            out.append(&seen, 0);
        }
        out.finish_pictured(name, "its chapters have no characters; they may be made of pictures")
    }
}

struct Book {
    title: String,
    authors: Vec<String>,
    chapters: Vec<Chapter>,
}

/// Where a chapter is in the package.
struct Chapter {
    part: String,
    /// The same without undoing percent-encoding.
    as_written: String,
}

/// Title, authors and chapters, from the package document that the container names.
fn book(name: &str, package: &mut Package<'_>) -> Result<Book, SourceError> {
    let container = package.needed("META-INF/container.xml")?;
    let mut root = None;
    xml::walk(name, FORMAT, &container, |node| {
        if let Node::Open(tag) = node
            && tag.name() == "rootfile"
        {
            root = root.take().or(tag.attribute("full-path"));
        }
    })?;
    let root = root.ok_or_else(|| SourceError::malformed(name, FORMAT, "its container names no book"))?;
    let document = package.needed(&root)?;
    let mut items = HashMap::new();
    let mut spine = Vec::new();
    let (mut title, mut authors, mut within) = (String::new(), Vec::<String>::new(), "");
    xml::walk(name, FORMAT, &document, |node| match node {
        Node::Open(tag) => {
            within = match tag.name() {
                "title" if title.is_empty() => "title",
                "creator" => "creator",
                _ => "",
            };
            match tag.name() {
                "creator" => authors.push(String::new()),
                "item" => items.extend(tag.attribute("id").zip(tag.attribute("href"))),
                "itemref" => spine.extend(tag.attribute("idref")),
                _ => {}
            }
        }
        Node::Text(text) => match within {
            "title" => title.push_str(text),
            "creator" => {
                if let Some(author) = authors.last_mut() {
                    author.push_str(text);
                }
            }
            _ => {}
        },
        Node::Close(_) => within = "",
    })?;
    if spine.len() > MAX_CHAPTERS {
        return Err(SourceError::fault(
            name,
            Fault::LimitExceeded,
            format!("has more than {MAX_CHAPTERS} chapters"),
            "split it",
        ));
    }
    // A chapter that the book lists and does not have was lost on the way: the others alone are not the book.
    let chapters = spine.iter().map(|id| -> Result<Chapter, SourceError> {
        let href = items.get(id).ok_or_else(|| {
            SourceError::malformed(name, FORMAT, format!("its spine names the chapter {id:?}, which it does not have"))
        })?;
        let as_written = resolve(&root, href);
        Ok(Chapter { part: percent_decode_str(&as_written).decode_utf8_lossy().into_owned(), as_written })
    });
    Ok(Book { title, authors, chapters: chapters.collect::<Result<_, SourceError>>()? })
}
