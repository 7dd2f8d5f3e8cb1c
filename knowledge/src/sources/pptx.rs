//! Presentations (ECMA-376): a slide is a page, with its title as heading, its tables, its diagrams, its charts,
//! its notes and what was said of it.

use super::archive::{Package, Relation};
use super::builder::{Builder, one_line};
use super::chart::{self, Chart};
use super::docx::read_core;
use super::xml::{self, Node};
use super::{ExtractedText, Source, SourceError};
use crate::chunking::{self, Chunker};

const FORMAT: &str = "PPTX presentation";
const DECK: &str = "ppt/presentation.xml";

/// Office Open XML presentations.
pub(super) struct Pptx;

impl Source for Pptx {
    fn name(&self) -> &'static str {
        "pptx"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["pptx", "pptm", "ppsx"]
    }

    fn media_type(&self) -> &'static str {
        "application/vnd.openxmlformats-officedocument.presentationml.presentation"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let mut package = Package::open(name, FORMAT, bytes)?;
        let mut out = Builder::default();
        if let Some(xml) = package.xml("docProps/core.xml")? {
            read_core(name, FORMAT, &xml, &mut out)?;
        }
        let slides = slides(name, &mut package)?;
        let mut blank = true;
        for (number, slide) in (1..).zip(&slides) {
            let mut shapes = shapes(name, &package.needed(slide)?)?;
            let relations = package.relations(slide)?;
            shapes.extend(diagrams(name, &mut package, &relations)?);
            shapes.extend(chart::of_part(name, FORMAT, &mut package, &relations)?.into_iter().map(Shape::Chart));
            let notes = notes(name, &mut package, &relations)?;
            let comments = comments(name, &mut package, &relations)?;
            blank &= shapes.is_empty() && notes.is_empty() && comments.is_empty();
            out.page(number);
            write_slide(number, &shapes, &mut out);
            write_beside("Notes", &notes, &mut out);
            write_beside("Comments", &comments, &mut out);
        }
        if blank {
            return Err(SourceError::no_text_but_pictures(
                name,
                "its slides have no characters; they may be made of pictures",
            ));
        }
        out.finish_pictured(name, "its slides have no characters; they may be made of pictures")
    }
}

/// The slides in the order of the presentation.
fn slides(name: &str, package: &mut Package<'_>) -> Result<Vec<String>, SourceError> {
    let deck = package.needed(DECK)?;
    let relations = package.relations(DECK)?;
    let mut listed = Vec::new();
    xml::walk(name, FORMAT, &deck, |node| {
        if let Node::Open(tag) = node
            && tag.name() == "sldId"
        {
            listed.extend(tag.qualified("r:id"));
        }
    })?;
    let slides = listed.into_iter().map(|id| match relations.iter().find(|(known, ..)| *known == id) {
        Some((.., target)) => Ok(target.clone()),
        None => Err(SourceError::malformed(name, FORMAT, format!("it lists the slide {id:?} and does not have it"))),
    });
    slides.collect()
}

/// What stands on a slide.
#[derive(Debug, PartialEq)]
enum Shape {
    Title(String),
    Text(Vec<String>),
    Table(Vec<Vec<String>>),
    Chart(Chart),
}

#[derive(Default)]
struct Reading {
    shapes: Vec<Shape>,
    placeholder: Option<String>,
    paragraphs: Vec<String>,
    line: String,
    in_text: bool,
    rows: Vec<Vec<String>>,
    /// Within what stands elsewhere once more: forms of a drawing for older programs.
    unseen: usize,
}

fn shapes(name: &str, xml: &str) -> Result<Vec<Shape>, SourceError> {
    let mut reading = Reading::default();
    xml::walk(name, FORMAT, xml, |node| reading.see(node))?;
    Ok(reading.shapes)
}

impl Reading {
    fn see(&mut self, node: Node<'_>) {
        match node {
            Node::Open(tag) => match tag.name() {
                "Fallback" => self.unseen += 1,
                _ if self.unseen > 0 => {}
                "sp" => (self.placeholder, self.paragraphs) = (None, Vec::new()),
                "ph" => self.placeholder = Some(tag.attribute("type").unwrap_or_default()),
                "tbl" => self.rows = Vec::new(),
                "tr" => self.rows.push(Vec::new()),
                "t" => self.in_text = true,
                "br" => self.line.push(' '),
                _ => {}
            },
            Node::Text(words) if self.in_text && self.unseen == 0 => self.line.push_str(words),
            Node::Text(_) => {}
            Node::Close("Fallback") => self.unseen = self.unseen.saturating_sub(1),
            Node::Close(_) if self.unseen > 0 => {}
            Node::Close("t") => self.in_text = false,
            Node::Close("p") => {
                let line = std::mem::take(&mut self.line);
                if !line.trim().is_empty() {
                    self.paragraphs.push(line.trim().to_owned());
                }
            }
            Node::Close("tc") => {
                let cell = std::mem::take(&mut self.paragraphs).join(" ");
                if let Some(row) = self.rows.last_mut() {
                    row.push(cell);
                }
            }
            Node::Close("tbl") => self.shapes.push(Shape::Table(std::mem::take(&mut self.rows))),
            Node::Close("sp") if !self.paragraphs.is_empty() => {
                let paragraphs = std::mem::take(&mut self.paragraphs);
                match self.placeholder.take().as_deref() {
                    Some("title" | "ctrTitle") => self.shapes.push(Shape::Title(paragraphs.join(" "))),
                    // The number of the slide, the date and the footer repeat on every page.
                    Some("sldNum" | "dt" | "ftr" | "hdr" | "sldImg") => {}
                    _ => self.shapes.push(Shape::Text(paragraphs)),
                }
            }
            Node::Close(_) => {}
        }
    }
}

/// The texts of a slide's diagrams (SmartArt), which lie beside it.
fn diagrams(name: &str, package: &mut Package<'_>, relations: &[Relation]) -> Result<Vec<Shape>, SourceError> {
    let mut found = Vec::new();
    for (.., part) in relations.iter().filter(|(_, kind, _)| kind.ends_with("/diagramData")) {
        let Some(xml) = package.xml(part)? else { continue };
        let mut reading = Reading::default();
        xml::walk(name, FORMAT, &xml, |node| reading.see(node))?;
        if !reading.paragraphs.is_empty() {
            found.push(Shape::Text(reading.paragraphs));
        }
    }
    Ok(found)
}

fn notes(name: &str, package: &mut Package<'_>, relations: &[Relation]) -> Result<Vec<String>, SourceError> {
    let Some((.., part)) = relations.iter().find(|(_, kind, _)| kind.ends_with("/notesSlide")) else {
        return Ok(Vec::new());
    };
    let Some(xml) = package.xml(part)? else { return Ok(Vec::new()) };
    let texts = shapes(name, &xml)?.into_iter().filter_map(|shape| match shape {
        Shape::Text(paragraphs) => Some(paragraphs),
        Shape::Title(_) | Shape::Table(_) | Shape::Chart(_) => None,
    });
    Ok(texts.flatten().collect())
}

/// What people said of a slide, in the older form (`text`) and in the newer one (paragraphs).
fn comments(name: &str, package: &mut Package<'_>, relations: &[Relation]) -> Result<Vec<String>, SourceError> {
    let mut found = Vec::new();
    for (.., part) in relations.iter().filter(|(_, kind, _)| kind.ends_with("/comments")) {
        let Some(xml) = package.xml(part)? else { continue };
        let (mut line, mut in_text) = (String::new(), false);
        xml::walk(name, FORMAT, &xml, |node| match node {
            Node::Open(tag) => in_text = matches!(tag.name(), "text" | "t"),
            Node::Text(words) if in_text => line.push_str(words),
            Node::Text(_) => {}
            Node::Close("text" | "p") => {
                in_text = false;
                found.push(std::mem::take(&mut line));
            }
            Node::Close(_) => in_text = false,
        })?;
    }
    found.retain(|line| !line.trim().is_empty());
    Ok(found)
}

fn write_slide(number: usize, shapes: &[Shape], out: &mut Builder) {
    let title =
        shapes.iter().find_map(|shape| if let Shape::Title(title) = shape { Some(one_line(title)) } else { None });
    if let Some(title) = title.as_deref().filter(|_| number == 1) {
        out.title(title);
    }
    out.heading(1, title.as_deref().unwrap_or(&format!("Slide {number}")));
    for shape in shapes {
        match shape {
            Shape::Title(_) => {}
            Shape::Text(paragraphs) => paragraphs.iter().for_each(|paragraph| out.paragraph(paragraph)),
            Shape::Table(rows) => out.table(rows),
            Shape::Chart(chart) => chart.write(out),
        }
    }
}

fn write_beside(heading: &str, paragraphs: &[String], out: &mut Builder) {
    if !paragraphs.is_empty() {
        out.heading(2, heading);
        paragraphs.iter().for_each(|paragraph| out.paragraph(paragraph));
    }
}
