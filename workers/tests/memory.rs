//! The workers of memory: handed everything twice, and over a real log with restarts and models that are away.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use riverrun_agents::memory::{ContextRequest, Memory, MemoryContext, MemoryModels, StoredMemory, Written};
use riverrun_models::{EmbedPurpose, EmbedReply, Message, ModelError, Usage};
use riverrun_schemas::agent::{
    AgentEvent, ApprovalPolicy, RunAccepted, RunClaimed, RunFinished, RunOutcome, RunRequest,
};
use riverrun_schemas::memory::{
    EpisodeRemembered, MemoryEvent, MemoryForgotten, SummaryWritten, TurnRecorded, TurnRole, run_turn_id,
};
use riverrun_schemas::{Decoded, EpisodeId, EventSet, ForgetId, RunId, Session, Topic, TurnId};
use riverrun_stores::read_models::{LogRecord, Projected, apply, next_offset};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{EpisodePoint, Episodes, Sql};
use riverrun_workers::memory::{EpisodeKeeper, RunRecorder, Summarizer, patient};
use riverrun_workers::runtime::testkit::{Stack, context, eventually, twice};
use riverrun_workers::runtime::{self, Worker};
use tokio_util::sync::CancellationToken;

/// A token a word, vectors by first letters, and a summary that says how often it was asked.
#[derive(Default)]
struct Stub {
    down: AtomicBool,
    summaries: AtomicUsize,
}

impl Stub {
    fn check(&self) -> Result<(), ModelError> {
        if !self.down.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(ModelError::RuntimeDown {
            provider: "stub".into(),
            address: "nowhere".into(),
            reason: "away".into(),
            fix: "wait".into(),
        })
    }
}

#[async_trait]
impl MemoryModels for Stub {
    async fn count_tokens(&self, text: &str) -> usize {
        text.split_whitespace().count()
    }

    async fn write(&self, _: Vec<Message>, _: u32) -> Result<Written, ModelError> {
        self.check()?;
        let n = self.summaries.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Written { text: format!("summary {n}"), model: "stub".into() })
    }

    async fn embed(&self, texts: Vec<String>, _: EmbedPurpose) -> Result<EmbedReply, ModelError> {
        self.check()?;
        let vector = |text: &String| match text {
            question if question.contains("toy called") => vec![1.0, 0.0],
            answer if answer.contains("Zorb") => vec![1.0, 0.5],
            weather if weather.contains("weather") => vec![0.0, 1.0],
            other => vec![1.0, other.len() as f32 / 100.0],
        };
        let vectors = texts.iter().map(vector).collect();
        Ok(EmbedReply { model: "stub".into(), vectors, dimensions: 2, truncated: 0, usage: Usage::default() })
    }
}

fn session(name: &str) -> Session {
    Session::new("team".parse().unwrap(), name.parse().unwrap())
}

fn turn_id(n: u32) -> TurnId {
    TurnId::derive(&[&n.to_string()])
}

/// Ten words.
fn turn(of: &Session, n: u32) -> MemoryEvent {
    TurnRecorded {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        turn_id: turn_id(n),
        role: if n % 2 == 1 { TurnRole::User } else { TurnRole::Assistant },
        text: format!("turn {n} has ten words in all and no more"),
        run_id: None,
        at: 0,
    }
    .into()
}

fn forget(of: &Session, target: Option<String>) -> MemoryEvent {
    let forget_id = ForgetId::derive(&[target.as_deref().unwrap_or("all")]);
    MemoryForgotten { namespace: of.namespace.clone(), session: of.name.clone(), forget_id, target, at: 0 }.into()
}

fn decoded(outputs: &[riverrun_log::Outgoing]) -> Vec<MemoryEvent> {
    let decode = |out: &riverrun_log::Outgoing| match MemoryEvent::decode(out.payload.as_deref().unwrap()).unwrap() {
        Decoded::Event(event) => event,
        Decoded::UnknownType { record } => panic!("{record}"),
    };
    outputs.iter().map(decode).collect()
}

fn summaries(events: &[MemoryEvent]) -> Vec<SummaryWritten> {
    let summary = |event: &MemoryEvent| match event {
        MemoryEvent::SummaryWritten(summary) => Some(summary.clone()),
        _ => None,
    };
    events.iter().filter_map(summary).collect()
}

fn episodes(events: &[MemoryEvent]) -> Vec<EpisodeRemembered> {
    let episode = |event: &MemoryEvent| match event {
        MemoryEvent::EpisodeRemembered(episode) => Some(episode.clone()),
        _ => None,
    };
    events.iter().filter_map(episode).collect()
}

fn vectors() -> (tempfile::TempDir, Episodes) {
    let folder = tempfile::tempdir().unwrap();
    let store = EdgeVectors::open(EdgeConfig::at(folder.path())).unwrap();
    (folder, Episodes::new(Arc::new(store)))
}

#[tokio::test]
async fn given_turns_that_overflow_when_they_come_twice_then_the_same_summary_is_written() {
    let worker = Summarizer::new(Arc::new(Stub::default()), 80);
    let of = session("s");
    let outputs = twice(&worker, (1..=6).map(|n| turn(&of, n))).await;
    assert!(outputs.is_empty(), "60 of 80 tokens are room for turns");
    let worker = Summarizer::new(Arc::new(Stub::default()), 80);
    let outputs = twice(&worker, (1..=7).map(|n| turn(&of, n))).await;
    let written = summaries(&decoded(&outputs));
    assert_eq!((written.len(), written[0].through_seq, written[0].previous), (1, 4, None));
    assert_eq!(written[0].turn_ids, (1..=4).map(turn_id).collect::<Vec<_>>());
}

#[tokio::test]
async fn given_a_person_who_speaks_again_when_the_turns_come_twice_then_the_exchange_before_is_one_episode() {
    let (_folder, kept) = vectors();
    let worker = EpisodeKeeper::new(Arc::new(Stub::default()), kept);
    let of = session("s");
    let outputs = twice(&worker, (1..=3).map(|n| turn(&of, n))).await;
    let remembered = episodes(&decoded(&outputs));
    assert_eq!(remembered.len(), 1);
    assert_eq!(remembered[0].turn_ids, [turn_id(1), turn_id(2)]);
    assert!(remembered[0].text.starts_with("user: turn 1") && remembered[0].text.contains("\nassistant: turn 2"));
}

#[tokio::test]
async fn given_an_episode_when_it_comes_twice_and_is_forgotten_twice_then_its_vector_is_there_once_and_then_gone() {
    let (_folder, kept) = vectors();
    let worker = EpisodeKeeper::new(Arc::new(Stub::default()), kept.clone());
    let of = session("s");
    let episode: MemoryEvent = EpisodeRemembered {
        namespace: of.namespace.clone(),
        session: of.name.clone(),
        episode_id: EpisodeId::derive(&["e"]),
        text: "words".into(),
        turn_ids: vec![turn_id(1)],
        at: 0,
    }
    .into();
    assert!(twice(&worker, [turn(&of, 1), episode.clone()]).await.is_empty());
    assert_eq!(kept.count(&of, None).await.unwrap(), 1);
    let worker = EpisodeKeeper::new(Arc::new(Stub::default()), kept.clone());
    twice(&worker, [turn(&of, 1), episode, forget(&of, Some(turn_id(1).to_string()))]).await;
    assert_eq!(kept.count(&of, None).await.unwrap(), 0);
}

fn request(session: Option<&str>) -> RunRequest {
    RunRequest {
        task: "what now?".into(),
        agent: Some("react".into()),
        namespace: "team".parse().unwrap(),
        session: session.map(str::to_owned),
        approval: ApprovalPolicy::Never,
        ..RunRequest::default()
    }
}

fn run(session: Option<&str>, answer: Option<&str>) -> [AgentEvent; 3] {
    let run_id = RunId::derive(&[session.unwrap_or("none"), answer.unwrap_or("none")]);
    let end = RunFinished {
        run_id,
        epoch: 1,
        status: if answer.is_some() { RunOutcome::Succeeded } else { RunOutcome::Failed },
        agent: "react".into(),
        answer: answer.map(str::to_owned),
        citations: vec![],
        usage: Default::default(),
        stop_reason: "answered".into(),
        error: None,
        at: 7,
    };
    [
        RunAccepted { run_id, request: request(session), forked_from: None, at: 1 }.into(),
        RunClaimed { run_id, epoch: 1, worker: "w".into(), at: 2 }.into(),
        end.into(),
    ]
}

#[tokio::test]
async fn given_runs_that_end_when_their_events_come_twice_then_those_of_a_conversation_are_turns_with_ids_of_the_run() {
    let worker = RunRecorder::default();
    let said = decoded(&twice(&worker, run(Some("s"), Some("then"))).await);
    let turns: Vec<(TurnRole, String, TurnId)> = said
        .into_iter()
        .map(|event| match event {
            MemoryEvent::TurnRecorded(turn) => (turn.role, turn.text, turn.turn_id),
            other => panic!("{other:?}"),
        })
        .collect();
    let run_id = RunId::derive(&["s", "then"]);
    assert_eq!(
        turns,
        [
            (TurnRole::User, "what now?".to_owned(), run_turn_id(run_id, TurnRole::User)),
            (TurnRole::Assistant, "then".to_owned(), run_turn_id(run_id, TurnRole::Assistant)),
        ]
    );
    assert_eq!(
        decoded(&twice(&RunRecorder::default(), run(Some("s"), None)).await).len(),
        1,
        "a task without an answer"
    );
    assert!(twice(&RunRecorder::default(), run(None, Some("then"))).await.is_empty(), "a run of no conversation");
    let [accepted, _, end] = run(Some("s"), Some("then"));
    assert!(twice(&RunRecorder::default(), [accepted, end]).await.is_empty(), "an end of an epoch that nobody claimed");
}

/// Starts a worker; it stops with the token.
fn start<W: Worker>(stack: &Stack, worker: W) -> CancellationToken {
    let stop = CancellationToken::new();
    runtime::spawn(worker, patient(stack.config()), stop.clone());
    stop
}

async fn memory_events(stack: &Stack, enough: impl Fn(&[MemoryEvent]) -> bool) -> Vec<MemoryEvent> {
    eventually("the events", || async { Some(stack.events::<MemoryEvent>().await).filter(|events| enough(events)) })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_model_that_is_away_when_it_comes_back_then_the_summary_is_written_and_nothing_was_given_up() {
    let stack = Stack::start().await;
    let (models, of) = (Arc::new(Stub::default()), session("s"));
    models.down.store(true, Ordering::SeqCst);
    let stop = start(&stack, Summarizer::new(models.clone(), 80));
    let turns: Vec<MemoryEvent> = (1..=7).map(|n| turn(&of, n)).collect();
    stack.send(&turns).await;
    tokio::time::sleep(std::time::Duration::from_millis(400)).await; // many attempts at a test's pauses
    assert!(summaries(&stack.events().await).is_empty());
    models.down.store(false, Ordering::SeqCst);
    let events = memory_events(&stack, |events| !summaries(events).is_empty()).await;
    assert_eq!(summaries(&events)[0].through_seq, 4);
    assert!(stack.letters(Topic::MemoryEvents).await.is_empty());
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_worker_that_starts_anew_when_turns_go_on_then_it_goes_on_from_what_the_log_says() {
    let stack = Stack::start().await;
    let (models, of) = (Arc::new(Stub::default()), session("s"));
    let stop = start(&stack, Summarizer::new(models.clone(), 80));
    stack.send(&(1..=7).map(|n| turn(&of, n)).collect::<Vec<_>>()).await;
    memory_events(&stack, |events| !summaries(events).is_empty()).await;
    stack.drained("memory-summary", Topic::MemoryEvents).await;
    stop.cancel();

    // Other conversations lie between, and another life of the worker has seen none of it.
    stack.send(&(1..=3).map(|n| turn(&session("other"), n)).collect::<Vec<_>>()).await;
    let stop = start(&stack, Summarizer::new(models.clone(), 80));
    stack.send(&(8..=11).map(|n| turn(&of, n)).collect::<Vec<_>>()).await;
    let written = summaries(&memory_events(&stack, |events| summaries(events).len() >= 2).await);
    assert_eq!((written[1].through_seq, written[1].previous), (8, Some(written[0].summary_id)));

    // Forgetting a covered turn opens the others again, whose words this life of the worker has let go of.
    stack.drained("memory-summary", Topic::MemoryEvents).await;
    stack.send(&[forget(&of, Some(turn_id(2).to_string()))]).await;
    let anew =
        |events: &[MemoryEvent]| summaries(events).into_iter().skip(1).find(|summary| summary.previous.is_none());
    let events = memory_events(&stack, |events| anew(events).is_some()).await;
    let written = anew(&events).unwrap();
    assert!(!written.turn_ids.contains(&turn_id(2)) && written.turn_ids.contains(&turn_id(1)));
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_run_that_was_accepted_before_a_restart_when_it_ends_then_it_is_recorded() {
    let stack = Stack::start().await;
    let [accepted, claimed, end] = run(Some("s"), Some("then"));
    let stop = start(&stack, RunRecorder::default());
    stack.send(&[accepted, claimed]).await;
    stack.drained("memory-runs", Topic::AgentEvents).await;
    stop.cancel();
    let stop = start(&stack, RunRecorder::default());
    stack.send(&[end]).await;
    let events = memory_events(&stack, |events| events.len() >= 2).await;
    assert_eq!(events.len(), 2);
    stop.cancel();
}

#[tokio::test(flavor = "multi_thread")]
async fn given_vectors_that_are_gone_when_the_worker_starts_then_they_are_made_again_from_the_log() {
    let stack = Stack::start().await;
    let (models, of) = (Arc::new(Stub::default()), session("s"));
    let (_folder, kept) = vectors();
    let stop = start(&stack, EpisodeKeeper::new(models.clone(), kept.clone()));
    stack.send(&(1..=3).map(|n| turn(&of, n)).collect::<Vec<_>>()).await;
    eventually("the vector", || async { (kept.count(&of, None).await.unwrap() == 1).then_some(()) }).await;
    stack.drained("memory-episodes", Topic::MemoryEvents).await;
    stop.cancel();

    let (_other_folder, empty) = vectors();
    let stop = start(&stack, EpisodeKeeper::new(models, empty.clone()));
    eventually("the vector again", || async { (empty.count(&of, None).await.unwrap() == 1).then_some(()) }).await;
    stop.cancel();
}

const QUESTION: &str = "what is the toy called?";

/// A conversation as the workers leave it: every exchange is two turns, and all but the last are episodes.
async fn kept_conversation(sql: &Sql, kept: &Episodes, of: &Session, exchanges: &[(String, &str)]) {
    let (mut events, mut memories) = (Vec::<MemoryEvent>::new(), Vec::new());
    for (number, (question, answer)) in exchanges.iter().enumerate() {
        let said = [(TurnRole::User, question.clone()), (TurnRole::Assistant, (*answer).to_owned())];
        let mut turn_ids = Vec::new();
        for (role, text) in said {
            let turn_id = TurnId::derive(&[of.name.as_str(), &number.to_string(), role.as_str()]);
            turn_ids.push(turn_id);
            let (namespace, session) = (of.namespace.clone(), of.name.clone());
            events.push(TurnRecorded { namespace, session, turn_id, role, text, run_id: None, at: 0 }.into());
        }
        if number + 1 == exchanges.len() {
            break;
        }
        let episode_id = EpisodeId::derive(&[of.name.as_str(), &number.to_string()]);
        let text = format!("user: {question}\nassistant: {answer}");
        memories.push((episode_id.to_string(), text.clone()));
        let (namespace, session) = (of.namespace.clone(), of.name.clone());
        events.push(EpisodeRemembered { namespace, session, episode_id, text, turn_ids, at: 0 }.into());
    }
    let next = next_offset(sql, Topic::MemoryEvents, 0).await.unwrap();
    let record = |(event, offset)| LogRecord {
        topic: Topic::MemoryEvents,
        partition: 0,
        offset,
        body: Projected::Memory(event),
    };
    let records: Vec<LogRecord> = events.into_iter().zip(next..).map(record).collect();
    apply(sql, &records).await.unwrap();
    let texts = memories.iter().map(|(_, text)| text.clone()).collect();
    let vectors = Stub::default().embed(texts, EmbedPurpose::Document).await.unwrap().vectors;
    let point = |((id, text), vector)| EpisodePoint { id, text, vector };
    kept.remember(of, "stub", 2, memories.into_iter().zip(vectors).map(point).collect()).await.unwrap();
}

/// Memory with a window of so many tokens.
fn memory(sql: &Sql, kept: &Episodes, window_tokens: usize) -> StoredMemory {
    let producer = context("memory").producer;
    StoredMemory::new(sql.clone(), kept.clone(), Arc::new(Stub::default()), producer, window_tokens)
}

async fn shown(memory: &StoredMemory, of: &Session, k: usize) -> MemoryContext {
    let request = ContextRequest { query: Some(QUESTION.to_owned()), k, reserved_tokens: 0 };
    memory.context(of, &request).await.unwrap()
}

#[tokio::test]
async fn given_any_number_of_newer_turns_that_resemble_the_query_more_when_it_is_recalled_then_the_older_exchange_is_found()
 {
    let (_folder, kept) = vectors();
    let tables = tempfile::tempdir().unwrap();
    let sql = Sql::open(tables.path().join("read.db")).await.unwrap();
    // Around every number that is searched for at once, and as many as a window looks at.
    for newer in [0, 5, 10, 11, 14, 15, 16, 20, 29, 50, 61, 119, 240] {
        let of = session(&format!("{newer} newer"));
        let mut exchanges = vec![("the toy is a ball named Zorb".to_owned(), "noted")];
        exchanges.extend((0..30).map(|_| (format!("the weather {}", "is fine and ".repeat(60)), "yes")));
        exchanges.extend((0..newer).map(|n| (format!("what is the toy called? try {n}"), "no idea")));
        exchanges.push(("well then".to_owned(), "well"));
        kept_conversation(&sql, &kept, &of, &exchanges).await;
        // Room for the newer ones, and for no more than one of the long ones.
        let memory = memory(&sql, &kept, 200 + newer * 9);
        for k in [1, 5, 20] {
            let context = shown(&memory, &of, k).await;
            let among_turns = |word: &str| context.turns.iter().filter(|turn| turn.text.contains(word)).count();
            assert_eq!((among_turns("toy called"), among_turns("Zorb")), (newer, 0), "{newer} newer");
            let found: Vec<&str> = context.episodes.iter().map(|episode| episode.text.as_str()).collect();
            assert_eq!(found, ["user: the toy is a ball named Zorb\nassistant: noted"], "{newer} newer, k = {k}");
        }
    }
}

#[tokio::test]
async fn given_memories_that_find_no_room_when_some_are_recalled_then_behind_ten_of_them_no_smaller_one_is_looked_for()
{
    let (_folder, kept) = vectors();
    let tables = tempfile::tempdir().unwrap();
    let sql = Sql::open(tables.path().join("read.db")).await.unwrap();
    for (large, found) in [(9, 1), (10, 0), (40, 0)] {
        let of = session(&format!("{large} large"));
        let mut exchanges = vec![("the toy is a ball named Zorb".to_owned(), "noted")];
        exchanges.extend((0..large).map(|_| (format!("{QUESTION} {}", "or not ".repeat(60)), "no idea")));
        exchanges.push(("well then".to_owned(), "well"));
        kept_conversation(&sql, &kept, &of, &exchanges).await;
        let context = shown(&memory(&sql, &kept, 64), &of, 20).await;
        assert_eq!(context.episodes.len(), found, "{large} that are larger than half a window");
    }
}
