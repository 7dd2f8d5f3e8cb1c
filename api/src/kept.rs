//! What the document store adds to answers that stand without it. A store that is away delays them by [`PATIENCE`] and is told in the log.

use std::time::Duration;

use riverrun_stores::documents::{DocumentKey, KeptDocument};

use crate::state::AppState;

/// How long the store is waited for.
const PATIENCE: Duration = Duration::from_secs(1);

/// A document of the store; `None` when it has none, or can't be asked.
pub(crate) async fn kept(state: &AppState, key: &DocumentKey) -> Option<KeptDocument> {
    match tokio::time::timeout(PATIENCE, state.parts().documents.get(key)).await {
        Ok(Ok(found)) => found,
        Ok(Err(error)) => {
            tracing::warn!(kind = key.kind.as_str(), error = %error, "an answer goes without the document store");
            None
        }
        Err(_) => {
            tracing::warn!(kind = key.kind.as_str(), "the document store is too slow, an answer goes without it");
            None
        }
    }
}
