//! `riverrun finetune dataset --from-runs`: the tasks of runs with their answers, as examples.

use riverrun_api::wire::{Page, RunSummary, RunView};
use riverrun_schemas::counted;
use riverrun_training::dataset::MAX_LINE_BYTES;
use serde_json::json;

use super::conditions::{Conditions, Fit, MAX_RUNS};
use super::dataset::MAX_FILE;
use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::tell;

/// Where the answers of other runs are put into a task. What the run was asked stands nowhere, then.
const INPUT: &str = "{{input}}";

/// Examples as they are found.
#[derive(Debug, Default)]
struct Found {
    lines: Vec<u8>,
    examples: usize,
    looked_at: usize,
    /// Whether there are older runs that were not looked at.
    more: bool,
    unanswered: usize,
    chained: usize,
    too_long: usize,
}

impl Found {
    /// Takes a run that meets the conditions, where an example can be made of it.
    fn take(&mut self, run: &RunView) -> Result<(), CliError> {
        let Some(answer) = run.answer.as_deref().filter(|answer| !answer.trim().is_empty()) else {
            self.unanswered += 1;
            return Ok(());
        };
        if !run.after.is_empty() && run.task.contains(INPUT) {
            self.chained += 1;
            return Ok(());
        }
        let line = json!({ "prompt": run.task, "completion": answer, "run": run.run_id.to_string() }).to_string();
        if line.len() > MAX_LINE_BYTES {
            self.too_long += 1;
            return Ok(());
        }
        if self.lines.len() + line.len() >= usize::try_from(MAX_FILE).unwrap_or(usize::MAX) {
            let what = format!("the runs that meet these conditions come to more than {MAX_FILE} bytes");
            return Err(CliError::new(Exit::Refused, what).hint("ask for fewer: limit=1000, or since=2026-01-31"));
        }
        self.lines.extend_from_slice(line.as_bytes());
        self.lines.push(b'\n');
        self.examples += 1;
        Ok(())
    }

    /// What whoever asked would not expect.
    fn remarks(&self) -> Vec<String> {
        let left_out = [
            (self.unanswered, "without an answer".to_owned()),
            (self.chained, format!("with {INPUT} in the task, which stands for the answers of other runs")),
            (self.too_long, format!("of more than {MAX_LINE_BYTES} bytes")),
        ];
        let told = left_out.into_iter().filter(|(count, _)| *count > 0);
        let mut told: Vec<String> =
            told.map(|(count, why)| format!("left out: {} {why}", counted(count, "run"))).collect();
        if self.more {
            told.push(format!("only the newest {} runs were looked at: until=… asks for older ones", self.looked_at));
        }
        told
    }
}

/// Makes the examples, the newest run first.
pub(super) async fn of_runs(connection: &Connection, conditions: &Conditions) -> Result<Vec<u8>, CliError> {
    let (mut found, mut cursor) = (Found::default(), None);
    'pages: loop {
        let mut query = conditions.query();
        query.extend([("limit", Some("100".to_owned())), ("cursor", cursor)]);
        let page: Page<RunSummary> = connection.client.get(&with_query("/runs", &query)).await?;
        for summary in &page.items {
            if found.examples >= conditions.limit() {
                break 'pages;
            }
            if found.looked_at >= MAX_RUNS {
                found.more = true;
                break 'pages;
            }
            found.looked_at += 1;
            match conditions.of_summary(summary) {
                Fit::Over => break 'pages,
                Fit::No => continue,
                Fit::Yes => {}
            }
            let path = format!("/runs/{}", encode(&summary.run_id.to_string()));
            let run: RunView = connection.client.get(&path).await?;
            if conditions.of_run(&run) {
                found.take(&run)?;
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    for remark in found.remarks() {
        tell(&remark);
    }
    if found.examples == 0 {
        let what = format!("no run with an answer meets these conditions, of {} that were looked at", found.looked_at);
        return Err(CliError::new(Exit::Refused, what)
            .hint("riverrun runs ls --namespace default; datasets are made of runs of that namespace only"));
    }
    Ok(found.lines)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::conditions::tests::run;
    use super::*;

    #[test]
    fn given_runs_then_those_that_no_example_can_be_made_of_are_left_out_and_told() {
        let id = "run_01h455vb4pex5vsknk084sn02q";
        let mut found = Found { looked_at: MAX_RUNS, more: true, ..Found::default() };
        for more in [
            json!({}),
            json!({ "answer": null }),
            json!({ "answer": " " }),
            json!({ "task": "say {{input}} again", "after": [id] }),
            json!({ "task": "what does {{input}} mean?" }),
            json!({ "answer": "x".repeat(MAX_LINE_BYTES) }),
        ] {
            found.take(&run(&more)).unwrap();
        }
        let lines = String::from_utf8(found.lines.clone()).unwrap();
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines[0], json!({ "prompt": "t", "completion": "a", "run": id }));
        assert_eq!(
            (found.examples, lines.len(), lines[1]["prompt"].as_str()),
            (2, 2, Some("what does {{input}} mean?"))
        );
        let told = found.remarks().join("\n");
        for part in ["2 runs without an answer", "1 run with {{input}}", "1 run of more than", "newest 5000"] {
            assert!(told.contains(part), "{part} in {told}");
        }
    }
}
