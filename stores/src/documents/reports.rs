//! What an event of a project does to the reports of its analyses. Pure.

use riverrun_schemas::BlobRef;
use riverrun_schemas::projects::{ProjectAnalyzed, ProjectEvent};

use super::{Change, DocumentKey, KeptDocument};

/// Largest report that is kept, in bytes; MongoDB has 16 MiB for a document. A larger one is read from the blob store alone.
pub const MAX_REPORT_BYTES: i64 = 8 << 20;

/// The report that an event names and that is kept. Whoever brings the event to the store brings its text along.
pub fn report_of(event: &ProjectEvent) -> Option<&BlobRef> {
    analyzed(event).map(|e| &e.report).filter(|report| report.size_bytes <= MAX_REPORT_BYTES)
}

/// The document of the store that an event is about; a removal is about several.
pub(super) fn key(event: &ProjectEvent) -> Option<DocumentKey> {
    analyzed(event).map(|e| DocumentKey::report(&e.namespace, e.project_id, e.analysis_id))
}

fn analyzed(event: &ProjectEvent) -> Option<&ProjectAnalyzed> {
    match event {
        ProjectEvent::ProjectAnalyzed(e) => Some(e),
        ProjectEvent::ProjectProgressed(_)
        | ProjectEvent::ProjectImported(_)
        | ProjectEvent::ProjectFailed(_)
        | ProjectEvent::ProposalMade(_)
        | ProjectEvent::FileChanged(_)
        | ProjectEvent::ChangeRefused(_)
        | ProjectEvent::ProjectRemoved(_) => None,
    }
}

/// The change. The first report of an analysis counts; one whose text is not there is not kept.
pub(super) fn change(
    before: Option<&KeptDocument>,
    event: &ProjectEvent,
    report: Option<&str>,
    offset: i64,
) -> Option<Change> {
    match event {
        ProjectEvent::ProjectAnalyzed(e) => {
            let body = report.filter(|_| before.is_none())?.to_owned();
            Some(Change::Put(KeptDocument {
                key: DocumentKey::report(&e.namespace, e.project_id, e.analysis_id),
                name: riverrun_schemas::counted(e.findings, "finding"),
                revision: 1,
                at: e.at,
                offset,
                saves: Vec::new(),
                body,
            }))
        }
        ProjectEvent::ProjectRemoved(e) => {
            Some(Change::RemoveBelow { key: DocumentKey::reports(&e.namespace, e.project_id), offset })
        }
        ProjectEvent::ProjectProgressed(_)
        | ProjectEvent::ProjectImported(_)
        | ProjectEvent::ProjectFailed(_)
        | ProjectEvent::ProposalMade(_)
        | ProjectEvent::FileChanged(_)
        | ProjectEvent::ChangeRefused(_) => None,
    }
}
