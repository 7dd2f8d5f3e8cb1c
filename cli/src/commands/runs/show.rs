//! `riverrun runs show`.

use riverrun_api::wire::{RunStatus, RunView};

use super::{OneRun, step_line, summary};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub async fn run(connection: &Connection, run: &OneRun, output: Output) -> Result<(), CliError> {
    let run: RunView = connection.client.get(&run.path("")).await?;
    output.show(&run, text)
}

fn text(run: &RunView) -> String {
    let mut lines = vec![summary(run), format!("task: {}", run.task), String::new()];
    lines.extend(run.steps.iter().map(step_line));
    lines.extend(run.forked_from.iter().map(|from| format!("\nbranched off {} at step {}", from.run_id, from.at_seq)));
    lines.extend(run.chain.iter().map(|link| format!("\n{} of chain {}", link.name, link.chain_id)));
    lines.extend(run.pending_approvals.iter().map(|pending| {
        format!("\nwaits for approval of {}: riverrun runs approve {} {}", pending.tool, run.run_id, pending.step)
    }));
    if let Some(answer) = &run.answer {
        lines.extend([String::new(), answer.clone()]);
    }
    lines
        .extend(run.citations.iter().map(|c| format!("[{}] {} bytes {}..{}", c.n, c.source, c.span.start, c.span.end)));
    if let Some(error) = &run.error {
        // Whoever asked a run to stop does not read that it failed.
        let end = if run.status == RunStatus::Cancelled { "cancelled" } else { "failed" };
        lines.push(format!("\n{end}: {} ({})", error.message, error.code));
        lines.extend(error.hint.iter().map(|hint| format!("fix: {hint}")));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn run(status: &str, steps: Value, error: Value) -> RunView {
        serde_json::from_value(json!({
            "run_id": riverrun_schemas::RunId::derive(&["shown"]), "status": status, "namespace": "default", "task": "t", "agent": "react",
            "answer": null, "citations": [], "steps": steps, "stop_reason": status, "trace_id": null, "error": error,
            "created_at": "2026-01-01T00:00:00Z", "finished_at": null,
            "usage": { "prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0 },
        }))
        .unwrap()
    }

    #[test]
    fn given_a_run_that_ended_without_an_answer_when_it_is_shown_then_it_says_how_it_ended() {
        for (status, said, other) in
            [("cancelled", "\ncancelled: because", "failed"), ("failed", "\nfailed: because", "cancelled")]
        {
            let shown =
                text(&run(status, json!([]), json!({ "code": "some_code", "message": "because", "hint": "do this" })));
            assert!(shown.contains(&format!("{said} (some_code)\nfix: do this")) && !shown.contains(other), "{shown}");
        }
    }

    #[test]
    fn given_questions_when_a_run_is_shown_then_what_was_answered_stands_behind_each() {
        let at = "2026-01-02T03:04:05.000Z";
        for (decision, told) in [
            (
                json!({ "decision": "approve", "note": "ok", "decided_at": at }),
                " -> approved 2026-01-02T03:04:05.000Z: ok",
            ),
            (json!({ "decision": "deny", "decided_at": at }), " -> denied 2026-01-02T03:04:05.000Z"),
            (Value::Null, ""),
        ] {
            let step = json!({
                "seq": 3, "kind": "approval", "agent": "react", "text": "it pays", "at": at, "decision": decision,
                "tool": { "call_id": "c", "name": "pay", "arguments": {} },
            });
            let shown = text(&run("running", json!([step]), Value::Null));
            assert!(shown.lines().any(|line| line.ends_with(&format!("pay({{}}): it pays{told}"))), "{shown}");
        }
    }
}
