//! Sweeps of a real store by a real log.

use std::time::Duration;

use bytes::Bytes;
use riverrun_log::{BlobStore, ObjectStoreBlobs, Outgoing};
use riverrun_schemas::ingest::{DocumentQueued, DocumentWithdrawn, IngestEvent};
use riverrun_schemas::projects::{ProjectEvent, ProjectImported, ProjectRemoved};
use riverrun_schemas::{BlobRef, ChangeId, Namespace, ProjectId, Topic};

use super::*;
use crate::about::about;
use crate::about::testing::of;
use crate::runtime::testkit::Stack;

struct World {
    stack: Stack,
    admin: Admin,
    blobs: ObjectStoreBlobs,
    folder: tempfile::TempDir,
}

fn queued(document: &str, content: &BlobRef) -> IngestEvent {
    about!(of(document, "in"), DocumentQueued { content: content.clone() }).into()
}

fn withdrawn(document: &str) -> IngestEvent {
    about!(of(document, "out"), DocumentWithdrawn { tables: 0, rows: 0 }).into()
}

fn imported(project_id: ProjectId, tree: &BlobRef) -> ProjectEvent {
    ProjectImported {
        project_id,
        namespace: Namespace::default(),
        name: "p".to_owned(),
        source: "/p".to_owned(),
        source_sha256: String::new(),
        tree: tree.clone(),
        files: 1,
        size_bytes: 1,
        skipped: 0,
        languages_json: "[]".to_owned(),
        at: 0,
    }
    .into()
}

fn project_removed(project_id: ProjectId) -> ProjectEvent {
    ProjectRemoved { project_id, namespace: Namespace::default(), change_id: ChangeId::derive(&["out"]), at: 0 }.into()
}

impl World {
    async fn new() -> Self {
        let (stack, folder) = (Stack::start().await, tempfile::tempdir().unwrap());
        let admin = Admin::new(stack.log()).unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        Self { stack, admin, blobs, folder }
    }

    async fn put(&self, content: impl Into<String>) -> BlobRef {
        self.blobs.put_bytes(Bytes::from(content.into()), "text/plain").await.unwrap()
    }

    async fn sweep_after(&self, grace: Duration, dry_run: bool) -> SweepReport {
        sweep(self.stack.log(), &self.admin, &self.blobs, grace, dry_run).await.unwrap()
    }

    /// As if the time of grace were over.
    async fn sweep(&self) -> SweepReport {
        self.sweep_after(Duration::ZERO, false).await
    }

    async fn there(&self, blob: &BlobRef) -> bool {
        self.blobs.exists(blob).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_log_when_its_blobs_are_swept_twice_then_exactly_what_nothing_living_names_is_gone() {
    let world = World::new().await;
    let (kept, gone, shared) = (world.put("kept").await, world.put("gone").await, world.put("shared").await);
    let (pack, orphan, failed, unread) =
        (world.put("pack").await, world.put("orphan").await, world.put("failed").await, world.put("unread").await);
    let tree = world.put(serde_json::json!({ "pack": pack, "entries": {} }).to_string()).await;
    let old_tree = world.put(serde_json::json!({ "pack": shared, "entries": {"a": 1} }).to_string()).await;
    let (project, old_project) = (ProjectId::derive(&["p"]), ProjectId::derive(&["old"]));
    world.stack.send(&[queued("a", &kept), queued("b", &gone), queued("c", &shared), withdrawn("b")]).await;
    world.stack.send(&[imported(project, &tree), imported(old_project, &old_tree), project_removed(old_project)]).await;
    let raw = |topic: String, name: &BlobRef| Outgoing {
        topic: topic.as_str().into(),
        partition: Some(0),
        key: None,
        payload: Some(Bytes::from(format!("not an event \u{1}{}", name.sha256))),
        headers: Vec::new(),
    };
    let letter = raw(Topic::IngestCommands.dead_letters(), &failed);
    let strange = raw(Topic::IngestEvents.name().to_owned(), &unread);
    world.stack.send_records(vec![letter, strange]).await;

    let told = world.sweep_after(Duration::ZERO, true).await;
    assert_eq!((told.living.blobs, told.set_aside.blobs, told.removed.blobs), (6, 3, 0));
    assert_eq!(
        world.sweep_after(Duration::from_secs(3600), false).await.set_aside,
        Sum::default(),
        "they are too young"
    );

    let first = world.sweep().await;
    assert_eq!(first, told, "a dry run tells what is done");
    assert!(world.there(&gone).await, "what is set aside can still be had");
    let second = world.sweep().await;
    assert_eq!((second.living.blobs, second.set_aside.blobs, second.removed.blobs), (6, 0, 3));
    for blob in [&kept, &shared, &pack, &failed, &unread, &tree] {
        assert!(world.there(blob).await, "{blob:?} is named");
    }
    for blob in [&gone, &orphan, &old_tree] {
        assert!(!world.there(blob).await, "{blob:?} is named by nothing");
    }
    assert_eq!(world.sweep().await.removed, Sum::default());
}

#[tokio::test(flavor = "multi_thread")]
async fn given_content_that_is_handed_in_again_while_it_is_removed_then_it_is_there() {
    let world = World::new().await;
    // Put again while it is aside, named before it would go.
    let put_again = world.put("put again").await;
    // Found in its place by whoever hands it in, taken aside behind their back, named before it would go.
    let found = world.put("found").await;
    assert_eq!(world.sweep().await.set_aside.blobs, 2);
    assert_eq!(world.put("put again").await, put_again);
    world.stack.send(&[queued("a", &put_again), queued("b", &found)]).await;
    let second = world.sweep().await;
    assert_eq!((second.living.blobs, second.brought_back.blobs), (1, 1));
    let third = world.sweep().await;
    assert_eq!((third.living.blobs, third.set_aside.blobs, third.removed.blobs), (2, 0, 0));
    for blob in [&put_again, &found] {
        world.blobs.get(blob).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_list_of_further_blobs_that_is_damaged_when_it_is_swept_then_nothing_goes() {
    let world = World::new().await;
    let (pack, orphan) = (world.put("pack").await, world.put("orphan").await);
    let tree = world.put(serde_json::json!({ "pack": pack }).to_string()).await;
    world.stack.send(&[imported(ProjectId::derive(&["p"]), &tree)]).await;
    let file = world.folder.path().join("blobs").join(&tree.sha256[..2]).join(&tree.sha256[2..]);
    std::fs::write(&file, "{").unwrap();
    let swept = sweep(world.stack.log(), &world.admin, &world.blobs, Duration::ZERO, false).await;
    assert!(matches!(swept, Err(SweepError::Blobs(BlobError::Damaged { .. }))), "{swept:?}");
    for kept in world.blobs.kept().await.unwrap() {
        assert!(!kept.aside, "{} was set aside", kept.sha256);
    }
    assert!(world.there(&orphan).await);
}
