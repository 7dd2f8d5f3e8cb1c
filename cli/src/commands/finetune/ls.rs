//! `riverrun finetune datasets` and `jobs`.

use riverrun_api::wire::{DatasetView, JobView, Page};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub(super) async fn datasets(connection: &Connection, limit: Option<u32>, output: Output) -> Result<(), CliError> {
    let path = with_query("/finetune/datasets", &[("limit", limit.map(|limit| limit.to_string()))]);
    let page: Page<DatasetView> = connection.client.get(&path).await?;
    output.show(&page, |page| {
        let row = |item: &DatasetView| {
            [
                item.name.clone(),
                item.format.clone(),
                item.examples.to_string(),
                item.eval_examples.to_string(),
                item.sha256.chars().take(12).collect(),
                item.created_at.to_string(),
            ]
        };
        let head = ["dataset", "format", "examples", "held out", "sha256", "created"];
        table(head, page.items.iter().map(row).collect(), "no datasets")
    })
}

pub(super) async fn jobs(
    connection: &Connection,
    status: Option<String>,
    limit: Option<u32>,
    output: Output,
) -> Result<(), CliError> {
    let query = [("status", status), ("limit", limit.map(|limit| limit.to_string()))];
    let page: Page<JobView> = connection.client.get(&with_query("/finetune/jobs", &query)).await?;
    output.show(&page, |page| {
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.4}"));
        let row = |job: &JobView| {
            [
                job.job_id.clone(),
                job.status.clone(),
                job.name.clone(),
                job.method.clone(),
                job.base_model.clone(),
                format!("{}/{}", job.step, job.max_steps),
                number(job.loss),
                number(job.eval_loss),
                job.model.clone().unwrap_or_else(|| "-".to_owned()),
            ]
        };
        let head = ["training", "status", "name", "method", "base model", "step", "loss", "held out", "version"];
        table(head, page.items.iter().map(row).collect(), "no trainings")
    })
}
