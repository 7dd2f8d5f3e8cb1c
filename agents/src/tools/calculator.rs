//! Arithmetic with arbitrary precision and units, by `fend-core`.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use riverrun_schemas::agent::ToolEffect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

/// Longest expression, in bytes.
const MAX_EXPRESSION: usize = 1_000;
/// Longest time for one expression: `9^9^9^9` must not hold a worker.
const MAX_TIME: Duration = Duration::from_secs(2);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The expression to calculate, with numbers and + - * / ^ ( ); percentages as "p% of x"
    #[schemars(length(max = 200))]
    expression: String,
}

pub(super) struct Calculator;

struct Deadline(Instant);

impl fend_core::Interrupt for Deadline {
    fn should_interrupt(&self) -> bool {
        Instant::now() >= self.0
    }
}

fn evaluate(expression: &str) -> Result<String, ToolError> {
    if expression.len() > MAX_EXPRESSION {
        return Err(ToolError::Arguments(format!(
            "expression has {} bytes, at most {MAX_EXPRESSION} are read",
            expression.len()
        )));
    }
    let mut context = fend_core::Context::new();
    let result = fend_core::evaluate_with_interrupt(expression, &mut context, &Deadline(Instant::now() + MAX_TIME))
        .map_err(|error| ToolError::Failed(format!("{expression:?} can't be calculated: {error}")))?;
    match result.get_main_result().trim() {
        "" => Err(ToolError::Failed(format!("{expression:?} has no value"))),
        value => Ok(value.trim_start_matches("approx. ").to_owned()),
    }
}

#[async_trait]
impl Tool for Calculator {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            "calculator",
            "Calculates an arithmetic expression exactly. Use it for every calculation.",
            schema_of::<Arguments>(),
            ToolEffect::None,
        )
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { expression } = parse(arguments)?;
        tokio::task::spawn_blocking(move || {
            evaluate(&expression).map(|value| json!({ "expression": expression, "value": value }))
        })
        .await
        .unwrap_or_else(|error| Err(ToolError::Failed(format!("the calculation broke off: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_calculated() {
        for (expression, value) in [
            ("6*7", "42"),
            ("(3+4)*12.5", "87.5"),
            ("2^100", "1267650600228229401496703205376"),
            ("1/8", "0.125"),
            ("10 % 3", "1"),
        ] {
            assert_eq!(evaluate(expression).unwrap(), value, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_or_has_no_end_is_an_error_that_quotes_it() {
        for expression in ["6*", "import os", "9^9^9^9", "1/0", "", "@exec(\"ls\")"] {
            let error = evaluate(expression).unwrap_err().to_string();
            assert!(error.contains(&format!("{expression:?}")), "{error}");
        }
        assert!(matches!(evaluate(&"1+".repeat(1_000)), Err(ToolError::Arguments(_))));
    }
}
