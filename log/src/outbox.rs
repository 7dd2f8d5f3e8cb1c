//! A client that writes, and the thread that takes its delivery reports.
//!
//! The library's own producer polls ten times a second for ever, and each of its polls ends in a spin: a wait is cut to whole
//! milliseconds and the rest of the last one is asked away, 0.8 ms of a core each time. Here the thread polls while records
//! are on their way, and rests otherwise.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, sync_channel};
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext};
use tokio::sync::oneshot;

use crate::record::Outgoing;

/// Longest poll, and longest rest: errors that the client reports while nothing is written are heard of after so long.
const LOOK: Duration = Duration::from_secs(1);

/// Where a record came to lie.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) partition: i32,
    pub(crate) offset: i64,
}

/// The answer about one record; the sender is gone without one when the client was closed before.
pub(crate) type Receipt = oneshot::Receiver<Result<Placed, KafkaError>>;

/// The library's client.
pub(crate) type Client = BaseProducer<Reports>;

/// Gives each delivery report to whoever waits for it.
pub(crate) struct Reports;

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        crate::context::log(level, facility, message);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        tracing::debug!(error = %error, reason, "kafka client reports an error");
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<Result<Placed, KafkaError>>>;

    fn delivery(&self, report: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let told = match report {
            Ok(message) => Ok(Placed { partition: message.partition(), offset: message.offset() }),
            Err((error, _)) => Err(error.clone()),
        };
        // Who does not wait any more has no use for it.
        let _ = waiting.send(told);
    }
}

/// A writing client. Its thread ends with it, within a second.
pub(crate) struct Outbox {
    /// Wakes the thread. Before the client, so that the thread has heard of the end when the client is let go of.
    written: SyncSender<()>,
    client: Arc<Client>,
}

impl Outbox {
    /// Connects when it is first used.
    pub(crate) fn open(config: &ClientConfig) -> KafkaResult<Self> {
        let client: Arc<Client> = Arc::new(config.create_with_context(Reports)?);
        // One word is enough: it says that there is something to look for, not what.
        let (written, awaited) = sync_channel(1);
        let served = client.clone();
        std::thread::Builder::new()
            .name("producer-reports".to_owned())
            .spawn(move || serve(&served, &awaited))
            .map_err(|error| KafkaError::ClientCreation(format!("its thread can't be started: {error}")))?;
        Ok(Self { written, client })
    }

    /// Hands a record to the client, with a time in milliseconds since the epoch if it is to have another than now.
    pub(crate) fn send(&self, record: &Outgoing, at_ms: Option<i64>) -> KafkaResult<Receipt> {
        let (waiting, receipt) = oneshot::channel();
        let mut next: BaseRecord<'_, [u8], [u8], _> = BaseRecord::with_opaque_to(&record.topic, Box::new(waiting));
        next.headers = Some(record.owned_headers());
        next.partition = record.partition;
        next.timestamp = at_ms;
        next.key = record.key.as_deref();
        next.payload = record.payload.as_deref();
        self.client.send(next).map_err(|(error, _)| error)?;
        // A full channel means that the thread is about to look anyhow.
        let _ = self.written.try_send(());
        Ok(receipt)
    }

    /// The client, for transactions.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

/// Takes reports while there are any to come.
fn serve(client: &Client, awaited: &Receiver<()>) {
    loop {
        match awaited.recv_timeout(LOOK) {
            Ok(()) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        // What the client counts are records, reports and errors that nobody has taken yet.
        while client.in_flight_count() > 0 {
            client.poll(LOOK);
            if matches!(awaited.try_recv(), Err(TryRecvError::Disconnected)) {
                return;
            }
        }
    }
}
