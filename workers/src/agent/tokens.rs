//! Sends text to `riverrun.tokens` while a model writes it: a few records a second, and nobody waits for them.

use std::time::Duration;

use riverrun_log::Producer;
use riverrun_schemas::RunId;
use riverrun_schemas::tokens::{TokenDelta, TokenEvent};
use tokio::sync::mpsc;

/// Text is gathered for so long, so that a fast model does not make a record a token.
const GATHER: Duration = Duration::from_millis(40);
/// Pieces that may wait; beyond it they are dropped, since the whole text comes with its step anyway.
const MAX_WAITING: usize = 4_096;

pub(super) struct TokenStream {
    pieces: mpsc::Sender<String>,
}

impl TokenStream {
    pub(super) fn start(producer: Producer, run_id: RunId, seq: i64) -> Self {
        let (pieces, mut waiting) = mpsc::channel::<String>(MAX_WAITING);
        tokio::spawn(async move {
            let mut gathered = Vec::new();
            while waiting.recv_many(&mut gathered, MAX_WAITING).await > 0 {
                let event = TokenEvent::from(TokenDelta { run_id, seq, text: gathered.concat() });
                gathered.clear();
                if let Err(error) = producer.send(&event, super::COMPONENT, None).await {
                    tracing::debug!(run_id = %run_id, error = %error, "tokens not sent");
                }
                tokio::time::sleep(GATHER).await;
            }
        });
        Self { pieces }
    }

    pub(super) fn push(&self, text: &str) {
        // A full queue means the log is slower than the model: the step will bring the text.
        let _ = self.pieces.try_send(text.to_owned());
    }
}
