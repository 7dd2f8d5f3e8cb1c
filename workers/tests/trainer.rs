//! The trainer against a real broker and a hub that takes its time.

use std::sync::Arc;
use std::time::Duration;

use riverrun_log::ObjectStoreBlobs;
use riverrun_models::{ModelSettings, Models};
use riverrun_schemas::finetune::{
    FinetuneCancelRequested, FinetuneCommand, FinetuneEvent, FinetuneFinished, FinetuneOutcome, StartFinetune,
};
use riverrun_schemas::{BlobRef, FinetuneId};
use riverrun_training::Plan;
use riverrun_workers::runtime::testkit::{Stack, eventually};
use riverrun_workers::runtime::{self, WorkerHandle};
use riverrun_workers::trainer::Trainer;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, ResponseTemplate};

/// A hub whose answers outlast any test.
async fn slow_hub() -> MockServer {
    let hub = MockServer::start().await;
    let slow = ResponseTemplate::new(200).set_delay(Duration::from_secs(3_600));
    Mock::given(any()).respond_with(slow).mount(&hub).await;
    hub
}

fn trainer(stack: &Stack, hub: &MockServer, folder: &TempDir) -> WorkerHandle {
    let settings = ModelSettings {
        cache_dir: folder.path().join("models"),
        hub_base_url: hub.uri(),
        idle_timeout: Duration::from_secs(3_600),
        ..ModelSettings::default()
    };
    let blobs = Arc::new(ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap());
    let stop = CancellationToken::new();
    let trainer = Trainer::new(Models::new(settings).unwrap(), blobs, folder.path().join("finetune"), stop.clone());
    runtime::spawn(trainer, stack.config(), stop)
}

fn command(job_id: FinetuneId) -> FinetuneCommand {
    let content = BlobRef { sha256: "0".repeat(64), size_bytes: 1, media_type: "application/x-ndjson".to_owned() };
    FinetuneCommand::StartFinetune(StartFinetune {
        job_id,
        name: "poet".to_owned(),
        dataset: "verses".to_owned(),
        content,
        format: "sft".to_owned(),
        base_model: "someone/tiny:model.gguf".to_owned(),
        plan_json: serde_json::to_string(&Plan::default()).unwrap(),
        at: 0,
    })
}

async fn end(stack: &Stack, job_id: FinetuneId) -> FinetuneFinished {
    eventually("the end", || async {
        stack.events::<FinetuneEvent>().await.into_iter().find_map(|event| match event {
            FinetuneEvent::FinetuneFinished(end) if end.job_id == job_id => Some(end),
            _ => None,
        })
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_base_that_is_being_fetched_when_the_training_is_cancelled_then_it_ends_and_nothing_is_fetched() {
    let (stack, hub, folder) = (Stack::start().await, slow_hub().await, tempfile::tempdir().unwrap());
    let _worker = trainer(&stack, &hub, &folder);
    let job_id = FinetuneId::new();
    stack.send(&[command(job_id)]).await;
    eventually("a request to the hub", || async {
        hub.received_requests().await.filter(|requests| !requests.is_empty())
    })
    .await;
    let wish = FinetuneCancelRequested { job_id, reason: None, at: 0 };
    stack.send(&[FinetuneEvent::from(wish)]).await;
    let end = end(&stack, job_id).await;
    assert_eq!((end.status, end.error), (FinetuneOutcome::Cancelled, None));
}
