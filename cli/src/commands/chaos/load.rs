//! `riverrun chaos load`: many runs, and a random process broken again and again.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use riverrun_schemas::agent::{AgentCommand, StartRun};
use riverrun_schemas::{RunId, counted, now_ms};
use serde::Serialize;
use tokio::time::MissedTickBehavior;

use super::boundaries::{Folder, free_port, request};
use super::commands::Commands;
use super::observer::{Observer, Tally};
use super::process::Process;
use super::script::{self, Model, Mood, Script};
use super::{Fault, LoadArgs, harness};
use crate::error::{CliError, Exit};
use crate::output::{Output, tell};

/// How often the harness says how far it is.
const PROGRESS: Duration = Duration::from_secs(10);

/// Processes that came back from the dead and are still there; the oldest of more is killed.
const MAX_THAWED: usize = 4;

/// Commands that are written together.
const BATCH: usize = 500;

/// How long the log is read behind the last end.
const SETTLE: Duration = Duration::from_secs(2);

#[derive(Debug, Serialize)]
struct Report {
    #[serde(flatten)]
    tally: Tally,
    steps_per_run: i64,
    seed: u64,
    broken_processes: usize,
    /// MiB of the largest worker before the first run, or before the model turned bad, and at most, of those that are there at the end.
    worker_mib_at_start: Option<u64>,
    worker_mib_at_most: Option<u64>,
    seconds: f64,
    runs_per_second: f64,
    faults: Vec<String>,
}

pub(super) async fn run(args: LoadArgs, output: Output) -> Result<(), CliError> {
    let temporary = if args.keep.is_none() { Some(Folder::new()?) } else { None };
    let data = match (&args.keep, &temporary) {
        (Some(folder), _) => {
            std::fs::create_dir_all(folder).map_err(|error| harness("the folder", error))?;
            folder.clone()
        }
        (None, Some(folder)) => folder.path().to_owned(),
        (None, None) => return Err(harness("the folder", "there is none")),
    };
    let script = Script {
        calls: args.steps.saturating_sub(2).div_ceil(3),
        ledger_every: args.steps, // once a run
        delay: Duration::from_millis(2),
        mood: args.model,
    };
    let mut fleet = Fleet::start(&data, &script, &args).await?;
    let mut observer = Observer::new(&fleet.brokers(), data.join("ledger")).await?;
    let (mut started, mut broken) = (Vec::new(), 0);
    if script.mood != Mood::Good {
        // What as many runs take of a worker while the model is good is not what its mood takes.
        broken += work(&args, &mut fleet, &mut observer, &mut started, script.calls).await?;
        fleet.model.turn();
    }
    let worker_mib_at_start = fleet.worker_mib("VmRSS");
    let began = Instant::now();
    broken += work(&args, &mut fleet, &mut observer, &mut started, script.calls).await?;
    let seconds = began.elapsed().as_secs_f64();
    let worker_mib_at_most = fleet.worker_mib("VmHWM");
    fleet.stop().await?;
    let tally = observer.tally(&started)?;
    let faults = tally.faults();
    let report = Report {
        steps_per_run: script.steps(),
        seed: args.seed,
        broken_processes: broken,
        worker_mib_at_start,
        worker_mib_at_most,
        seconds,
        runs_per_second: args.runs as f64 / seconds.max(0.001),
        faults,
        tally,
    };
    output.show(&report, people)?;
    if report.faults.is_empty() {
        Ok(())
    } else {
        Err(CliError::new(Exit::Failed, format!("chaos: {}", report.faults.join(", "))))
    }
}

fn people(report: &Report) -> String {
    let Report { tally, .. } = report;
    let memory = |mib: Option<u64>| mib.map_or_else(|| "?".to_owned(), |mib| mib.to_string());
    let (at_start, at_most) = (memory(report.worker_mib_at_start), memory(report.worker_mib_at_most));
    [
        format!("runs                 {} of {}", tally.runs, counted(report.steps_per_run, "step")),
        format!("processes broken     {}, of seed {}", report.broken_processes, report.seed),
        format!("lost                 {}", tally.lost),
        format!("doubled effects      {}", tally.doubled_effects),
        format!("doubles refused      {}", tally.refused_doubles),
        format!("terminal events      {}", tally.terminal_events),
        format!("runs with gaps       {}", tally.with_gaps),
        format!("succeeded            {}", tally.succeeded),
        format!("effects              {}", tally.effects),
        format!("takeovers            {}", tally.takeovers),
        format!("void events          {}", tally.void_events),
        format!("questions            {}", tally.questions),
        format!("longest stall        {} ms", tally.longest_stall_ms),
        format!("of one partition     {} ms", tally.longest_partition_stall_ms),
        format!("of one that stayed   {} ms", tally.longest_untouched_partition_stall_ms),
        format!("longest turnover     {} ms", tally.longest_turnover_ms),
        format!("takeover within      {} ms (p99), {} ms (all)", tally.takeover_p99_ms, tally.longest_takeover_ms),
        format!("worker memory        {at_start} MiB at the start, {at_most} MiB at most"),
        format!("took                 {:.1} s, {:.1} runs/s", report.seconds, report.runs_per_second),
    ]
    .join("\n")
}

/// Puts the commands on the log, evenly over a time, or as fast as it takes them, however long the broker takes to come back.
async fn start_runs(brokers: String, runs: &[RunId], calls: u32, over: Duration) -> Result<(), CliError> {
    let commands = Commands::new(&brokers, "chaos-starter")?;
    let began = tokio::time::Instant::now();
    let mut written = 0;
    while written < runs.len() {
        tokio::time::sleep_until(began + over.mul_f64(written as f64 / runs.len() as f64)).await;
        let due = due(runs.len(), began.elapsed(), over).clamp(written + 1, written + BATCH).min(runs.len());
        let start =
            |run_id: &RunId| AgentCommand::from(StartRun { run_id: *run_id, request: request(calls), at: now_ms() });
        commands.send(runs[written..due].iter().map(start)).await?;
        written = due;
    }
    Ok(())
}

/// How many of the runs are to be started by then.
fn due(runs: usize, elapsed: Duration, over: Duration) -> usize {
    if elapsed >= over {
        return runs;
    }
    (elapsed.as_secs_f64() / over.as_secs_f64() * runs as f64) as usize
}

/// Starts the runs, and breaks processes from the first command until all that were ever started have ended; gives how many were broken.
async fn work(
    args: &LoadArgs,
    fleet: &mut Fleet,
    observer: &mut Observer,
    started: &mut Vec<RunId>,
    calls: u32,
) -> Result<usize, CliError> {
    let broken = AtomicUsize::new(0);
    let earlier = started.len();
    started.extend((0..args.runs).map(|_| RunId::new()));
    let starting = start_runs(fleet.brokers(), &started[earlier..], calls, args.over);
    let ending = observe(args.patience, observer, started.len(), &broken);
    let runs = async { tokio::try_join!(starting, ending).map(drop) };
    tokio::select! {
        result = break_on(args, fleet, &broken) => result?,
        result = runs => result?,
    }
    // A second end would come behind the first, from one that comes back from the dead.
    let until = tokio::time::Instant::now() + SETTLE;
    while let Ok(seen) = tokio::time::timeout_at(until, observer.next()).await {
        seen?;
    }
    Ok(broken.into_inner())
}

/// Never ends by itself.
async fn break_on(args: &LoadArgs, fleet: &mut Fleet, broken: &AtomicUsize) -> Result<(), CliError> {
    if args.kill_every.is_zero() {
        return std::future::pending().await;
    }
    let mut due = tokio::time::interval_at(tokio::time::Instant::now() + args.kill_every, args.kill_every);
    due.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        due.tick().await;
        fleet.break_one(args.freeze_for).await?;
        broken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Until so many runs have ended, or patience has.
async fn observe(
    patience: Duration,
    observer: &mut Observer,
    runs: usize,
    broken: &AtomicUsize,
) -> Result<(), CliError> {
    let began = Instant::now();
    let mut told = began;
    while observer.ended() < runs && began.elapsed() < patience {
        observer.next().await?;
        if told.elapsed() > PROGRESS {
            told = Instant::now();
            tell(&format!(
                "{} of {} ended, {} broken",
                observer.ended(),
                counted(runs, "run"),
                counted(broken.load(Ordering::Relaxed), "process")
            ));
        }
    }
    Ok(())
}

/// The broker and the workers.
struct Fleet {
    data: PathBuf,
    model: Model,
    port: u16,
    broker: Process,
    workers: Vec<(String, Process)>,
    /// Came back from the dead, and are there to be seen to do no harm.
    thawed: Vec<Process>,
    tool_ms: String,
    fault: Fault,
    /// Says which process is broken.
    choices: StdRng,
    /// Makes names differ.
    count: usize,
}

impl Fleet {
    async fn start(data: &Path, script: &Script, args: &LoadArgs) -> Result<Self, CliError> {
        let model = script::start(script.clone()).await?;
        let port = free_port()?;
        let broker = Process::start(data, &broker_arguments(port)).await?;
        let mut fleet = Self {
            data: data.to_owned(),
            model,
            port,
            broker,
            workers: Vec::new(),
            thawed: Vec::new(),
            tool_ms: args.tool_ms.to_string(),
            fault: args.fault,
            choices: StdRng::seed_from_u64(args.seed),
            count: 0,
        };
        for number in 0..args.workers {
            let name = format!("chaos-{number}");
            let process = fleet.start_worker(&name).await?;
            fleet.workers.push((name, process));
        }
        Ok(fleet)
    }

    fn brokers(&self) -> String {
        self.broker.brokers.clone()
    }

    /// Of the largest worker.
    fn worker_mib(&self, which: &str) -> Option<u64> {
        self.workers.iter().filter_map(|(_, worker)| worker.memory_mib(which)).max()
    }

    async fn start_worker(&self, name: &str) -> Result<Process, CliError> {
        let brokers = self.brokers();
        let arguments =
            ["--brokers", &brokers, "--worker", name, "--model", &self.model.address, "--ledger-ms", &self.tool_ms];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).into();
        match self.fault {
            // Members come and go: none has a name that the group would keep for it.
            Fault::Rebalance => arguments.push("--dynamic".to_owned()),
            Fault::Freeze => arguments.push("--honour-keys".to_owned()),
            Fault::Kill | Fault::Broker => {}
        }
        Process::start(&self.data, &arguments).await
    }

    async fn break_one(&mut self, freeze_for: Duration) -> Result<(), CliError> {
        self.count += 1;
        let chosen = self.choices.random_range(0..self.workers.len());
        match self.fault {
            Fault::Kill => {
                self.workers[chosen].1.kill().await?;
                let name = self.workers[chosen].0.clone();
                self.workers[chosen].1 = self.start_worker(&name).await?;
            }
            Fault::Freeze => {
                // Another process takes the name, so that the frozen one is fenced and not only missed.
                let name = self.workers[chosen].0.clone();
                self.workers[chosen].1.freeze().await?;
                let other = self.start_worker(&name).await?;
                let frozen = std::mem::replace(&mut self.workers[chosen].1, other);
                tokio::time::sleep(freeze_for).await;
                frozen.thaw().await?;
                self.thawed.push(frozen);
                if self.thawed.len() > MAX_THAWED {
                    self.thawed.remove(0).kill().await?;
                }
            }
            Fault::Rebalance => {
                let (_, mut leaving) = self.workers.remove(chosen);
                leaving.stop().await?;
                let name = format!("chaos-new-{}", self.count);
                let process = self.start_worker(&name).await?;
                self.workers.push((name, process));
            }
            Fault::Broker => {
                self.broker.kill().await?;
                self.broker = Process::start(&self.data, &broker_arguments(self.port)).await?;
            }
        }
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), CliError> {
        for worker in self.workers.iter_mut().map(|(_, worker)| worker).chain(&mut self.thawed) {
            worker.kill().await?;
        }
        self.broker.stop().await
    }
}

fn broker_arguments(port: u16) -> Vec<String> {
    vec!["--broker-port".to_owned(), port.to_string()]
}
