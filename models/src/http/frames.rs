//! Splits streams into AWS's frames (`application/vnd.amazon.eventstream`), and makes each the JSON of its event:
//! `{"<event type>": <payload>}`, or `{"exception": {"kind": …, "message": …}}`.

use aws_smithy_eventstream::frame::read_message_from;
use serde_json::{Value, json};

use super::pieces::{MAX_PIECE_BYTES as MAX_FRAME_BYTES, Splitter};
use super::refusal::message_of;

/// Two lengths and two checksums.
const MIN_FRAME_BYTES: usize = 16;

/// Collects blocks and hands out the events of complete frames.
#[derive(Debug, Default)]
pub(crate) struct FrameSplitter {
    rest: Vec<u8>,
}

impl Splitter for FrameSplitter {
    fn push(&mut self, block: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        self.rest.extend_from_slice(block);
        let mut events = Vec::new();
        let mut read = 0;
        while let Some(prelude) = self.rest[read..].first_chunk::<4>() {
            // No length begins so: it is one answer of JSON.
            if prelude[0] == b'{' {
                break;
            }
            let length = usize::try_from(u32::from_be_bytes(*prelude)).unwrap_or(usize::MAX);
            if !(MIN_FRAME_BYTES..=MAX_FRAME_BYTES).contains(&length) {
                let start = String::from_utf8_lossy(&self.rest[read..]).chars().take(80).collect::<String>();
                return Err(format!(
                    "it sends no frame of {MIN_FRAME_BYTES} to {MAX_FRAME_BYTES} bytes, but {start:?}"
                ));
            }
            let Some(frame) = self.rest.get(read..read + length) else { break };
            events.push(event_of(frame)?);
            read += length;
        }
        self.rest.drain(..read);
        if self.rest.len() > MAX_FRAME_BYTES {
            return Err(format!("it answers with more than {MAX_FRAME_BYTES} bytes in one piece"));
        }
        Ok(events)
    }

    /// The answer that came in one piece instead of frames.
    fn finish(&mut self) -> Option<Vec<u8>> {
        Some(std::mem::take(&mut self.rest)).filter(|rest| rest.first() == Some(&b'{'))
    }
}

/// The JSON of a frame.
fn event_of(frame: &[u8]) -> Result<Vec<u8>, String> {
    let message = read_message_from(frame).map_err(|error| format!("it sends a broken frame: {error}"))?;
    let header = |name: &str| {
        let found = message.headers().iter().find(|header| header.name().as_str() == name)?;
        found.value().as_string().ok().map(|value| value.as_str().to_owned())
    };
    let payload = message.payload();
    match header(":message-type").as_deref() {
        Some("event") => {
            let kind = header(":event-type").ok_or("it sends an event without a type")?;
            let payload: &[u8] = if payload.is_empty() { b"{}" } else { payload };
            Ok([format!("{{{}:", Value::from(kind)).as_bytes(), payload, b"}"].concat())
        }
        Some("exception") => {
            let kind = header(":exception-type").unwrap_or_default();
            Ok(json!({"exception": {"kind": kind, "message": message_of(payload)}}).to_string().into_bytes())
        }
        Some("error") => {
            let kind = header(":error-code").unwrap_or_default();
            let said = header(":error-message").unwrap_or_default();
            Ok(json!({"exception": {"kind": kind, "message": said}}).to_string().into_bytes())
        }
        Some(_) | None => Err("it sends a frame that is no event and no exception".to_owned()),
    }
}

#[cfg(test)]
#[path = "../../tests/support/frames.rs"]
mod written;

#[cfg(test)]
mod tests {
    use super::written::{error, event, exception, frame};
    use super::*;

    #[test]
    fn given_frames_in_any_blocks_when_they_are_split_then_the_events_are_the_same() {
        let stream = [
            event("contentBlockDelta", r#"{"delta":{"text":"Größe"}}"#),
            event("odd\"type", ""),
            exception("throttlingException", "slow"),
            error("Internal", "gone"),
        ]
        .concat();
        let wanted = [
            r#"{"contentBlockDelta":{"delta":{"text":"Größe"}}}"#,
            r#"{"odd\"type":{}}"#,
            r#"{"exception":{"kind":"throttlingException","message":"slow"}}"#,
            r#"{"exception":{"kind":"Internal","message":"gone"}}"#,
        ];
        for size in [1, 7, 100, stream.len()] {
            let mut splitter = FrameSplitter::default();
            let events: Vec<String> = stream
                .chunks(size)
                .flat_map(|block| splitter.push(block).unwrap())
                .map(|event| String::from_utf8(event).unwrap())
                .collect();
            assert_eq!(events, wanted, "{size}");
            assert_eq!(splitter.finish(), None);
        }
    }

    #[test]
    fn given_what_is_no_frame_when_it_is_split_then_it_is_refused_and_one_answer_of_json_is_not() {
        let good = event("messageStop", "{}");
        let mut changed = good.clone();
        *changed.last_mut().unwrap() ^= 1;
        let huge = u32::try_from(MAX_FRAME_BYTES + 1).unwrap().to_be_bytes().to_vec();
        let odd = frame(&[(":message-type", "riddle")], b"");
        for wrong in [b"nonsense".to_vec(), vec![0; 16], vec![0, 0, 0, 15], huge, changed, odd, frame(&[], b"")] {
            assert!(FrameSplitter::default().push(&wrong).is_err(), "{wrong:?}");
        }
        let mut splitter = FrameSplitter::default();
        for block in [br#"{"output""#.as_slice(), b":{}}"] {
            assert_eq!(splitter.push(block), Ok(Vec::new()));
        }
        assert_eq!(splitter.finish().as_deref(), Some(br#"{"output":{}}"#.as_slice()));
        let mut splitter = FrameSplitter::default();
        assert!(splitter.push(&vec![b'{'; MAX_FRAME_BYTES + 1]).is_err());
    }

    mod fuzz_tests {
        use super::*;
        use crate::fuzz::{Target, run};

        #[test]
        fn event_frames_are_read_or_refused() {
            let stop = event("messageStop", r#"{"stopReason":"end_turn"}"#);
            let corpus =
                [[stop.clone(), exception("throttlingException", "slow")].concat(), stop, b"{\"a\":1}".to_vec()];
            let words = [":event-type", ":message-type", "exception", "{", "\0\0\0\x10"];
            run(&Target { name: "event_frames", corpus: &corpus, words: &words, inputs: 10_000 }, |bytes| {
                let mut splitter = FrameSplitter::default();
                let _ = splitter.push(bytes);
                let _ = splitter.finish();
                // The checksums keep changed bytes from what stands behind them.
                let _ = read_message_from(bytes);
            });
        }
    }
}
