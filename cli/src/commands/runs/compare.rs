//! `riverrun runs compare`.

use riverrun_api::wire::{ComparedRun, ComparedStep, RunComparison, StepView};
use riverrun_schemas::counted;

use super::{OneRun, step_line};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip};

/// Characters of a step.
const SHOWN: usize = 160;

pub async fn run(connection: &Connection, run: &OneRun, other: Option<String>, output: Output) -> Result<(), CliError> {
    let comparison: RunComparison = connection.client.get(&run.path_with("/compare", &[("with", other)])).await?;
    output.show(&comparison, |comparison| {
        let mut lines = vec![
            side("<", &comparison.left),
            side(">", &comparison.right),
            match comparison.common {
                0 => "no step is the same".to_owned(),
                1 => "the first step is the same".to_owned(),
                common => format!("the first {common} steps are the same"),
            },
            String::new(),
        ];
        lines.extend(comparison.steps.iter().flat_map(step_lines));
        lines.join("\n")
    })
}

fn side(mark: &str, run: &ComparedRun) -> String {
    let answer = run.answer.as_deref().map(|answer| format!(": {}", clip(answer, SHOWN))).unwrap_or_default();
    let agent = run.agent.as_deref().unwrap_or("?");
    let tokens = counted(run.usage.total_tokens, "token");
    format!("{mark} {}  {}  {agent}  {tokens}{answer}", run.run_id, run.status.as_str())
}

/// One line for a step that is the same, one for each side otherwise.
fn step_lines(step: &ComparedStep) -> Vec<String> {
    let line = |mark: &str, side: &Option<StepView>| {
        side.as_ref().map(|step| format!("{mark}{}", clip_line(&step_line(step))))
    };
    if step.same {
        return line("=", &step.left).into_iter().collect();
    }
    [line("<", &step.left), line(">", &step.right)].into_iter().flatten().collect()
}

/// The beginning of a line, its columns as they are.
fn clip_line(line: &str) -> String {
    let first = line.lines().next().unwrap_or_default();
    match first.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &first[..end]),
        None => first.to_owned(),
    }
}
