//! Jupyter notebooks: their words as Markdown, their code and what it printed in fenced blocks.

use serde_json::Value;

use super::builder::Builder;
use super::{ExtractedText, Source, SourceError, decode, json, markdown};
use crate::chunking::{self, Chunker};

/// What one cell printed, as far as it is kept, in bytes: enough for a table or a few figures, and less than a log.
const MAX_OUTPUT_BYTES: usize = 8 << 10;

/// nbformat 4, and 3 as far as it has the same parts.
pub(super) struct Notebook;

impl Source for Notebook {
    fn name(&self) -> &'static str {
        "notebook"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["ipynb"]
    }

    fn media_type(&self) -> &'static str {
        "application/x-ipynb+json"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::MarkdownChunks
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        let notebook = json::parse(name, bytes)?;
        let cells = cells(&notebook)
            .ok_or_else(|| SourceError::malformed(name, "a Jupyter notebook", "it has no list of cells"))?;
        let (mut out, mut left) = (Builder::default(), Left::default());
        let language = language(&notebook);
        cells.for_each(|cell| write_cell(cell, language, &mut out, &mut left));
        left.notes().iter().for_each(|note| out.note(note));
        let text = out.finish(name, "its cells have no text")?;
        let sections = markdown::outline(&text.text).sections;
        let title = sections.iter().find(|section| section.level == 1).map(|section| section.heading.clone());
        Ok(ExtractedText { title, sections, ..text }.decoded_from(decode::encoding_of(bytes)))
    }
}

/// What of outputs is not in the text.
#[derive(Default)]
struct Left {
    pictures: usize,
    cut: usize,
}

impl Left {
    fn notes(&self) -> Vec<String> {
        let pictures = format!("{} of its outputs are pictures or pages, which are not read", self.pictures);
        let cut = format!("{} of its outputs are kept up to {} KiB", self.cut, MAX_OUTPUT_BYTES >> 10);
        [(self.pictures, pictures), (self.cut, cut)]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(_, note)| note)
            .collect()
    }
}

/// Those of nbformat 3 lie in worksheets.
fn cells(notebook: &Value) -> Option<Box<dyn Iterator<Item = &Value> + '_>> {
    if let Some(cells) = notebook["cells"].as_array() {
        return Some(Box::new(cells.iter()));
    }
    let sheets = notebook["worksheets"].as_array()?;
    Some(Box::new(sheets.iter().filter_map(|sheet| sheet["cells"].as_array()).flatten()))
}

fn language(notebook: &Value) -> &str {
    let metadata = &notebook["metadata"];
    let names = [&metadata["language_info"]["name"], &metadata["kernelspec"]["language"]];
    let name = names.into_iter().find_map(Value::as_str).unwrap_or_default();
    // It stands behind a fence, whose line it must not end.
    if name.chars().all(|c| c.is_ascii_alphanumeric() || "+-_#".contains(c)) { name } else { "" }
}

fn write_cell(cell: &Value, language: &str, out: &mut Builder, left: &mut Left) {
    let source = joined(&cell["source"]).or_else(|| joined(&cell["input"])).unwrap_or_default();
    match cell["cell_type"].as_str() {
        Some("code") => {
            fenced(language, &source, out);
            for output in cell["outputs"].as_array().into_iter().flatten() {
                write_output(output, out, left);
            }
        }
        // Of nbformat 3.
        Some("heading") => {
            out.heading(cell["level"].as_u64().and_then(|level| u8::try_from(level).ok()).unwrap_or(1), &source);
        }
        _ => out.paragraph(&source),
    }
}

/// What was printed, what a value looks like as text, and what went wrong, without the way there.
fn write_output(output: &Value, out: &mut Builder, left: &mut Left) {
    let data = &output["data"];
    let error = || Some(format!("{}: {}", output["ename"].as_str()?, output["evalue"].as_str()?));
    let text = joined(&output["text"]).or_else(|| joined(&data["text/plain"])).or_else(error);
    // A page is shown beside its text, or alone; a picture shows what no text says.
    let is_lost = |kind: &String| match kind.as_str() {
        "text/html" | "application/pdf" => text.is_none(),
        kind => kind.starts_with("image/"),
    };
    if data.as_object().is_some_and(|kinds| kinds.keys().any(is_lost)) {
        left.pictures += 1;
    }
    let Some(mut text) = text else { return };
    if text.len() > MAX_OUTPUT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_OUTPUT_BYTES));
        left.cut += 1;
    }
    fenced("", &text, out);
}

/// A text is one string or a list of its lines.
fn joined(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Array(lines) => Some(lines.iter().filter_map(Value::as_str).collect()),
        _ => None,
    }
}

/// A block that no line of the text can end.
fn fenced(language: &str, text: &str, out: &mut Builder) {
    let text = text.trim_end();
    if text.trim().is_empty() {
        return;
    }
    let longest =
        text.lines().map(|line| line.trim_start().chars().take_while(|c| *c == '`').count()).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    out.paragraph(&format!("{fence}{language}\n{text}\n{fence}"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn extract(notebook: &Value) -> Result<ExtractedText, SourceError> {
        Notebook.extract("a.ipynb", notebook.to_string().as_bytes())
    }

    #[test]
    fn given_cells_of_every_kind_when_extracted_then_words_code_and_prints_are_there_and_headings_are_sections() {
        let text = extract(&json!({
            "nbformat": 4,
            "metadata": { "language_info": { "name": "python" } },
            "cells": [
                { "cell_type": "markdown", "source": ["# Rivers\n", "\n", "About the *Okapi*."] },
                { "cell_type": "code", "source": "# no heading\nprint(1)", "outputs": [
                    { "output_type": "stream", "text": ["1\n", "2\n"] },
                    { "output_type": "execute_result", "data": { "text/plain": "<Figure>", "image/png": "iVBO" } },
                    { "output_type": "error", "ename": "ValueError", "evalue": "bad depth", "traceback": ["\u{1b}[31m"] },
                ] },
                { "cell_type": "raw", "source": "as it is" },
                { "cell_type": "code", "source": "s = '''\n```\n'''", "outputs": [] },
                { "cell_type": "code", "source": "  ", "outputs": [] },
            ],
        }))
        .unwrap();
        assert_eq!(
            text.text,
            "# Rivers\n\nAbout the *Okapi*.\n\n```python\n# no heading\nprint(1)\n```\n\n```\n1\n2\n```\n\n```\n<Figure>\n```\n\n\
             ```\nValueError: bad depth\n```\n\nas it is\n\n````python\ns = '''\n```\n'''\n````\n"
        );
        assert_eq!(text.title.as_deref(), Some("Rivers"));
        assert_eq!(text.sections.len(), 1, "{:?}", text.sections);
        assert_eq!(text.notes, ["1 of its outputs are pictures or pages, which are not read"]);
    }

    #[test]
    fn given_a_long_print_when_extracted_then_it_is_cut_and_told() {
        let output = json!({ "output_type": "stream", "text": "ü".repeat(MAX_OUTPUT_BYTES) });
        let text = extract(&json!({ "cells": [{ "cell_type": "code", "source": "x", "outputs": [output] }] })).unwrap();
        assert!((MAX_OUTPUT_BYTES..MAX_OUTPUT_BYTES + 100).contains(&text.text.len()), "{}", text.text.len());
        assert_eq!(text.notes, ["1 of its outputs are kept up to 8 KiB"]);
    }

    #[test]
    fn given_an_older_notebook_when_extracted_then_its_sheets_are_read() {
        let text = extract(&json!({ "worksheets": [{ "cells": [
            { "cell_type": "heading", "level": 2, "source": ["Old"] },
            { "cell_type": "code", "input": "1 + 1", "outputs": [{ "text": "2" }] },
        ] }] }))
        .unwrap();
        assert_eq!(text.text, "## Old\n\n```\n1 + 1\n```\n\n```\n2\n```\n");
        assert_eq!(text.sections[0].heading, "Old");
    }

    #[test]
    fn given_what_is_no_notebook_when_extracted_then_it_is_refused_by_its_fault() {
        for (notebook, code) in [
            (json!({ "a": 1 }), "malformed_document"),
            (json!([1]), "malformed_document"),
            (json!({ "cells": [] }), "no_text"),
            (json!({ "cells": [{ "cell_type": "code", "source": "", "outputs": [] }] }), "no_text"),
        ] {
            assert_eq!(extract(&notebook).unwrap_err().code(), code, "{notebook}");
        }
    }
}
