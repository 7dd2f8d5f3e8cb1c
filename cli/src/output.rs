//! Data on stdout, words for people on stderr. Tables have no frame and no colour where nobody looks at them.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};

use comfy_table::{ColumnConstraint, ContentArrangement, Table, presets};
use serde::Serialize;
use tokio::sync::Notify;

use crate::error::CliError;

/// How a command shows what it has.
#[derive(Debug, Clone, Copy)]
pub struct Output {
    /// JSON in the shapes of the HTTP API.
    pub json: bool,
}

impl Output {
    /// Prints a value as JSON when that is wanted, else what `people` makes of it.
    pub fn show<T: Serialize>(self, value: &T, people: impl FnOnce(&T) -> String) -> Result<(), CliError> {
        if self.json { print_json(value) } else { print_line(people(value).trim_end()) }
    }

    /// Tells people where a list goes on, behind a page of it; JSON has that in itself.
    pub fn tell_rest(self, next_cursor: Option<&str>) {
        if let (Some(cursor), false) = (next_cursor, self.json) {
            tell(&format!("there are more: --cursor {}", for_shells(cursor)));
        }
    }
}

/// A word as shells take it: a cursor may be the path of a document, with blanks in it.
fn for_shells(word: &str) -> Cow<'_, str> {
    let is_plain = |c: char| c.is_alphanumeric() || "_-./:@%+,=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', "'\\''")))
}

/// A value as indented JSON.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string_pretty(value).map_err(io::Error::other)?;
    print_line(&text)
}

/// A value as one line of JSON: for streams.
pub fn print_json_line<T: Serialize>(value: &T) -> Result<(), CliError> {
    let text = serde_json::to_string(value).map_err(io::Error::other)?;
    print_line(&text)
}

/// A line of data.
pub fn print_line(text: &str) -> Result<(), CliError> {
    if text.is_empty() {
        return Ok(());
    }
    let text = for_people(text, stdout_is_terminal());
    let mut stdout = io::stdout().lock();
    Ok(pipe(writeln!(stdout, "{text}").and_then(|()| stdout.flush()))?)
}

/// Data without a line end: for text as a model writes it.
pub fn print_piece(text: &str) -> Result<(), CliError> {
    let text = for_people(text, stdout_is_terminal());
    let mut stdout = io::stdout().lock();
    Ok(pipe(write!(stdout, "{text}").and_then(|()| stdout.flush()))?)
}

/// Data as it is, whatever its encoding; at a terminal, which has one, as a text.
pub fn print_bytes(bytes: &[u8]) -> Result<(), CliError> {
    if stdout_is_terminal() {
        return print_piece(&String::from_utf8_lossy(bytes));
    }
    let mut stdout = io::stdout().lock();
    Ok(pipe(stdout.write_all(bytes).and_then(|()| stdout.flush()))?)
}

/// Told once nobody reads stdout any more.
static READER_GONE: Notify = Notify::const_new();

/// Whoever reads has enough: that is no failure of ours.
fn pipe(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
            READER_GONE.notify_one();
            Ok(())
        }
        other => other,
    }
}

/// Ends once something was written that nobody reads, as behind `| head`: what only shows need not go on. For one at a time.
pub async fn reader_gone() {
    READER_GONE.notified().await;
}

/// A line for people.
pub fn tell(text: &str) {
    let text = for_people(text, stderr_is_terminal());
    let _ = writeln!(io::stderr().lock(), "{text}"); // nobody to tell is no failure
}

/// A failure, with its fix behind a blank line.
pub fn tell_error(error: &CliError) {
    tell(&format!("error: {}", error.message));
    if let Some(hint) = &error.hint {
        tell(&format!("\nhint: {hint}"));
    }
}

/// Whether people look at stdout.
pub fn stdout_is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Whether people look at stderr.
pub fn stderr_is_terminal() -> bool {
    io::stderr().is_terminal()
}

/// What stands in a column that has nothing to say, so that the columns behind it can still be told apart.
const NOTHING: &str = "-";

/// Rows under a head; nothing but `empty` when there are none.
pub fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>, empty: &str) -> String {
    let filled = |cell: String| if cell.is_empty() { NOTHING.to_owned() } else { cell };
    grid(&head.map(str::to_uppercase), rows.into_iter().map(|row| Vec::from(row.map(filled))).collect(), empty)
}

/// The same with as many columns as there are, whose names stay as they are.
pub fn grid(head: &[String], rows: Vec<Vec<String>>, empty: &str) -> String {
    if rows.is_empty() {
        tell(empty);
        return String::new();
    }
    let width = if stdout_is_terminal() { Table::new().width() } else { None };
    arranged(head, rows, width)
}

/// Terminals that are narrower break the lines themselves: columns of a few letters can't be read, and some have no width at all.
const NARROWEST: u16 = 60;

/// Rows in a terminal of so many columns; each on one line where that is not known.
fn arranged(head: &[String], rows: Vec<Vec<String>>, width: Option<u16>) -> String {
    let has_ids = |at: usize| rows.iter().filter_map(|row| row.get(at)).any(|cell| is_id(cell));
    let of_ids: Vec<usize> = (0..head.len()).filter(|at| has_ids(*at)).collect();
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    match width.filter(|width| *width >= NARROWEST) {
        Some(width) => table.set_content_arrangement(ContentArrangement::Dynamic).set_width(width),
        None => table.set_content_arrangement(ContentArrangement::Disabled),
    };
    table.set_header(head);
    for row in rows {
        table.add_row(row);
    }
    for at in of_ids {
        if let Some(column) = table.column_mut(at) {
            column.set_constraint(ColumnConstraint::ContentWidth);
        }
    }
    let text = table.to_string();
    text.lines().map(|line| line.trim_end().strip_prefix(' ').unwrap_or(line.trim_end())).collect::<Vec<_>>().join("\n")
}

/// Whether a cell is what the next command takes: broken, it could not be copied.
fn is_id(cell: &str) -> bool {
    const SUFFIX: usize = 26; // of a UUID in base 32
    let is_typed = |suffix: &str| suffix.len() == SUFFIX && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric());
    cell.split_once('_').is_some_and(|(_, suffix)| is_typed(suffix)) || cell.contains(".dlq:")
}

/// The beginning of a text, on one line.
pub fn clip(text: &str, limit: usize) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(limit) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// What is shown may be of others: imported code, documents, names of files, what a model or a tool says. At a terminal it goes without
/// characters that steer it, and as it is to files and programs.
fn for_people(text: &str, is_terminal: bool) -> Cow<'_, str> {
    if is_terminal { Cow::Owned(visible(text)) } else { Cow::Borrowed(text) }
}

/// A text with � for what would move the cursor of a terminal, or reorder what is read (Boucher and Anderson, "Trojan Source", 2021).
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let is_hidden = match c {
            '\n' | '\t' => false,
            '\r' => rest.peek() != Some(&'\n'),
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
            c => c.is_control(),
        };
        shown.push(if is_hidden { '\u{fffd}' } else { c });
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_rows_when_a_table_is_made_then_it_is_plain_text_in_columns() {
        let text = table(["name", "size"], vec![["a".into(), "1".into()], ["long name".into(), "22".into()]], "none");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3);
        assert!(lines[0].starts_with("NAME"), "{text}");
        assert_eq!(lines[1].find('1'), lines[2].find("22"), "{text}");
        assert!(!text.contains('\u{1b}'));
    }

    #[test]
    fn given_terminals_of_any_width_when_a_table_is_made_then_ids_stay_whole_and_lines_fit_where_columns_can_be_read() {
        let task = "Write a long letter about the winch, and about the hangar that stands beside it";
        for id in ["run_01h455vb4pex5vsknk084sn02q", "riverrun.agent.commands.dlq:17"] {
            let row = [id, "succeeded", "plan_execute", "12", "2026-01-01T00:00:00Z", task].map(str::to_owned);
            let head = ["RUN", "STATUS", "AGENT", "STEPS", "CREATED", "TASK"].map(str::to_owned);
            let of = |width: Option<u16>| arranged(&head, vec![row.to_vec(); 2], width);
            for width in [None, Some(0), Some(1), Some(20), Some(60), Some(80), Some(120), Some(400)] {
                assert_eq!(of(width).matches(id).count(), 2, "{width:?}: {}", of(width));
            }
            for width in [80, 120, 400] {
                let text = of(Some(width));
                assert!(text.lines().all(|line| line.chars().count() <= usize::from(width)), "{width}: {text}");
            }
            for width in [None, Some(0), Some(20)] {
                assert_eq!(of(width).lines().count(), 3, "{width:?}: {}", of(width));
            }
        }
        assert!(!is_id("plan_execute") && !is_id("a_path/of_somebody") && !is_id(""));
    }

    #[test]
    fn given_cells_without_a_text_when_a_table_is_made_then_each_column_has_something() {
        let text = table(["run", "agent", "ended as"], vec![["run_1".into(), String::new(), String::new()]], "none");
        assert_eq!(text.lines().nth(1).map(|line| line.split_whitespace().collect()), Some(vec!["run_1", "-", "-"]));
    }

    #[test]
    fn given_a_cursor_when_it_is_told_then_a_shell_takes_it_as_one_word() {
        for (cursor, told) in [
            ("run_01h455vb4pex5vsknk084sn02q", "run_01h455vb4pex5vsknk084sn02q"),
            ("/docs/ü.md", "/docs/ü.md"),
            ("/docs/a b.md", "'/docs/a b.md'"),
            ("it's $HOME", "'it'\\''s $HOME'"),
            ("", "''"),
        ] {
            assert_eq!(for_shells(cursor), told);
        }
    }

    #[test]
    fn given_a_long_text_when_it_is_clipped_then_it_is_one_line_and_no_character_is_cut() {
        assert_eq!(clip("a\nb  c", 10), "a b c");
        assert_eq!(clip("ääää", 2), "ää…");
    }

    #[test]
    fn given_a_text_that_would_move_the_cursor_or_reorder_words_when_it_is_made_visible_then_that_is_seen_and_lines_stay()
     {
        for (text, expected) in [
            ("-a = 1\r\n+a = 2\n\tb", "-a = 1\r\n+a = 2\n\tb"),
            ("+evil()\r # fine", "+evil()\u{fffd} # fine"),
            ("a\u{1b}[2K\u{8}b\u{9b}c", "a\u{fffd}[2K\u{fffd}b\u{fffd}c"),
            ("x\u{202e}y\u{2066}é\u{61c}", "x\u{fffd}y\u{fffd}é\u{fffd}"),
        ] {
            assert_eq!(visible(text), expected, "{text:?}");
        }
    }
}
