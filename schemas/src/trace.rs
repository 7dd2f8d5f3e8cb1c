//! Trace ids of runs and ingests, derived, so that whoever has a run's id knows its trace without asking anybody.
//!
//! The trace id of a run is the UUID in its run id, and of an ingest that in its ingest id; the ids of spans follow from it
//! and from a name. The text form is the W3C trace context (<https://www.w3.org/TR/trace-context/>).

use std::fmt;
use std::str::FromStr;

use uuid::Uuid;

use crate::ids::{IngestId, RunId};

/// Name of the span that all others of a trace hang from.
const ROOT: &str = "root";

/// A trace: sixteen bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

/// A span of a trace: eight bytes, shown as 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The trace that an aggregate belongs to, by the record key of its events; `None` when that is no run or ingest.
    pub fn of_key(key: &str) -> Option<Self> {
        key.parse::<RunId>().map(Self::from).or_else(|_| key.parse::<IngestId>().map(Self::from)).ok()
    }

    /// The span of that name: the same name in the same trace is the same span, always.
    pub fn span(self, name: &str) -> SpanId {
        // The version digit of a UUIDv5 stands within the first eight bytes: they are never all zero, which is no span id.
        let derived = Uuid::new_v5(&Uuid::from_bytes(self.0), name.as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&derived.as_bytes()[..8]);
        SpanId(id)
    }

    /// The span that all others hang from.
    pub fn root(self) -> SpanId {
        self.span(ROOT)
    }

    /// What travels beside the records of this trace: a consumer that makes its own spans hangs them below the root.
    pub fn traceparent(self) -> Traceparent {
        Traceparent { trace: self, span: self.root() }
    }

    /// The bytes.
    pub fn bytes(self) -> [u8; 16] {
        self.0
    }
}

impl SpanId {
    /// The bytes.
    pub fn bytes(self) -> [u8; 8] {
        self.0
    }
}

impl From<RunId> for TraceId {
    fn from(run_id: RunId) -> Self {
        Self(*run_id.as_uuid().as_bytes())
    }
}

impl From<IngestId> for TraceId {
    fn from(ingest_id: IngestId) -> Self {
        Self(*ingest_id.as_uuid().as_bytes())
    }
}

fn write_hex(f: &mut fmt::Formatter<'_>, bytes: &[u8]) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

macro_rules! shown_as_hex {
    ($($id:ident),+) => {$(
        impl fmt::Display for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }

        impl fmt::Debug for $id {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(f, &self.0)
            }
        }
    )+};
}

shown_as_hex!(TraceId, SpanId);

/// A place in a trace, as the `traceparent` header says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traceparent {
    /// The trace.
    pub trace: TraceId,
    /// The span that spans of the reader hang from.
    pub span: SpanId,
}

/// A text is not a `traceparent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a traceparent; expected 00-<32 hex digits>-<16 hex digits>-<2 hex digits>, ids not all zero")]
pub struct TraceparentError;

impl fmt::Display for Traceparent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-01", self.trace, self.span)
    }
}

impl FromStr for Traceparent {
    type Err = TraceparentError;

    fn from_str(text: &str) -> Result<Self, TraceparentError> {
        let mut parts = text.split('-');
        let mut next = || parts.next().ok_or(TraceparentError);
        let (version, trace, span, flags) = (next()?, next()?, next()?, next()?);
        // Version 255 is forbidden; a higher one than 00 may have more parts, which are not ours to read.
        let known = version.len() == 2 && version != "ff" && (version != "00" || parts.next().is_none());
        if !known || from_hex::<1>(version).is_none() || from_hex::<1>(flags).is_none() {
            return Err(TraceparentError);
        }
        let trace = from_hex::<16>(trace).filter(|id| id.iter().any(|byte| *byte != 0)).ok_or(TraceparentError)?;
        let span = from_hex::<8>(span).filter(|id| id.iter().any(|byte| *byte != 0)).ok_or(TraceparentError)?;
        Ok(Self { trace: TraceId(trace), span: SpanId(span) })
    }
}

/// Lower-case hexadecimal digits only, as the standard wants it.
fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = (digit(pair[0])? << 4) | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn given_a_run_id_when_its_trace_is_asked_for_then_it_is_the_uuid_in_it() {
        let run: RunId = "run_01h455vb4pex5vsknk084sn02q".parse().unwrap();
        let trace = TraceId::from(run);
        assert_eq!(trace.to_string(), "01890a5dac96774bbcceb302099a8057");
        assert_eq!(TraceId::of_key(&run.to_string()), Some(trace));
        assert_eq!(TraceId::of_key("doc_01h455vb4pex5vsknk084sn02q"), None);
        // Consumers outside compute it too: it never changes.
        assert_eq!(trace.traceparent().to_string(), format!("00-{trace}-{}-01", trace.root()));
        assert_eq!(trace.root(), trace.span("root"));
        assert_ne!(trace.root(), trace.span("step/1"));
    }

    #[test]
    fn given_texts_that_are_no_traceparent_when_they_are_read_then_they_are_refused() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert_eq!(good.parse::<Traceparent>().unwrap().to_string(), good);
        assert!("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more".parse::<Traceparent>().is_ok());
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319ä-b7ad6b7169203331-01",
        ] {
            assert_eq!(bad.parse::<Traceparent>(), Err(TraceparentError), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_derived_traceparent_is_read_back_as_it_was(name in ".{0,20}") {
            let trace = TraceId::from(RunId::derive(&[&name]));
            let parent = Traceparent { trace, span: trace.span(&name) };
            prop_assert_eq!(parent.to_string().parse::<Traceparent>(), Ok(parent));
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in ".*") {
            let _ = text.parse::<Traceparent>();
        }
    }
}
