//! `riverrun finetune datasets` and `jobs`.

use riverrun_api::wire::{DatasetView, JobView, Page};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};
use crate::paging::PageArgs;

pub(super) async fn datasets(connection: &Connection, page: PageArgs, output: Output) -> Result<(), CliError> {
    let found: Page<DatasetView> = connection.client.get(&with_query("/finetune/datasets", &page.query())).await?;
    output.show(&found, |found| {
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
        let empty = "there are no datasets; make one: riverrun finetune dataset <name> --jsonl <file>";
        table(head, found.items.iter().map(row).collect(), empty)
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}

pub(super) async fn jobs(
    connection: &Connection,
    status: Option<String>,
    page: PageArgs,
    output: Output,
) -> Result<(), CliError> {
    let [limit, cursor] = page.query();
    let path = with_query("/finetune/jobs", &[("status", status), limit, cursor]);
    let found: Page<JobView> = connection.client.get(&path).await?;
    output.show(&found, |found| {
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
        let empty = "there are no trainings; start one: riverrun finetune train --dataset <name> --name <name>";
        table(head, found.items.iter().map(row).collect(), empty)
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}
