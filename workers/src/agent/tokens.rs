//! Sends text to `riverrun.tokens` while a model writes it: a few records a second. A reply waits a moment for its
//! last words, so that watchers see them before the step; nothing else waits.

use std::time::Duration;

use riverrun_log::{LogError, Outgoing, Producer};
use riverrun_schemas::RunId;
use riverrun_schemas::tokens::{Attempt, TokenDelta, TokenEvent};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Text is gathered for so long, so that a fast model does not make a record a token.
const GATHER: Duration = Duration::from_millis(40);
/// Pieces that may wait; beyond it they are dropped, since the whole text comes with its step anyway.
const MAX_WAITING: usize = 4_096;

/// How long a reply waits for its last words to be on the log.
const FLUSH: Duration = Duration::from_millis(250);

pub(super) struct TokenStream {
    pieces: mpsc::Sender<String>,
    /// Cancelled when no more words come: nothing is gathered any longer.
    last: CancellationToken,
    sending: JoinHandle<()>,
}

impl TokenStream {
    pub(super) fn start(producer: Producer, run_id: RunId, seq: i64, attempt: Attempt) -> Self {
        let (pieces, mut waiting) = mpsc::channel::<String>(MAX_WAITING);
        let last = CancellationToken::new();
        let ended = last.clone();
        let sending = tokio::spawn(async move {
            let mut gathered = Vec::new();
            while waiting.recv_many(&mut gathered, MAX_WAITING).await > 0 {
                let piece = TokenDelta { run_id, seq, text: gathered.concat() };
                gathered.clear();
                if let Err(error) = send(&producer, piece, attempt).await {
                    tracing::debug!(run_id = %run_id, error = %error, "tokens not sent");
                }
                tokio::select! {
                    () = tokio::time::sleep(GATHER) => {}
                    () = ended.cancelled() => {}
                }
            }
        });
        Self { pieces, last, sending }
    }

    pub(super) fn push(&self, text: &str) {
        // A full queue means the log is slower than the model: the step will bring the text.
        let _ = self.pieces.try_send(text.to_owned());
    }

    /// Waits until the last words are on the log, so that they lie there before the step that holds them all. A log that
    /// takes longer than a moment is not waited for.
    pub(super) async fn finish(self) {
        let Self { pieces, last, sending } = self;
        drop(pieces);
        last.cancel();
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
