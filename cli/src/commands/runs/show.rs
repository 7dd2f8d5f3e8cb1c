//! `riverrun runs show`.

use riverrun_api::wire::RunView;

use super::{OneRun, step_line, summary};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub async fn run(connection: &Connection, run: &OneRun, output: Output) -> Result<(), CliError> {
    let run: RunView = connection.client.get(&run.path("")).await?;
    output.show(&run, |run| {
        let mut lines = vec![summary(run), format!("task: {}", run.task), String::new()];
        lines.extend(run.steps.iter().map(step_line));
        lines.extend(
            run.forked_from.iter().map(|from| format!("\nbranched off {} at step {}", from.run_id, from.at_seq)),
        );
        lines.extend(run.chain.iter().map(|link| format!("\n{} of chain {}", link.name, link.chain_id)));
        lines.extend(run.pending_approvals.iter().map(|pending| {
            format!("\nwaits for approval of {}: riverrun runs approve {} {}", pending.tool, run.run_id, pending.step)
        }));
        if let Some(answer) = &run.answer {
            lines.extend([String::new(), answer.clone()]);
        }
        lines.extend(
            run.citations.iter().map(|c| format!("[{}] {} bytes {}..{}", c.n, c.source, c.span.start, c.span.end)),
        );
        if let Some(error) = &run.error {
            lines.push(format!("\nfailed: {} ({})", error.message, error.code));
            lines.extend(error.hint.iter().map(|hint| format!("fix: {hint}")));
        }
        lines.join("\n")
    })
}
