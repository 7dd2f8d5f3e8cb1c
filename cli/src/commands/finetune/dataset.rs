//! `riverrun finetune dataset`.

use std::path::Path;

use riverrun_api::wire::DatasetView;
use riverrun_schemas::counted;

use super::DatasetArgs;
use super::conditions::Conditions;
use super::from_runs::of_runs;
use crate::client::FormPart;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::input;
use crate::output::{Output, tell};

/// Largest file that is handed in, in bytes; what the API takes.
pub(super) const MAX_FILE: u64 = 64 << 20;
/// The format of what is made of runs.
const OF_RUNS: &str = "sft";
/// Warnings that are told.
const MAX_TOLD: usize = 10;

pub(super) async fn run(connection: &Connection, args: DatasetArgs, output: Output) -> Result<(), CliError> {
    let conditions = args.from_runs.as_deref().map(Conditions::parse).transpose()?;
    if conditions.is_some() && args.format != OF_RUNS {
        let what = format!("--format {} does not go with --from-runs: runs have tasks and answers", args.format);
        return Err(CliError::new(Exit::Usage, what).hint(format!("--format {OF_RUNS}, or leave it out")));
    }
    let content = match (&conditions, &args.jsonl) {
        (Some(conditions), _) => of_runs(connection, conditions).await?,
        (None, Some(path)) => read(path).await?,
        (None, None) => return Err(CliError::new(Exit::Usage, "neither --jsonl nor --from-runs is given")),
    };
    let from_runs = conditions.as_ref().map(|conditions| conditions.text.as_str());
    let of = Of { format: &args.format, base_model: args.base_model.as_deref(), from_runs };
    let view = hand_in(connection, &args.name, of, content).await?;
    tell_warnings(&view);
    output.show(&view, summary)
}

pub(super) async fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    input::read(path, MAX_FILE).await.map_err(|reason| {
        CliError::new(Exit::Refused, format!("{} can't be read: {reason}", path.display()))
            .hint("a dataset is a file of JSON lines, such as {\"prompt\": \"…\", \"completion\": \"…\"}")
    })
}

/// What a file of examples is of.
pub(super) struct Of<'a> {
    pub(super) format: &'a str,
    pub(super) base_model: Option<&'a str>,
    pub(super) from_runs: Option<&'a str>,
}

pub(super) async fn hand_in(
    connection: &Connection,
    name: &str,
    of: Of<'_>,
    content: Vec<u8>,
) -> Result<DatasetView, CliError> {
    let mut parts = vec![FormPart::text("name", name), FormPart::text("format", of.format)];
    parts.extend(of.base_model.map(|model| FormPart::text("base_model", model)));
    parts.extend(of.from_runs.map(|conditions| FormPart::text("from_runs", conditions)));
    parts.push(FormPart::file("file", "dataset.jsonl", content));
    connection.client.post_form("/finetune/datasets", parts).await
}

pub(super) fn tell_warnings(view: &DatasetView) {
    let warnings = view.warnings.as_array().map(Vec::as_slice).unwrap_or_default();
    for warning in warnings.iter().take(MAX_TOLD) {
        let place = warning["line"].as_u64().map_or(String::new(), |line| format!("line {line}: "));
        tell(&format!("{place}{}", warning["reason"].as_str().unwrap_or_default()));
    }
    if warnings.len() > MAX_TOLD {
        tell(&format!("and {}", counted(warnings.len() - MAX_TOLD, "more remark")));
    }
}

fn summary(view: &DatasetView) -> String {
    let tokens = view.tokens.as_ref().map_or(String::new(), |tokens| {
        format!(
            "\ntokens      {} to {}, half up to {}, {} in all",
            tokens["min"], tokens["max"], tokens["p50"], tokens["total"]
        )
    });
    format!(
        "dataset     {}\nformat      {}\nexamples    {} ({} to train on, {} held out, {} left out){tokens}\nsha256      {}",
        view.name,
        view.format,
        view.examples,
        view.train_examples,
        view.eval_examples,
        counted(view.duplicates, "duplicate"),
        view.sha256
    )
}
