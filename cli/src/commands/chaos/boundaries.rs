//! `riverrun chaos run`: one run, killed at each of its events in turn.

use std::path::Path;
use std::time::Duration;

use riverrun_schemas::agent::{ApprovalPolicy, RunRequest, StartRun};
use riverrun_schemas::{RunId, now_ms};
use serde::Serialize;

use super::observer::{Observer, Tally};
use super::process::Process;
use super::script::{self, Mood, Script};
use super::{RunArgs, harness};
use crate::error::{CliError, Exit};
use crate::output::{Output, table, tell};

/// How long one run may take with its restart.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long the model and the tool take: long enough that a process dies within what stands between two events.
const PACE: Duration = Duration::from_millis(60);

/// What became of the run that was killed at one event.
#[derive(Debug, Serialize)]
struct Killed {
    /// The event, counted from 1.
    event: usize,
    /// What it was.
    kind: String,
    #[serde(flatten)]
    tally: Tally,
    /// What should not be.
    faults: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Report {
    kills: Vec<Killed>,
}

pub(super) async fn run(args: RunArgs, output: Output) -> Result<(), CliError> {
    let script = Script { calls: args.calls, ledger_every: 2, delay: PACE, mood: Mood::Good };
    let model = script::start(script.clone()).await?.address;
    let mut kills = Vec::new();
    for event in args.event.map_or(1..=usize::MAX, |event| event..=event) {
        let Some(killed) = kill_at(event, &script, &model).await? else { break };
        tell(&format!(
            "killed at event {event} ({}): {}",
            killed.kind,
            if killed.faults.is_empty() { "ok".to_owned() } else { killed.faults.join(", ") }
        ));
        kills.push(killed);
    }
    let report = Report { kills };
    output.show(&report, people)?;
    let bad = report.kills.iter().filter(|killed| !killed.faults.is_empty()).count();
    match (bad, report.kills.len()) {
        (0, 0) => Err(CliError::new(Exit::Usage, "the run has no such event").hint("leave --event out")),
        (0, _) => Ok(()),
        (bad, all) => Err(CliError::new(Exit::Failed, format!("{bad} of {all} kills left something wrong"))),
    }
}

fn people(report: &Report) -> String {
    let row = |killed: &Killed| {
        let Tally { terminal_events, effects, doubled_effects, takeovers, questions, .. } = &killed.tally;
        [
            killed.event.to_string(),
            killed.kind.clone(),
            terminal_events.to_string(),
            effects.to_string(),
            doubled_effects.to_string(),
            takeovers.to_string(),
            questions.to_string(),
            if killed.faults.is_empty() { "ok".to_owned() } else { killed.faults.join(", ") },
        ]
    };
    let head = ["event", "killed at", "ends", "effects", "doubled", "takeovers", "questions", "verdict"];
    table(head, report.kills.iter().map(row).collect(), "nothing was killed")
}

/// Starts a run in a process of its own, kills that at the event, and lets another go on. `None` when the run has fewer
/// events.
async fn kill_at(event: usize, script: &Script, model: &str) -> Result<Option<Killed>, CliError> {
    let folder = Folder::new()?;
    let data = folder.path();
    let port = free_port()?;
    let arguments = child(port, model);
    let start = || Process::start(data, &arguments);
    let mut process = start().await?;
    let mut observer = Observer::new(&process.brokers, data.join("ledger")).await?;
    let run_id = RunId::new();
    observer.send(StartRun { run_id, request: request(script.calls), at: now_ms() }.into()).await?;
    let until = tokio::time::Instant::now() + PATIENCE;
    let mut killed = None;
    while tokio::time::Instant::now() < until {
        let Some(seen) = observer.next().await? else { continue };
        if killed.is_none() && observer.counted() == event {
            process.kill().await?;
            killed = Some(kind_of(&seen));
            process = start().await?;
        }
        if observer.ended() > 0 {
            break;
        }
    }
    let Some(kind) = killed else { return Ok(None) };
    settle(&mut observer).await?;
    process.stop().await?;
    let tally = observer.tally(&[run_id])?;
    let mut faults = tally.faults();
    if tally.succeeded != 1 {
        faults.push("the run did not succeed".to_owned());
    }
    Ok(Some(Killed { event, kind, tally, faults }))
}

/// Reads what may still come behind the end: a second one would be there.
async fn settle(observer: &mut Observer) -> Result<(), CliError> {
    let until = tokio::time::Instant::now() + Duration::from_millis(300);
    while let Ok(seen) = tokio::time::timeout_at(until, observer.next()).await {
        seen?;
    }
    Ok(())
}

fn kind_of(event: &riverrun_schemas::agent::AgentEvent) -> String {
    use riverrun_schemas::agent::AgentEvent;
    let name = riverrun_schemas::EventSet::record_name(event).rsplit('.').next().unwrap_or_default().to_owned();
    match event {
        AgentEvent::RunAdvanced(advance) => {
            let kinds: Vec<String> =
                advance.steps.iter().map(|step| format!("{:?}", step.kind).to_lowercase()).collect();
            format!("{name} {}", kinds.join("+"))
        }
        AgentEvent::RunAccepted(_)
        | AgentEvent::RunClaimed(_)
        | AgentEvent::RunCancelRequested(_)
        | AgentEvent::RunApprovalDecided(_)
        | AgentEvent::RunResumed(_)
        | AgentEvent::RunSnapshotted(_)
        | AgentEvent::RunFinished(_) => name,
    }
}

fn child(port: u16, model: &str) -> Vec<String> {
    let pace = PACE.as_millis().to_string();
    let port = port.to_string();
    ["--broker-port", &port, "--worker", "chaos", "--model", model, "--ledger-ms", &pace].map(str::to_owned).into()
}

/// What the runs of the harness are asked to do.
pub(super) fn request(calls: u32) -> RunRequest {
    RunRequest {
        task: "book what is to be booked".to_owned(),
        agent: Some("react".to_owned()),
        max_iters: i32::try_from(calls).ok().map(|calls| calls + 2),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

/// A port of loopback that nobody has now. It lies below those of outgoing connections, so that a broker that starts there again
/// meets none of these.
pub(super) fn free_port() -> Result<u16, CliError> {
    const FIRST: u16 = 28_000;
    const COUNT: u16 = 4_000;
    let drawn = u16::try_from(RunId::new().as_uuid().as_u128() % u128::from(COUNT)).unwrap_or_default();
    (0..COUNT)
        .map(|step| FIRST + (drawn + step) % COUNT)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .ok_or_else(|| harness("a port", format!("none from {FIRST} to {} is free", FIRST + COUNT - 1)))
}

/// A folder that is removed with its value.
pub(super) struct Folder(std::path::PathBuf);

impl Folder {
    pub(super) fn new() -> Result<Self, CliError> {
        let path = std::env::temp_dir().join(format!("riverrun-chaos-{}", RunId::new()));
        std::fs::create_dir_all(&path).map_err(|error| harness("a folder", error))?;
        Ok(Self(path))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0); // what is left lies in the system's folder for such things
    }
}
