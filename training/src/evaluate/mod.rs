//! Measures of answers against references. A sample that can't be scored is told with its reason and stays in the denominator
//! that is shown; it is not in the mean.

mod ragas;
mod rouge;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::{DatasetError, MAX_TOLD, Remark};

pub use ragas::{
    JudgedFault, JudgedMetric, JudgedReport, JudgedScore, RagSample, average_precision, cosine, questions_prompt,
    rag_samples, share, statements_prompt, support_prompt, texts, usefulness_prompt, verdicts,
};
pub use rouge::{Rouge, Score, rouge};

/// Samples of a file at most.
const MAX_SAMPLES: usize = 1_000_000;

/// An answer and what it should have been.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// Its line, from 1.
    pub line: usize,
    /// The answer.
    pub prediction: String,
    /// What it should have been.
    pub reference: String,
}

/// A measure's means over the samples that were scored.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricScore {
    /// `rouge1`, `rouge2` or `rougeL`.
    pub metric: String,
    /// Mean precision.
    pub precision: f64,
    /// Mean recall.
    pub recall: f64,
    /// Mean of the samples' F1.
    pub fmeasure: f64,
}

/// A sample that could not be scored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unscored {
    /// Its line, from 1.
    pub line: usize,
    /// Why.
    pub reason: String,
}

/// What samples come to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How many there are.
    pub samples: usize,
    /// Means over those that were scored.
    pub scores: Vec<MetricScore>,
    /// Those that were not.
    pub unscored: Vec<Unscored>,
}

/// Reads JSON lines with `prediction` and `reference`.
pub fn samples(bytes: &[u8]) -> Result<Vec<Sample>, DatasetError> {
    read_lines(bytes, |line, value| {
        Ok(Sample { line, prediction: words(value, line, "prediction")?, reference: words(value, line, "reference")? })
    })
}

/// Reads each line that is not blank, or says which can't be.
fn read_lines<T>(bytes: &[u8], read: impl Fn(usize, &Value) -> Result<T, Remark>) -> Result<Vec<T>, DatasetError> {
    let mut found = Vec::new();
    let mut faults = DatasetError { errors: Vec::new(), total: 0 };
    for (line, text) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice::<Value>(text)
            .map_err(|error| Remark::new(line, None, format!("is not a JSON object: {error}")));
        match value.and_then(|value| read(line, &value)) {
            Ok(one) if found.len() < MAX_SAMPLES => found.push(one),
            Ok(_) => return Err(DatasetError::one(line, format!("is beyond the limit of {MAX_SAMPLES} samples"))),
            Err(remark) => {
                faults.total += 1;
                if faults.errors.len() < MAX_TOLD {
                    faults.errors.push(remark);
                }
            }
        }
    }
    match (faults.total, found.is_empty()) {
        (0, false) => Ok(found),
        (0, true) => Err(DatasetError::one(1, "the file holds no samples")),
        _ => Err(faults),
    }
}

fn words(value: &Value, line: usize, field: &'static str) -> Result<String, Remark> {
    match &value[field] {
        Value::String(text) => Ok(text.clone()),
        Value::Null => Err(Remark::new(line, Some(field), "is missing")),
        _ => Err(Remark::new(line, Some(field), "is not a text")),
    }
}

/// ROUGE-1, ROUGE-2 and ROUGE-L. A sample whose reference has no words has nothing to be measured by.
pub fn rouge_report(samples: &[Sample]) -> Report {
    let mut unscored = Vec::new();
    let mut all = Vec::new();
    for sample in samples {
        match rouge(&sample.prediction, &sample.reference) {
            Some(scores) => all.push(scores),
            None => unscored.push(Unscored { line: sample.line, reason: "the reference has no words".to_owned() }),
        }
    }
    type Kind = (&'static str, fn(&Rouge) -> Score);
    let kinds: [Kind; 3] =
        [("rouge1", |rouge| rouge.one), ("rouge2", |rouge| rouge.two), ("rougeL", |rouge| rouge.longest)];
    let scores = kinds.into_iter().filter(|_| !all.is_empty()).map(|(metric, of)| {
        let mean = |part: fn(Score) -> f64| all.iter().map(|rouge| part(of(rouge))).sum::<f64>() / all.len() as f64;
        MetricScore {
            metric: metric.to_owned(),
            precision: mean(|score| score.precision),
            recall: mean(|score| score.recall),
            fmeasure: mean(|score| score.fmeasure),
        }
    });
    Report { samples: samples.len(), scores: scores.collect(), unscored }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_samples_when_one_has_no_reference_then_it_is_unscored_and_in_the_count() {
        let file =
            b"{\"prediction\":\"the cat\",\"reference\":\"the cat\"}\n{\"prediction\":\"a\",\"reference\":\"...\"}\n";
        let report = rouge_report(&samples(file).unwrap());
        assert_eq!((report.samples, report.unscored.len(), report.unscored[0].line), (2, 1, 2));
        assert!(report.scores.iter().all(|score| score.fmeasure == 1.0), "{report:?}");
    }

    #[test]
    fn given_lines_that_are_no_samples_then_they_are_named() {
        for (file, place) in [
            (&b"{}"[..], "line 1.prediction"),
            (&b"\n{\"prediction\":\"a\"}"[..], "line 2.reference"),
            (&b"{\"prediction\":\"a\",\"reference\":1}"[..], "line 1.reference"),
            (&b"x"[..], "line 1"),
            (&b""[..], "line 1"),
        ] {
            assert_eq!(samples(file).unwrap_err().errors[0].place(), place);
        }
    }
}
