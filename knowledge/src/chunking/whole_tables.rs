//! Tables that fit into a chunk are in one whole. The splitter keeps them so where it looks at them as one block; behind an overlap, which
//! begins within the block before, it may fill a chunk with the first of their rows instead.

use std::ops::Range;

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::Sizing;

/// Chunks that are looked at for one that has all of a table: of those that begin before it the last goes furthest.
const LOOKED_AT: usize = 8;

/// Takes a table that was cut, and would fit, out of the chunks that have parts of it, and makes it one of its own.
pub(super) fn kept<'t>(text: &'t str, chunks: Vec<(usize, &'t str)>, sizing: &Sizing) -> Vec<(usize, &'t str)> {
    // Without both there is no table, and nothing to parse.
    if !text.contains('|') || !text.contains("--") {
        return chunks;
    }
    let fits = |table: &Range<usize>| sizing.beginning(&text[table.clone()]).is_ok_and(|length| length == table.len());
    let cut: Vec<Range<usize>> =
        tables(text).into_iter().filter(|table| is_cut(&chunks, table) && fits(table)).collect();
    if cut.is_empty() { chunks } else { around(text, &chunks, &cut) }
}

/// Where tables stand, without the end of their last line.
fn tables(text: &str) -> Vec<Range<usize>> {
    let events = Parser::new_ext(text, Options::ENABLE_TABLES).into_offset_iter();
    let found = events.filter(|(event, _)| matches!(event, Event::Start(Tag::Table(_))));
    found.map(|(_, range)| range.start..range.start + text[range].trim_end().len()).collect()
}

fn is_cut(chunks: &[(usize, &str)], table: &Range<usize>) -> bool {
    let before = chunks.partition_point(|(start, _)| *start <= table.start);
    !chunks[..before].iter().rev().take(LOOKED_AT).any(|(start, part)| start + part.len() >= table.end)
}

/// What the chunks have besides the tables, and the tables, in their order.
fn around<'t>(text: &'t str, chunks: &[(usize, &'t str)], tables: &[Range<usize>]) -> Vec<(usize, &'t str)> {
    let mut spans: Vec<Range<usize>> = tables.to_vec();
    for (start, part) in chunks {
        let end = start + part.len();
        let mut at = *start;
        let first = tables.partition_point(|table| table.end <= at);
        for table in tables[first..].iter().take_while(|table| table.start < end) {
            spans.push(at..table.start.max(at));
            at = table.end;
        }
        spans.push(at..end.max(at));
    }
    spans.sort_by_key(|span| (span.start, span.end));
    spans.into_iter().map(|span| trimmed(text, span)).filter(|(_, part)| !part.is_empty()).collect()
}

fn trimmed(text: &str, span: Range<usize>) -> (usize, &str) {
    let part = &text[span.clone()];
    (span.start + (part.len() - part.trim_start().len()), part.trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chunking::{ChunkConfig, Measure};

    const TEXT: &str = "Before it.\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n| 3 | 4 |\n\nBehind it.\n";

    fn kept_of(cuts: &[Range<usize>], size: i64) -> Vec<(usize, &'static str)> {
        let sizing = Sizing::new(ChunkConfig::new(size, 0).unwrap(), Measure::Characters);
        kept(TEXT, cuts.iter().map(|cut| (cut.start, &TEXT[cut.clone()])).collect(), &sizing)
    }

    #[test]
    fn given_a_table_in_two_chunks_when_it_fits_then_it_is_one_and_the_others_keep_the_rest() {
        let table = TEXT.find('|').unwrap();
        let (third, end) = (TEXT.find("| 1").unwrap(), TEXT.find("\n\nBehind").unwrap());
        let behind = TEXT.find("Behind").unwrap();
        let whole = [(0, "Before it."), (table, &TEXT[table..end]), (behind, "Behind it.")];
        assert_eq!(kept_of(&[0..third, third..TEXT.len()], 60), whole);
        assert_eq!(kept_of(&[0..third, table + 4..end, third..TEXT.len()], 60), whole);
        // It does not fit; it is in one already.
        assert_eq!(kept_of(&[0..third, third..TEXT.len()], 20).len(), 2);
        assert_eq!(kept_of(&[0..end, behind..TEXT.len()], 60), [(0, &TEXT[..end]), (behind, &TEXT[behind..])]);
    }
}
