use riverrun_schemas::{BlobRef, Failure};

use super::super::Projected;
use super::super::testing::{fresh, records};
use super::*;
use crate::sql::Sql;

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
    analyzed_at(number, 3)
}

fn analyzed_at(number: u32, at: i64) -> ProjectEvent {
    ProjectAnalyzed {
        project_id: project_id(),
        namespace: namespace(),
        analysis_id: analysis(number),
        report: blob(),
        findings: 0,
        counts_json: "{}".into(),
        at,
    }
    .into()
}

fn not_analyzed(number: u32, at: i64) -> ProjectEvent {
    ProjectFailed {
        project_id: project_id(),
        namespace: namespace(),
        phase: "analyzing".into(),
        about: analysis(number).to_string(),
        name: String::new(),
        source: String::new(),
        error: Failure::new("code", "message"),
        at,
    }
    .into()
}

fn proposed(number: u32, file: &str, after: Option<BlobRef>) -> ProjectEvent {
    ProposalMade {
        project_id: project_id(),
        namespace: namespace(),
        proposal_id: ProposalId::derive(&[&number.to_string()]),
        file: file.into(),
        before_sha256: String::new(),
        after,
        diff: String::new(),
        findings_before: 0,
        findings_after: 0,
        improves: true,
        note: None,
        model: String::new(),
        prompt_tokens: 0,
        completion_tokens: 0,
        tests_json: None,
        at: i64::from(number),
    }
    .into()
}

async fn written(events: Vec<ProjectEvent>) -> (tempfile::TempDir, Sql) {
    let (folder, sql) = fresh().await;
    super::super::apply(&sql, &records(events, Projected::Project)).await.unwrap();
    (folder, sql)
}

/// The project after these events.
async fn after(events: Vec<ProjectEvent>) -> ProjectRow {
    let (_folder, sql) = written(events).await;
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

#[tokio::test]
async fn given_more_failed_analyses_than_a_page_has_when_those_that_are_done_are_asked_for_then_each_is_found() {
    let mut events = vec![imported(1), analyzed_at(1, 10), analyzed_at(2, 20)];
    events.extend((100..701).map(|number| not_analyzed(number, 30)));
    events.push(analyzed_at(3, 40));
    let (_folder, sql) = written(events).await;
    let done = async |before: Option<&AnalysisRow>, limit: u32| {
        done_analyses(&sql, project_id(), before, limit).await.unwrap()
    };
    let ids = |rows: &[AnalysisRow]| rows.iter().map(|row| row.analysis_id).collect::<Vec<AnalysisId>>();
    let all = done(None, 500).await;
    assert_eq!(ids(&all), [3, 2, 1].map(analysis));
    assert_eq!(ids(&done(None, 1).await), [analysis(3)]);
    assert_eq!(ids(&done(Some(&all[0]), 1).await), [analysis(2)]);
    assert_eq!(ids(&done(Some(&all[1]), 9).await), [analysis(1)]);
    assert!(done(Some(&all[2]), 9).await.is_empty());
}

#[tokio::test]
async fn given_more_proposals_than_a_page_has_when_one_of_a_file_is_looked_for_then_the_newest_that_may_be_applied_is_found()
 {
    let mut events = vec![imported(1), proposed(1, "a.py", Some(blob())), proposed(2, "a.py", Some(blob()))];
    events.push(proposed(3, "a.py", None));
    events.extend((100..701).map(|number| proposed(number, "b.py", Some(blob()))));
    let (_folder, sql) = written(events).await;
    for (file, number) in [("a.py", Some(2)), ("b.py", Some(700)), ("c.py", None)] {
        let found = open_proposal(&sql, project_id(), file).await.unwrap().map(|row| row.proposal_id);
        assert_eq!(found, number.map(|number: u32| ProposalId::derive(&[&number.to_string()])), "{file}");
    }
}
