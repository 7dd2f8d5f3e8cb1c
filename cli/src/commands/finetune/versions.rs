//! `riverrun finetune registry`, `show`, `stage` and `export`.

use std::path::Path;

use riverrun_api::wire::{ModelVersionView, Page, StageBody};
use serde_json::json;

use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, table};
use crate::paging::PageArgs;

/// Files of an adapter.
const ADAPTER: [&str; 2] = ["adapter_model.safetensors", "adapter_config.json"];
/// The merged model.
pub(super) const MERGED: &str = "model.gguf";
/// The examples.
pub(super) const DATASET: &str = "dataset.jsonl";
/// Runs that are told one by one.
const RUNS_SHOWN: usize = 10;

pub(super) async fn ls(connection: &Connection, page: PageArgs, output: Output) -> Result<(), CliError> {
    let path = with_query("/finetune/registry", &page.query());
    let found: Page<ModelVersionView> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let metric = |version: &ModelVersionView, name: &str| {
            version.metrics[name].as_f64().map_or("-".to_owned(), |value| format!("{value:.4}"))
        };
        let row = |version: &ModelVersionView| {
            [
                version.chat_model.clone(),
                version.stage.clone(),
                version.base_model.clone(),
                version.method.clone(),
                metric(version, "eval_loss_base"),
                metric(version, "eval_loss"),
                if version.gate.passed { "passed".to_owned() } else { version.gate.reason.clone().unwrap_or_default() },
                version.job_id.clone(),
            ]
        };
        let head = ["version", "stage", "base model", "method", "base held out", "held out", "gate", "training"];
        let empty = "there are no versions; train one: riverrun finetune train --dataset <name> --name <name>";
        table(head, found.items.iter().map(row).collect(), empty)
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}

/// `model@number`, as the path of it.
pub(super) fn place(version: &str) -> Result<String, CliError> {
    match version.rsplit_once('@') {
        Some((model, number)) if !model.is_empty() && number.parse::<u32>().is_ok() => {
            Ok(format!("/finetune/registry/{}/{number}", encode(model)))
        }
        _ => Err(CliError::new(Exit::Usage, format!("{version:?} is no version of a model"))
            .hint("model@number, such as poet@2; riverrun finetune registry lists them")),
    }
}

pub(super) async fn show(connection: &Connection, version: &str, output: Output) -> Result<(), CliError> {
    let view: ModelVersionView = connection.client.get(&place(version)?).await?;
    output.show(&view, described)
}

/// What whoever trained a version has to know of it where it did not pass: its name alone means another one, or none.
pub(super) fn candidate(view: &ModelVersionView) -> Option<String> {
    let reason = view.gate.reason.as_deref().unwrap_or("it was not tried");
    let (version, model) = (&view.chat_model, &view.model);
    (!view.gate.passed).then(|| {
        format!("{version} is a candidate, and {model:?} does not mean it: {reason}; where it has a merged model, riverrun chat --model {version} PROMPT tries it")
    })
}

/// A version in words: its lineage first.
fn described(view: &ModelVersionView) -> String {
    let gate = match (view.gate.passed, &view.gate.reason) {
        (true, _) => "passed".to_owned(),
        (false, reason) => reason.clone().unwrap_or_else(|| "was not tried".to_owned()),
    };
    let mut lines = vec![
        ("version", view.chat_model.clone()),
        ("stage", view.stage.clone()),
        ("base model", view.base_model.clone()),
        ("method", view.method.clone()),
        ("training", view.job_id.clone()),
        ("dataset", view.dataset.clone().unwrap_or_else(|| "-".to_owned())),
        ("sha256", view.dataset_sha256.clone()),
    ];
    if let Some(runs) = &view.runs {
        let more = usize::try_from(runs.count).unwrap_or_default().saturating_sub(runs.run_ids.len().min(RUNS_SHOWN));
        let rest = format!("and {more} more: riverrun finetune export {} --to FOLDER --dataset", view.chat_model);
        let mut ids: Vec<&str> = runs.run_ids.iter().take(RUNS_SHOWN).map(String::as_str).collect();
        ids.extend((more > 0).then_some(rest.as_str()));
        lines.push((
            "runs",
            format!("{} by {:?}\n            {}", runs.count, runs.conditions, ids.join("\n            ")),
        ));
    }
    lines.extend([("gate", gate), ("metrics", view.metrics.to_string())]);
    let lines: Vec<String> = lines.into_iter().map(|(name, value)| format!("{name:<12}{value}")).collect();
    lines.join("\n")
}

pub(super) async fn stage(connection: &Connection, version: &str, stage: &str, output: Output) -> Result<(), CliError> {
    let path = format!("{}/stage", place(version)?);
    let view: ModelVersionView = connection.client.post(&path, &StageBody { stage: stage.to_owned() }).await?;
    output.show(&view, |view| format!("{} is {}", view.chat_model, view.stage))
}

/// Writes the files of an adapter, and `more` of a version where they are asked for.
pub(super) async fn export(
    connection: &Connection,
    version: &str,
    to: &Path,
    more: [(bool, &'static str); 2],
    output: Output,
) -> Result<(), CliError> {
    let place = place(version)?;
    // A version that is not there makes no folder.
    let _: ModelVersionView = connection.client.get(&place).await?;
    std::fs::create_dir_all(to).map_err(|error| {
        CliError::new(Exit::Failed, format!("{} can't be written: {error}", to.display()))
            .hint("--to names a folder that is there, or can be made")
    })?;
    let more = more.into_iter().filter_map(|(asked, name)| asked.then_some(name));
    let mut files = Vec::new();
    for name in ADAPTER.into_iter().chain(more) {
        let path = to.join(name);
        connection.client.save(&format!("{place}/files/{name}"), &path).await?;
        files.push(path.display().to_string());
    }
    output.show(&json!({ "files": files }), |_| files.join("\n"))
}

#[cfg(test)]
mod tests {
    use riverrun_api::wire::GateView;

    use super::*;

    #[test]
    fn given_versions_then_their_place_is_found_and_what_is_none_is_refused() {
        assert_eq!(place("poet@12").unwrap(), "/finetune/registry/poet/12");
        for bad in ["poet", "@1", "poet@", "poet@x", "poet@-1"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn given_a_version_made_of_many_runs_then_it_says_by_what_they_were_found_and_where_the_others_are() {
        let ids: Vec<String> = (0..12).map(|n| format!("run_{n}")).collect();
        let view: ModelVersionView = serde_json::from_value(json!({
            "model": "poet", "version": 2, "base_model": "small", "method": "sft_lora", "metrics": { "steps": 5 },
            "dataset": "answers", "dataset_sha256": "ab", "adapter_sha256": "cd", "size_bytes": 1, "job_id": "job_x",
            "created_at": "2026-01-01T00:00:00Z", "stage": "candidate", "gate": { "passed": false, "reason": "no end" },
            "chat_model": "poet@2", "runs": { "conditions": "agent=react", "count": 200, "run_ids": ids },
        }))
        .unwrap();
        let shown = described(&view);
        for part in ["job_x", "answers", "200 by \"agent=react\"", "run_9", "and 190 more", "no end"] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
        assert!(!shown.contains("run_10"));

        let told = candidate(&view).unwrap();
        for part in ["poet@2 is a candidate", "\"poet\" does not mean it", "no end", "riverrun chat --model poet@2"] {
            assert!(told.contains(part), "{part} in {told}");
        }
        let passed = ModelVersionView { gate: GateView { passed: true, reason: None }, ..view };
        assert_eq!(candidate(&passed), None);
    }
}
