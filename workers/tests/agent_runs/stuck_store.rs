//! given a blob store that does not answer, when runs need it, then nobody waits for it for long.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use riverrun_agents::tools::{Tool, ToolContext, ToolError, ToolManifest};
use riverrun_log::blobs::KeptBlob;
use riverrun_log::{BlobError, BlobStore};
use riverrun_schemas::agent::{CancelRun, ForkRun, ForkedFrom, RunOutcome, ToolEffect};
use riverrun_schemas::{BlobRef, RunId, now_ms};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::common::{World, request};
use super::unsent::Customer;

/// Takes what is put and never says so, and gives nothing.
#[derive(Debug, Default)]
struct Stuck {
    began: Notify,
}

#[async_trait]
impl BlobStore for Stuck {
    async fn put_bytes(&self, _: Bytes, _: &str) -> Result<BlobRef, BlobError> {
        self.began.notify_one();
        std::future::pending().await
    }

    async fn get(&self, _: &BlobRef) -> Result<Bytes, BlobError> {
        std::future::pending().await
    }

    async fn exists(&self, _: &BlobRef) -> Result<bool, BlobError> {
        Ok(false)
    }

    async fn delete(&self, _: &BlobRef) -> Result<(), BlobError> {
        Ok(())
    }

    async fn claim(&self, _: &str) -> Result<Vec<String>, BlobError> {
        Ok(Vec::new())
    }

    async fn kept(&self) -> Result<Vec<KeptBlob>, BlobError> {
        Ok(Vec::new())
    }

    async fn set_aside(&self, _: &str, _: i64) -> Result<bool, BlobError> {
        Ok(false)
    }

    async fn bring_back(&self, _: &str) -> Result<bool, BlobError> {
        Ok(false)
    }

    async fn forget(&self, _: &KeptBlob) -> Result<(), BlobError> {
        Ok(())
    }

    async fn json(&self, _: &str) -> Result<Option<Bytes>, BlobError> {
        Ok(None)
    }
}

/// Its result is too large for an event.
struct Catalogue;

#[async_trait]
impl Tool for Catalogue {
    fn manifest(&self) -> ToolManifest {
        let schema = json!({ "type": "object", "properties": {}, "additionalProperties": false });
        ToolManifest::builtin("order", "Orders.", schema, ToolEffect::None)
    }

    async fn call(&self, _: Value, _: &ToolContext) -> Result<Value, ToolError> {
        Ok(json!("x".repeat(100 << 10)))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_large_result_when_the_store_does_not_answer_and_the_run_is_cancelled_then_it_ends() {
    let store = Arc::new(Stuck::default());
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let world = world.with(Customer, None, Arc::new(Catalogue)).await.with_store(store.clone());
    let (_worker, _stop) = world.worker("w");
    let run_id = RunId::new();
    world.start(run_id).await;
    store.began.notified().await;
    world.command(CancelRun { run_id, reason: None, at: now_ms() }.into()).await;
    assert_eq!(world.finished(run_id).await.status, RunOutcome::Cancelled);
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_fork_whose_steps_the_store_does_not_give_when_it_is_accepted_then_it_fails_and_the_next_run_goes_on() {
    let world = World::new(ToolEffect::None, Duration::ZERO, Duration::ZERO).await;
    let world = world.with_store(Arc::new(Stuck::default()));
    let (_worker, _stop) = world.worker("w");
    let (fork, next) = (RunId::new(), RunId::new());
    let steps_blob = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/json".into() };
    let command = ForkRun {
        run_id: fork,
        forked_from: ForkedFrom { run_id: RunId::new(), at_seq: 1 },
        request: request(),
        steps: Vec::new(),
        steps_blob: Some(steps_blob),
        at: now_ms(),
    };
    world.command(command.into()).await;
    world.start(next).await;
    let end = world.finished(fork).await;
    assert_eq!((end.status, end.error.unwrap().code.as_str()), (RunOutcome::Failed, "fork_history_unusable"));
    assert_eq!(world.finished(next).await.status, RunOutcome::Succeeded);
}
