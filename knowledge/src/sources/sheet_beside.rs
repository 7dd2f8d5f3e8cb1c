//! What an Excel workbook says outside of its cells: text boxes, comments, charts.

use super::SourceError;
use super::archive::Package;
use super::builder::Builder;
use super::chart::{self, Chart};
use super::xml::{self, Node};

/// All of it, sheet by sheet in the order of the parts' names.
#[derive(Debug, Default)]
pub(super) struct Beside {
    boxes: Vec<String>,
    /// Each with the cell that it is about.
    comments: Vec<String>,
    charts: Vec<Chart>,
}

/// Reads it. `name` and `format` are for messages.
pub(super) fn read(name: &str, format: &'static str, bytes: &[u8]) -> Result<Beside, SourceError> {
    let mut package = Package::open(name, format, bytes)?;
    let mut parts = package.parts();
    parts.retain(|part| part.ends_with(".xml"));
    parts.sort();
    let mut beside = Beside::default();
    for part in parts {
        if part.starts_with("xl/drawings/") {
            let Some(xml) = package.xml(&part)? else { continue };
            beside.boxes.extend(boxes(name, format, &xml)?);
            let relations = package.relations(&part)?;
            beside.charts.extend(chart::of_part(name, format, &mut package, &relations)?);
        } else if part.starts_with("xl/comments") {
            let Some(xml) = package.xml(&part)? else { continue };
            beside.comments.extend(comments(name, format, &xml)?);
        }
    }
    Ok(beside)
}

/// The paragraphs of text boxes and shapes.
fn boxes(name: &str, format: &str, xml: &str) -> Result<Vec<String>, SourceError> {
    let (mut found, mut line, mut in_text) = (Vec::new(), String::new(), false);
    xml::walk(name, format, xml, |node| match node {
        Node::Open(tag) => in_text = tag.name() == "t",
        Node::Text(words) if in_text => line.push_str(words),
        Node::Text(_) => {}
        Node::Close("p") => found.push(std::mem::take(&mut line)),
        Node::Close(_) => in_text = false,
    })?;
    found.retain(|line| !line.trim().is_empty());
    Ok(found)
}

fn comments(name: &str, format: &str, xml: &str) -> Result<Vec<String>, SourceError> {
    let (mut found, mut cell, mut text, mut in_text) = (Vec::new(), String::new(), String::new(), false);
    xml::walk(name, format, xml, |node| match node {
        Node::Open(tag) => {
            in_text = tag.name() == "t";
            if tag.name() == "comment" {
                cell = tag.attribute("ref").unwrap_or_default();
            }
        }
        Node::Text(words) if in_text => text.push_str(words),
        Node::Text(_) => {}
        Node::Close("comment") => {
            let text = std::mem::take(&mut text);
            if !text.trim().is_empty() {
                found.push(format!("{cell}: {}", text.trim()));
            }
        }
        Node::Close(_) => in_text = false,
    })?;
    Ok(found)
}

impl Beside {
    /// Each kind under a heading of its own.
    pub(super) fn write(&self, out: &mut Builder) {
        for (heading, paragraphs) in [("Text boxes", &self.boxes), ("Comments", &self.comments)] {
            if !paragraphs.is_empty() {
                out.heading(1, heading);
                paragraphs.iter().for_each(|paragraph| out.paragraph(paragraph));
            }
        }
        if !self.charts.is_empty() {
            out.heading(1, "Charts");
            self.charts.iter().for_each(|chart| chart.write(out));
        }
    }
}
