//! Measures of answers from documents by a judge model, after Es and others, "RAGAS: Automated evaluation of retrieval augmented generation"
//! (2023): faithfulness, answer relevancy, context precision, context recall. What the judge is asked and what its replies come to is here;
//! asking is the caller's. A reply that can't be read is a reason, never a number.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dataset::{DatasetError, Remark};

/// Statements of a text that are judged at most.
const MAX_STATEMENTS: usize = 50;
/// Documents of a sample that are judged at most.
const MAX_CONTEXTS: usize = 50;

/// A question, what was found for it, and what was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RagSample {
    /// Its line, from 1.
    pub line: usize,
    /// What was asked.
    pub question: String,
    /// What was answered.
    pub answer: String,
    /// What was found, the best first; may be nothing.
    pub contexts: Vec<String>,
    /// What should have been answered.
    pub reference: Option<String>,
}

impl RagSample {
    /// Why a measure can't be taken of it, whoever judges.
    pub fn lacks(&self, metric: JudgedMetric) -> Option<&'static str> {
        let (needs_answer, needs_contexts, needs_reference) = match metric {
            JudgedMetric::Faithfulness => (true, true, false),
            JudgedMetric::AnswerRelevancy => (true, false, false),
            JudgedMetric::ContextPrecision | JudgedMetric::ContextRecall => (false, true, true),
        };
        // Asked about nothing, a judge makes something up.
        if needs_answer && self.answer.trim().is_empty() {
            return Some("its answer has no words");
        }
        if needs_contexts && self.contexts.is_empty() {
            return Some("it has no contexts");
        }
        let has_reference = self.reference.as_ref().is_some_and(|reference| !reference.trim().is_empty());
        (needs_reference && !has_reference).then_some("it has no reference")
    }
}

/// The measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JudgedMetric {
    /// Part of the answer's statements that the documents support.
    Faithfulness,
    /// How much questions that the answer answers are like the one that was asked.
    AnswerRelevancy,
    /// Whether documents that help stand in front.
    ContextPrecision,
    /// Part of the reference's statements that the documents support.
    ContextRecall,
}

impl JudgedMetric {
    /// Every measure.
    pub const ALL: [JudgedMetric; 4] = [
        JudgedMetric::Faithfulness,
        JudgedMetric::AnswerRelevancy,
        JudgedMetric::ContextPrecision,
        JudgedMetric::ContextRecall,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            JudgedMetric::Faithfulness => "faithfulness",
            JudgedMetric::AnswerRelevancy => "answer_relevancy",
            JudgedMetric::ContextPrecision => "context_precision",
            JudgedMetric::ContextRecall => "context_recall",
        }
    }
}

/// The mean of a measure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedScore {
    /// The measure.
    pub metric: JudgedMetric,
    /// Its mean over the samples that were scored; null when none was.
    pub mean: Option<f64>,
    /// How many were.
    pub scored: usize,
}

/// A measure of a sample that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedFault {
    /// The sample's line, from 1.
    pub line: usize,
    /// The measure.
    pub metric: JudgedMetric,
    /// Why.
    pub reason: String,
}

/// What a judge says of samples.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JudgedReport {
    /// How many samples there are.
    pub samples: usize,
    /// Means.
    pub scores: Vec<JudgedScore>,
    /// What could not be measured; it is in no mean.
    pub unscored: Vec<JudgedFault>,
}

impl JudgedReport {
    /// Of the measures that were taken: line, measure, and a number or why there is none.
    pub fn of(samples: usize, taken: Vec<(usize, JudgedMetric, Result<f64, String>)>) -> Self {
        let score = |metric: JudgedMetric| {
            let numbers: Vec<f64> = taken
                .iter()
                .filter(|(_, of, _)| *of == metric)
                .filter_map(|(_, _, found)| found.as_ref().ok().copied())
                .collect();
            let mean = (!numbers.is_empty()).then(|| numbers.iter().sum::<f64>() / numbers.len() as f64);
            JudgedScore { metric, mean, scored: numbers.len() }
        };
        let scores = JudgedMetric::ALL.into_iter().map(score).collect();
        let unscored = taken
            .into_iter()
            .filter_map(|(line, metric, found)| found.err().map(|reason| JudgedFault { line, metric, reason }));
        Self { samples, scores, unscored: unscored.collect() }
    }
}

/// Reads JSON lines with `question`, `answer`, `contexts` and perhaps `reference`.
pub fn rag_samples(bytes: &[u8]) -> Result<Vec<RagSample>, DatasetError> {
    super::read_lines(bytes, |line, value| {
        let words = |field: &'static str| super::words(value, line, field);
        let contexts = value["contexts"].as_array().filter(|list| list.len() <= MAX_CONTEXTS);
        let contexts: Option<Vec<String>> =
            contexts.and_then(|list| list.iter().map(|one| one.as_str().map(str::to_owned)).collect());
        let fault = || Remark::new(line, Some("contexts"), format!("is no list of at most {MAX_CONTEXTS} texts"));
        Ok(RagSample {
            line,
            question: words("question")?,
            answer: words("answer")?,
            contexts: contexts.ok_or_else(fault)?,
            reference: if value["reference"].is_null() { None } else { Some(words("reference")?) },
        })
    })
}

/// Asks for the statements of a text.
pub fn statements_prompt(question: &str, text: &str) -> String {
    format!(
        "Break the answer into simple statements that can each be checked alone, without pronouns. Reply with a JSON list of strings and nothing else.\n\nQuestion: {question}\nAnswer: {text}\n\nJSON list:"
    )
}

/// Asks which statements documents support.
pub fn support_prompt(contexts: &[String], statements: &[String]) -> String {
    format!(
        "For each statement say 1 if it can be inferred from the context alone, else 0. Reply with a JSON list of {} numbers, in the order of the statements, and nothing else.\n\nContext:\n{}\n\nStatements:\n{}\n\nJSON list:",
        statements.len(),
        contexts.join("\n\n"),
        numbered(statements)
    )
}

/// Asks which documents help.
pub fn usefulness_prompt(question: &str, reference: &str, contexts: &[String]) -> String {
    format!(
        "For each context say 1 if it is useful in arriving at the answer to the question, else 0. Reply with a JSON list of {} numbers, in the order of the contexts, and nothing else.\n\nQuestion: {question}\nAnswer: {reference}\n\nContexts:\n{}\n\nJSON list:",
        contexts.len(),
        numbered(contexts)
    )
}

/// Asks for questions that an answer answers.
pub fn questions_prompt(answer: &str) -> String {
    format!(
        "Write three different questions that this text answers. If it answers nothing, because it is evasive or says that it does not know, reply with []. Reply with a JSON list of strings and nothing else.\n\nText: {answer}\n\nJSON list:"
    )
}

fn numbered(texts: &[String]) -> String {
    let lines: Vec<String> = (1..).zip(texts).map(|(n, text)| format!("{n}. {text}")).collect();
    lines.join("\n")
}

/// The JSON list of a reply, whatever stands around it.
fn list(reply: &str) -> Result<Vec<Value>, String> {
    let shown = || format!("the judge replied no JSON list: {:?}", reply.chars().take(80).collect::<String>());
    let start = reply.find('[').ok_or_else(shown)?;
    let mut values = serde_json::Deserializer::from_str(&reply[start..]).into_iter::<Vec<Value>>();
    values.next().and_then(Result::ok).ok_or_else(shown)
}

/// Texts of a reply; there may be none.
pub fn texts(reply: &str) -> Result<Vec<String>, String> {
    let texts: Option<Vec<String>> = list(reply)?.iter().map(|value| value.as_str().map(str::to_owned)).collect();
    let mut texts = texts.ok_or("the judge replied a list of something else than texts")?;
    texts.retain(|text| !text.trim().is_empty());
    texts.truncate(MAX_STATEMENTS);
    Ok(texts)
}

/// Verdicts of a reply, which must be as many as were asked for.
pub fn verdicts(reply: &str, wanted: usize) -> Result<Vec<bool>, String> {
    let verdict = |value: &Value| match value {
        Value::Bool(verdict) => Some(*verdict),
        Value::Number(number) => number.as_u64().filter(|number| *number < 2).map(|number| number == 1),
        _ => None,
    };
    let verdicts: Option<Vec<bool>> = list(reply)?.iter().map(verdict).collect();
    let verdicts = verdicts.ok_or("the judge replied something else than 0 and 1")?;
    if verdicts.len() != wanted {
        return Err(format!("the judge replied {} verdicts where {wanted} were asked for", verdicts.len()));
    }
    Ok(verdicts)
}

/// The part that is true; `None` without any.
pub fn share(verdicts: &[bool]) -> Option<f64> {
    let yes = verdicts.iter().filter(|verdict| **verdict).count();
    (!verdicts.is_empty()).then(|| yes as f64 / verdicts.len() as f64)
}

/// The mean of the precisions at the places of what helps; 0 when nothing does.
pub fn average_precision(verdicts: &[bool]) -> f64 {
    let (mut found, mut sum) = (0usize, 0.0);
    for (place, _) in (1usize..).zip(verdicts).filter(|(_, helps)| **helps) {
        found += 1;
        sum += found as f64 / place as f64;
    }
    if found == 0 { 0.0 } else { sum / found as f64 }
}

/// The cosine of the angle between two vectors; 0 when one has no length.
pub fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let lengths = (dot(one, one) * dot(other, other)).sqrt();
    if lengths > 0.0 { dot(one, other) / lengths } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_replies_then_only_what_was_asked_for_is_read() {
        assert_eq!(texts("Sure:\n[\"a\", \" \", \"b\"] done").unwrap(), ["a", "b"]);
        assert!(texts("[]").unwrap().is_empty());
        assert_eq!(verdicts("```json\n[1, 0, true]\n```", 3).unwrap(), [true, false, true]);
        for bad in ["", "no list", "[1, 0", "[1, 2, 0]", "[1, 0]", "[\"1\", 0, 1]"] {
            assert!(verdicts(bad, 3).is_err(), "{bad}");
        }
        assert!(texts("[1]").is_err());
    }

    #[test]
    fn given_verdicts_then_the_numbers_are_those_of_the_definitions() {
        assert_eq!((share(&[true, false, true, true]), share(&[])), (Some(0.75), None));
        assert_eq!(average_precision(&[true, true, false]), 1.0);
        assert!((average_precision(&[false, true, true]) - (0.5 + 2.0 / 3.0) / 2.0).abs() < 1e-12);
        assert_eq!(average_precision(&[false]), 0.0);
        assert!((cosine(&[1.0, 1.0], &[1.0, 0.0]) - 0.5f64.sqrt()).abs() < 1e-6);
        assert_eq!(cosine(&[0.0], &[1.0]), 0.0);
    }

    #[test]
    fn given_what_could_not_be_judged_then_it_is_told_and_in_no_mean() {
        let metric = JudgedMetric::Faithfulness;
        let report =
            JudgedReport::of(3, vec![(1, metric, Ok(1.0)), (2, metric, Err("why".into())), (3, metric, Ok(0.5))]);
        assert_eq!((report.scores[0].mean, report.scores[0].scored, report.samples), (Some(0.75), 2, 3));
        assert_eq!(report.unscored, [JudgedFault { line: 2, metric, reason: "why".into() }]);
        assert_eq!(report.scores[3].mean, None);
    }

    #[test]
    fn given_a_search_that_found_nothing_then_the_file_is_taken_and_what_needs_contexts_has_a_reason() {
        let sample = &rag_samples(br#"{"question":"q","answer":"a","contexts":[],"reference":"r"}"#).unwrap()[0];
        let lacks: Vec<_> = JudgedMetric::ALL.into_iter().map(|metric| sample.lacks(metric)).collect();
        let none = Some("it has no contexts");
        assert_eq!(lacks, [none, None, none, none]);
        let sample = RagSample { contexts: vec!["c".to_owned()], reference: None, ..sample.clone() };
        let lacks: Vec<_> = JudgedMetric::ALL.into_iter().map(|metric| sample.lacks(metric)).collect();
        let none = Some("it has no reference");
        assert_eq!(lacks, [None, None, none, none]);
    }

    #[test]
    fn given_an_answer_or_a_reference_without_words_then_no_judge_is_asked_about_it() {
        let file = br#"{"question":"q","answer":" \n","contexts":["c"],"reference":" "}"#;
        let sample = &rag_samples(file).unwrap()[0];
        let lacks: Vec<_> = JudgedMetric::ALL.into_iter().map(|metric| sample.lacks(metric)).collect();
        let (answer, reference) = (Some("its answer has no words"), Some("it has no reference"));
        assert_eq!(lacks, [answer, answer, reference, reference]);
    }

    #[test]
    fn given_lines_that_are_no_samples_then_the_field_is_named() {
        let good = br#"{"question":"q","answer":"a","contexts":["c"]}"#;
        assert_eq!(rag_samples(good).unwrap()[0].reference, None);
        for (file, place) in [
            (&br#"{"answer":"a","contexts":["c"]}"#[..], "line 1.question"),
            (&br#"{"question":"q","answer":"a"}"#[..], "line 1.contexts"),
            (&br#"{"question":"q","answer":"a","contexts":[1]}"#[..], "line 1.contexts"),
            (&br#"{"question":"q","answer":"a","contexts":["c"],"reference":7}"#[..], "line 1.reference"),
        ] {
            assert_eq!(rag_samples(file).unwrap_err().errors[0].place(), place);
        }
    }
}
