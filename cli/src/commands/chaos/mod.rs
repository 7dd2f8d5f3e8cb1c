//! `riverrun chaos`: processes are killed while runs go on, and then it is counted what became of the runs.
//!
//! The model is scripted (a server of our own that speaks Ollama's chat API), everything else is the real thing: the
//! broker, the agent worker in processes of its own, tools that write to a file. Nothing is taken from the harness's own
//! belief: what is counted stands on the log and in that file.

mod boundaries;
mod child;
mod commands;
mod ledger;
mod load;
mod observer;
mod pauses;
mod process;
mod script;

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Subcommand, ValueEnum};

use crate::error::{CliError, Exit};
use crate::output::Output;

/// What to do to runs.
#[derive(Debug, Subcommand)]
pub enum ChaosCommand {
    /// Kill a reference run at each of its events in turn, and let it go on
    Run(RunArgs),
    /// Start many runs and break a random process again and again
    Load(LoadArgs),
    /// Be one of the processes that the other two start
    #[command(hide = true)]
    Child(child::ChildArgs),
}

/// Options of `chaos run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Tool calls of the run; each is three steps, and the answer two more
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=50), value_name = "N")]
    calls: u32,
    /// Only this event, counted from 1
    #[arg(long, value_parser = RangedU64ValueParser::<usize>::new().range(1..), value_name = "N")]
    event: Option<usize>,
}

/// Options of `chaos load`.
#[derive(Debug, Args)]
pub struct LoadArgs {
    /// How many runs
    #[arg(long, default_value_t = 100, value_parser = RangedU64ValueParser::<usize>::new().range(1..), value_name = "N")]
    runs: usize,
    /// Steps of each, rounded up to what tool calls of three steps and an answer of two give
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(5..=200), value_name = "N")]
    steps: u32,
    /// Start the runs evenly over this time, so that processes are broken while they come; 0s starts all at once
    #[arg(long, default_value = "0s", value_parser = duration, value_name = "TIME")]
    over: Duration,
    /// How often a process is broken, such as 2s or 500ms; 0s breaks none
    #[arg(long, default_value = "2s", value_parser = duration, value_name = "TIME")]
    kill_every: Duration,
    /// Worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=32), value_name = "N")]
    workers: u32,
    /// How a process is broken
    #[arg(long, value_enum, default_value_t = Fault::Kill)]
    fault: Fault,
    /// What the choice of the processes that are broken is drawn from
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
    /// How long a frozen process stands still
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "TIME")]
    freeze_for: Duration,
    /// What the model does to one of ten calls. As many runs with a good model go before, so that the memory of the workers shows what it takes
    #[arg(long, value_enum, default_value_t = script::Mood::Good)]
    model: script::Mood,
    /// Milliseconds that the tool takes before and after its effect
    #[arg(long, default_value_t = 20, value_name = "N")]
    tool_ms: u64,
    /// Fail when not everything has ended by then
    #[arg(long, default_value = "20m", value_parser = duration, value_name = "TIME")]
    patience: Duration,
    /// Keep the folder with the log and the ledger
    #[arg(long, value_name = "FOLDER")]
    keep: Option<PathBuf>,
}

/// How a process is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Fault {
    /// A worker is killed with SIGKILL and started again
    Kill,
    /// A worker is stopped with SIGSTOP, another goes on, and the first comes back from the dead
    Freeze,
    /// A worker leaves in good order and another joins
    Rebalance,
    /// The broker is killed with SIGKILL and started again
    Broker,
}

pub async fn run(command: ChaosCommand, output: Output) -> Result<(), CliError> {
    match command {
        ChaosCommand::Run(args) => super::until_signal(boundaries::run(args, output)).await,
        ChaosCommand::Load(args) => super::until_signal(load::run(args, output)).await,
        ChaosCommand::Child(args) => child::run(args).await,
    }
}

/// `2s`, `500ms`, `20m`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time; write 500ms, 2s or 20m");
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let number: u64 = text[..text.len() - unit.len()].parse().map_err(|_| wrong())?;
    match unit {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(wrong()),
    }
}

/// Something of the harness itself failed, which says nothing about runs.
fn harness(what: &str, error: impl std::fmt::Display) -> CliError {
    CliError::new(Exit::Failed, format!("chaos: {what}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_times_when_they_are_read_then_units_count_and_nonsense_is_refused() {
        for (text, ms) in [("2s", 2_000), ("500ms", 500), ("20m", 1_200_000), ("0s", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "2", "s", "-1s", "2h", "2 s", "1.5s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
