//! Word documents (ECMA-376): headings, lists, tables, foot- and endnotes in reading order, charts, headers and footers
//! behind them.

use std::collections::{BTreeSet, HashMap};

use super::archive::{Package, Relation};
use super::builder::Builder;
use super::chart;
use super::xml::{self, Node, Tag};
use super::{ExtractedText, Source, SourceError};
use crate::chunking::{self, Chunker};

const FORMAT: &str = "DOCX document";
const BODY: &str = "word/document.xml";
/// Parts that stand beside the body, with the heading that they get.
const NOTES: [(&str, &str); 3] =
    [("word/footnotes.xml", "Footnotes"), ("word/endnotes.xml", "Endnotes"), ("word/comments.xml", "Comments")];

/// Most columns that a table has in Word: cells don't reach over more.
const MAX_TABLE_COLUMNS: usize = 63;

/// Office Open XML text documents.
pub(super) struct Docx;

impl Source for Docx {
    fn name(&self) -> &'static str {
        "docx"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["docx", "docm", "dotx"]
    }

    fn media_type(&self) -> &'static str {
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let mut package = Package::open(name, FORMAT, bytes)?;
        let body = package.needed(BODY)?;
        let styles = match package.xml("word/styles.xml")? {
            Some(xml) => heading_styles(name, &xml)?,
            None => HashMap::new(),
        };
        let mut out = Builder::default();
        if let Some(xml) = package.xml("docProps/core.xml")? {
            read_core(name, FORMAT, &xml, &mut out)?;
        }
        read_body(name, &body, &styles, &mut out)?;
        for (part, heading) in NOTES {
            let Some(xml) = package.xml(part)? else { continue };
            let mut notes = Builder::default();
            read_body(name, &xml, &styles, &mut notes)?;
            if !notes.is_blank() {
                out.heading(1, heading);
                read_body(name, &xml, &styles, &mut out)?;
            }
        }
        let relations = package.relations(BODY)?;
        let charts = chart::of_part(name, FORMAT, &mut package, &relations)?;
        if !charts.is_empty() {
            out.heading(1, "Charts");
            charts.iter().for_each(|chart| chart.write(&mut out));
        }
        let margins = margins(name, &mut package, &relations, &styles)?;
        // A document of pictures is none for having a header.
        if !margins.is_empty() && !out.is_blank() {
            out.heading(1, "Headers and footers");
            margins.iter().for_each(|margin| out.paragraph(margin));
        }
        out.finish_pictured(name, "it has no characters in its body; it may be made of pictures")
    }
}

/// What stands at the edges of pages, each text once: first, even and odd pages mostly have the same.
fn margins(
    name: &str,
    package: &mut Package<'_>,
    relations: &[Relation],
    styles: &HashMap<String, u8>,
) -> Result<BTreeSet<String>, SourceError> {
    let is_margin = |kind: &str| kind.ends_with("/header") || kind.ends_with("/footer");
    let mut found = BTreeSet::new();
    for (.., part) in relations.iter().filter(|(_, kind, _)| is_margin(kind)) {
        let Some(xml) = package.xml(part)? else { continue };
        let mut margin = Builder::default();
        read_body(name, &xml, styles, &mut margin)?;
        if !margin.is_blank() {
            found.insert(margin.finish(name, "a header without characters")?.text);
        }
    }
    Ok(found)
}

/// `dc:title` and `dc:creator` of the core properties that all Office formats share.
pub(super) fn read_core(name: &str, format: &str, xml: &str, out: &mut Builder) -> Result<(), SourceError> {
    let (mut title, mut author, mut within) = (String::new(), String::new(), String::new());
    xml::walk(name, format, xml, |node| match node {
        Node::Open(tag) => tag.name().clone_into(&mut within),
        Node::Close(_) => within.clear(),
        Node::Text(text) => match within.as_str() {
            "title" => title.push_str(text),
            "creator" => author.push_str(text),
            _ => {}
        },
    })?;
    out.title(&title);
    out.author(&author);
    Ok(())
}

/// The level of each style that is a heading: by its outline level, or by the name that every language version keeps.
fn heading_styles(name: &str, xml: &str) -> Result<HashMap<String, u8>, SourceError> {
    let mut styles = HashMap::new();
    let mut style = String::new();
    xml::walk(name, FORMAT, xml, |node| {
        let Node::Open(tag) = node else { return };
        match tag.name() {
            "style" => style = tag.attribute("styleId").unwrap_or_default(),
            "name" => {
                let given = tag.attribute("val").unwrap_or_default().to_lowercase();
                let level = if given == "title" {
                    Some(1)
                } else {
                    given.strip_prefix("heading ").and_then(|level| level.parse().ok())
                };
                styles.extend(level.map(|level| (style.clone(), level)));
            }
            "outlineLvl" => {
                // 9 is body text.
                let level = tag.attribute("val").and_then(|level| level.parse::<u8>().ok()).filter(|level| *level < 9);
                styles.extend(level.map(|level| (style.clone(), level + 1)));
            }
            _ => {}
        }
    })?;
    Ok(styles)
}

/// A paragraph in the making.
#[derive(Default)]
struct Paragraph {
    text: String,
    level: Option<u8>,
    list: Option<usize>,
}

/// A table in the making. One within another becomes text of its cell.
#[derive(Default)]
struct Tables {
    depth: usize,
    rows: Vec<Vec<String>>,
    row: Vec<String>,
    cell: String,
    /// Columns that the cell reaches over.
    span: usize,
}

impl Tables {
    /// Columns without a cell, before the first one or below one that reaches over several: what stands behind them keeps its column.
    fn skip_columns(&mut self, count: usize) {
        let room = MAX_TABLE_COLUMNS.saturating_sub(self.row.len());
        self.row.extend(std::iter::repeat_n(String::new(), count.min(room)));
    }

    fn end_cell(&mut self) {
        self.row.push(std::mem::take(&mut self.cell));
        self.skip_columns(self.span.saturating_sub(1));
    }
}

fn read_body(name: &str, xml: &str, styles: &HashMap<String, u8>, out: &mut Builder) -> Result<(), SourceError> {
    let mut paragraph = Paragraph::default();
    // Those that the text box stands in whose paragraphs are read.
    let mut around = Vec::new();
    let mut tables = Tables::default();
    // What was deleted in tracked changes, and field codes, are no text.
    let mut text = false;
    // Within what stands elsewhere once more: other forms of a drawing, and the old places of what was moved.
    let mut unseen = 0usize;
    xml::walk(name, FORMAT, xml, |node| match node {
        Node::Open(tag) => match tag.name() {
            "Fallback" | "moveFrom" => unseen += 1,
            _ if unseen > 0 => {}
            "p" => around.push(std::mem::take(&mut paragraph)),
            "pStyle" => paragraph.level = tag.attribute("val").and_then(|style| level_of(&style, styles)),
            "ilvl" => paragraph.list = tag.attribute("val").and_then(|level| level.parse().ok()),
            "numPr" => paragraph.list = paragraph.list.or(Some(0)),
            "t" => text = true,
            "tab" => paragraph.text.push('\t'),
            "br" | "cr" => paragraph.text.push('\n'),
            "noBreakHyphen" => paragraph.text.push('-'),
            "tbl" => tables.depth += 1,
            "tc" if tables.depth == 1 => tables.span = 1,
            "gridSpan" if tables.depth == 1 => tables.span = number(tag),
            "gridBefore" if tables.depth == 1 => tables.skip_columns(number(tag)),
            _ => {}
        },
        Node::Text(words) if text && unseen == 0 => paragraph.text.push_str(words),
        Node::Text(_) => {}
        Node::Close("Fallback" | "moveFrom") => unseen = unseen.saturating_sub(1),
        Node::Close(_) if unseen > 0 => {}
        Node::Close("t") => text = false,
        Node::Close("p") => {
            let ended = std::mem::replace(&mut paragraph, around.pop().unwrap_or_default());
            end_paragraph(&ended, &mut tables, out);
        }
        Node::Close("tc") if tables.depth == 1 => tables.end_cell(),
        Node::Close("tr") if tables.depth == 1 => tables.rows.push(std::mem::take(&mut tables.row)),
        Node::Close("tbl") => {
            tables.depth = tables.depth.saturating_sub(1);
            if tables.depth == 0 {
                out.table(&std::mem::take(&mut tables.rows));
            }
        }
        Node::Close(_) => {}
    })
}

/// A number of columns; none where it can't be read.
fn number(tag: &Tag<'_>) -> usize {
    tag.attribute("val").and_then(|count| count.parse().ok()).unwrap_or_default()
}

/// The level of a paragraph's style; also without a list of styles, as small writers of the format leave it out.
fn level_of(style: &str, styles: &HashMap<String, u8>) -> Option<u8> {
    let by_name =
        || if style == "Title" { Some(1) } else { style.strip_prefix("Heading").and_then(|level| level.parse().ok()) };
    styles.get(style).copied().or_else(by_name)
}

fn end_paragraph(paragraph: &Paragraph, tables: &mut Tables, out: &mut Builder) {
    if tables.depth > 0 {
        tables.cell.push_str(&paragraph.text);
        tables.cell.push(' ');
        return;
    }
    match (paragraph.level, paragraph.list) {
        (Some(level), _) => out.heading(level, &paragraph.text),
        (None, Some(level)) if !paragraph.text.trim().is_empty() => {
            out.line(&format!("{}- {}", "  ".repeat(level.min(8)), paragraph.text.trim()));
        }
        (None, _) => out.paragraph(&paragraph.text),
    }
}
