//! PDF (ISO 32000-1): the characters of each page in the order in which it draws them.
//!
//! Lines come from the text operators (9.4): a move down, or a new text matrix on another line, ends one. Columns and tables
//! are not put together again. A document of which a part is lost is refused ([`pdf_damage`]): half of it would be found as if it
//! were all.

use std::collections::BTreeMap;

use lopdf::content::{Content, Operation};
use lopdf::{Dictionary, Document, Encoding, Error, Object, ObjectId, Stream};

use super::builder::Builder;
use super::{ExtractedText, Fault, Source, SourceError, pdf_damage};
use crate::chunking::{self, Chunker};

/// Most pages of a document.
const MAX_PAGES: usize = 10_000;

/// Most forms that one page draws, and deepest that they stand in each other.
const MAX_FORMS: usize = 1_000;
const MAX_FORM_DEPTH: usize = 16;

/// A gap in a line, in thousandths of the font's size, from which on it stands for a space (9.4.3, operator `TJ`).
const SPACE_GAP: f32 = -180.0;

/// Difference of height, in text space units, that is another line.
const LINE_STEP: f32 = 1.0;

/// Portable Document Format.
pub(super) struct Pdf;

impl Source for Pdf {
    fn name(&self) -> &'static str {
        "pdf"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pdf"]
    }

    fn media_type(&self) -> &'static str {
        "application/pdf"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        if bytes.is_empty() {
            return Err(SourceError::Empty { name: name.to_owned(), detail: "" });
        }
        if pdf_damage::is_cut(bytes) {
            return Err(damaged(name, "is cut off: nothing says where it ends (startxref)".to_owned()));
        }
        let document = open(name, bytes)?;
        let pages: Vec<ObjectId> = document.page_iter().take(MAX_PAGES + 1).collect();
        if pages.len() > MAX_PAGES {
            return Err(SourceError::fault(
                name,
                Fault::LimitExceeded,
                format!("has more than {MAX_PAGES} pages"),
                "split it",
            ));
        }
        let mut out = Builder::default();
        if let Some(title) = info(&document, b"Title") {
            out.title(&title);
        }
        if let Some(author) = info(&document, b"Author") {
            out.author(&author);
        }
        let mut found = Pages::default();
        for (number, page) in (1..).zip(&pages) {
            out.page(number);
            let mut seen = Seen::default();
            let text = normalise(&page_text(&document, *page, &mut seen));
            out.paragraph(&text);
            found.add(number, &seen, text.trim().is_empty());
        }
        if !found.broken.is_empty() {
            let (broken, all) = (pdf_damage::named(&found.broken), pages.len());
            return Err(damaged(name, format!("is damaged: {broken} of {all} can't be read")));
        }
        if out.is_blank() {
            return Err(SourceError::no_text_but_pictures(name, found.all.why(pages.len())));
        }
        found.notes(pages.len()).iter().for_each(|note| out.note(note));
        out.finish_pictured(name, "its pages are blank")
    }
}

/// Advice about scans would lead astray: what is missing is in another copy, not in the pictures.
fn damaged(name: &str, reason: String) -> SourceError {
    SourceError::fault(
        name,
        Fault::Malformed,
        reason,
        "ingest a whole copy; of this one the program that it is from, or qpdf IN.pdf OUT.pdf, may save what is left",
    )
}

fn open(name: &str, bytes: &[u8]) -> Result<Document, SourceError> {
    let encrypted = || {
        SourceError::fault(
            name,
            Fault::Encrypted,
            "is encrypted and can't be opened without its password",
            "save it without a password, for example with: qpdf --decrypt",
        )
    };
    // The empty user password is tried: with it, everyone may read the document.
    let mut document = match Document::load_mem(bytes) {
        Ok(document) => document,
        Err(Error::Decryption(_) | Error::InvalidPassword | Error::UnsupportedSecurityHandler(_)) => {
            return Err(encrypted());
        }
        Err(error) => return Err(SourceError::malformed(name, "PDF", error)),
    };
    if document.is_encrypted() && document.decrypt("").is_err() {
        return Err(encrypted());
    }
    Ok(document)
}

/// An entry of the document information dictionary (14.3.3).
fn info(document: &Document, key: &[u8]) -> Option<String> {
    let info = document.trailer.get(b"Info").ok()?;
    let (_, info) = document.dereference(info).ok()?;
    let (_, value) = document.dereference(info.as_dict().ok()?.get(key).ok()?).ok()?;
    lopdf::decode_text_string(value).ok()
}

/// What a page turned out to have.
#[derive(Debug, Default)]
struct Seen {
    shown: usize,
    fonts: usize,
    images: bool,
    /// Some of what it shows is lost.
    broken: bool,
}

impl Seen {
    /// Why there is no text in a document of so many pages.
    fn why(&self, pages: usize) -> &'static str {
        match self {
            _ if pages == 0 => "it has no pages",
            Self { shown: 1.., fonts: 0, .. } => "it shows characters without naming a font, so nobody can tell which",
            Self { shown: 1.., .. } => "its fonts do not say which characters they show",
            Self { images: true, .. } => "its pages are pictures, as of a scan",
            Self { .. } => "its pages have no characters",
        }
    }
}

/// The pages that have no text although they show something, by number.
#[derive(Debug, Default)]
struct Pages {
    broken: Vec<usize>,
    pictures: Vec<usize>,
    /// Their fonts don't say which characters they show.
    untold: Vec<usize>,
    all: Seen,
}

impl Pages {
    fn add(&mut self, number: usize, seen: &Seen, is_blank: bool) {
        match seen {
            Seen { broken: true, .. } => self.broken.push(number),
            Seen { images: true, .. } if is_blank => self.pictures.push(number),
            Seen { shown: 1.., .. } if is_blank => self.untold.push(number),
            Seen { .. } => {}
        }
        self.all.shown += seen.shown;
        self.all.fonts += seen.fonts;
        self.all.images |= seen.images;
    }

    /// What people should know of a document that is read: a scanned page among others is common and no reason to refuse them.
    fn notes(&self, pages: usize) -> Vec<String> {
        let note = |of: &[usize], one: &str, many: &str| {
            let are = if of.len() == 1 { one } else { many };
            (!of.is_empty()).then(|| format!("{} of {pages} pages {are}: {}", of.len(), pdf_damage::named(of)))
        };
        [
            note(&self.pictures, "is a picture without text", "are pictures without text"),
            note(
                &self.untold,
                "has characters that its fonts do not tell",
                "have characters that their fonts do not tell",
            ),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// The text of a page; of one that is broken what can be told of it.
fn page_text(document: &Document, page: ObjectId, seen: &mut Seen) -> String {
    let Some(content) = pdf_damage::of_page(document, page) else {
        seen.broken = true;
        return String::new();
    };
    let mut resources = Vec::new();
    if let Ok((own, shared)) = document.get_page_resources(page) {
        resources.extend(own);
        resources.extend(shared.into_iter().filter_map(|id| document.get_dictionary(id).ok()));
    }
    let mut text = String::new();
    Drawing { document, seen, open: Vec::new(), left: MAX_FORMS }.draw(&content, &resources, &mut text);
    text
}

/// A page, with the forms that it shows: pieces of content with resources of their own (8.10).
struct Drawing<'d, 's> {
    document: &'d Document,
    seen: &'s mut Seen,
    /// Forms that are being drawn, the outermost first.
    open: Vec<&'d Stream>,
    /// How many more may be drawn: a few that show each other many times are a great many.
    left: usize,
}

impl<'d> Drawing<'d, '_> {
    fn draw(&mut self, content: &Content, resources: &[&'d Dictionary], text: &mut String) {
        let document = self.document;
        let fonts = fonts(document, resources);
        self.seen.fonts += fonts.len();
        let encodings: BTreeMap<Vec<u8>, Encoding<'_>> = fonts
            .into_iter()
            .filter_map(|(name, font)| font.get_font_encoding(document).ok().map(|encoding| (name, encoding)))
            .collect();
        let mut lines = Lines { encodings: &encodings, font: None, text, height: None };
        for operation in &content.operations {
            match operation.operator.as_str() {
                "Tj" | "TJ" | "'" | "\"" => self.seen.shown += 1,
                "BI" => self.seen.images = true,
                "Do" => match form(document, resources, operation) {
                    Some(form) => {
                        lines.new_line();
                        self.draw_form(form, resources, lines.text);
                        lines.new_line();
                    }
                    None => self.seen.images = true,
                },
                _ => {}
            }
            lines.take(operation);
        }
    }

    /// One within itself is blank, and so is one that is broken, and with it its page.
    fn draw_form(&mut self, form: &'d Stream, around: &[&'d Dictionary], text: &mut String) {
        let within_itself = self.open.iter().any(|open| std::ptr::eq(*open, form));
        if within_itself || self.open.len() >= MAX_FORM_DEPTH || self.left == 0 {
            return;
        }
        self.left -= 1;
        let Some(content) = pdf_damage::of_form(form) else {
            self.seen.broken = true;
            return;
        };
        self.open.push(form);
        // Old ones have no resources of their own and use those of their page.
        match self.document.get_dict_in_dict(&form.dict, b"Resources") {
            Ok(own) => self.draw(&content, &[own], text),
            Err(_) => self.draw(&content, around, text),
        }
        self.open.pop();
    }
}

/// Fonts by the names that they have here; of two with one name the nearer one.
fn fonts<'d>(document: &'d Document, resources: &[&'d Dictionary]) -> BTreeMap<Vec<u8>, &'d Dictionary> {
    let mut fonts = BTreeMap::new();
    for named in resources.iter().copied().filter_map(|of| document.get_dict_in_dict(of, b"Font").ok()) {
        for (name, font) in named.iter() {
            if let Ok((_, Object::Dictionary(font))) = document.dereference(font) {
                fonts.entry(name.clone()).or_insert(font);
            }
        }
    }
    fonts
}

/// The form that an operation shows; everything else that it may show is a picture.
fn form<'d>(document: &'d Document, resources: &[&'d Dictionary], operation: &Operation) -> Option<&'d Stream> {
    let name = operation.operands.first()?.as_name().ok()?;
    let shown = resources.iter().copied().find_map(|of| {
        let named = document.get_dict_in_dict(of, b"XObject").ok()?;
        document.dereference(named.get(name).ok()?).ok()
    });
    let (_, Object::Stream(stream)) = shown? else { return None };
    let kind = stream.dict.get(b"Subtype").and_then(Object::as_name).ok()?;
    (kind == b"Form").then_some(stream)
}

/// The lines of a page in the making.
struct Lines<'p, 't> {
    encodings: &'p BTreeMap<Vec<u8>, Encoding<'p>>,
    font: Option<&'p Encoding<'p>>,
    text: &'t mut String,
    height: Option<f32>,
}

impl Lines<'_, '_> {
    fn take(&mut self, operation: &Operation) {
        let number = |index: usize| operation.operands.get(index).and_then(|operand| operand.as_float().ok());
        match operation.operator.as_str() {
            "Tf" => {
                let name = operation.operands.first().and_then(|operand| operand.as_name().ok());
                self.font = name.and_then(|name| self.encodings.get(name));
            }
            "Td" | "TD" => match number(1) {
                Some(down) if down.abs() >= LINE_STEP => self.new_line(),
                _ => self.space(),
            },
            "Tm" => {
                let height = number(5);
                match (self.height, height) {
                    (Some(before), Some(now)) if (before - now).abs() < LINE_STEP => self.space(),
                    _ => self.new_line(),
                }
                self.height = height;
            }
            "T*" | "ET" => self.new_line(),
            "Tj" => self.show(&operation.operands),
            "TJ" => {
                if let Some(Object::Array(parts)) = operation.operands.first() {
                    self.show(parts);
                }
            }
            "'" => {
                self.new_line();
                self.show(&operation.operands);
            }
            "\"" => {
                self.new_line();
                self.show(operation.operands.get(2..).unwrap_or_default());
            }
            // Everything else draws.
            _ => {}
        }
    }

    fn show(&mut self, parts: &[Object]) {
        let Some(font) = self.font else { return };
        for part in parts {
            match part {
                Object::String(bytes, _) => {
                    // What its font can't tell is left out.
                    let _ = font.write_to_string(bytes, self.text);
                }
                part => {
                    if part.as_float().is_ok_and(|gap| gap < SPACE_GAP) {
                        self.space();
                    }
                }
            }
        }
    }

    fn space(&mut self) {
        if self.text.ends_with(|last: char| !last.is_whitespace()) {
            self.text.push(' ');
        }
    }

    fn new_line(&mut self) {
        let kept = self.text.trim_end_matches(' ').len();
        self.text.truncate(kept);
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
    }
}

/// Ligatures as the letters that they stand for, so that words with them are found; soft hyphens and what could not be told
/// (U+FFFD, controls, private use) are left out, and so are hyphens that part a word at the end of a line.
fn normalise(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\u{fb00}' => out.push_str("ff"),
            '\u{fb01}' => out.push_str("fi"),
            '\u{fb02}' => out.push_str("fl"),
            '\u{fb03}' => out.push_str("ffi"),
            '\u{fb04}' => out.push_str("ffl"),
            '\u{fb05}' | '\u{fb06}' => out.push_str("st"),
            '\u{132}' => out.push_str("IJ"),
            '\u{133}' => out.push_str("ij"),
            '\u{a0}' => out.push(' '),
            '\u{ad}' | '\u{fffd}' | '\u{feff}' | '\u{e000}'..='\u{f8ff}' => {}
            '\n' => out.push('\n'),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    join_hyphens(&out)
}

/// `exam-` at the end of a line and `ple` at the beginning of the next are one word.
fn join_hyphens(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let parted = out.strip_suffix("-\n").is_some_and(|before| before.ends_with(char::is_lowercase));
        if parted && line.starts_with(char::is_lowercase) {
            out.truncate(out.len() - 2);
        }
        out.push_str(line);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_ligatures_and_parted_words_when_normalised_then_words_can_be_found() {
        assert_eq!(
            normalise("of\u{fb01}ce a\u{fb04}uent exam-\nple Co-\nOp soft\u{ad}en \u{fffd}x\u{7}y"),
            "office affluent example Co-\nOp soften x y"
        );
    }
}
