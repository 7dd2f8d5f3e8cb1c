//! Questions with judgements of people, from two files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use riverrun_knowledge::retrieval::metrics::Judged;

use crate::error::{CliError, Exit};
use crate::input;

/// Largest file of queries or judgements, in bytes.
const MAX_BYTES: u64 = 256 << 20;
/// Largest gain of a judgement. Each step doubles what it is worth, and what is worth infinitely much leaves no number to compare.
const MAX_GAIN: f64 = 100.0;

/// What two files say together, and how much of each the other says nothing of.
#[derive(Debug, PartialEq)]
pub struct Questions {
    /// The text of each question that is judged, with its judgements.
    pub judged: Vec<(String, Judged)>,
    /// Questions that nobody judged.
    pub unjudged: usize,
    /// Judged questions that have no text.
    pub without_text: usize,
    /// The judgements of those.
    pub without_text_judgements: usize,
}

/// The questions of the first file that are judged in the second, each with its judgements. A line of the first is an id, a tab and a text;
/// of the second a question, a document and a grade, or TREC's four columns.
pub fn read(texts: &Path, judgements: &Path) -> Result<Questions, CliError> {
    let found = queries(&text_of(texts)?).map_err(|reason| unusable(texts, &reason))?;
    let grades = qrels(&text_of(judgements)?).map_err(|reason| unusable(judgements, &reason))?;
    let ids: BTreeSet<&str> = found.iter().map(|(id, _)| id.as_str()).collect();
    let untold = || grades.iter().filter(|(id, _)| !ids.contains(id.as_str()));
    let (without_text, without_text_judgements) = (untold().count(), untold().map(|(_, judged)| judged.len()).sum());
    let unjudged = found.iter().filter(|(id, _)| !grades.contains_key(id)).count();
    let both = found.iter().filter_map(|(id, text)| Some((text.clone(), grades.get(id)?.clone())));
    let judged: Vec<(String, Judged)> = both.collect();
    if judged.is_empty() {
        return Err(unusable(judgements, "no query of the other file is judged in it"));
    }
    Ok(Questions { judged, unjudged, without_text, without_text_judgements })
}

fn text_of(path: &Path) -> Result<String, CliError> {
    let read = input::read_now(path, MAX_BYTES)
        .and_then(|bytes| String::from_utf8(bytes).map_err(|_| "it is no UTF-8 text".to_owned()));
    // A byte order mark would be a part of the first query's id.
    let read = read.map(|text| text.strip_prefix('\u{feff}').map_or_else(|| text.clone(), str::to_owned));
    read.map_err(|reason| {
        let failed = CliError::new(Exit::Usage, format!("{} can't be read: {reason}", path.display()));
        failed.hint("--queries and --qrels name files of yours; docs/retrieval.md has a script that makes both")
    })
}

fn unusable(path: &Path, reason: &str) -> CliError {
    CliError::new(Exit::Usage, format!("{} can't be used: {reason}", path.display()))
        .hint("a line of queries is `id<TAB>text`, a line of judgements `query document gain`")
}

fn queries(text: &str) -> Result<Vec<(String, String)>, String> {
    let lines = text.lines().zip(1..).filter(|(line, _)| !line.trim().is_empty());
    lines
        .map(|(line, at)| {
            let (id, text) = line.split_once('\t').ok_or_else(|| format!("line {at} has no tab"))?;
            Ok((id.trim().to_owned(), text.trim().to_owned()))
        })
        .collect()
}

fn qrels(text: &str) -> Result<BTreeMap<String, Judged>, String> {
    let mut found: BTreeMap<String, Judged> = BTreeMap::new();
    for (line, at) in text.lines().zip(1..) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (query, document, gain) = match fields[..] {
            [] => continue,
            [query, document, gain] | [query, _, document, gain] => (query, document, gain),
            _ => return Err(format!("line {at} has {} columns", fields.len())),
        };
        let number = gain.parse::<f64>().ok().filter(|number| number.is_finite() && *number <= MAX_GAIN);
        let gain = number.ok_or_else(|| format!("gain {gain:?} in line {at} is no number up to {MAX_GAIN}"))?;
        found.entry(query.to_owned()).or_default().insert(document.to_owned(), gain);
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_judgements_in_three_or_four_columns_when_read_then_they_are_the_same() {
        let (three, four) = (qrels("1 d1 2\n\n2 d2 0\n").unwrap(), qrels("1 0 d1 2\n2 0 d2 0").unwrap());
        assert_eq!(three, four);
        assert_eq!(three["1"]["d1"], 2.0);
        assert!(qrels("1 d1").unwrap_err().contains("line 1"));
        for bad in ["x", "nan", "-inf", "inf", "1e999", "101"] {
            assert!(qrels(&format!("1 d1 {bad}")).unwrap_err().contains(&format!("{bad:?} in line 1")), "{bad}");
        }
        assert_eq!(qrels("1 d1 -2\n1 d2 100").unwrap()["1"].len(), 2);
    }

    #[test]
    fn given_files_with_a_byte_order_mark_when_read_then_the_first_query_counts_too() {
        let folder = tempfile::tempdir().unwrap();
        let (texts, judgements) = (folder.path().join("queries.tsv"), folder.path().join("qrels.txt"));
        std::fs::write(&texts, "\u{feff}1\twhat is it\n2\twho is it\n").unwrap();
        std::fs::write(&judgements, "\u{feff}1 d1 1\r\n2 d2 1\r\n").unwrap();
        assert_eq!(read(&texts, &judgements).unwrap().judged.len(), 2);
    }

    #[test]
    fn given_files_that_know_different_queries_when_they_are_read_then_what_either_lacks_is_counted_and_nothing_in_common_is_refused()
     {
        let folder = tempfile::tempdir().unwrap();
        let (texts, judgements) = (folder.path().join("queries.tsv"), folder.path().join("qrels.txt"));
        std::fs::write(&texts, "1\twhat is it\n2\twho is it\n3\twhere is it\n").unwrap();
        std::fs::write(&judgements, "1 d1 1\n9 d1 1\n9 d2 0\n8 d3 1\n").unwrap();
        let read_both = read(&texts, &judgements).unwrap();
        assert_eq!((read_both.judged.len(), read_both.judged[0].0.as_str()), (1, "what is it"));
        let unmatched = (read_both.unjudged, read_both.without_text, read_both.without_text_judgements);
        assert_eq!(unmatched, (2, 2, 3));
        std::fs::write(&judgements, "9 d1 1\n").unwrap();
        assert_eq!(read(&texts, &judgements).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn given_queries_without_a_tab_then_the_line_is_named() {
        assert_eq!(queries("1\twhat is it\n").unwrap(), [("1".to_owned(), "what is it".to_owned())]);
        assert!(queries("1\ta\nno tab").unwrap_err().contains("line 2"));
    }
}
