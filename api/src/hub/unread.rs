//! Commands of this process that became dead letters before a worker took them, such as those of a newer version beside older workers:
//! nothing is on the log of what they would have begun, so their letters say how it stands. A letter that is sent again, and then taken,
//! is what the log says of it from there on.

use std::collections::VecDeque;

use riverrun_log::DeadLetter;
use riverrun_schemas::{Failure, IngestId, RunId};
use riverrun_stores::read_models::failure_view;

use super::live::queued;
use super::{Hub, Pending};
use crate::wire::{IngestView, RunStatus, RunView, Timestamp};

/// Letters of commands that are not remembered, at most: those of other processes, and those that come before whoever wrote a command
/// remembers it, as the first ones of a chain may.
const MAX_EARLY: usize = 256;
/// How old such a letter may be when its command is remembered, in milliseconds: an older one is of an earlier try.
const EARLY_MS: i64 = 10_000;

/// What a dead letter says of what was asked for.
#[derive(Debug, Clone)]
pub(super) struct Unread {
    failure: Failure,
    /// Milliseconds since the epoch.
    at: i64,
}

impl Unread {
    fn of(letter: &DeadLetter) -> Self {
        let failure = Failure::new(letter.code.clone(), format!("its command is a dead letter: {}", letter.reason))
            .with_hint(format!("riverrun dlq redrive {} sends it again, when a worker can read it", letter.id));
        Self { failure, at: letter.at_ms }
    }

    /// The ingest as it is shown until a worker takes it.
    pub(super) fn end(&self, ingest: &mut IngestView) {
        ingest.status = "failed".to_owned();
        ingest.error = Some(failure_view(&self.failure));
        ingest.finished_at = Some(Timestamp(self.at));
    }
}

/// Letters of commands that are not remembered yet, by their keys, oldest first.
#[derive(Debug, Default)]
pub(super) struct Early(VecDeque<(String, Unread)>);

impl Early {
    fn put(&mut self, key: String, unread: Unread) {
        self.0.retain(|(known, _)| *known != key);
        self.0.push_back((key, unread));
        if self.0.len() > MAX_EARLY {
            self.0.pop_front();
        }
    }

    /// That of a command that is remembered now.
    pub(super) fn take(&mut self, key: &str, now: i64) -> Option<Unread> {
        let place = self.0.iter().position(|(known, _)| known == key)?;
        let (_, unread) = self.0.remove(place)?;
        (unread.at.saturating_add(EARLY_MS) >= now).then_some(unread)
    }
}

impl Pending {
    /// The run as it is shown until a worker takes it.
    pub(super) fn view(self, run_id: RunId) -> RunView {
        let run = queued(run_id, &self.request, self.at);
        let Some(Unread { failure, at }) = self.unread else { return run };
        RunView {
            status: RunStatus::Failed,
            stop_reason: Some("error".to_owned()),
            error: Some(failure_view(&failure)),
            finished_at: Some(Timestamp(at)),
            ..run
        }
    }
}

impl Hub {
    /// A command went to the dead letters: what it was to begin has failed, where no worker has taken it.
    pub(super) fn on_dead_letter(&self, letter: &DeadLetter) {
        let Some(key) = letter.key.as_deref().and_then(|key| str::from_utf8(key).ok()) else { return };
        let unread = Unread::of(letter);
        let mut state = self.inner.state.lock();
        if let Ok(run_id) = key.parse::<RunId>() {
            match state.pending.get_mut(&run_id) {
                Some(pending) => pending.unread = Some(unread),
                None => state.early.put(run_id.to_string(), unread),
            }
        } else if let Ok(ingest_id) = key.parse::<IngestId>() {
            match state.pending_ingests.get_mut(&ingest_id) {
                Some(ingest) => unread.end(ingest),
                None => state.early.put(ingest_id.to_string(), unread),
            }
        }
    }

    /// Whether the run's command is a dead letter, and no worker has taken it since.
    pub(super) fn is_unread(&self, run_id: RunId) -> bool {
        self.inner.state.lock().pending.get(&run_id).is_some_and(|pending| pending.unread.is_some())
    }
}

#[cfg(test)]
mod tests {
    use riverrun_knowledge::chunking::ChunkUnit;
    use riverrun_log::dead_letters::LetterState;
    use riverrun_log::{Schemas, TopicPartition};
    use riverrun_schemas::agent::{RunAccepted, RunRequest};
    use riverrun_schemas::now_ms;
    use riverrun_stores::Sql;
    use riverrun_workers::tracer::TracingService;

    use super::*;
    use crate::submit::{IngestDefaults, IngestTarget, ingest_target};
    use crate::wire::IngestBody;

    async fn hub() -> (tempfile::TempDir, Hub) {
        let folder = tempfile::tempdir().unwrap();
        let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
        (folder, Hub::over(sql, TracingService::default(), Schemas::built_in()))
    }

    fn letter(key: &str) -> DeadLetter {
        DeadLetter {
            id: "riverrun.agent.commands.dlq:7".parse().unwrap(),
            origin: TopicPartition::new("riverrun.agent.commands", 0).at(3),
            group: "riverrun.agent".to_owned(),
            code: "unknown_schema_id".to_owned(),
            reason: "schema id 999 is in no registry".to_owned(),
            attempts: 1,
            schema_id: Some(999),
            whole_bytes: None,
            key: Some(key.to_owned().into()),
            payload: None,
            headers: Vec::new(),
            at_ms: 9,
            state: LetterState::Open,
        }
    }

    fn target() -> IngestTarget {
        let body = IngestBody { collection: "docs".to_owned(), ..IngestBody::default() };
        let defaults = IngestDefaults {
            embed_model: "m".to_owned(),
            hub_embed_model: "h".to_owned(),
            chunk_size: 800,
            chunk_overlap: 100,
            chunk_unit: ChunkUnit::Characters,
        };
        ingest_target(&body, &defaults).unwrap()
    }

    #[tokio::test]
    async fn given_a_run_whose_command_nobody_could_read_when_it_is_asked_for_then_it_has_failed_until_a_worker_takes_it()
     {
        let (_folder, hub) = hub().await;
        let (run_id, other) = (RunId::derive(&["unread"]), RunId::derive(&["other"]));
        let request = RunRequest { task: "x".to_owned(), ..RunRequest::default() };
        hub.remember_accepted(run_id, &request, 1);
        hub.remember_accepted(other, &request, 1);
        hub.on_dead_letter(&letter(&run_id.to_string()));
        for key in ["poison", "run_none", &RunId::derive(&["nobody"]).to_string()] {
            hub.on_dead_letter(&letter(key));
        }
        let failed = hub.run(run_id).await.unwrap().unwrap();
        let error = failed.error.clone().unwrap();
        assert_eq!((failed.status, failed.finished_at), (RunStatus::Failed, Some(Timestamp(9))));
        assert_eq!(error.code, "unknown_schema_id");
        assert!(error.hint.unwrap().starts_with("riverrun dlq redrive riverrun.agent.commands.dlq:7 "));
        assert_eq!(hub.run_stream(run_id, 0, false).result().await.unwrap(), failed, "nobody waits for it for ever");
        assert_eq!(hub.run(other).await.unwrap().unwrap().status, RunStatus::Queued);
        let accepted = RunAccepted { run_id, request, forked_from: None, at: 20 };
        hub.on_run_event(0, 0, &accepted.into());
        let taken = hub.run(run_id).await.unwrap().unwrap();
        assert_eq!((taken.status, taken.error, taken.finished_at), (RunStatus::Queued, None, None));
        hub.on_dead_letter(&letter(&run_id.to_string()));
        assert!(!hub.is_unread(run_id), "what the log says of it counts");
    }

    #[tokio::test]
    async fn given_a_letter_before_its_command_is_remembered_when_it_is_asked_for_then_it_has_failed_unless_it_is_old()
    {
        let (_folder, hub) = hub().await;
        let request = RunRequest { task: "x".to_owned(), ..RunRequest::default() };
        for (name, at_ms, has_failed) in [("early", now_ms(), true), ("old", now_ms() - 2 * EARLY_MS, false)] {
            let (run_id, ingest_id) = (RunId::derive(&[name]), IngestId::derive(&[name]));
            for key in [run_id.to_string(), ingest_id.to_string()] {
                hub.on_dead_letter(&DeadLetter { at_ms, ..letter(&key) });
            }
            hub.remember_accepted(run_id, &request, at_ms);
            hub.remember_ingest(ingest_id, &target());
            assert_eq!(hub.is_unread(run_id), has_failed, "{name}");
            assert_eq!(hub.ingest(ingest_id).await.unwrap().unwrap().ended(), has_failed, "{name}");
        }
    }

    #[test]
    fn given_letters_of_commands_that_nobody_remembers_when_there_are_many_then_the_oldest_go() {
        let mut early = Early::default();
        let unread = Unread::of(&letter("run"));
        for number in 0..=MAX_EARLY {
            for _ in 0..2 {
                early.put(number.to_string(), unread.clone());
            }
        }
        assert_eq!(early.0.len(), MAX_EARLY);
        assert!(early.take("0", unread.at).is_none() && early.take("1", unread.at).is_some());
        assert!(early.take("1", unread.at).is_none(), "it is told once");
    }

    #[tokio::test]
    async fn given_an_ingest_whose_command_nobody_could_read_when_it_is_asked_for_then_it_has_failed_and_others_run() {
        let (_folder, hub) = hub().await;
        let (ingest_id, other) = (IngestId::derive(&["unread"]), IngestId::derive(&["other"]));
        hub.remember_ingest(ingest_id, &target());
        hub.remember_ingest(other, &target());
        hub.on_dead_letter(&letter(&ingest_id.to_string()));
        let failed = hub.ingest(ingest_id).await.unwrap().unwrap();
        assert!(failed.ended());
        assert_eq!((failed.status.as_str(), failed.error.unwrap().code.as_str()), ("failed", "unknown_schema_id"));
        assert_eq!(hub.ingest(other).await.unwrap().unwrap().status, "running");
    }
}
