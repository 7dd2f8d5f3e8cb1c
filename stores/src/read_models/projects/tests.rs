use riverrun_schemas::BlobRef;

use super::super::Projected;
use super::super::testing::{fresh, records};
use super::*;

fn blob() -> BlobRef {
    BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/json".into() }
}

fn project_id() -> ProjectId {
    ProjectId::derive(&["p"])
}

fn namespace() -> Namespace {
    "team-a".parse().unwrap()
}

fn analysis(number: u32) -> AnalysisId {
    AnalysisId::derive(&[&number.to_string()])
}

fn progressed(phase: &str, about: String, (done, total): (i64, i64)) -> ProjectEvent {
    ProjectProgressed {
        project_id: project_id(),
        namespace: namespace(),
        phase: phase.into(),
        about,
        name: "name".into(),
        source: "source".into(),
        file: String::new(),
        done,
        total,
        at: 1,
    }
    .into()
}

fn importing(done: i64) -> ProjectEvent {
    progressed("importing", String::new(), (done, 0))
}

fn analyzing(number: u32, counts: (i64, i64)) -> ProjectEvent {
    progressed("analyzing", analysis(number).to_string(), counts)
}

fn imported(files: i64) -> ProjectEvent {
    ProjectImported {
        project_id: project_id(),
        namespace: namespace(),
        name: "name".into(),
        source: "source".into(),
        source_sha256: "1".repeat(64),
        tree: blob(),
        files,
        size_bytes: 1,
        skipped: 0,
        languages_json: "[]".into(),
        at: 2,
    }
    .into()
}

fn analyzed(number: u32) -> ProjectEvent {
    ProjectAnalyzed {
        project_id: project_id(),
        namespace: namespace(),
        analysis_id: analysis(number),
        report: blob(),
        findings: 0,
        counts_json: "{}".into(),
        at: 3,
    }
    .into()
}

/// The project after these events.
async fn after(events: Vec<ProjectEvent>) -> ProjectRow {
    let (_folder, sql) = fresh().await;
    super::super::apply(&sql, &records(events, Projected::Project)).await.unwrap();
    project(&sql, &namespace(), project_id()).await.unwrap().unwrap()
}

#[tokio::test]
async fn given_an_import_that_gets_on_when_it_is_looked_at_then_its_files_are_counted_and_never_fewer_than_before() {
    let row = after(vec![importing(0), importing(40), importing(0), importing(10)]).await;
    assert_eq!((row.status.as_str(), row.files, row.done, row.total), ("importing", 40, 40, 0));
    let row = after(vec![importing(0), imported(50), importing(40)]).await;
    assert_eq!((row.status.as_str(), row.files), ("imported", 50), "what comes late says nothing");
}

#[tokio::test]
async fn given_an_analysis_that_gets_on_when_it_is_looked_at_then_its_analyzers_are_counted_each_time_from_nothing() {
    let begun = vec![importing(0), importing(40), imported(50), analyzing(1, (0, 0))];
    let row = after(begun.clone()).await;
    assert_eq!((row.status.as_str(), row.done, row.total), ("analyzing", 0, 0));
    let mut events = begun;
    events.extend([analyzing(1, (3, 9)), analyzing(1, (5, 11)), analyzing(1, (0, 0))]);
    let row = after(events.clone()).await;
    assert_eq!((row.done, row.total, row.files), (5, 11, 50));
    events.extend([analyzed(1), analyzing(1, (9, 11))]);
    let row = after(events.clone()).await;
    assert_eq!((row.status.as_str(), row.done), ("analyzed", 5), "what comes late says nothing");
    events.push(analyzing(2, (0, 0)));
    let row = after(events).await;
    assert_eq!((row.status.as_str(), row.done, row.total, row.analyses), ("analyzing", 0, 0, 1));
}
