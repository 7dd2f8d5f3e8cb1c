//! What an event of the past is, without decoding it. Most of what lies on a partition belongs to runs that have ended;
//! of those only the end has to be known. No I/O.

use riverrun_log::Record;
use riverrun_schemas::framing::unframe;
use riverrun_schemas::{RunId, Topic, registry};

/// Length of a run's id as text, with which the body of every run event begins.
const ID_LEN: u8 = 30;

/// What can be told at a glance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Glimpse {
    pub(super) run_id: RunId,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A run can be folded from here.
    Begins,
    /// Steps.
    Advances,
    /// The end, if the claim is the last.
    Ends,
    /// A claim, or a word to the run.
    Tells,
}

/// `None` for what has to be decoded to be known: an event of another version, or none at all.
pub(super) fn glimpse(record: &Record) -> Option<Glimpse> {
    let (schema, body) = unframe(record.payload.as_deref()?).ok()?;
    let schema = registry::by_id(schema).filter(|schema| schema.topic == Topic::AgentEvents)?;
    let kind = match schema.record.strip_prefix("riverrun.agent.")? {
        "RunAccepted" | "RunSnapshotted" => Kind::Begins,
        "RunAdvanced" => Kind::Advances,
        "RunFinished" => Kind::Ends,
        "RunClaimed" | "RunCancelRequested" | "RunApprovalDecided" | "RunResumed" => Kind::Tells,
        _ => return None,
    };
    // An Avro string: twice its length, then its bytes.
    let text = body.strip_prefix(&[2 * ID_LEN])?.get(..usize::from(ID_LEN))?;
    Some(Glimpse { run_id: std::str::from_utf8(text).ok()?.parse().ok()?, kind })
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::EventSet;
    use riverrun_schemas::agent::{AgentEvent, RunCancelRequested, RunResumed};
    use serde_json::Value;

    use super::*;

    fn record(payload: Vec<u8>) -> Record {
        Record {
            topic: "t".into(),
            partition: 0,
            offset: 0,
            key: None,
            payload: Some(payload.into()),
            headers: Vec::new(),
            timestamp_ms: 0,
        }
    }

    #[test]
    fn given_every_version_of_every_run_event_then_it_begins_with_the_id_of_its_run_and_its_kind_is_known() {
        let run_id = RunId::derive(&["a"]);
        let text = run_id.to_string();
        assert_eq!(text.len(), usize::from(ID_LEN));
        let events = registry::all().iter().filter(|schema| schema.topic == Topic::AgentEvents);
        for schema in events {
            let avro: Value = serde_json::from_str(schema.text).unwrap();
            assert_eq!((&avro["fields"][0]["name"], &avro["fields"][0]["type"]), (&"run_id".into(), &"string".into()));
            let body = [&[2 * ID_LEN][..], text.as_bytes(), &b"whatever follows"[..]].concat();
            let seen = glimpse(&record(riverrun_schemas::framing::frame(schema.id, &body)));
            let seen = seen.unwrap_or_else(|| panic!("{} is of no kind", schema.record));
            assert_eq!(seen.run_id, run_id);
            assert_eq!(
                seen.kind == Kind::Begins,
                ["Accepted", "Snapshotted"].iter().any(|end| schema.record.ends_with(end))
            );
        }
    }

    #[test]
    fn given_events_as_they_are_written_then_a_glance_says_what_decoding_does() {
        let run_id = RunId::new();
        let events: [AgentEvent; 2] =
            [RunCancelRequested { run_id, reason: None, at: 1 }.into(), RunResumed { run_id, at: 2 }.into()];
        for event in events {
            let seen = glimpse(&record(event.encode().unwrap()));
            assert_eq!(seen, Some(Glimpse { run_id, kind: Kind::Tells }));
        }
    }

    #[test]
    fn given_bytes_that_are_no_run_event_then_nothing_is_said_of_them() {
        let event = AgentEvent::from(RunResumed { run_id: RunId::new(), at: 2 }).encode().unwrap();
        for length in 0..5 + 1 + usize::from(ID_LEN) {
            assert_eq!(glimpse(&record(event[..length].to_vec())), None, "{length}");
        }
        for at in [0, 1, 2, 3, 5, 6, 7, 8, 9] {
            let mut other = event.clone();
            other[at] ^= 0x80;
            assert_eq!(glimpse(&record(other)), None, "{at}");
        }
        let tombstone = Record { payload: None, ..record(Vec::new()) };
        assert_eq!(glimpse(&tombstone), None);
    }
}
