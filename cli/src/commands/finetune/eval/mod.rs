//! `riverrun finetune eval`: answers against references, and by a judge model.

mod bertscore;
mod judge;

use std::path::PathBuf;

use clap::Args;
use riverrun_models::ModelSettings;
use riverrun_training::dataset::DatasetError;
use riverrun_training::evaluate::{JudgedReport, Report, Sample, rag_samples, rouge_report, samples};
use serde::Serialize;

use crate::error::{CliError, Exit, with_lines};
use crate::host::Connection;
use crate::input;
use crate::output::{Output, table};

use bertscore::BertReport;
use judge::Judge;

/// Options of `finetune eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// A file with one JSON object a line: for rouge and bertscore with `prediction` and `reference`; for ragas with `question`,
    /// `answer`, `contexts` and perhaps `reference`
    pub samples: PathBuf,
    /// What to measure, separated by commas: rouge, bertscore, ragas
    #[arg(long, default_value = "rouge", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// For rouge: compare words by their stems
    #[arg(long)]
    pub stem: bool,
    /// For bertscore: the encoder, an embedding model of this machine; the default one when left out
    #[arg(long, value_name = "MODEL")]
    pub encoder: Option<String>,
    /// For bertscore: layers of the encoder that tokens go through; two thirds of them when left out
    #[arg(long, value_name = "N")]
    pub layer: Option<usize>,
    /// For bertscore: weigh tokens by how rare they are among the references
    #[arg(long)]
    pub idf: bool,
    /// For bertscore: rescale by a file of baselines, with the columns LAYER,P,R,F
    #[arg(long, value_name = "FILE")]
    pub baseline: Option<PathBuf>,
    /// Show each sample's scores too, in JSON
    #[arg(long)]
    pub each: bool,
    /// Provider of the judge; the default one when left out
    #[arg(long, value_name = "PROVIDER")]
    pub judge_provider: Option<String>,
    /// The model that judges; the default one when left out
    #[arg(long, value_name = "MODEL")]
    pub judge_model: Option<String>,
}

const METRICS: [&str; 3] = ["rouge", "bertscore", "ragas"];
/// Largest file of samples, in bytes.
const MAX_SAMPLES: u64 = 256 << 20;

/// What was measured.
#[derive(Debug, Default, Serialize)]
struct Evaluation {
    #[serde(skip_serializing_if = "Option::is_none")]
    rouge: Option<Report>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bertscore: Option<BertReport>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ragas: Option<JudgedReport>,
}

impl EvalArgs {
    /// Whether a judge is needed.
    pub fn needs_judge(&self) -> bool {
        self.wants("ragas")
    }

    fn wants(&self, metric: &str) -> bool {
        self.metrics.iter().any(|wanted| wanted == metric)
    }

    fn check(&self) -> Result<(), CliError> {
        let other = self.metrics.iter().find(|metric| !METRICS.contains(&metric.as_str()));
        match other {
            None => Ok(()),
            Some(other) => {
                let known = METRICS.join(", ");
                Err(CliError::new(Exit::Usage, format!("metric {other:?} is not known; known: {known}"))
                    .hint("--metrics rouge,bertscore"))
            }
        }
    }

    fn refused(&self, reason: &str) -> CliError {
        CliError::new(Exit::Refused, format!("{}: {reason}", self.samples.display()))
            .hint("one JSON object a line; riverrun finetune eval --help says with which fields")
    }

    fn answers(&self, bytes: &[u8]) -> Result<Vec<Sample>, CliError> {
        samples(bytes).map_err(|error| self.refused(&told(error)))
    }

    /// The report as it is shown.
    fn shown(&self, mut report: Report) -> Report {
        if !self.each {
            report.each = Vec::new();
        }
        report
    }
}

/// What is wrong with samples, all lines that are known.
fn told(error: DatasetError) -> String {
    let others = error.errors.iter().skip(1).map(|remark| format!("{}: {}", remark.place(), remark.reason));
    with_lines(error.to_string(), others)
}

/// Measures; what needs a judge needs a connection.
pub(crate) async fn run(
    connection: Option<&Connection>,
    settings: &ModelSettings,
    args: EvalArgs,
    output: Output,
) -> Result<(), CliError> {
    args.check()?;
    let bytes = input::read(&args.samples, MAX_SAMPLES)
        .await
        .map_err(|reason| args.refused(&format!("can't be read: {reason}")))?;
    let mut evaluation = Evaluation::default();
    if args.wants("rouge") {
        let (answers, stem) = (args.answers(&bytes)?, args.stem);
        // Long texts take minutes, and an interrupt is heard meanwhile.
        let measured = tokio::task::spawn_blocking(move || rouge_report(&answers, stem)).await;
        let report = measured.map_err(|error| CliError::new(Exit::Failed, format!("measuring broke off: {error}")))?;
        evaluation.rouge = Some(args.shown(report));
    }
    if args.wants("bertscore") {
        let mut found = bertscore::measure(settings, &args, &args.answers(&bytes)?, output).await?;
        found.report = args.shown(found.report);
        evaluation.bertscore = Some(found);
    }
    if let Some(connection) = connection.filter(|_| args.needs_judge()) {
        let found = rag_samples(&bytes).map_err(|error| args.refused(&told(error)))?;
        let judge = Judge::new(&connection.client, args.judge_provider, args.judge_model);
        evaluation.ragas = Some(judge.report(&found, output).await?);
    }
    output.show(&evaluation, shown)
}

fn shown(evaluation: &Evaluation) -> String {
    let rouge = evaluation.rouge.as_ref().map(report_shown);
    let bertscore =
        evaluation.bertscore.as_ref().map(|found| format!("{}\n{}", report_shown(&found.report), found.how()));
    let ragas = evaluation.ragas.as_ref().map(ragas_shown);
    [rouge, bertscore, ragas].into_iter().flatten().collect::<Vec<_>>().join("\n\n")
}

fn report_shown(report: &Report) -> String {
    let rows = report.scores.iter().map(|score| {
        [
            score.metric.clone(),
            format!("{:.4}", score.precision),
            format!("{:.4}", score.recall),
            format!("{:.4}", score.fmeasure),
            format!("{}/{}", report.samples - report.unscored.len(), report.samples),
        ]
    });
    let mut text = table(["metric", "precision", "recall", "f1", "scored"], rows.collect(), "nothing was scored");
    for one in &report.unscored {
        text.push_str(&format!("\nline {} is unscored: {}", one.line, one.reason));
    }
    text
}

fn ragas_shown(report: &JudgedReport) -> String {
    let rows = report.scores.iter().map(|score| {
        [
            score.metric.as_str().to_owned(),
            score.mean.map_or("-".to_owned(), |mean| format!("{mean:.4}")),
            format!("{}/{}", score.scored, report.samples),
        ]
    });
    let mut text = table(["metric", "mean", "scored"], rows.collect(), "nothing was scored");
    for one in &report.unscored {
        text.push_str(&format!("\nline {}: {} is unscored: {}", one.line, one.metric.as_str(), one.reason));
    }
    text
}

#[cfg(test)]
mod tests {
    use riverrun_training::evaluate::JudgedMetric;

    use super::*;

    #[test]
    fn given_samples_that_a_judge_could_not_score_then_they_are_in_the_denominator_and_told_with_their_reason() {
        let metric = JudgedMetric::Faithfulness;
        let taken = vec![(1, metric, Ok(1.0)), (2, metric, Err("no JSON list".to_owned())), (3, metric, Ok(0.5))];
        let text = ragas_shown(&JudgedReport::of(3, taken));
        assert!(text.contains("0.7500") && text.contains("2/3"), "{text}");
        assert!(text.contains("line 2: faithfulness is unscored: no JSON list"), "{text}");
        assert!(text.contains("0/3"), "what nobody could score is told too: {text}");
    }
}
