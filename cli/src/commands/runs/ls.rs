//! `riverrun runs ls`.

use clap::Args;
use riverrun_api::wire::{Page, RunSummary};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, table};
use crate::paging::PageArgs;

/// Options of `runs ls`.
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only those in this status
    #[arg(long)]
    status: Option<String>,
    /// Only those of this agent
    #[arg(long)]
    agent: Option<String>,
    /// Only those of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only those of this session
    #[arg(short, long)]
    session: Option<String>,
    /// Only those of this chain
    #[arg(long, value_name = "ID")]
    chain: Option<String>,
    #[command(flatten)]
    page: PageArgs,
}

pub async fn run(connection: &Connection, args: LsArgs, output: Output) -> Result<(), CliError> {
    let LsArgs { status, agent, namespace, session, chain, page } = args;
    let chosen = [&status, &agent, &namespace, &session, &chain].into_iter().any(Option::is_some);
    let [limit, cursor] = page.query();
    let path = with_query(
        "/runs",
        &[
            ("status", status),
            ("agent", agent),
            ("namespace", namespace),
            ("session", session),
            ("chain", chain),
            limit,
            cursor,
        ],
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
            if chosen {
                "no run is like that; riverrun runs ls lists all"
            } else {
                "there are no runs; start one: riverrun agent run <task>"
            },
        )
    })?;
    output.tell_rest(page.next_cursor.as_deref());
    Ok(())
}
