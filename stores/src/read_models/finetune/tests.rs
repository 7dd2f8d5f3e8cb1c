use riverrun_schemas::finetune::{FinetuneCancelRequested, FinetuneClaimed, StartFinetune};

use super::*;
use crate::read_models::testing::records;
use crate::read_models::{Projected, apply, rebuild};

fn job_id() -> FinetuneId {
    FinetuneId::derive(&["test"])
}

fn blob() -> BlobRef {
    BlobRef { sha256: "ab".repeat(32), size_bytes: 3, media_type: "application/x-ndjson".into() }
}

fn accepted_event() -> FinetuneEvent {
    let start = StartFinetune {
        job_id: job_id(),
        name: "poet".into(),
        dataset: "verses".into(),
        content: blob(),
        format: "sft".into(),
        base_model: "small".into(),
        plan_json: "{\"method\":\"dpo\",\"max_steps\":9}".into(),
        at: 1,
    };
    FinetuneAccepted::from(&start).into()
}

fn claimed(epoch: i64) -> FinetuneEvent {
    FinetuneClaimed { job_id: job_id(), epoch, worker: "w".into(), at: 2 }.into()
}

fn step(epoch: i64, step: i64, loss: f64) -> FinetuneEvent {
    let (learning_rate, tokens_per_s, eta_s) = (1e-4, 10.0, 5.0);
    FinetuneProgressed {
        job_id: job_id(),
        epoch,
        step,
        loss,
        learning_rate,
        tokens_per_s,
        eta_s,
        eval_loss: None,
        at: 3,
    }
    .into()
}

fn finished_event(epoch: i64, status: FinetuneOutcome) -> FinetuneEvent {
    FinetuneFinished {
        job_id: job_id(),
        epoch,
        status,
        steps: 3,
        loss: Some(0.5),
        eval_loss: None,
        model: Some("poet@1".into()),
        error: None,
        at: 9,
    }
    .into()
}

fn version(job: &str, gate_passed: bool) -> FinetuneEvent {
    ModelRegistered {
        model: "poet".into(),
        job_id: FinetuneId::derive(&[job]),
        base_model: "small".into(),
        method: "dpo".into(),
        dataset_sha256: "cd".repeat(32),
        metrics_json: "{\"loss\":0.5}".into(),
        adapter: blob(),
        adapter_config: "{}".into(),
        merged_bytes: 0,
        gate_passed,
        gate_reason: (!gate_passed).then(|| "it does not stop".into()),
        at: 10,
    }
    .into()
}

async fn database(events: &[FinetuneEvent]) -> (tempfile::TempDir, Sql) {
    let folder = tempfile::tempdir().unwrap();
    let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
    apply(&sql, &records(events.to_vec(), Projected::Finetune)).await.unwrap();
    (folder, sql)
}

#[tokio::test]
async fn given_a_worker_that_lost_its_claim_then_what_it_says_does_not_count() {
    let events = [
        accepted_event(),
        accepted_event(),
        claimed(1),
        step(1, 1, 3.0),
        claimed(2),
        step(1, 2, 99.0),
        finished_event(1, FinetuneOutcome::Failed),
        step(2, 1, 3.0),
        step(2, 2, 2.0),
        finished_event(2, FinetuneOutcome::Succeeded),
        step(2, 3, 99.0),
        finished_event(2, FinetuneOutcome::Failed),
    ];
    let (_folder, sql) = database(&events).await;
    // The end of a lower epoch than the claim is void (TUNE-2), so the job ends with its second worker.
    let view = job(&sql, job_id()).await.unwrap().unwrap();
    assert_eq!((view.status.as_str(), view.step, view.max_steps, view.method.as_str()), ("succeeded", 2, 9, "dpo"));
    let told = steps(&sql, job_id(), 0).await.unwrap();
    assert_eq!(told.iter().map(|step| (step.step, step.loss)).collect::<Vec<_>>(), [(1, 3.0), (2, 2.0)]);
    assert_eq!(steps(&sql, job_id(), 1).await.unwrap().len(), 1);
    assert_eq!(jobs(&sql, Some("queued"), &PageRequest::default()).await.unwrap().items.len(), 0);
    assert_eq!(jobs(&sql, None, &PageRequest::default()).await.unwrap().items, [view]);
}

async fn status(events: &[FinetuneEvent]) -> String {
    let (_folder, sql) = database(events).await;
    job(&sql, job_id()).await.unwrap().unwrap().status
}

#[tokio::test]
async fn given_a_training_that_nobody_has_claimed_when_cancelled_then_it_has_ended_and_a_claimed_one_ends_with_its_worker()
 {
    let wish: FinetuneEvent = FinetuneCancelRequested { job_id: job_id(), reason: None, at: 3 }.into();
    let unclaimed = || finished_event(0, FinetuneOutcome::Cancelled);
    let waiting = [accepted_event(), wish.clone(), unclaimed()];
    assert_eq!(status(&waiting).await, "cancelled");
    // Its worker had not read that when it claimed it, and hears of the wish.
    let late = [claimed(1), step(1, 1, 3.0), finished_event(1, FinetuneOutcome::Succeeded)];
    assert_eq!(status(&[&waiting[..], &late[..]].concat()).await, "cancelled");
    let mut events = vec![accepted_event(), claimed(1), wish, unclaimed()];
    assert_eq!(status(&events).await, "running");
    events.push(finished_event(1, FinetuneOutcome::Cancelled));
    assert_eq!(status(&events).await, "cancelled");
}

#[tokio::test]
async fn given_versions_then_they_count_once_a_training_and_are_ready_only_behind_their_gate() {
    let stage =
        |version, stage| -> FinetuneEvent { ModelStaged { model: "poet".into(), version, stage, at: 20 }.into() };
    let events = [
        version("a", true),
        version("a", true),
        version("b", false),
        stage(2, ModelStage::Ready),
        stage(1, ModelStage::Retired),
        stage(1, ModelStage::Unknown),
        stage(7, ModelStage::Ready),
    ];
    let (_folder, sql) = database(&events).await;
    let page = models(&sql, &PageRequest::default()).await.unwrap();
    let mut found: Vec<_> = page.items.iter().map(|v| (v.chat_model.as_str(), v.stage.as_str())).collect();
    found.sort_unstable();
    assert_eq!(found, [("poet@1", "retired"), ("poet@2", "candidate")]);
    let (second, files) = model(&sql, "poet", 2).await.unwrap().unwrap();
    assert!(!second.gate.passed && second.gate.reason.is_some() && files.weights == blob());
    assert!(model(&sql, "poet", 3).await.unwrap().is_none());
}

#[tokio::test]
async fn given_the_same_events_when_everything_is_made_again_then_the_rows_are_the_same() {
    let dataset = DatasetRegistered {
        name: "verses".into(),
        format: "sft".into(),
        content: blob(),
        examples: 3,
        train_examples: 3,
        eval_examples: 0,
        duplicates: 0,
        tokens_json: None,
        warnings_json: "[]".into(),
        at: 1,
    };
    let newer = DatasetRegistered { examples: 4, tokens_json: Some("{\"min\":1}".into()), ..dataset.clone() };
    let events: [FinetuneEvent; 6] =
        [dataset.into(), newer.into(), accepted_event(), claimed(1), step(1, 1, 3.0), version("a", true)];
    let (_folder, sql) = database(&events).await;
    let all = || async {
        (
            datasets(&sql, &PageRequest::default()).await.unwrap(),
            jobs(&sql, None, &PageRequest::default()).await.unwrap(),
            models(&sql, &PageRequest::default()).await.unwrap(),
        )
    };
    let before = all().await;
    assert_eq!(find_dataset(&sql, "verses").await.unwrap().unwrap().examples, 4);
    rebuild(&sql).await.unwrap();
    assert!(find_dataset(&sql, "verses").await.unwrap().is_none());
    apply(&sql, &records(events.clone(), Projected::Finetune)).await.unwrap();
    assert_eq!(all().await, before);
}

#[tokio::test]
async fn given_a_dataset_made_of_runs_then_it_and_the_version_tell_of_them_and_a_later_dataset_changes_only_the_first()
{
    let ids: Vec<String> = (0..130).map(|n| format!("run_{n}")).collect();
    let runs = DatasetRunsView::of("agent=react".into(), &ids);
    let dataset = DatasetRegistered {
        name: "verses".into(),
        format: "sft".into(),
        content: blob(),
        examples: 130,
        train_examples: 117,
        eval_examples: 13,
        duplicates: 0,
        tokens_json: None,
        warnings_json: serde_json::json!([runs.remark(), { "line": 3, "reason": "is there already and left out" }])
            .to_string(),
        at: 1,
    };
    let start = StartFinetune {
        job_id: FinetuneId::derive(&["a"]),
        name: "poet".into(),
        dataset: "verses".into(),
        content: blob(),
        format: "sft".into(),
        base_model: "small".into(),
        plan_json: serde_json::json!({ "method": "sft_lora", "runs": runs }).to_string(),
        at: 2,
    };
    let events: [FinetuneEvent; 4] =
        [dataset.clone().into(), FinetuneAccepted::from(&start).into(), version("a", true), version("b", true)];
    let (_folder, sql) = database(&events).await;
    let found = find_dataset(&sql, "verses").await.unwrap().unwrap();
    assert_eq!((found.runs.as_ref(), found.warnings.as_array().map(Vec::len)), (Some(&runs), Some(1)));
    assert_eq!((runs.count, runs.run_ids.len()), (130, 100));
    let (made, _) = model(&sql, "poet", 1).await.unwrap().unwrap();
    assert_eq!((made.runs.as_ref(), made.dataset.as_deref()), (Some(&runs), Some("verses")));
    // Its training is not known here: nothing is made up.
    let (other, _) = model(&sql, "poet", 2).await.unwrap().unwrap();
    assert_eq!((other.runs, other.dataset), (None, None));
    assert_eq!(models(&sql, &PageRequest::default()).await.unwrap().items.len(), 2);
    let plain = DatasetRegistered { warnings_json: "[]".into(), at: 9, ..dataset };
    let later: [FinetuneEvent; 5] = {
        let [first, second, third, fourth] = events;
        [first, second, third, fourth, plain.into()]
    };
    let (_folder, sql) = database(&later).await;
    assert_eq!(find_dataset(&sql, "verses").await.unwrap().unwrap().runs, None);
    assert_eq!(model(&sql, "poet", 1).await.unwrap().unwrap().0.runs, Some(runs));
}
