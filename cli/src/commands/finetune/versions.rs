//! `riverrun finetune registry`, `stage` and `export`.

use std::path::Path;

use riverrun_api::wire::{ModelVersionView, Page, StageBody};
use serde_json::json;

use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, table};

pub(super) async fn ls(connection: &Connection, limit: Option<u32>, output: Output) -> Result<(), CliError> {
    let path = with_query("/finetune/registry", &[("limit", limit.map(|limit| limit.to_string()))]);
    let page: Page<ModelVersionView> = connection.client.get(&path).await?;
    output.show(&page, |page| {
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
        table(head, page.items.iter().map(row).collect(), "no versions")
    })
}

/// `model@number`, as the path of it.
fn place(version: &str) -> Result<String, CliError> {
    match version.rsplit_once('@') {
        Some((model, number)) if !model.is_empty() && number.parse::<u32>().is_ok() => {
            Ok(format!("/finetune/registry/{}/{number}", encode(model)))
        }
        _ => Err(CliError::new(Exit::Usage, format!("{version:?} is no version of a model"))
            .hint("model@number, such as poet@2; riverrun finetune registry lists them")),
    }
}

pub(super) async fn stage(connection: &Connection, version: &str, stage: &str, output: Output) -> Result<(), CliError> {
    let path = format!("{}/stage", place(version)?);
    let view: ModelVersionView = connection.client.post(&path, &StageBody { stage: stage.to_owned() }).await?;
    output.show(&view, |view| format!("{} is {}", view.chat_model, view.stage))
}

pub(super) async fn export(connection: &Connection, version: &str, to: &Path, output: Output) -> Result<(), CliError> {
    let place = place(version)?;
    let failed =
        |error: std::io::Error| CliError::new(Exit::Failed, format!("{} can't be written: {error}", to.display()));
    std::fs::create_dir_all(to).map_err(failed)?;
    let mut files = Vec::new();
    for name in ["adapter_model.safetensors", "adapter_config.json"] {
        let content = connection.client.get_bytes(&format!("{place}/files/{name}")).await?;
        let path = to.join(name);
        std::fs::write(&path, content).map_err(failed)?;
        files.push(path.display().to_string());
    }
    output.show(&json!({ "files": files }), |_| files.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_versions_then_their_place_is_found_and_what_is_none_is_refused() {
        assert_eq!(place("poet@12").unwrap(), "/finetune/registry/poet/12");
        for bad in ["poet", "@1", "poet@", "poet@x", "poet@-1"] {
            assert!(place(bad).is_err(), "{bad}");
        }
    }
}
