//! Puts a text together from a document's parts, with the places of its headings and pages.

use super::table::{Cell, row_line};
use super::{ExtractedText, Fault, MAX_HEADING_CHARS, MAX_NOTE_CHARS, MAX_NOTES, PageStart, Section, SourceError};

/// Most bytes of the text that is taken out of one document. A document with more is refused, never cut.
pub const MAX_TEXT_BYTES: usize = 64 << 20;

/// Most headings of a document whose places are kept; those beyond it stay in the text.
const MAX_SECTIONS: usize = 50_000;

/// Most people that a document is said to be by.
const MAX_AUTHORS: usize = 20;

/// A text in the making. What is added behind [`MAX_TEXT_BYTES`] is dropped, and [`Builder::finish`] says so.
#[derive(Debug, Default)]
pub(super) struct Builder {
    text: String,
    sections: Vec<Section>,
    pages: Vec<PageStart>,
    title: Option<String>,
    authors: Vec<String>,
    notes: Vec<String>,
    full: bool,
}

impl Builder {
    /// The document's own title; the first that is not blank counts.
    pub(super) fn title(&mut self, title: &str) {
        let title = one_line(title);
        if self.title.is_none() && !title.is_empty() {
            self.title = Some(title);
        }
    }

    /// Somebody that the document says it is by; nothing happens for a blank name or one that is there.
    pub(super) fn author(&mut self, author: &str) {
        let author = one_line(author);
        if !author.is_empty() && self.authors.len() < MAX_AUTHORS && !self.authors.contains(&author) {
            self.authors.push(author);
        }
    }

    /// What people should know of the document although it can be read.
    pub(super) fn note(&mut self, note: &str) {
        if self.notes.len() < MAX_NOTES {
            self.notes.push(note.chars().take(MAX_NOTE_CHARS).collect());
        }
    }

    /// A page begins. Pages count from 1.
    pub(super) fn page(&mut self, page: usize) {
        self.gap();
        self.pages.push(PageStart { page: i32::try_from(page).unwrap_or(i32::MAX), start: self.text.len() });
    }

    /// A heading of a level from 1, in the form that Markdown has for it.
    pub(super) fn heading(&mut self, level: u8, heading: &str) {
        let heading = one_line(heading);
        if heading.is_empty() {
            return;
        }
        self.gap();
        let level = level.clamp(1, 6);
        if self.sections.len() < MAX_SECTIONS {
            self.sections.push(Section { start: self.text.len(), level, heading: heading.clone() });
        }
        let marks = "#".repeat(usize::from(level));
        self.push(&format!("{marks} {heading}\n\n"));
    }

    /// A paragraph; nothing happens for a blank one.
    pub(super) fn paragraph(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() {
            self.gap();
            self.push(text);
            self.push("\n\n");
        }
    }

    /// One line, directly below the one before.
    pub(super) fn line(&mut self, line: &str) {
        let line = line.trim_end();
        if !line.trim().is_empty() {
            self.push(line);
            self.push("\n");
        }
    }

    /// A row of a table, with its columns.
    pub(super) fn row(&mut self, columns: &[String], row: &[Cell]) {
        self.line(&row_line(columns, row));
    }

    /// A table as Markdown writes it, its first row as the header.
    pub(super) fn table(&mut self, rows: &[Vec<String>]) {
        let width = rows.iter().map(Vec::len).max().unwrap_or(0);
        if rows.iter().flatten().all(|cell| cell.trim().is_empty()) {
            return;
        }
        self.gap();
        for (index, row) in rows.iter().enumerate() {
            let cell = |at: usize| row.get(at).map(|cell| one_cell(cell)).unwrap_or_default();
            self.line(&format!("| {} |", (0..width).map(cell).collect::<Vec<_>>().join(" | ")));
            if index == 0 {
                self.line(&format!("|{}", " --- |".repeat(width)));
            }
        }
        self.push("\n");
    }

    /// Another text with its headings, one level below `under`.
    pub(super) fn append(&mut self, other: &ExtractedText, under: u8) {
        self.gap();
        let start = self.text.len();
        let room = MAX_SECTIONS.saturating_sub(self.sections.len());
        let moved = |section: &Section| Section {
            start: section.start + start,
            level: (section.level + under).min(6),
            heading: section.heading.clone(),
        };
        self.sections.extend(other.sections.iter().take(room).map(moved));
        self.push(&other.text);
        self.push("\n");
    }

    /// Whether nothing but white space was added.
    pub(super) fn is_blank(&self) -> bool {
        self.text.trim().is_empty()
    }

    /// The text. Refuses one that is blank or too long.
    pub(super) fn finish(mut self, name: &str, why_blank: &str) -> Result<ExtractedText, SourceError> {
        if self.full {
            return Err(SourceError::fault(
                name,
                Fault::LimitExceeded,
                format!("has more than {MAX_TEXT_BYTES} bytes of text, the limit of one document"),
                "split the document",
            ));
        }
        if self.is_blank() {
            return Err(SourceError::no_text(name, why_blank));
        }
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
        // Pages without text at the end begin where the text ends.
        let end = self.text.len();
        self.pages.iter_mut().for_each(|page| page.start = page.start.min(end));
        let Self { text, sections, pages, title, authors, notes, .. } = self;
        let author = (!authors.is_empty()).then(|| authors.join(", "));
        Ok(ExtractedText { title, sections, pages, author, notes, ..ExtractedText::plain(text) })
    }

    /// The same of a format in which pictures may stand for the text.
    pub(super) fn finish_pictured(self, name: &str, why_blank: &str) -> Result<ExtractedText, SourceError> {
        if !self.full && self.is_blank() {
            return Err(SourceError::no_text_but_pictures(name, why_blank));
        }
        self.finish(name, why_blank)
    }

    fn gap(&mut self) {
        if !self.text.is_empty() && !self.text.ends_with("\n\n") {
            let missing = if self.text.ends_with('\n') { "\n" } else { "\n\n" };
            self.push(missing);
        }
    }

    fn push(&mut self, text: &str) {
        if self.text.len() + text.len() > MAX_TEXT_BYTES {
            self.full = true;
        } else if !self.full {
            // Zero characters end strings elsewhere, and say nothing here.
            self.text.extend(text.split('\0'));
        }
    }
}

/// White space joined, and cut to what a heading may have.
pub(super) fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(MAX_HEADING_CHARS).collect()
}

/// White space joined, as a cell of a Markdown table.
pub(super) fn one_cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}
