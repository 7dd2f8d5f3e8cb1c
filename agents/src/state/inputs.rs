//! What a run of a chain takes over: the answers of the runs that it waits for.

use riverrun_schemas::RunId;
use serde::{Deserialize, Serialize};

use super::RunState;

/// Stands in a task for the answers of the runs before.
pub const INPUT: &str = "{{input}}";

/// The answer of a run that another one waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// The run that gave it.
    pub run_id: RunId,
    /// Its agent.
    pub agent: String,
    /// What it answered.
    pub text: String,
}

impl RunState {
    /// The runs that it waits for have not all answered yet.
    pub fn waits_for_inputs(&self) -> bool {
        self.inputs.len() < self.request.after.len()
    }

    /// Takes what the runs before it have answered, in the order of `request.after`. A model wrote it, from whatever it
    /// had read: it counts as words from outside.
    pub fn give_inputs(&mut self, inputs: Vec<Input>) {
        self.untrusted |= !inputs.is_empty();
        self.outside |= !inputs.is_empty();
        self.inputs = inputs;
    }

    /// What the runs before it have answered; empty for a run that waits for none.
    pub fn inputs(&self) -> &[Input] {
        &self.inputs
    }

    /// The task with the answers put in, as plain text: for comparing and for reading, never for a prompt.
    pub fn task_with_inputs(&self) -> String {
        let answers: Vec<&str> = self.inputs.iter().map(|input| input.text.as_str()).collect();
        with_answers(&self.request.task, &answers)
    }
}

/// The task with the answers put in where it says so, else below it.
fn with_answers(task: &str, answers: &[&str]) -> String {
    if answers.is_empty() {
        return task.to_owned();
    }
    let given = answers.join("\n\n");
    if task.contains(INPUT) { task.replacen(INPUT, &given, 1) } else { format!("{task}\n\n{given}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_answers_when_they_are_put_into_a_task_then_they_stand_where_it_says_or_below_it() {
        for (task, answers, expected) in [
            ("say it", &[] as &[&str], "say it"),
            ("{{input}}", &[], "{{input}}"),
            ("{{input}}", &["a"], "a"),
            ("Shorten: {{input}}!", &["a", "b"], "Shorten: a\n\nb!"),
            ("Shorten", &["a"], "Shorten\n\na"),
            ("{{input}}", &["{{input}} $1"], "{{input}} $1"),
        ] {
            assert_eq!(with_answers(task, answers), expected, "{task:?} {answers:?}");
        }
    }
}
