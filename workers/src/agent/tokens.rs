//! Sends text to `riverrun.tokens` while a model writes it: a few records a second. A reply waits a moment for its
//! last words, so that watchers see them before the step; nothing else waits.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use riverrun_log::{LogError, Outgoing, Producer};
use riverrun_schemas::RunId;
use riverrun_schemas::tokens::{Attempt, TokenDelta, TokenEvent};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Text is gathered for so long, so that a fast model does not make a record a token.
const GATHER: Duration = Duration::from_millis(40);
/// Text that may wait, in bytes: what no model writes within [`GATHER`]. What comes beyond it is dropped, since the whole text comes with
/// its step anyway, and a model that writes without end must not fill the memory on its way to the log.
const MAX_WAITING_BYTES: usize = 64 << 10;

/// How long a reply waits for its last words to be on the log.
const FLUSH: Duration = Duration::from_millis(250);

pub(super) struct TokenStream {
    waiting: Arc<Waiting>,
    /// Dropped when no more words come: nothing is gathered any longer.
    last: DropGuard,
    sending: JoinHandle<()>,
}

/// What was written and is not sent yet.
#[derive(Default)]
struct Waiting {
    text: Mutex<String>,
    more: Notify,
}

impl Waiting {
    fn push(&self, piece: &str) {
        let mut text = self.text.lock();
        if text.len() + piece.len() <= MAX_WAITING_BYTES {
            text.push_str(piece);
            self.more.notify_one();
        }
    }

    fn take(&self) -> String {
        std::mem::take(&mut self.text.lock())
    }
}

impl TokenStream {
    pub(super) fn start(producer: Producer, run_id: RunId, seq: i64, attempt: Attempt) -> Self {
        let (waiting, last) = (Arc::new(Waiting::default()), CancellationToken::new());
        let (written, ended) = (waiting.clone(), last.clone());
        let sending = tokio::spawn(async move {
            loop {
                tokio::select! {
                    () = written.more.notified() => {}
                    () = ended.cancelled() => {}
                }
                // Asked before the text is taken: what was written before the end is then sent.
                let all_written = ended.is_cancelled();
                let text = written.take();
                if !text.is_empty()
                    && let Err(error) = send(&producer, TokenDelta { run_id, seq, text }, attempt).await
                {
                    tracing::debug!(run_id = %run_id, error = %error, "tokens not sent");
                }
                if all_written {
                    return;
                }
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = ended.cancelled() => {}
                }
            }
        });
        Self { waiting, last: last.drop_guard(), sending }
    }

    pub(super) fn push(&self, text: &str) {
        self.waiting.push(text);
    }

    /// Waits until the last words are on the log, so that they lie there before the step that holds them all. A log that
    /// takes longer than a moment is not waited for.
    pub(super) async fn finish(self) {
        let Self { last, sending, .. } = self;
        drop(last);
        if tokio::time::timeout(FLUSH, sending).await.is_err() {
            tracing::debug!("the last tokens come behind their step");
        }
    }
}

async fn send(producer: &Producer, piece: TokenDelta, attempt: Attempt) -> Result<(), LogError> {
    let mut record = Outgoing::event(&TokenEvent::from(piece), super::COMPONENT, None)?;
    record.headers.push((Attempt::HEADER.to_owned(), attempt.to_string().into_bytes()));
    producer.send_one(record).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_more_text_than_may_wait_when_it_is_written_then_what_fits_waits_and_there_is_room_again_once_it_was_taken()
    {
        let waiting = Waiting::default();
        let piece = "é".repeat(8 << 10); // 16 KiB
        (0..100).for_each(|_| waiting.push(&piece));
        assert_eq!(waiting.take(), piece.repeat(4));
        waiting.push("again");
        assert_eq!((waiting.take().as_str(), waiting.take().as_str()), ("again", ""));
    }
}
