//! What a document without an extension is, by its content.

use std::io::{Cursor, Read};

use serde::de::IgnoredAny;

use super::{Source, by_name, decode};

/// Parts that only one format has.
const PARTS: [(&str, &str); 4] = [
    ("word/document.xml", "docx"),
    ("ppt/presentation.xml", "pptx"),
    ("xl/workbook.xml", "xlsx"),
    ("META-INF/container.xml", "epub"),
];

/// What the part `mimetype` of an Open Document spreadsheet begins with.
const SPREADSHEET: &[u8] = b"application/vnd.oasis.opendocument.spreadsheet";

/// Bytes of that part that are looked at.
const MAX_KIND_BYTES: u64 = 128;

/// Headers that messages begin with.
const MAIL: [&str; 7] =
    ["from:", "received:", "return-path:", "delivered-to:", "mime-version:", "message-id:", "date:"];

/// The source that reads a document of this content; `None` when it is nothing that is known and no text.
pub(super) fn by_content(bytes: &[u8]) -> Option<&'static dyn Source> {
    let name = if bytes.starts_with(b"%PDF-") {
        "pdf"
    } else if bytes.starts_with(b"PK\x03\x04") {
        package(bytes)?
    } else if !decode::looks_like_text(bytes) {
        return None;
    } else {
        text(bytes)
    };
    by_name(name).ok()
}

fn package(bytes: &[u8]) -> Option<&'static str> {
    let mut zip = zip::ZipArchive::new(Cursor::new(bytes)).ok()?;
    let by_part = PARTS.iter().find(|(part, _)| zip.index_for_name(part).is_some()).map(|(_, name)| *name);
    if by_part.is_some() {
        return by_part;
    }
    let mut kind = Vec::new();
    zip.by_name("mimetype").ok()?.take(MAX_KIND_BYTES).read_to_end(&mut kind).ok()?;
    kind.starts_with(SPREADSHEET).then_some("ods")
}

fn text(bytes: &[u8]) -> &'static str {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(512)])
        .trim_start_matches(['\u{feff}', ' ', '\n', '\r', '\t'])
        .to_lowercase();
    if head.starts_with("<!doctype html") || head.starts_with("<html") {
        "html"
    } else if head.starts_with(['{', '[']) && serde_json::from_slice::<IgnoredAny>(bytes).is_ok() {
        "json"
    } else if MAIL.iter().any(|header| head.starts_with(header)) && is_mail(&head) {
        "eml"
    } else {
        "text"
    }
}

/// Two header lines at least: a note may begin with a date.
fn is_mail(head: &str) -> bool {
    head.lines()
        .take(2)
        .filter(|line| {
            line.split_once(':').is_some_and(|(name, _)| {
                !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            })
        })
        .count()
        == 2
}
