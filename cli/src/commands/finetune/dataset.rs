//! `riverrun finetune dataset`.

use std::path::Path;

use riverrun_api::wire::{DatasetView, Page, RunSummary, RunView};
use serde_json::json;

use super::DatasetArgs;
use crate::client::{FormPart, encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};

/// Largest file that is handed in, in bytes; what the API takes.
const MAX_FILE: u64 = 64 << 20;
/// Runs that a dataset is made of at most.
const MAX_RUNS: usize = 5_000;
/// Warnings that are told.
const MAX_TOLD: usize = 10;

pub(super) async fn run(connection: &Connection, args: DatasetArgs, output: Output) -> Result<(), CliError> {
    let content = match (&args.from_runs, &args.jsonl) {
        (Some(conditions), _) => of_runs(connection, conditions).await?,
        (None, Some(path)) => read(path)?,
        (None, None) => return Err(CliError::new(Exit::Usage, "neither --jsonl nor --from-runs is given")),
    };
    let view = hand_in(connection, &args.name, &args.format, args.base_model.as_deref(), content).await?;
    tell_warnings(&view);
    output.show(&view, summary)
}

pub(super) fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let refused = |reason: String| {
        CliError::new(Exit::Refused, format!("{} can't be read: {reason}", path.display()))
            .hint("a dataset is a file of JSON lines, such as {\"prompt\": \"…\", \"completion\": \"…\"}")
    };
    let size = std::fs::metadata(path).map_err(|error| refused(error.to_string()))?.len();
    if size > MAX_FILE {
        return Err(refused(format!("it has {size} bytes, more than {MAX_FILE}")));
    }
    std::fs::read(path).map_err(|error| refused(error.to_string()))
}

pub(super) async fn hand_in(
    connection: &Connection,
    name: &str,
    format: &str,
    base_model: Option<&str>,
    content: Vec<u8>,
) -> Result<DatasetView, CliError> {
    let mut parts = vec![FormPart::text("name", name), FormPart::text("format", format)];
    parts.extend(base_model.map(|model| FormPart::text("base_model", model)));
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
        tell(&format!("and {} more remarks", warnings.len() - MAX_TOLD));
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
        "dataset     {}\nformat      {}\nexamples    {} ({} to train on, {} held out, {} duplicates left out){tokens}\nsha256      {}",
        view.name, view.format, view.examples, view.train_examples, view.eval_examples, view.duplicates, view.sha256
    )
}

/// Tasks and answers of runs as examples.
async fn of_runs(connection: &Connection, conditions: &str) -> Result<Vec<u8>, CliError> {
    let conditions = parse(conditions)?;
    let (mut lines, mut cursor, mut runs) = (Vec::new(), None, 0);
    while runs < MAX_RUNS {
        let mut query: Vec<(&str, Option<String>)> =
            conditions.iter().map(|(name, value)| (*name, Some(value.clone()))).collect();
        query.extend([("limit", Some("100".to_owned())), ("cursor", cursor)]);
        let page: Page<RunSummary> = connection.client.get(&with_query("/runs", &query)).await?;
        for run in &page.items {
            let run: RunView = connection.client.get(&format!("/runs/{}", encode(&run.run_id.to_string()))).await?;
            if let Some(answer) = run.answer.filter(|answer| !answer.trim().is_empty()) {
                serde_json::to_writer(&mut lines, &json!({ "prompt": run.task, "completion": answer }))
                    .map_err(std::io::Error::other)?;
                lines.push(b'\n');
            }
            runs += 1;
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    if lines.is_empty() {
        return Err(
            CliError::new(Exit::Refused, "no run with an answer meets these conditions").hint("riverrun runs ls")
        );
    }
    Ok(lines)
}

const CONDITIONS: [&str; 4] = ["agent", "status", "namespace", "session"];

/// `name=value and name=value …`.
fn parse(text: &str) -> Result<Vec<(&'static str, String)>, CliError> {
    let bad = |part: &str| {
        CliError::new(Exit::Usage, format!("--from-runs: {part:?} is no condition"))
            .hint("'agent=react and status=succeeded'; agent, status, namespace and session can be asked for")
    };
    text.split(" and ")
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(|part| {
            let (name, value) = part.split_once('=').ok_or_else(|| bad(part))?;
            let name = CONDITIONS.into_iter().find(|known| *known == name.trim()).ok_or_else(|| bad(part))?;
            Ok((name, value.trim().to_owned()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_conditions_then_they_are_read_and_what_is_none_is_refused() {
        let read = parse("agent=react and status = succeeded").unwrap();
        assert_eq!(read, [("agent", "react".to_owned()), ("status", "succeeded".to_owned())]);
        assert!(parse("").unwrap().is_empty());
        for bad in ["agent", "mood=good", "status>3", "agent=react and x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
