//! Reports of analyses of projects.

use riverrun_schemas::projects::{ProjectAnalyzed, ProjectEvent, ProjectProgressed, ProjectRemoved};
use riverrun_schemas::{AnalysisId, BlobRef, ChangeId, Namespace, ProjectId, Topic};
use riverrun_stores::DocumentStore;
use riverrun_stores::documents::{Change, DocumentEvent, DocumentKey, DocumentKind, MAX_REPORT_BYTES, report_of};
use riverrun_stores::read_models::PageRequest;

use super::{Log, blob, ids, log_of, namespace, stores};

fn project_id(name: &str) -> ProjectId {
    ProjectId::derive(&[name])
}

fn analysis_id(name: &str) -> AnalysisId {
    AnalysisId::derive(&[name])
}

fn analyzed(project: &str, analysis: &str) -> ProjectAnalyzed {
    ProjectAnalyzed {
        project_id: project_id(project),
        namespace: namespace(),
        analysis_id: analysis_id(analysis),
        report: blob(analysis),
        findings: 3,
        counts_json: "{}".to_owned(),
        at: 7,
    }
}

/// With its report.
fn with_report(project: &str, analysis: &str, report: Option<&str>) -> DocumentEvent {
    DocumentEvent::Project { event: analyzed(project, analysis).into(), report: report.map(str::to_owned) }
}

fn removed(project: &str) -> DocumentEvent {
    let event = ProjectRemoved {
        project_id: project_id(project),
        namespace: namespace(),
        change_id: ChangeId::derive(&[project]),
        at: 9,
    };
    ProjectEvent::from(event).into()
}

fn progressed(project: &str) -> DocumentEvent {
    let event = ProjectProgressed {
        project_id: project_id(project),
        namespace: namespace(),
        phase: "analyzing".to_owned(),
        about: String::new(),
        name: String::new(),
        source: String::new(),
        file: String::new(),
        done: 0,
        total: 1,
        at: 1,
    };
    ProjectEvent::from(event).into()
}

async fn project(store: &dyn DocumentStore, log: &[(i64, Option<DocumentEvent>)]) {
    riverrun_stores::documents::project(store, Topic::ProjectsEvents, 0, log).await.unwrap();
}

async fn body(store: &dyn DocumentStore, project: &str, analysis: &str) -> Option<String> {
    let key = DocumentKey::report(&namespace(), project_id(project), analysis_id(analysis));
    store.get(&key).await.unwrap().map(|kept| kept.body)
}

fn history() -> Log {
    log_of(vec![
        progressed("p"),
        with_report("p", "1", Some("{\"n\":\"ü 🐕\"}")),
        with_report("p", "1", Some("{\"n\":\"another\"}")),
        with_report("q", "1", Some("{}")),
        with_report("p", "2", Some("[ 1 ]")),
        with_report("p", "3", None),
    ])
}

#[tokio::test]
async fn given_analyses_when_they_are_projected_then_the_first_report_of_each_is_kept_as_it_is() {
    for store in stores("reports").await.all {
        let store = store.as_ref();
        for twice in 0..2 {
            project(store, &history()).await;
            let found = (body(store, "p", "1").await, body(store, "p", "2").await, body(store, "p", "3").await);
            assert_eq!(found, (Some("{\"n\":\"ü 🐕\"}".to_owned()), Some("[ 1 ]".to_owned()), None), "{twice}");
            assert_eq!(store.next_offset(Topic::ProjectsEvents, 0).await.unwrap(), 6, "{:?}", store.info());
        }
        assert_eq!(store.count(DocumentKind::Report, &namespace()).await.unwrap(), 3);
        assert_eq!(ids(store, DocumentKind::Report, &namespace()).await.len(), 3);
        let other: Namespace = "team".parse().unwrap();
        assert!(ids(store, DocumentKind::Report, &other).await.is_empty());
        for bad in ["x", "prj_x.ana_y", project_id("p").to_string().as_str()] {
            let page = PageRequest { limit: None, cursor: Some(bad.to_owned()) };
            assert_eq!(
                store.list(DocumentKind::Report, &namespace(), &page).await.unwrap_err().code(),
                "cursor_invalid"
            );
        }
    }
}

#[tokio::test]
async fn given_a_project_that_is_removed_when_it_is_projected_then_its_reports_go_and_no_others() {
    for store in stores("reports-removed").await.all {
        let store = store.as_ref();
        let mut whole = history();
        whole.push((6, Some(removed("p"))));
        whole.push((7, Some(with_report("p", "1", Some("late")))));
        whole.push((8, Some(removed("p"))));
        // In one batch, one by one, and one batch behind another.
        for cut in [9, 1, 6] {
            store.clear().await.unwrap();
            for piece in whole.chunks(cut) {
                project(store, piece).await;
            }
            let left = ids(store, DocumentKind::Report, &namespace()).await;
            assert_eq!(left, [format!("{}.{}", project_id("q"), analysis_id("1"))], "{cut} {:?}", store.info());
        }
        // As from a projector that is behind: what is newer stays.
        let late = [Change::RemoveBelow {
            key: DocumentKey {
                id: project_id("q").to_string(),
                ..DocumentKey::report(&namespace(), project_id("q"), analysis_id("1"))
            },
            offset: 2,
        }];
        store.write(Topic::ProjectsEvents, 0, &late, 3).await.unwrap();
        assert_eq!(body(store, "q", "1").await.as_deref(), Some("{}"));
    }
}

#[test]
fn given_events_when_their_report_is_asked_for_then_only_one_that_is_kept_is_named() {
    let event = |size_bytes| {
        ProjectEvent::from(ProjectAnalyzed { report: BlobRef { size_bytes, ..blob("x") }, ..analyzed("p", "1") })
    };
    assert_eq!(report_of(&event(MAX_REPORT_BYTES)).map(|report| report.size_bytes), Some(MAX_REPORT_BYTES));
    assert_eq!(report_of(&event(MAX_REPORT_BYTES + 1)), None);
    let DocumentEvent::Project { event, .. } = removed("p") else { unreachable!() };
    assert_eq!(report_of(&event), None);
}
