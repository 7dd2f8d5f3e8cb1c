use proptest::prelude::*;
use riverrun_schemas::agent::RunSnapshotted;
use riverrun_schemas::finetune::{
    DatasetRegistered, FinetuneClaimed, FinetuneFinished, FinetuneOutcome, StartFinetune,
};
use riverrun_schemas::ingest::{
    ChunksReady, CollectionTuneFailed, CollectionTuned, CollectionTuning, CollectionWithdrawn, DocumentIndexed,
    DocumentQueued, DocumentUnchanged, DocumentWithdrawn, IngestScanned, StartIngest, TuneCollection,
};
use riverrun_schemas::projects::{ImportProject, ProjectFailed, ProjectRemoved};
use riverrun_schemas::{BlobRef, Failure, Namespace};

use super::*;
use crate::about::about;
use crate::about::testing::{Of, of};

/// The hash of the `what`-th thing of a document and a request.
fn hash(document: u8, ingest: u8, what: u8) -> Hash {
    let mut hash = Hash::default();
    (hash[0], hash[1], hash[2]) = (document, ingest, what);
    hash
}

/// What is named is given beside the event: the blob in it does not matter.
fn no_blob() -> BlobRef {
    BlobRef { sha256: String::new(), size_bytes: 0, media_type: String::new() }
}

const CONTENT: u8 = 1;
const TEXT: u8 = 2;

/// What happens to a document with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Queued,
    Chunked,
    Indexed,
    Unchanged,
    Withdrawn,
}

fn step() -> impl Strategy<Value = Step> {
    prop::sample::select(vec![Step::Queued, Step::Chunked, Step::Indexed, Step::Unchanged, Step::Withdrawn])
}

fn queued(document: u8, ingest: u8) -> IngestEvent {
    about!(of(document, ingest), DocumentQueued { content: no_blob() }).into()
}

fn indexed(document: u8, ingest: u8) -> IngestEvent {
    about!(
        of(document, ingest),
        DocumentIndexed {
            version: "v".to_owned(),
            chunks: 1,
            removed_chunks: 0,
            embed_model: "m".to_owned(),
            dimensions: 3,
        }
    )
    .into()
}

fn unchanged(document: u8, ingest: u8) -> IngestEvent {
    about!(of(document, ingest), DocumentUnchanged { version: "v".to_owned() }).into()
}

fn withdrawn(document: u8, ingest: u8) -> IngestEvent {
    about!(of(document, ingest), DocumentWithdrawn { tables: 0, rows: 0 }).into()
}

fn apply(marks: &mut Marks, step: Step, document: u8, ingest: u8) {
    match step {
        Step::Queued => marks.ingest_event(&queued(document, ingest), vec![hash(document, ingest, CONTENT)]),
        Step::Chunked => marks.documents.chunked(of(document, ingest).document_id, vec![hash(document, ingest, TEXT)]),
        Step::Indexed => marks.ingest_event(&indexed(document, ingest), vec![]),
        Step::Unchanged => marks.ingest_event(&unchanged(document, ingest), vec![]),
        Step::Withdrawn => marks.ingest_event(&withdrawn(document, ingest), vec![]),
    }
}

proptest! {
    #[test]
    fn given_any_history_of_documents_then_what_a_rebuild_a_citation_or_a_worker_needs_lives_and_what_was_removed_does_not(
        history in prop::collection::vec((step(), 0u8..3, 0u8..4), 0..40)
    ) {
        let mut marks = Marks::default();
        history.iter().for_each(|(step, document, ingest)| apply(&mut marks, *step, *document, *ingest));
        let living = marks.living();
        for document in 0..3 {
            let own: Vec<(Step, u8)> =
                history.iter().filter(|(_, of, _)| *of == document).map(|(step, _, ingest)| (*step, *ingest)).collect();
            // A removal that comes twice counts once.
            let first = |at: usize| !own[..at].contains(&own[at]);
            let removed = (0..own.len()).rev().find(|at| own[*at].0 == Step::Withdrawn && first(*at));
            let since = &own[removed.map_or(0, |at| at + 1)..];
            let lives = |ingest: u8, what: u8| living.contains(&hash(document, ingest, what));
            for ingest in 0..4 {
                prop_assert_eq!(lives(ingest, TEXT), since.contains(&(Step::Chunked, ingest)));
                let was_queued = since.contains(&(Step::Queued, ingest));
                prop_assert!(was_queued || !lives(ingest, CONTENT), "nothing of before the removal lives");
                let ended = since.contains(&(Step::Indexed, ingest)) || since.contains(&(Step::Unchanged, ingest));
                prop_assert!(ended || lives(ingest, CONTENT) == was_queued, "what has come to no end lives");
            }
            // Where requests come one after the other, the bytes of the version that is found are there.
            let last_found = since.iter().rposition(|(step, _)| *step == Step::Indexed);
            if let Some(found) = last_found {
                let ingest = since[found].1;
                let once = since.iter().filter(|(step, of)| *step == Step::Indexed && *of == ingest).count() == 1;
                let was_queued = since[..found].contains(&(Step::Queued, ingest));
                let was_unchanged = since.contains(&(Step::Unchanged, ingest));
                prop_assert!(!once || !was_queued || was_unchanged || lives(ingest, CONTENT), "a rebuild reads it");
            }
        }
    }
}

#[test]
fn given_a_newer_version_when_it_is_found_then_the_bytes_of_the_older_one_go_and_not_before() {
    let mut marks = Marks::default();
    let steps = [(Step::Queued, 1), (Step::Chunked, 1), (Step::Indexed, 1), (Step::Queued, 2), (Step::Chunked, 2)];
    steps.iter().for_each(|(step, ingest)| apply(&mut marks, *step, 0, *ingest));
    assert!(
        marks.documents.clone().living().any(|named| named == hash(0, 1, CONTENT)),
        "the older one is found until then"
    );
    apply(&mut marks, Step::Indexed, 0, 2);
    let living = marks.living();
    assert!(!living.contains(&hash(0, 1, CONTENT)));
    for kept in [hash(0, 1, TEXT), hash(0, 2, CONTENT), hash(0, 2, TEXT)] {
        assert!(living.contains(&kept));
    }
}

#[test]
fn given_a_blob_that_two_documents_have_when_one_is_removed_then_it_lives() {
    let mut marks = Marks::default();
    let shared = hash(9, 9, CONTENT);
    marks.ingest_event(&queued(0, 1), vec![shared]);
    marks.ingest_event(&queued(1, 1), vec![shared]);
    marks.ingest_event(&withdrawn(0, 2), vec![]);
    assert!(marks.living().contains(&shared));
}

#[test]
fn given_commands_when_the_events_tell_of_their_work_then_what_they_named_goes_and_not_before() {
    let (archive, chunk) = (hash(0, 1, 7), hash(0, 1, 8));
    let marks = || {
        let mut marks = Marks::default();
        marks.ingest_command(&start(1).into(), vec![archive]);
        marks.chunks(&ready(0, 1).into(), vec![chunk]);
        marks
    };
    let before = marks().living();
    assert!(before.contains(&archive) && before.contains(&chunk));
    let mut marks = marks();
    marks.ingest_event(&scanned(1).into(), vec![]);
    marks.ingest_event(&queued(0, 1), vec![]);
    marks.ingest_event(&indexed(0, 1), vec![]);
    assert!(marks.living().is_empty());
}

fn start(ingest: u8) -> StartIngest {
    let Of { ingest_id, namespace, collection, source, .. } = of(0, ingest);
    StartIngest {
        ingest_id,
        namespace,
        collection,
        source,
        source_type: None,
        embed_model: "m".to_owned(),
        chunk_size: 1,
        chunk_overlap: 0,
        metadata_json: None,
        query: None,
        include: Vec::new(),
        exclude: Vec::new(),
        depth: None,
        sitemap: false,
        content: Some(no_blob()),
        table: None,
        strategy: None,
        chunk_unit: None,
        at: 0,
    }
}

fn scanned(ingest: u8) -> IngestScanned {
    let Of { ingest_id, namespace, collection, source, .. } = of(0, ingest);
    IngestScanned { ingest_id, namespace, collection, source, documents: 1, skipped: 0, left_out: Vec::new(), at: 0 }
}

fn ready(document: u8, ingest: u8) -> ChunksReady {
    let Of { document_id, ingest_id, namespace, collection, source } = of(document, ingest);
    ChunksReady {
        document_id,
        ingest_id,
        namespace,
        collection,
        source,
        version: "v".to_owned(),
        embed_model: "m".to_owned(),
        batch: 0,
        batches: 1,
        metadata_json: None,
        at: 0,
        chunks: Vec::new(),
        context: None,
    }
}

#[test]
fn given_a_project_when_it_is_removed_then_all_of_it_goes_whatever_comes_behind() {
    let (project_id, namespace) = (ProjectId::derive(&["p"]), Namespace::default());
    let import = ImportProject {
        project_id,
        namespace: namespace.clone(),
        name: "p".to_owned(),
        source: "p.zip".to_owned(),
        content: Some(no_blob()),
        at: 0,
    };
    let failed = ProjectFailed {
        project_id,
        namespace: namespace.clone(),
        phase: "analyzing".to_owned(),
        about: String::new(),
        name: "p".to_owned(),
        source: "p.zip".to_owned(),
        error: Failure::new("code", "message"),
        at: 0,
    };
    let removed =
        ProjectRemoved { project_id, namespace, change_id: riverrun_schemas::ChangeId::derive(&["c"]), at: 0 };
    let mut marks = Marks::default();
    marks.project_command(&import.into(), vec![hash(0, 0, 1)]);
    marks.project_event(&failed.clone().into(), vec![hash(0, 0, 2)]);
    assert_eq!(marks.clone().living().len(), 2);
    marks.project_event(&removed.into(), vec![]);
    marks.project_event(&failed.into(), vec![hash(0, 0, 3)]);
    assert!(marks.living().is_empty());
}

#[test]
fn given_a_dataset_that_was_replaced_when_nothing_is_trained_on_it_any_more_then_it_goes() {
    let job_id = FinetuneId::derive(&["j"]);
    let (old, new) = (hash(0, 0, 1), hash(0, 0, 2));
    let mut marks = Marks::default();
    marks.finetune_command(&training(job_id).into(), vec![old]);
    marks.finetune_event(&dataset().into(), vec![old]);
    marks.finetune_event(&dataset().into(), vec![new]);
    for epoch in [1, 2] {
        marks.finetune_event(&FinetuneClaimed { job_id, epoch, worker: "w".to_owned(), at: 0 }.into(), vec![]);
    }
    marks.finetune_event(&finished(job_id, 1).into(), vec![]);
    assert!(marks.clone().living().contains(&old), "the end of a lost claim is none");
    marks.finetune_event(&finished(job_id, 2).into(), vec![]);
    assert_eq!(marks.living(), HashSet::from([new]));
}

fn dataset() -> DatasetRegistered {
    DatasetRegistered {
        name: "d".to_owned(),
        format: "sft".to_owned(),
        content: no_blob(),
        examples: 1,
        train_examples: 1,
        eval_examples: 0,
        duplicates: 0,
        tokens_json: None,
        warnings_json: "[]".to_owned(),
        at: 0,
    }
}

fn training(job_id: FinetuneId) -> StartFinetune {
    StartFinetune {
        job_id,
        name: "m".to_owned(),
        dataset: "d".to_owned(),
        content: no_blob(),
        format: "sft".to_owned(),
        base_model: "b".to_owned(),
        plan_json: "{}".to_owned(),
        at: 0,
    }
}

fn finished(job_id: FinetuneId, epoch: i64) -> FinetuneFinished {
    FinetuneFinished {
        job_id,
        epoch,
        status: FinetuneOutcome::Failed,
        steps: 0,
        loss: None,
        eval_loss: None,
        model: None,
        error: None,
        at: 0,
    }
}

#[test]
fn given_snapshots_of_a_run_when_a_later_one_comes_then_only_that_lives() {
    let run_id = RunId::derive(&["r"]);
    let mut marks = Marks::default();
    for seq in [1, 2] {
        let snapshot =
            RunSnapshotted { run_id, epoch: 1, seq, accepted_offset: 0, next_offset: seq, state: no_blob(), at: 0 };
        marks.agent_event(&snapshot.into(), vec![hash(0, 0, u8::try_from(seq).unwrap())]);
    }
    assert_eq!(marks.living(), HashSet::from([hash(0, 0, 2)]));
}

fn tune(request: u8) -> IngestCommand {
    TuneCollection {
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: Namespace::default(),
        collection: "notes".parse().unwrap(),
        judgements: Some(no_blob()),
        at: 0,
    }
    .into()
}

fn tuned(request: u8, at: i64) -> IngestEvent {
    CollectionTuned {
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: Namespace::default(),
        collection: "notes".parse().unwrap(),
        embed_model: "m".to_owned(),
        adapter: Some(no_blob()),
        queries: 10,
        gains: Vec::new(),
        at,
    }
    .into()
}

/// What the tunings of a collection come to, as those who search have it; each request has its judgements, and a matrix for each end.
fn marked(requests: u8, events: &[IngestEvent]) -> HashSet<Hash> {
    let mut marks = Marks::default();
    (1..=requests).for_each(|request| marks.ingest_command(&tune(request), vec![judgements(request)]));
    for event in events {
        let names = match event {
            IngestEvent::CollectionTuned(e) => vec![matrix(e.at)],
            _ => Vec::new(),
        };
        marks.ingest_event(event, names);
    }
    marks.living()
}

fn judgements(request: u8) -> Hash {
    hash(request, 0, 1)
}

/// Of the tuning that ended then.
fn matrix(at: i64) -> Hash {
    hash(u8::try_from(at).unwrap(), 0, 2)
}

fn begun(request: u8, at: i64) -> IngestEvent {
    CollectionTuning {
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: Namespace::default(),
        collection: "notes".parse().unwrap(),
        queries: 10,
        at,
    }
    .into()
}

fn not_tuned(request: u8, at: i64) -> IngestEvent {
    CollectionTuneFailed {
        ingest_id: IngestId::derive(&[&request.to_string()]),
        namespace: Namespace::default(),
        collection: "notes".parse().unwrap(),
        error: Failure::new("too_few_judgements", "none"),
        at,
    }
    .into()
}

fn removed(collection: &str, at: i64) -> IngestEvent {
    CollectionWithdrawn {
        ingest_id: IngestId::derive(&["out"]),
        namespace: Namespace::default(),
        collection: collection.parse().unwrap(),
        documents: 1,
        at,
    }
    .into()
}

#[test]
fn given_tunings_in_any_order_when_they_are_marked_then_the_last_matrix_lives_and_judgements_until_their_end() {
    for order in [[1, 2], [2, 1]] {
        let events = order.map(|request| tuned(request, i64::from(request)));
        assert_eq!(marked(3, &events), HashSet::from([matrix(2), judgements(3)]), "{order:?}");
    }
    // What was begun later counts, however long the others take.
    let slower = [begun(1, 1), begun(2, 2), tuned(2, 3), tuned(1, 4)];
    assert_eq!(marked(2, &slower), HashSet::from([matrix(3)]));
    // What may be handed in again from a dead letter is named by that.
    let failed = [begun(1, 1), not_tuned(1, 2)];
    assert_eq!(marked(2, &failed), HashSet::from([judgements(2)]));
}

#[test]
fn given_a_tuning_that_is_told_again_when_it_is_marked_then_the_matrix_that_is_searched_with_lives() {
    // As a delivery that is handed in again after a crash tells it: with what is in the collection by then.
    assert_eq!(marked(1, &[begun(1, 1), tuned(1, 2), begun(1, 3), tuned(1, 4)]), HashSet::from([matrix(2)]));
    assert_eq!(marked(1, &[begun(1, 1), not_tuned(1, 2), begun(1, 3), tuned(1, 4)]), HashSet::from([matrix(4)]));
    assert_eq!(marked(1, &[begun(1, 1), tuned(1, 2), not_tuned(1, 3)]), HashSet::from([matrix(2)]));
    // It stands where it stood among others, unless it failed.
    let again = [begun(1, 1), begun(2, 2), tuned(2, 3), begun(1, 4), tuned(1, 5)];
    assert_eq!(marked(2, &again), HashSet::from([matrix(3)]));
    let later = [begun(1, 1), begun(2, 2), tuned(2, 3), not_tuned(1, 4), begun(1, 5), tuned(1, 6)];
    assert_eq!(marked(2, &later), HashSet::from([matrix(6)]));
}

#[test]
fn given_a_collection_that_is_removed_when_it_is_marked_then_what_was_begun_before_is_named_by_nothing() {
    let others = [begun(1, 1), tuned(1, 2), removed("others", 3)];
    assert_eq!(marked(1, &others), HashSet::from([matrix(2)]));
    // The partitions of removals and tunings are read in any order.
    for events in [[begun(1, 1), tuned(1, 2), removed("notes", 3)], [removed("notes", 3), begun(1, 1), tuned(1, 2)]] {
        assert_eq!(marked(1, &events), HashSet::new(), "{events:?}");
    }
    let meanwhile = [begun(1, 1), tuned(1, 3), removed("notes", 2)];
    assert_eq!(marked(1, &meanwhile), HashSet::new(), "it ended after the collection that it is of");
    let next = [begun(1, 1), tuned(1, 2), begun(2, 4), tuned(2, 5), removed("notes", 3)];
    assert_eq!(marked(2, &next), HashSet::from([matrix(5)]));
    // As a delivery that is handed in again after a crash tells it: the removal was before the next collection was tuned.
    let told_again = [removed("notes", 1), begun(1, 2), tuned(1, 3), removed("notes", 4)];
    assert_eq!(marked(1, &told_again), HashSet::from([matrix(3)]));
}
