//! Tables of pages as Markdown: every row, headers of rows among its cells, and every cell in its column.
//!
//! Cells and rows tell the innermost open table of themselves while what is in it is walked through, once.

use std::sync::Arc;

use htmd::element_handler::{HandlerResult, Handlers};
use htmd::{Element, HtmlToMarkdownBuilder};
use parking_lot::Mutex;

use super::builder::one_cell;
use super::html::is_hidden;

/// Most columns that a cell reaches over, and rows.
const MAX_SPAN: usize = 100;

/// Columns that cells of rows above are remembered for.
const MAX_COLUMNS: usize = 1000;

/// A table whose rows are being read.
#[derive(Default)]
struct Frame {
    captions: Vec<String>,
    rows: Vec<Vec<String>>,
    row: Vec<String>,
    /// Of each column, rows from this one on that a cell of a row above reaches into.
    taken: Vec<usize>,
    /// What the cells of this row reach over: the column, and the rows below.
    reaching: Vec<(usize, usize)>,
    /// Whether it says what its columns are. One that does not may only be there for the layout.
    headed: bool,
}

impl Frame {
    fn cell(&mut self, text: &str, columns: usize, rows: usize) {
        while self.taken.get(self.row.len()).is_some_and(|rows| *rows > 0) {
            self.row.push(String::new());
        }
        let first = self.row.len();
        self.row.push(one_cell(text));
        self.row.resize(first + columns, String::new());
        if rows > 1 {
            self.reaching.extend((first..(first + columns).min(MAX_COLUMNS)).map(|column| (column, rows - 1)));
        }
    }

    fn end_row(&mut self) {
        self.taken.iter_mut().for_each(|rows| *rows = rows.saturating_sub(1));
        for (column, rows) in self.reaching.drain(..) {
            if self.taken.len() <= column {
                self.taken.resize(column + 1, 0);
            }
            self.taken[column] = rows;
        }
        // Nothing stands in the columns behind the last text.
        let width = self.row.iter().rposition(|cell| !cell.is_empty()).map_or(0, |last| last + 1);
        self.row.truncate(width);
        if width > 0 {
            self.rows.push(std::mem::take(&mut self.row));
        }
    }

    fn markdown(&self) -> String {
        let mut text = String::from("\n\n");
        for caption in &self.captions {
            text.push_str(caption);
            text.push_str("\n\n");
        }
        for (index, row) in self.rows.iter().enumerate() {
            text.push_str(&format!("| {} |\n", row.join(" | ")));
            if index == 0 {
                text.push_str(&format!("|{}\n", " --- |".repeat(row.len())));
            }
        }
        text.push('\n');
        text
    }
}

/// Adds what reads tables. It goes before handlers of the same elements that were added earlier.
pub(super) fn with_tables(builder: HtmlToMarkdownBuilder) -> HtmlToMarkdownBuilder {
    let open: Arc<Mutex<Vec<Frame>>> = Arc::default();
    let (of_tables, of_captions, of_heads, of_rows, of_cells) =
        (open.clone(), open.clone(), open.clone(), open.clone(), open);
    builder
        .add_handler(vec!["table"], move |handlers: &dyn Handlers, element: Element| {
            if is_hidden(&element) {
                return None;
            }
            of_tables.lock().push(Frame::default());
            let walked = handlers.walk_children(element.node).content;
            let mut open = of_tables.lock();
            let frame = open.pop().unwrap_or_default();
            // One within a cell is text of it.
            if frame.headed && open.is_empty() && !frame.rows.is_empty() {
                return Some(HandlerResult::from(frame.markdown()));
            }
            let walked = walked.trim_matches('\n');
            if walked.is_empty() { None } else { Some(HandlerResult::from(format!("\n\n{walked}\n\n"))) }
        })
        .add_handler(vec!["caption"], move |handlers: &dyn Handlers, element: Element| {
            let result = handlers.fallback(element)?;
            if let Some(frame) = of_captions.lock().last_mut() {
                frame.captions.extend(Some(result.content.trim().to_owned()).filter(|caption| !caption.is_empty()));
            }
            Some(result)
        })
        .add_handler(vec!["thead"], move |handlers: &dyn Handlers, element: Element| {
            if let Some(frame) = of_heads.lock().last_mut() {
                frame.headed = true;
            }
            handlers.fallback(element)
        })
        .add_handler(vec!["tr"], move |handlers: &dyn Handlers, element: Element| {
            if is_hidden(&element) {
                return None;
            }
            let result = handlers.fallback(element);
            if let Some(frame) = of_rows.lock().last_mut() {
                frame.end_row();
            }
            result
        })
        .add_handler(vec!["td", "th"], move |handlers: &dyn Handlers, element: Element| {
            if is_hidden(&element) {
                return None;
            }
            let (columns, rows, is_head) = (span(&element, "colspan"), span(&element, "rowspan"), element.tag == "th");
            let result = handlers.fallback(element);
            if let Some(frame) = of_cells.lock().last_mut() {
                frame.headed |= is_head;
                frame.cell(result.as_ref().map_or("", |result| result.content.as_str()), columns, rows);
            }
            result
        })
}

/// How many columns or rows a cell reaches over.
fn span(element: &Element<'_>, name: &str) -> usize {
    let said = element.attrs.iter().find(|attribute| &*attribute.name.local == name);
    said.and_then(|attribute| attribute.value.trim().parse::<usize>().ok()).unwrap_or(1).clamp(1, MAX_SPAN)
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::html::Html;

    fn read(page: &str) -> String {
        Html.extract("a.html", page.as_bytes()).unwrap().text
    }

    #[test]
    fn given_headers_of_rows_and_several_header_rows_when_a_table_is_read_then_no_cell_is_lost() {
        let page = "<table><caption>Prices</caption><thead><tr><th>A<th>B</tr><tr><th>a<th>b</tr></thead>\
                    <tbody><tr><th scope=row>Winch<td>9|10</tr><tr><td><th>12</tr></tbody><tfoot><tr><td>All<td>21</tr></tfoot></table>\
                    <table><tr><th>Name<td>Ada</tr><tr><th>Born<td>1815</tr></table>";
        let text = read(page);
        for expected in [
            "Prices\n\n| A | B |\n| --- | --- |\n| a | b |\n| Winch | 9\\|10 |\n|  | 12 |\n| All | 21 |\n",
            "| Name | Ada |\n| --- | --- |\n| Born | 1815 |",
        ] {
            assert!(text.contains(expected), "{expected:?} is not in {text:?}");
        }
    }

    #[test]
    fn given_cells_over_columns_and_rows_when_a_table_is_read_then_those_behind_and_below_keep_their_columns() {
        let page = "<table><tr><th colspan=2>Name<th>Price</tr><tr><td rowspan=2>Ada<td>Byron<td>7</tr><tr><td>King<td>8</tr>\
                    <tr><td>Bob<td>Lee<td>9</tr></table>";
        let expected =
            "| Name |  | Price |\n| --- | --- | --- |\n| Ada | Byron | 7 |\n|  | King | 8 |\n| Bob | Lee | 9 |";
        let text = read(page);
        assert!(text.contains(expected), "{text:?}");
        for count in ["0", "-1", "x", "99999999999999999999999", "1000000"] {
            let text =
                read(&format!("<table><tr><th colspan={count} rowspan={count}>a<th>b</tr><tr><td>c</tr></table>"));
            assert!(text.contains(" b |") && text.contains("c |") && text.len() < 2_000, "{count}: {text:?}");
        }
    }

    #[test]
    fn given_tables_for_layout_and_within_cells_when_read_then_each_text_is_there_once() {
        let page = "<table><tr><td>left<td>right</tr></table>\
                    <table><tr><th>outer<th>x</tr><tr><td><table><tr><th>inner</tr><tr><td>deep</tr></table><td>y</tr></table>\
                    <table><tr hidden><td>unseen</tr><tr><th>seen<td style='display:none'>unseen</tr></table>";
        let text = read(page);
        for word in ["left", "right", "outer", "inner", "deep", "| seen |"] {
            assert_eq!(text.matches(word).count(), 1, "{word:?}: {text:?}");
        }
        assert!(text.contains(" | y |") && !text.contains("unseen") && !text.contains("| left"), "{text:?}");
    }
}
