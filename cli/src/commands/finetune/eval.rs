//! `riverrun finetune eval`: answers against references, without a server.

use std::path::PathBuf;

use clap::Args;
use riverrun_training::evaluate::{Report, Sample, rouge_report, samples};

use crate::error::{CliError, Exit};
use crate::output::{Output, table};

/// Options of `finetune eval`.
#[derive(Debug, Args)]
pub struct EvalArgs {
    /// A file with one JSON object a line: `prediction` and `reference`
    pub samples: PathBuf,
    /// What to measure, separated by commas: rouge
    #[arg(long, default_value = "rouge", value_delimiter = ',')]
    pub metrics: Vec<String>,
}

pub(crate) fn run(args: EvalArgs, output: Output) -> Result<(), CliError> {
    if let Some(other) = args.metrics.iter().find(|metric| *metric != "rouge") {
        return Err(
            CliError::new(Exit::Usage, format!("metric {other:?} is not known; known: rouge")).hint("--metrics rouge")
        );
    }
    let refused = |reason: String| CliError::new(Exit::Refused, format!("{}: {reason}", args.samples.display()));
    let bytes = std::fs::read(&args.samples).map_err(|error| refused(format!("can't be read: {error}")))?;
    let found: Vec<Sample> = samples(&bytes).map_err(|error| {
        refused(error.to_string()).hint("one JSON object a line: {\"prediction\": \"…\", \"reference\": \"…\"}")
    })?;
    output.show(&rouge_report(&found), shown)
}

fn shown(report: &Report) -> String {
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
