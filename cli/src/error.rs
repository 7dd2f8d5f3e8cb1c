//! How a command fails: what failed, the fix, and the exit code that says what kind of failure it is.

use clap::error::ContextKind;
use riverrun_api::ApiError;
use riverrun_api::wire::Problem;
use riverrun_log::LogError;

/// What the exit code of a failed command says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// 1: it was tried and failed.
    Failed,
    /// 2: the command line or a setting is wrong.
    Usage,
    /// 3: a service that is needed is down.
    ServiceDown,
    /// 4: refused, or not found.
    Refused,
    /// 130: interrupted by a signal.
    Interrupted,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Exit::Failed => 1,
            Exit::Usage => 2,
            Exit::ServiceDown => 3,
            Exit::Refused => 4,
            Exit::Interrupted => 130,
        }
    }

    /// For work that was accepted and failed, by the code of its failure.
    pub fn of_failure(code: &str) -> Self {
        let is_down = matches!(code, "model_runtime_down" | "model_missing" | "store_server_down");
        if is_down { Exit::ServiceDown } else { Exit::Failed }
    }

    /// For a problem document.
    fn of(problem: &Problem) -> Self {
        match (problem.status, problem.code.as_str()) {
            (503, _) | (_, "model_runtime_down" | "model_missing") => Exit::ServiceDown,
            (429 | 500..=599, _) => Exit::Failed,
            _ => Exit::Refused,
        }
    }
}

/// What a command needs where the API wants a token.
pub const WANTS_TOKEN: &str = "set RIVERRUN_API_TOKEN to one of its tokens; riverrun tokens create makes one";

/// What a command needs where it can't write a file that people named.
pub const WRITABLE: &str = "name a file in a folder that is there and can be written";

/// A command failed.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct CliError {
    /// What kind of failure.
    pub exit: Exit,
    /// What failed and the value it failed on.
    pub message: String,
    /// The fix.
    pub hint: Option<String>,
    /// The HTTP status that the API answered with, where it did.
    pub status: Option<u16>,
    /// The API's code for it, which programs compare.
    pub code: Option<String>,
}

impl CliError {
    /// A failure.
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None, status: None, code: None }
    }

    /// The same with the fix.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// The same with the fix, where there is one.
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// The same, where it was refused, here or by a server, without a fix: the help of the command that was asked for.
    pub fn or_help_of(mut self, command: &str) -> Self {
        let is_refused = self.status.is_some() || matches!(self.exit, Exit::Usage | Exit::Refused);
        if self.hint.is_none() && is_refused {
            self.hint = Some(format!("{command} --help shows what it takes"));
        }
        self
    }

    /// A command line that can't be understood, in the words of what reads it. What is similar to what was meant is part of the fix.
    pub fn of_command_line(mut error: clap::Error, command: &str) -> Self {
        error.remove(ContextKind::Usage); // the help has it, with what it means
        let said = error.render().to_string();
        let said = said.strip_prefix("error: ").unwrap_or(&said);
        let said = said.rsplit_once("\n\nFor more information").map_or(said, |(before, _)| before).trim_end();
        let (message, tips) = said.split_once("\n\n  tip: ").unwrap_or((said, ""));
        let tips = tips.split("\n  tip: ").filter(|tip| !tip.is_empty()).map(str::to_owned);
        let help = format!("{command} --help shows what it takes");
        let hint: Vec<String> = tips.chain(std::iter::once(help)).collect();
        Self::new(Exit::Usage, message).hint(hint.join("; "))
    }

    /// A signal ended it.
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }
}

impl From<Problem> for CliError {
    fn from(problem: Problem) -> Self {
        let exit = Exit::of(&problem);
        // A command has no headers and no login: it presents the token of its setting.
        let hint = match problem.code.as_str() {
            "unauthorized" => Some(WANTS_TOKEN.to_owned()),
            _ => problem.hint,
        };
        let message = match problem.code.as_str() {
            // Its detail counts the lines and has the first; whoever corrects a file needs all that are known.
            "invalid_dataset" => {
                let others = problem.errors.iter().skip(1);
                with_lines(problem.detail, others.map(|error| format!("{}: {}", error.field, error.reason)))
            }
            _ => problem.detail,
        };
        let plain = Self::new(exit, message).maybe_hint(hint);
        Self { status: Some(problem.status), code: Some(problem.code), ..plain }
    }
}

/// What is wrong with a file, with a line for each further line of it.
pub fn with_lines(what: String, lines: impl Iterator<Item = String>) -> String {
    std::iter::once(what).chain(lines).collect::<Vec<_>>().join("\n  ")
}

impl From<ApiError> for CliError {
    fn from(error: ApiError) -> Self {
        error.problem().into()
    }
}

impl From<LogError> for CliError {
    fn from(error: LogError) -> Self {
        Self::new(Exit::ServiceDown, error.to_string()).maybe_hint(error.hint().map(str::to_owned))
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self::new(Exit::Failed, format!("output can't be written: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::Cli;

    #[test]
    fn given_command_lines_that_can_not_be_understood_when_they_are_told_then_each_has_what_failed_its_value_and_a_fix()
    {
        let help = "x --help shows what it takes";
        for (line, words, tip) in [
            ("no-such", vec!["unrecognized subcommand", "no-such"], ""),
            ("agnets", vec!["agnets"], "agents"),
            ("agent run x --max-iters abc", vec!["invalid value", "abc", "--max-iters"], ""),
            ("agent run x --max-itres 3", vec!["--max-itres"], "--max-iters"),
            ("tokens create a --scope x", vec!["invalid value", "--scope", "x"], ""),
            ("completion basj", vec!["basj", "[possible values: "], "bash"),
            ("ingest", vec!["required", "\n  <SOURCE>"], ""),
            ("search x --rerank --no-rerank", vec!["--rerank", "--no-rerank"], ""),
            ("agent run x --max-iters", vec!["--max-iters"], ""),
        ] {
            let words_of_line = std::iter::once("riverrun").chain(line.split(' '));
            let told = CliError::of_command_line(Cli::try_parse_from(words_of_line).expect_err(line), "x");
            let hint = told.hint.as_deref().unwrap_or_default();
            assert!(told.exit == Exit::Usage && hint.ends_with(help), "{line}: {told:?}");
            assert!(hint.contains(tip) && (tip.is_empty() || hint.len() > help.len()), "{line}: {told:?}");
            assert!(words.iter().all(|word| told.message.contains(word)), "{line}: {told:?}");
            let of_clap = ["error: ", "Usage: ", "For more information", "tip: "];
            assert!(!of_clap.iter().any(|word| told.message.contains(word) || hint.contains(word)), "{line}: {told:?}");
            assert!(!told.message.contains("\n\n") && !told.message.ends_with('\n'), "{line}: {told:?}");
        }
    }

    #[test]
    fn given_work_that_was_accepted_and_failed_when_its_code_is_read_then_only_what_is_down_or_not_there_is_told_as_that()
     {
        for (code, exit) in [
            ("model_runtime_down", Exit::ServiceDown),
            ("model_missing", Exit::ServiceDown),
            ("store_server_down", Exit::ServiceDown),
            ("collection_not_found", Exit::Failed),
            ("too_few_judgements", Exit::Failed),
            ("", Exit::Failed),
        ] {
            assert_eq!(Exit::of_failure(code), exit, "{code:?}");
        }
    }

    #[test]
    fn given_a_file_with_several_lines_that_are_wrong_when_it_is_refused_then_each_is_told_once() {
        let problem = serde_json::json!({
            "type": "x", "title": "x", "status": 422, "code": "invalid_dataset", "detail": "3 line(s) are not usable; first: line 2: is no JSON",
            "errors": [
                { "field": "line 2", "reason": "is no JSON" },
                { "field": "line 3.prompt", "reason": "is missing" },
                { "field": "line 9", "reason": "is not UTF-8 at byte 4" },
            ],
        });
        let error = CliError::from(serde_json::from_value::<Problem>(problem).unwrap());
        let lines: Vec<&str> = error.message.lines().map(str::trim).collect();
        assert_eq!(lines[1..], ["line 3.prompt: is missing", "line 9: is not UTF-8 at byte 4"]);
        assert!(lines[0].ends_with("first: line 2: is no JSON") && error.exit == Exit::Refused);
    }
}
