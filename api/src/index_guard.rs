//! Looks after the indexes: at the start, and for as long as the process runs.
//!
//! A collection whose vectors or keywords are gone, damaged or behind what the read models count is told to be incomplete at once, and
//! its rebuild is asked for on the log. A decision about documents is not taken here: the rebuilder asks the log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use riverrun_schemas::ingest::{IngestCommand, RebuildCollection};
use riverrun_schemas::{Collection, IngestId, now_ms, words};
use riverrun_stores::read_models::{CollectionView, Within, documents, rebuilds};
use riverrun_stores::{Gap, GapState, StoreError};
use riverrun_workers::rebuilder;
use riverrun_workers::runtime::group_of;
use tokio_util::sync::CancellationToken;

use crate::state::AppState;

const COMPONENT: &str = "index-guard";
/// How often it looks.
const POLL: Duration = Duration::from_secs(1);
/// Longest first look: a server that does not answer must not hold up the start.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// A rebuild that began before that may have lost its command.
const LONG_AGO_MS: i64 = 24 * 60 * 60 * 1_000;
/// Workers that change indexes, or what they are compared with: with nothing to do for any of them, all that differs is wrong.
const BUSY: [&str; 5] = ["ingester", "embedder", "indexer", "projector", rebuilder::NAME];

/// Looks for what is plainly gone, so that the first search tells; then goes on beside everything else until `stop`.
pub(crate) async fn start(state: &AppState, stop: CancellationToken) {
    match tokio::time::timeout(FIRST_LOOK, first_look(state)).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "indexes could not be looked at, it is tried again beside the work"),
        Err(_) => tracing::warn!("looking at the indexes takes long, it is tried again beside the work"),
    }
    let state = state.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = watch(&state) => {}
        }
    });
}

/// Collections with chunks of which an index is not there.
async fn first_look(state: &AppState) -> Result<(), StoreError> {
    let parts = state.parts();
    let there: BTreeSet<Collection> = parts.vectors.list().await?.into_iter().map(|info| info.collection).collect();
    for (collection, view) in counted(state).await? {
        if view.chunks == 0 {
            continue;
        }
        let what = match (there.contains(&collection), parts.keywords.exists(&collection).await?) {
            (true, true) => continue,
            (false, true) => "its vectors are gone",
            (true, false) => "its keywords are gone",
            (false, false) => "its vectors and keywords are gone",
        };
        note(state, &collection, what);
        if !is_asked(state, &collection).await {
            ask(state, &collection).await;
        }
    }
    // What was cut off half-way goes on by itself, and is not whole until then.
    for view in rebuilds::running(&parts.sql).await? {
        let collection = Collection::new(view.namespace, view.collection);
        let counted = documents::collection(&parts.sql, &collection).await?.map_or(0, |view| view.chunks);
        if parts.gaps.of(&collection).is_none() && difference(state, &collection, counted).await?.is_some() {
            let reason = view.reason.unwrap_or_else(|| "it is made again".to_owned());
            parts.gaps.note(&collection, Gap { reason, state: GapState::Mending, elsewhere: !has_rebuilder(state) });
        }
    }
    Ok(())
}

async fn counted(state: &AppState) -> Result<Vec<(Collection, CollectionView)>, StoreError> {
    let views = documents::collections(&state.parts().sql, Within::EveryNamespace).await?;
    Ok(views.into_iter().map(|view| (Collection::new(view.namespace.clone(), view.name.clone()), view)).collect())
}

/// Tells of a gap and asks for it to be closed.
async fn found(state: &AppState, collection: &Collection, reason: &str) {
    note(state, collection, reason);
    ask(state, collection).await;
}

fn note(state: &AppState, collection: &Collection, reason: &str) {
    tracing::warn!(%collection, reason, "a collection is not whole; it is made again from the log");
    let gap = Gap { reason: reason.to_owned(), state: GapState::Mending, elsewhere: !has_rebuilder(state) };
    state.parts().gaps.note(collection, gap);
}

async fn ask(state: &AppState, collection: &Collection) {
    let Collection { namespace, name } = collection.clone();
    let command =
        RebuildCollection { ingest_id: IngestId::new(), namespace, collection: name, afresh: false, at: now_ms() };
    if let Err(error) = state.parts().producer.send(&IngestCommand::from(command), COMPONENT, None).await {
        tracing::warn!(%collection, %error, "a rebuild could not be asked for; riverrun collections rebuild does it");
    }
}

/// A rebuild that a process before this one began goes on by itself. One that began long ago is not waited for.
async fn is_asked(state: &AppState, collection: &Collection) -> bool {
    let running = rebuilds::running(&state.parts().sql).await.unwrap_or_default();
    running.iter().any(|view| {
        let same = view.namespace == collection.namespace && view.collection == collection.name;
        same && now_ms() - view.created_at.0 < LONG_AGO_MS
    })
}

fn has_rebuilder(state: &AppState) -> bool {
    state.parts().workers.iter().any(|worker| worker.name() == rebuilder::NAME)
}

async fn watch(state: &AppState) {
    let mut known: BTreeSet<(Collection, PathBuf)> = BTreeSet::new();
    // Whoever has no indexer compares nothing: what is on its way elsewhere is not seen from here.
    let mut compared = !has_rebuilder(state);
    loop {
        for damage in state.parts().vectors.damaged().into_iter().chain(state.parts().keywords.damaged()) {
            if known.insert((damage.collection.clone(), damage.kept_at.clone())) {
                let reason =
                    format!("its {} index was damaged and is kept at {}", damage.kind, damage.kept_at.display());
                found(state, &damage.collection, &reason).await;
            }
        }
        if !has_rebuilder(state)
            && let Err(error) = hear(state).await
        {
            tracing::debug!(%error, "rebuilds of other processes could not be asked for");
        }
        if !compared {
            compared = compare(state).await;
        }
        tokio::time::sleep(POLL).await;
    }
}

/// What another process mends: heard of on the log, and over when the counts are equal.
async fn hear(state: &AppState) -> Result<(), StoreError> {
    let gaps = &state.parts().gaps;
    let mut going_on = BTreeSet::new();
    for view in rebuilds::running(&state.parts().sql).await? {
        let collection = Collection::new(view.namespace, view.collection);
        if gaps.of(&collection).is_none() {
            let reason = view.reason.unwrap_or_else(|| "it is made again".to_owned());
            gaps.note(&collection, Gap { reason, state: GapState::Mending, elsewhere: true });
        }
        going_on.insert(collection);
    }
    for (collection, gap) in gaps.all() {
        if !gap.elsewhere || going_on.contains(&collection) {
            continue;
        }
        let view = documents::collection(&state.parts().sql, &collection).await?;
        if difference(state, &collection, view.map_or(0, |view| view.chunks)).await?.is_none() {
            gaps.close(&collection);
        }
    }
    Ok(())
}

/// Compares every collection with what the read models count, once nothing is on its way; false when it is to be tried again.
async fn compare(state: &AppState) -> bool {
    if !is_quiet(state).await {
        return false;
    }
    let Ok(first) = differing(state).await else { return false };
    // Nothing is mended any more, and these are whole.
    for (collection, gap) in state.parts().gaps.all() {
        if gap.state == GapState::Mending && !first.contains_key(&collection) {
            state.parts().gaps.close(&collection);
        }
    }
    if first.is_empty() {
        return true;
    }
    // What is said on the log a moment before it is counted is no difference.
    tokio::time::sleep(POLL).await;
    if !is_quiet(state).await {
        return false;
    }
    let Ok(again) = differing(state).await else { return false };
    for (collection, reason) in again {
        // Nothing is being mended now; what needs somebody was told already.
        let stuck = state.parts().gaps.of(&collection).is_some_and(|gap| gap.state == GapState::Stuck);
        if first.contains_key(&collection) && !stuck {
            found(state, &collection, &reason).await;
        }
    }
    true
}

async fn is_quiet(state: &AppState) -> bool {
    let Ok(lag) = state.lag_by_group().await else { return false };
    let busy = BUSY.map(group_of);
    lag.iter().all(|(group, records)| *records == 0 || !busy.contains(group))
}

async fn differing(state: &AppState) -> Result<BTreeMap<Collection, String>, StoreError> {
    let mut differing = BTreeMap::new();
    for (collection, view) in counted(state).await? {
        if let Some(reason) = difference(state, &collection, view.chunks).await? {
            differing.insert(collection, reason);
        }
    }
    Ok(differing)
}

/// How indexes and read model differ; `None` when they don't.
async fn difference(state: &AppState, collection: &Collection, chunks: i64) -> Result<Option<String>, StoreError> {
    let parts = state.parts();
    let counts = async {
        let vectors = parts.vectors.count(collection).await?;
        Ok::<_, StoreError>((vectors, parts.keywords.count(collection).await?))
    };
    match counts.await {
        Ok((vectors, keywords)) => {
            let same = |count: usize| i64::try_from(count) == Ok(chunks);
            let reason = || {
                let (chunks, vectors) = (words::counted(chunks, "chunk"), words::counted(vectors, "vector"));
                format!("of {chunks} it has {vectors} and {}", words::counted(keywords, "keyword"))
            };
            Ok((!same(vectors) || !same(keywords)).then(reason))
        }
        Err(error) if error.is_damage() => Ok(Some(error.to_string())),
        Err(error) => Err(error),
    }
}
