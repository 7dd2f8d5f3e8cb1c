//! `riverrun runs ls`.

use riverrun_api::wire::{Page, RunSummary};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table, tell};

/// Which runs.
pub struct Filter {
    /// Only those in this status.
    pub status: Option<String>,
    /// Only those of this agent.
    pub agent: Option<String>,
    /// Only those of this namespace.
    pub namespace: Option<String>,
    /// Most runs.
    pub limit: Option<u32>,
    /// Where the list goes on.
    pub cursor: Option<String>,
}

pub async fn run(connection: &Connection, filter: Filter, output: Output) -> Result<(), CliError> {
    let Filter { status, agent, namespace, limit, cursor } = filter;
    let limit = limit.map(|limit| limit.to_string());
    let path = with_query(
        "/runs",
        &[("status", status), ("agent", agent), ("namespace", namespace), ("limit", limit), ("cursor", cursor)],
    );
    let page: Page<RunSummary> = connection.client.get(&path).await?;
    output.show(&page, |page| {
        let row = |run: &RunSummary| {
            let agent = run.agent.clone().unwrap_or_default();
            [
                run.run_id.to_string(),
                run.status.as_str().to_owned(),
                agent,
                run.steps.to_string(),
                run.created_at.to_string(),
                clip(&run.task, 60),
            ]
        };
        table(
            ["run", "status", "agent", "steps", "created", "task"],
            page.items.iter().map(row).collect(),
            "there are no runs; riverrun agent run <task> starts one",
        )
    })?;
    if let (Some(cursor), false) = (&page.next_cursor, output.json) {
        tell(&format!("there are more: --cursor {cursor}"));
    }
    Ok(())
}
