//! Work of the server that a command asks for and waits for: rebuilds, re-embeddings, tunings.

use std::time::Duration;

use riverrun_api::wire::{FailureView, RebuildView, ReembeddingView, TuningView};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};

const POLL: Duration = Duration::from_millis(500);

/// Where such work is.
pub trait Awaited: DeserializeOwned {
    /// Where it is looked at.
    fn place(&self) -> String;
    /// Whether it is over, one way or the other.
    fn is_over(&self) -> bool;
    /// Why it failed.
    fn failure(&self) -> Option<&FailureView>;
}

macro_rules! awaited {
    ($($view:ident by $id:ident at $place:literal;)+) => {$(
        impl Awaited for $view {
            fn place(&self) -> String {
                format!("{}/{}", $place, self.$id)
            }

            fn is_over(&self) -> bool {
                self.ended()
            }

            fn failure(&self) -> Option<&FailureView> {
                self.error.as_ref()
            }
        }
    )+};
}

awaited! {
    RebuildView by rebuild_id at "/rebuilds";
    ReembeddingView by reembedding_id at "/reembeddings";
    TuningView by tuning_id at "/tunings";
}

/// Asks for it and waits for its end; people are told what goes on meanwhile. One that failed is an error.
pub async fn ended<V: Awaited>(
    connection: &Connection,
    path: &str,
    body: &impl Serialize,
    meanwhile: impl FnOnce(&V) -> String,
    output: Output,
) -> Result<V, CliError> {
    let mut view: V = connection.client.post(path, body).await?;
    if !view.is_over() && !output.json {
        tell(&meanwhile(&view));
    }
    while !view.is_over() {
        tokio::time::sleep(POLL).await;
        view = connection.client.get(&view.place()).await?;
    }
    match view.failure() {
        Some(error) => {
            Err(CliError::new(Exit::of_failure(&error.code), error.message.clone()).maybe_hint(error.hint.clone()))
        }
        None => Ok(view),
    }
}
