//! Datasets that were made of runs of agents: beside each example stands the run that it is of, so that whoever has the dataset, or
//! a model that was trained on it, can tell where it comes from.

use serde::{Deserialize, Serialize};

use super::parse::{lines, read_beside};
use super::{Dataset, DatasetError, Example, Format, MAX_TOLD, Remark};

/// The field of a line.
const RUN: &str = "run";

/// A dataset with the run of each of its examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OfRuns {
    /// Prompts and completions.
    pub dataset: Dataset,
    /// Ids of runs, in the order of the examples. What two runs said alike is there once, as the first one's.
    pub runs: Vec<String>,
}

#[derive(Deserialize)]
struct Origin {
    run: String,
}

#[derive(Serialize)]
struct Line<'e> {
    #[serde(flatten)]
    example: &'e Example,
    run: &'e str,
}

/// Reads a file with `prompt`, `completion` and `run`.
pub fn read_of_runs(bytes: &[u8]) -> Result<OfRuns, DatasetError> {
    let dataset = read_beside(bytes, Format::Sft, Some(RUN))?;
    let mut found = DatasetError { errors: Vec::new(), total: 0 };
    let mut runs = Vec::with_capacity(dataset.examples.len());
    let mut numbers = dataset.examples.iter().map(|(number, _)| *number).peekable();
    for (number, line) in lines(bytes) {
        if numbers.next_if_eq(&number).is_none() {
            continue;
        }
        match serde_json::from_slice::<Origin>(line) {
            Ok(origin) if !origin.run.is_empty() => runs.push(origin.run),
            Ok(_) | Err(_) => {
                found.total += 1;
                if found.errors.len() < MAX_TOLD {
                    found.errors.push(Remark::new(number, Some(RUN), "is not the id of a run"));
                }
            }
        }
    }
    if found.total > 0 { Err(found) } else { Ok(OfRuns { dataset, runs }) }
}

impl OfRuns {
    /// As [`Dataset::canonical`], with the run in each line.
    pub fn canonical(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for ((_, example), run) in self.dataset.examples.iter().zip(&self.runs) {
            // Texts: writing them to memory can't fail.
            serde_json::to_writer(&mut bytes, &Line { example, run }).unwrap_or_default();
            bytes.push(b'\n');
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dataset::read;

    #[test]
    fn given_examples_of_runs_then_each_keeps_its_run_and_what_is_kept_is_read_as_any_dataset() {
        let file = concat!(
            "\u{feff}{\"run\": \"run_a\", \"prompt\": \"1\", \"completion\": \"2\"}\n",
            "\n",
            "{\"prompt\": \"3\", \"completion\": \"4\", \"run\": \"run_b\"}\r\n",
            "{\"prompt\": \"1\", \"completion\": \"2\", \"run\": \"run_c\"}\n",
        );
        let of_runs = read_of_runs(file.as_bytes()).unwrap();
        assert_eq!(
            (of_runs.runs.as_slice(), of_runs.dataset.duplicates),
            (["run_a".into(), "run_b".into()].as_slice(), 1)
        );
        assert!(of_runs.dataset.warnings.iter().all(|warning| !warning.reason.contains("not used")));
        let kept = of_runs.canonical();
        assert_eq!(
            String::from_utf8(kept.clone()).unwrap(),
            "{\"prompt\":\"1\",\"completion\":\"2\",\"run\":\"run_a\"}\n{\"prompt\":\"3\",\"completion\":\"4\",\"run\":\"run_b\"}\n"
        );
        let plain: Vec<Example> = read(&kept, Format::Sft).unwrap().examples.into_iter().map(|(_, one)| one).collect();
        let first: Vec<Example> = of_runs.dataset.examples.iter().map(|(_, one)| one.clone()).collect();
        assert_eq!(plain, first);
        assert_eq!(read_of_runs(&kept).unwrap().canonical(), kept);
    }

    #[test]
    fn given_examples_without_a_run_then_their_lines_are_named() {
        for run in ["", ", \"run\": 7", ", \"run\": \"\"", ", \"run\": null"] {
            let file = format!("{{\"prompt\": \"1\", \"completion\": \"2\"{run}}}\n");
            let error = read_of_runs(file.as_bytes()).unwrap_err();
            assert_eq!((error.total, error.errors[0].place()), (1, "line 1.run".to_owned()), "{run}");
        }
    }
}
