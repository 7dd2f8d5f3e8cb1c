//! The ledger: what model calls outside of runs used, summed by account and model, and put on the log as `ModelUsed`.
//!
//! A call never waits for the log. What comes within a moment goes out in one write, so that many calls are few records, and a process that is
//! killed loses no more than that moment; a write that fails is tried again with the same ids, and the read model counts an id once.

mod kept;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::{LogError, Outgoing, Producer};
use riverrun_models::{Account, Cost, Meter, MeteredCall, Usage as Tokens};
use riverrun_schemas::finetune::{FinetuneEvent, ModelUsed};
use riverrun_schemas::{EventId, Usage, now_ms};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const NAME: &str = "ledger";
/// Sums that wait for the log; it takes a log that is away for long to get there.
const MAX_SUMS: usize = 10_000;
/// How long calls are gathered before they are written.
const MOMENT: Duration = Duration::from_millis(250);
/// Before a write is tried again.
const PAUSE: Duration = Duration::from_secs(2);
/// How long the last write of a process may take.
const LAST_PATIENCE: Duration = Duration::from_secs(2);

/// Takes calls down. Clones are the same ledger.
#[derive(Clone, Default)]
pub struct Ledger {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    sums: Mutex<BTreeMap<Entry, Sum>>,
    came: Notify,
    writer: Mutex<Option<JoinHandle<()>>>,
    end: CancellationToken,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    account: Account,
    provider: String,
    model: String,
    estimated: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Sum {
    calls: i64,
    usage: Usage,
}

impl Meter for Ledger {
    fn record(&self, account: &Account, call: MeteredCall) {
        let MeteredCall { provider, model, usage, cost, estimated } = call;
        let entry = Entry { account: account.clone(), provider, model, estimated };
        let mut sums = self.shared.sums.lock();
        if sums.len() >= MAX_SUMS && !sums.contains_key(&entry) {
            tracing::warn!(
                namespace = account.namespace,
                model = entry.model,
                "a model call is not accounted: the log is away, and {MAX_SUMS} sums wait for it"
            );
            return;
        }
        let sum = sums.entry(entry).or_default();
        sum.calls += 1;
        sum.usage += tokens_of(usage, cost);
        drop(sums);
        self.shared.came.notify_one();
    }
}

/// What a call used, as the log has it.
pub(crate) fn tokens_of(used: Tokens, cost: Cost) -> Usage {
    let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
    Usage {
        prompt_tokens: count(used.prompt_tokens),
        completion_tokens: count(used.completion_tokens),
        cost_usd: cost.usd,
        unpriced_tokens: count(cost.unpriced_tokens),
        cached_prompt_tokens: count(used.cached_prompt_tokens),
        cache_write_tokens: count(used.cache_write_tokens),
    }
}

impl Ledger {
    /// Writes what comes to the log until [`Ledger::finish`]. A process without a log has [`Ledger::keep`] instead.
    pub fn write_to(&self, producer: Producer) {
        let ledger = self.clone();
        let writer = tokio::spawn(async move {
            let end = &ledger.shared.end;
            while !end.is_cancelled() {
                let gathered = async {
                    ledger.shared.came.notified().await;
                    tokio::time::sleep(MOMENT).await;
                };
                tokio::select! {
                    () = gathered => {}
                    () = end.cancelled() => {}
                }
                write(&producer, &ledger.take(), end).await;
            }
        });
        *self.shared.writer.lock() = Some(writer);
    }

    /// Writes what is left. To be called when nobody calls models any more, while the log is still there.
    pub async fn finish(&self) {
        self.shared.end.cancel();
        let writer = self.shared.writer.lock().take();
        if let Some(writer) = writer
            && let Err(error) = writer.await
        {
            tracing::warn!(error = %error, "the last model calls are not accounted");
        }
    }

    /// Keeps what has come in a file of the data folder, for the next process that has a log.
    pub fn keep(&self, folder: &Path) -> io::Result<()> {
        let events = self.take();
        if events.is_empty() { Ok(()) } else { kept::append(folder, &events) }
    }

    /// Puts on the log what processes without one kept in the data folder. Where that fails it stays there for the next start; what comes
    /// twice counts once.
    pub async fn take_over(folder: &Path, producer: &Producer) {
        if let Err(error) = send_kept(folder, producer).await {
            tracing::warn!(error, "model calls that commands made without a log are not on it yet");
        }
    }

    /// What has come since it was asked last.
    fn take(&self) -> Vec<FinetuneEvent> {
        let sums = std::mem::take(&mut *self.shared.sums.lock());
        sums.into_iter().map(|(entry, sum)| event(entry, sum)).collect()
    }
}

fn event(entry: Entry, sum: Sum) -> FinetuneEvent {
    let Entry { account, provider, model, estimated } = entry;
    let purpose = account.purpose.as_str();
    ModelUsed {
        use_id: EventId::new(),
        // It was one where it came from.
        namespace: account.namespace.parse().unwrap_or_default(),
        session: account.session,
        // Sums tell estimates apart from counts.
        purpose: if estimated { format!("{purpose} (estimated)") } else { purpose.to_owned() },
        provider,
        model,
        calls: sum.calls,
        usage: sum.usage,
        at: now_ms(),
    }
    .into()
}

/// Writes events, however long it takes; once the process is to end, for a moment.
async fn write(producer: &Producer, events: &[FinetuneEvent], end: &CancellationToken) {
    if events.is_empty() {
        return;
    }
    loop {
        let sent = tokio::select! {
            biased;
            sent = send(producer, events) => sent,
            () = too_late(end) => {
                tracing::warn!(events = events.len(), "model calls are not accounted: the process ended before the log took them");
                return;
            }
        };
        let Err(error) = sent else { return };
        if end.is_cancelled() {
            tracing::warn!(error = %error, events = events.len(), "model calls are not accounted: the process ends");
            return;
        }
        tracing::warn!(error = %error, events = events.len(), "model calls are not on the log yet; they are tried again");
        tokio::select! {
            () = tokio::time::sleep(PAUSE) => {}
            () = end.cancelled() => {}
        }
    }
}

async fn send_kept(folder: &Path, producer: &Producer) -> Result<(), String> {
    let Some(kept) = kept::Kept::open(folder).map_err(|error| error.to_string())? else { return Ok(()) };
    send(producer, &kept.events).await.map_err(|error| error.to_string())?;
    kept.forget().map_err(|error| error.to_string())
}

/// Some time after the process was to end.
async fn too_late(end: &CancellationToken) {
    end.cancelled().await;
    tokio::time::sleep(LAST_PATIENCE).await;
}

async fn send(producer: &Producer, events: &[FinetuneEvent]) -> Result<(), LogError> {
    let records: Result<Vec<Outgoing>, LogError> =
        events.iter().map(|event| Outgoing::event(event, NAME, None)).collect();
    producer.send_many(records?).await.map(drop)
}

#[cfg(test)]
mod tests {
    use riverrun_models::Purpose;

    use super::*;

    fn call(model: &str, prompt_tokens: u64, cost_usd: Option<f64>) -> MeteredCall {
        let usage = Tokens { prompt_tokens, completion_tokens: 1, cached_prompt_tokens: 3, ..Tokens::default() };
        let unpriced_tokens = if cost_usd.is_none() { usage.total() } else { 0 };
        let cost = Cost { usd: cost_usd, unpriced_tokens };
        MeteredCall { provider: "openai".into(), model: model.into(), usage, cost, estimated: false }
    }

    fn used(events: Vec<FinetuneEvent>) -> Vec<ModelUsed> {
        let inner = |event: FinetuneEvent| match event {
            FinetuneEvent::ModelUsed(event) => event,
            other => panic!("the ledger says {other:?}"),
        };
        events.into_iter().map(inner).collect()
    }

    #[test]
    fn given_calls_when_they_are_taken_then_those_of_one_account_and_model_are_one_sum_and_none_comes_twice() {
        let ledger = Ledger::default();
        let (team, talk) = (Account::of("team", Purpose::Chat), Account::of("team", Purpose::Memory).in_session("s"));
        ledger.record(&team, call("a", 10, Some(0.5)));
        ledger.record(&team, call("a", 20, Some(0.25)));
        ledger.record(&team, call("b", 5, None));
        ledger.record(&talk, call("a", 7, None));
        ledger.record(&team, MeteredCall { estimated: true, ..call("a", 3, None) });
        let found = used(ledger.take());
        let shown: Vec<_> = found
            .iter()
            .map(|used| (used.purpose.as_str(), used.model.as_str(), used.calls, used.usage.prompt_tokens))
            .collect();
        assert_eq!(
            shown,
            [("chat", "a", 2, 30), ("chat (estimated)", "a", 1, 3), ("chat", "b", 1, 5), ("memory", "a", 1, 7)]
        );
        assert_eq!((found[0].usage.cost_usd, found[0].usage.completion_tokens), (Some(0.75), 2));
        assert_eq!((found[0].usage.unpriced_tokens, found[0].usage.cached_prompt_tokens), (0, 6));
        assert_eq!((found[2].usage.cost_usd, found[2].usage.unpriced_tokens), (None, 6));
        assert_eq!((found[3].session.as_deref(), found[3].namespace.as_str()), (Some("s"), "team"));
        assert_ne!(found[0].use_id, found[1].use_id);
        assert!(ledger.take().is_empty());
    }

    #[test]
    fn given_processes_without_a_log_when_they_keep_calls_then_the_next_one_finds_each_once_with_its_id() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let account = Account::of("team", Purpose::Chat);
        let ledger = Ledger::default();
        ledger.keep(&data).unwrap();
        assert!(!data.exists(), "nothing to keep leaves nothing");
        for tokens in [10, 20] {
            ledger.record(&account, call("a", tokens, Some(0.5)));
            ledger.keep(&data).unwrap();
        }
        let found = || kept::Kept::open(&data).unwrap();
        let first = used(found().unwrap().events);
        let tokens: Vec<i64> = first.iter().map(|used| used.usage.prompt_tokens).collect();
        assert_eq!(tokens, [10, 20]);
        assert_eq!(used(found().unwrap().events), first, "until it is on the log it is there, under the same ids");
        let file = std::fs::read_dir(&data).unwrap().next().unwrap().unwrap().path();
        let mut cut = std::fs::read(&file).unwrap();
        cut.truncate(cut.len() - 9);
        std::fs::write(&file, cut).unwrap();
        let left = found().unwrap();
        assert_eq!(left.events.len(), 1, "a line that was cut off is passed over");
        left.forget().unwrap();
        assert!(found().is_none());
    }

    #[test]
    fn given_more_accounts_than_wait_when_the_log_is_away_then_known_ones_go_on_and_no_more_is_kept() {
        let ledger = Ledger::default();
        let account = |number: usize| Account::of(format!("n{number}"), Purpose::Chat);
        (0..MAX_SUMS + 5).for_each(|number| ledger.record(&account(number), call("m", 1, None)));
        ledger.record(&account(0), call("m", 1, None));
        let found = used(ledger.take());
        assert_eq!(found.len(), MAX_SUMS);
        assert_eq!(found.iter().map(|used| used.calls).sum::<i64>(), MAX_SUMS as i64 + 1);
    }
}
