//! Measures of answers against references. A sample that can't be scored is told with its reason and stays in the denominator
//! that is shown; it is not in the mean.

mod bertscore;
mod porter;
mod ragas;
mod rouge;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::{DatasetError, MAX_TOLD, Remark, not_json, without_mark};

pub use bertscore::{Baseline, Rarity, TokenText, bert_score};
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
    /// `rouge1`, `rouge2`, `rougeL`, `rougeLsum` or `bertscore`.
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

impl Unscored {
    fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// A sample's score by one measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SampleScore {
    /// Its line, from 1.
    pub line: usize,
    /// The measure.
    pub metric: String,
    /// Precision.
    pub precision: f64,
    /// Recall.
    pub recall: f64,
    /// F1.
    pub fmeasure: f64,
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
    /// The scores that the means are of, sample by sample; empty where nobody asked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub each: Vec<SampleScore>,
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
    for (line, text) in (1..).zip(without_mark(bytes).split(|byte| *byte == b'\n')) {
        if text.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let value = serde_json::from_slice::<Value>(text).map_err(|error| Remark::new(line, None, not_json(&error)));
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

/// ROUGE-1, ROUGE-2, ROUGE-L and ROUGE-Lsum. A sample whose reference has no words has nothing to be measured by.
pub fn rouge_report(samples: &[Sample], stemming: bool) -> Report {
    let measure = |sample: &Sample| rouge(&sample.prediction, &sample.reference, stemming);
    let all: Vec<(usize, Result<Rouge, String>)> =
        samples.iter().map(|sample| (sample.line, measure(sample))).collect();
    type Kind = (&'static str, fn(&Rouge) -> Score);
    let kinds: [Kind; 4] = [
        ("rouge1", |rouge| rouge.one),
        ("rouge2", |rouge| rouge.two),
        ("rougeL", |rouge| rouge.longest),
        ("rougeLsum", |rouge| rouge.lines),
    ];
    let mut report = Report { samples: samples.len(), scores: Vec::new(), unscored: Vec::new(), each: Vec::new() };
    for (metric, of) in kinds {
        report.take(metric, all.iter().filter_map(|(line, rouge)| Some((*line, of(rouge.as_ref().ok()?)))).collect());
    }
    let reason = |(line, rouge): (usize, Result<Rouge, String>)| Some(Unscored::new(line, rouge.err()?));
    report.unscored = all.into_iter().filter_map(reason).collect();
    report
}

/// The report of one measure: by line, each sample's score or why it has none.
pub fn report(metric: &str, measured: Vec<(usize, Result<Score, String>)>) -> Report {
    let mut report = Report { samples: measured.len(), scores: Vec::new(), unscored: Vec::new(), each: Vec::new() };
    let mut scored = Vec::new();
    for (line, score) in measured {
        match score {
            Ok(score) => scored.push((line, score)),
            Err(reason) => report.unscored.push(Unscored::new(line, reason)),
        }
    }
    report.take(metric, scored);
    report
}

impl Report {
    /// Adds a measure's scores and their mean.
    fn take(&mut self, metric: &str, scored: Vec<(usize, Score)>) {
        if scored.is_empty() {
            return;
        }
        let mean =
            |part: fn(&Score) -> f64| scored.iter().map(|(_, score)| part(score)).sum::<f64>() / scored.len() as f64;
        self.scores.push(MetricScore {
            metric: metric.to_owned(),
            precision: mean(|score| score.precision),
            recall: mean(|score| score.recall),
            fmeasure: mean(|score| score.fmeasure),
        });
        self.each.extend(scored.into_iter().map(|(line, score)| SampleScore {
            line,
            metric: metric.to_owned(),
            precision: score.precision,
            recall: score.recall,
            fmeasure: score.fmeasure,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_samples_when_one_has_no_reference_then_it_is_unscored_and_in_the_count() {
        let file =
            b"{\"prediction\":\"the cat\",\"reference\":\"the cat\"}\n{\"prediction\":\"a\",\"reference\":\"...\"}\n";
        let report = rouge_report(&samples(file).unwrap(), false);
        assert_eq!((report.samples, report.unscored.len(), report.unscored[0].line), (2, 1, 2));
        assert!(report.scores.iter().all(|score| score.fmeasure == 1.0), "{report:?}");
        assert_eq!((report.scores.len(), report.each.len(), report.each[0].line), (4, 4, 1));
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
        let marked = b"\xef\xbb\xbf{\"prediction\":\"a\",\"reference\":\"b\"}\r\n";
        assert_eq!(samples(marked).unwrap()[0].prediction, "a");
    }
}
