//! Sources: from a path to documents, and from a document's bytes to text.
//!
//! A file here is one source. Its line in [`SOURCES`] is all that the rest needs to know of it.

use std::path::Path;

use crate::chunking::Chunker;

mod archive;
mod builder;
mod chart;
mod code;
mod csv;
mod database;
mod decode;
mod document_store;
mod docx;
mod email;
mod epub;
mod error;
mod folder;
mod gather;
mod globs;
mod html;
mod html_table;
mod ignored;
mod isolate;
mod json;
mod json_digits;
mod left_out;
mod markdown;
mod notebook;
mod open;
mod parquet;
mod pdf;
mod pdf_damage;
mod place;
mod pptx;
mod read;
mod repository;
mod robots;
mod sheet;
mod sheet_beside;
mod sniff;
mod table;
mod table_names;
mod text;
mod web_site;
mod xml;
mod zip_archive;
mod zip_pack;

#[cfg(test)]
mod corpus;

pub use builder::MAX_TEXT_BYTES;
pub use database::{MAX_ROWS, batch_of, batches_of, check_query};
pub use document_store::check_filter;
pub use error::{Fault, SourceError};
pub use folder::{FOLDER, FolderListing, list_folder};
pub use gather::{Access, Gathered, Item, SourceRequest, gather, gather_archive};
pub use globs::{Globs, MAX_GLOBS};
pub use ignored::IgnoreRules;
pub use isolate::{DEADLINE, ISOLATED_COMMAND, MAX_MEMORY_BYTES, extract, isolate_with, run_isolated, tables};
pub use json::LineTable;
pub use left_out::{LeftOutFiles, LeftOutReason, MAX_LEFT_OUT};
pub use place::{
    CollectionAddress, DatabaseAddress, Dialect, GitAddress, PLACES, Place, SECRET_PREFIX, SourceSecrets,
    literal_password, place, shown,
};
pub use read::{FoundDocument, Limits, Scan, read_archive, read_document, read_regular, scan};
pub use repository::{MAX_REPOSITORY_BYTES, clone_repository};
pub use table::{Cell, MAX_COLUMNS, Row, Rows, Table};
pub use table_names::member_tables;
pub use web_site::{MAX_DEPTH, MAX_PAGES};
pub use zip_archive::{ArchiveFile, MAX_ARCHIVE_BYTES, UnpackLimits, ZIP, unpack_members};
pub use zip_pack::{PackedFile, pack_members};

/// A kind of document: how it is recognised and how its text is taken out of its bytes.
pub trait Source: Send + Sync {
    /// The name that `--type` takes.
    fn name(&self) -> &'static str;

    /// File extensions in lower case, without the dot.
    fn extensions(&self) -> &'static [&'static str];

    /// RFC 6838 media type of the documents.
    fn media_type(&self) -> &'static str;

    /// How its text is split.
    fn chunker(&self) -> &'static dyn Chunker;

    /// Takes the text out. `name` is only for messages. Never succeeds with a text that has nothing to find.
    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError>;

    /// Takes its tables out: at least one, or [`Fault::NotTabular`].
    fn tables(&self, name: &str, _bytes: &[u8]) -> Result<Vec<Table>, SourceError> {
        Err(SourceError::fault(
            name,
            Fault::NotTabular,
            format!("is of type {}, which has no rows", self.name()),
            "leave --table out, or give a CSV, JSON, JSONL or spreadsheet file",
        ))
    }

    /// Whether the document has rows, as far as its type and its shape tell. One that can't be read says so when it is.
    fn has_rows(&self, _name: &str, _bytes: &[u8]) -> bool {
        false
    }

    /// Whether its documents are read in a process of their own: the library that reads them can be made to fail, to run for
    /// ever or to ask for all memory.
    fn hostile(&self) -> bool {
        false
    }

    /// Whether the library that reads its documents takes files and no bytes. They are read in a process of their own, too, which
    /// has a folder for that.
    fn needs_folder(&self) -> bool {
        false
    }
}

/// Every source of documents; a new one is one line here. [`FOLDER`], [`ZIP`] and [`PLACES`] stand beside them as the sources
/// that hold others.
static SOURCES: &[&dyn Source] = &[
    &text::Text,
    &markdown::Markdown,
    &html::Html,
    &pdf::Pdf,
    &docx::Docx,
    &pptx::Pptx,
    &sheet::Spreadsheet,
    &sheet::OpenSpreadsheet,
    &csv::Csv,
    &csv::Tsv,
    &json::Json,
    &json::JsonLines,
    &parquet::Parquet,
    &epub::Epub,
    &email::Email,
    &notebook::Notebook,
    &code::Code,
];

/// Most notes of a document, and most characters of each; those beyond it are left out, and longer ones are cut.
pub const MAX_NOTES: usize = 5;
pub(crate) const MAX_NOTE_CHARS: usize = 300;

/// Every chunk carries the headings above it, so each of them has a limit.
pub const MAX_HEADING_CHARS: usize = 120;

/// The text of a document as it is stored. Spans of chunks and citations count in its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExtractedText {
    /// UTF-8 without a byte order mark; line endings as the document has them.
    pub text: String,
    /// The document's own title, where its format has one.
    pub title: Option<String>,
    /// Headings in reading order.
    pub sections: Vec<Section>,
    /// Where pages begin, in reading order; empty where the format has no pages.
    pub pages: Vec<PageStart>,
    /// The programming language of source code, such as `rust`.
    pub language: Option<String>,
    /// Who the document says that it is by; several are one text.
    pub author: Option<String>,
    /// What its bytes were decoded from, as the WHATWG names it, such as `UTF-8`; `None` where the format is no text.
    pub encoding: Option<String>,
    /// What people should know of the document although it could be read, such as pages without text; at most [`MAX_NOTES`].
    pub notes: Vec<String>,
}

/// A heading and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// First byte of the heading in the stored text.
    pub start: usize,
    /// 1 for the highest.
    pub level: u8,
    /// Its text without markup, cut to [`MAX_HEADING_CHARS`].
    pub heading: String,
}

/// The beginning of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageStart {
    /// Counts from 1.
    pub page: i32,
    /// First byte of the page in the stored text.
    pub start: usize,
}

impl ExtractedText {
    /// A text without any structure.
    pub fn plain(text: String) -> Self {
        Self {
            text,
            title: None,
            sections: Vec::new(),
            pages: Vec::new(),
            language: None,
            author: None,
            encoding: None,
            notes: Vec::new(),
        }
    }

    /// The number of its last page; `None` where the format has no pages.
    pub fn last_page(&self) -> Option<i32> {
        self.pages.last().map(|page| page.page)
    }

    fn decoded_from(self, encoding: &str) -> Self {
        Self { encoding: Some(encoding.to_owned()), ..self }
    }

    /// The headings of the text, to be asked along it.
    pub fn headings(&self) -> Headings<'_> {
        Headings { rest: &self.sections, path: Vec::new() }
    }

    /// The page that byte `at` is on.
    pub fn page(&self, at: usize) -> Option<i32> {
        let before = self.pages.partition_point(|page| page.start <= at);
        before.checked_sub(1).map(|last| self.pages[last].page)
    }
}

/// Walks along the headings of a text.
#[derive(Debug)]
pub struct Headings<'t> {
    rest: &'t [Section],
    path: Vec<&'t Section>,
}

impl Headings<'_> {
    /// The headings above byte `at`, outermost first, joined by ` > `. Places must not go back.
    pub fn above(&mut self, at: usize) -> Option<String> {
        while let Some((section, rest)) = self.rest.split_first().filter(|(section, _)| section.start <= at) {
            self.path.retain(|above| above.level < section.level);
            self.path.push(section);
            self.rest = rest;
        }
        (!self.path.is_empty())
            .then(|| self.path.iter().map(|section| section.heading.as_str()).collect::<Vec<_>>().join(" > "))
    }
}

/// The names that `--type` takes, in the order of the list.
pub fn source_names() -> Vec<&'static str> {
    SOURCES.iter().map(|source| source.name()).chain([FOLDER, ZIP]).chain(PLACES).collect()
}

/// Whether a name on the list of types stands for a kind of document, and not for a place that holds documents.
pub fn is_document_type(name: &str) -> bool {
    SOURCES.iter().any(|source| source.name() == name)
}

/// Whether a name on the list of types stands for a place that holds documents.
fn holds_documents(name: &str) -> bool {
    name == FOLDER || name == ZIP || PLACES.contains(&name)
}

/// What can be read, for people: `text (.txt, …), markdown (.md, …), folder`.
pub fn supported() -> String {
    let documents = SOURCES.iter().map(|source| format!("{} (.{})", source.name(), source.extensions().join(", .")));
    documents.chain([FOLDER, ZIP].map(str::to_owned)).chain(PLACES.map(str::to_owned)).collect::<Vec<_>>().join(", ")
}

/// The source of that name.
pub fn by_name(name: &str) -> Result<&'static dyn Source, SourceError> {
    let found = SOURCES.iter().find(|source| source.name() == name);
    found
        .copied()
        .ok_or_else(|| SourceError::UnknownType { given: error::clip(name), known: source_names().join(", ") })
}

/// The source of a media type (RFC 6838), as servers and messages name it; parameters are not looked at.
pub fn by_media_type(given: &str) -> Option<&'static dyn Source> {
    let given = given.split(';').next().unwrap_or_default().trim().to_lowercase();
    let known = SOURCES.iter().find(|source| source.media_type() == given).copied();
    known.or_else(|| match given.as_str() {
        "application/xhtml+xml" => Some(&html::Html),
        "text/x-markdown" => Some(&markdown::Markdown),
        "application/csv" => Some(&csv::Csv),
        "application/x-ndjson" | "application/jsonlines" | "application/x-jsonlines" => Some(&json::JsonLines),
        "text/json" | "application/ld+json" => Some(&json::Json),
        "text/xml"
        | "application/xml"
        | "text/css"
        | "text/javascript"
        | "application/javascript"
        | "application/yaml" => Some(&code::Code),
        other if other.starts_with("text/") => Some(&text::Text),
        _ => None,
    })
}

/// The source that reads a document: the forced one, else by its extension, else, for a name without one, by its content.
pub fn detect(path: &Path, bytes: &[u8], forced: Option<&str>) -> Result<&'static dyn Source, SourceError> {
    if let Some(name) = forced.filter(|name| !holds_documents(name)) {
        return by_name(name);
    }
    match by_extension(path) {
        Extension::Known(source) => Ok(source),
        Extension::None => sniff::by_content(bytes).ok_or_else(|| unsupported(path)),
        Extension::Unknown(_) => Err(unsupported(path)),
    }
}

/// A document's name without folder and extension.
fn stem(name: &str) -> String {
    Path::new(name).file_stem().map_or_else(|| "table".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

/// Whether a file's name says that it can be read; without an extension only its content can tell.
pub(crate) fn may_be_readable(path: &Path) -> bool {
    !matches!(by_extension(path), Extension::Unknown(_))
}

enum Extension {
    None,
    Known(&'static dyn Source),
    Unknown(String),
}

fn by_extension(path: &Path) -> Extension {
    let Some(extension) = path.extension().map(|extension| extension.to_string_lossy().to_lowercase()) else {
        return Extension::None;
    };
    match SOURCES.iter().find(|source| source.extensions().contains(&extension.as_str())) {
        Some(source) => Extension::Known(*source),
        None => Extension::Unknown(extension),
    }
}

pub(crate) fn unsupported(path: &Path) -> SourceError {
    let extension = match by_extension(path) {
        Extension::Unknown(extension) => format!(".{extension}"),
        Extension::None | Extension::Known(_) => "no extension and content that is not text".to_owned(),
    };
    SourceError::UnsupportedType { path: path.display().to_string(), extension, supported: supported() }
}

impl std::fmt::Debug for dyn Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Source({})", self.name())
    }
}

impl PartialEq for dyn Source {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_names_and_contents_when_detecting_then_the_right_source_or_the_list_of_types_comes() {
        let name =
            |path: &str, bytes: &[u8], forced| detect(Path::new(path), bytes, forced).map(|source| source.name());
        assert_eq!(name("/a/b.TXT", b"", None), Ok("text"));
        assert_eq!(name("/a/b.md", b"", None), Ok("markdown"));
        assert_eq!(name("/a/README", b"hello", None), Ok("text"));
        assert_eq!(name("/a/code.rs", b"fn main() {}", Some("text")), Ok("text"));
        assert_eq!(name("/a/b.md", b"", Some("folder")), Ok("markdown"));
        for (content, expected) in [
            (&b"%PDF-1.7\n"[..], "pdf"),
            (b"<!DOCTYPE html><p>x", "html"),
            (b"\xef\xbb\xbf \n<html lang=de>", "html"),
            (b"[{\"a\": 1}]", "json"),
            (b"{not json", "text"),
            (b"From: a@example.org\r\nSubject: x\r\n\r\nhi", "eml"),
        ] {
            assert_eq!(name("/a/file", content, None), Ok(expected));
        }

        let unsupported = detect(Path::new("/a/b.png"), b"\x89PNG", None).err().unwrap();
        assert_eq!(unsupported.code(), "unsupported_type");
        assert!(unsupported.to_string().contains(".png"));
        assert!(unsupported.hint().unwrap().contains("markdown (.md"));
        let binary = detect(Path::new("/a/program"), b"\x7fELF\0\0", None).err().unwrap();
        assert_eq!(binary.code(), "unsupported_type");

        let unknown = detect(Path::new("/a/b.txt"), b"", Some("txt")).err().unwrap();
        assert_eq!(unknown.code(), "unknown_source_type");
        assert!(unknown.hint().unwrap().contains("text, markdown, html"), "{:?}", unknown.hint());
    }

    #[test]
    fn given_nested_headings_when_asked_for_the_path_then_only_those_above_are_in_it() {
        let section = |start, level, heading: &str| Section { start, level, heading: heading.into() };
        let mut text = ExtractedText::plain("x".repeat(100));
        text.sections = vec![
            section(10, 1, "A"),
            section(20, 2, "B"),
            section(30, 3, "C"),
            section(40, 2, "D"),
            section(50, 1, "E"),
        ];
        text.pages = vec![PageStart { page: 1, start: 5 }, PageStart { page: 2, start: 60 }];
        let mut headings = text.headings();
        let mut path = |at| headings.above(at);
        assert_eq!(path(5), None);
        assert_eq!(path(10).as_deref(), Some("A"));
        assert_eq!(path(35).as_deref(), Some("A > B > C"));
        assert_eq!(path(45).as_deref(), Some("A > D"));
        assert_eq!(path(99).as_deref(), Some("E"));
        assert_eq!((text.page(0), text.page(5), text.page(60)), (None, Some(1), Some(2)));
    }
}
