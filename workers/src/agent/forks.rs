//! The steps that a fork begins with, from its command to its first events.

use std::time::Duration;

use riverrun_log::{BlobStore, MAX_EVENT_BYTES};
use riverrun_schemas::agent::{ForkRun, RunAdvanced, Step};
use riverrun_schemas::{Failure, RunId};

/// JSON of the steps that are copied in one event: a step's Avro form is no longer than its JSON, and room is left for
/// the rest of the event.
const MAX_COPIED: usize = MAX_EVENT_BYTES / 2;

/// How long the steps may take to come from the blob store: commands behind this one wait for it, such as one that cancels a run.
const STORE_TIME: Duration = Duration::from_secs(5);

/// The steps that the command brings, inline or in the blob store; they must count from 1 to the fork's step.
pub(super) async fn steps(blobs: &dyn BlobStore, command: &ForkRun) -> Result<Vec<Step>, Failure> {
    let unusable = |reason: String| {
        let source = &command.forked_from;
        Failure::new("fork_history_unusable", format!("the steps of {} can't be copied: {reason}", source.run_id))
            .with_hint(format!("fork again: riverrun runs fork {} --at-seq {}", source.run_id, source.at_seq))
    };
    let steps = match &command.steps_blob {
        None => command.steps.clone(),
        Some(blob) => {
            let bytes = tokio::time::timeout(STORE_TIME, blobs.get(blob))
                .await
                .map_err(|_| unusable(format!("the blob store did not answer within {} s", STORE_TIME.as_secs())))?
                .map_err(|error| unusable(error.to_string()))?;
            serde_json::from_slice(&bytes).map_err(|error| unusable(error.to_string()))?
        }
    };
    let whole = steps.iter().zip(1..).all(|(step, seq)| step.seq == seq);
    if !whole || i64::try_from(steps.len()) != Ok(command.forked_from.at_seq) {
        return Err(unusable(format!("they are not steps 1 to {}", command.forked_from.at_seq)));
    }
    Ok(steps)
}

/// The events that copy the steps behind `copied`, each small enough for the log. They are of epoch 0: before any claim.
pub(super) fn copies(run_id: RunId, steps: Vec<Step>, copied: i64) -> Vec<RunAdvanced> {
    let mut events: Vec<RunAdvanced> = Vec::new();
    let mut size = MAX_COPIED;
    for step in steps.into_iter().filter(|step| step.seq > copied) {
        let length = serde_json::to_string(&step).map_or(0, |json| json.len());
        match events.last_mut().filter(|_| size + length <= MAX_COPIED) {
            Some(event) => {
                size += length;
                event.steps.push(step);
            }
            None => {
                size = length;
                events.push(RunAdvanced { run_id, epoch: 0, steps: vec![step] });
            }
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::agent::StepKind;

    use super::*;

    fn step(seq: i64, length: usize) -> Step {
        let text = Some("x".repeat(length));
        Step { seq, kind: StepKind::Thought, agent: "react".into(), text, tool: None, usage: None, at: 0 }
    }

    #[test]
    fn given_many_steps_when_they_are_copied_then_each_event_fits_and_none_is_lost() {
        for (count, length) in [(0, 1), (1, 200_000), (3_000, 10), (40, 20_000), (7, MAX_COPIED - 200)] {
            for copied in [0, 3] {
                let steps: Vec<Step> = (1..=count).map(|seq| step(seq, length)).collect();
                let events = copies(RunId::derive(&["f"]), steps, copied);
                let seqs: Vec<i64> = events.iter().flat_map(|event| event.steps.iter().map(|step| step.seq)).collect();
                assert_eq!(seqs, (copied + 1..=count).collect::<Vec<_>>(), "{count} × {length}");
                for event in events {
                    let bytes = riverrun_schemas::EventSet::encode(&riverrun_schemas::agent::AgentEvent::from(event));
                    assert!(bytes.unwrap().len() < MAX_EVENT_BYTES);
                }
            }
        }
    }
}
