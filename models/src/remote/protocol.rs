//! What a wire protocol is: pure functions from requests to calls and from answers to values. [`super::Remote`] does everything that
//! happens between the two.

use std::borrow::Cow;
use std::fmt::Debug;
use std::ops::ControlFlow;

use serde_json::Value;

use super::gathered::Gathered;
use crate::http::Call;
use crate::provider::{ChatRequest, DeltaSink, EmbedPurpose, ModelKind, Usage};

/// How the events of a chat's stream are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events.
    Sse,
    /// One JSON object a line.
    JsonLines,
    /// Frames of AWS.
    Frames,
}

/// What is wrong with an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It is not the protocol, or says that the server failed.
    Broken(String),
    /// The server says within the answer that it has too much to do.
    Busy(String),
    /// The server says within the answer that the request is wrong.
    Refused(String),
    /// The prompt is too long, said after the fact.
    Overflow {
        /// Tokens of the prompt.
        tokens: usize,
        /// Tokens that the context holds.
        limit: usize,
    },
}

impl From<String> for Fault {
    fn from(reason: String) -> Self {
        Fault::Broken(reason)
    }
}

impl From<&str> for Fault {
    fn from(reason: &str) -> Self {
        Fault::Broken(reason.to_owned())
    }
}

/// A model of a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) name: String,
    pub(super) kind: ModelKind,
    pub(super) context_tokens: Option<u64>,
    pub(super) size_bytes: Option<u64>,
}

impl Listed {
    /// A model of which only the name is known.
    pub(super) fn named(name: impl Into<String>) -> Self {
        Listed { name: name.into(), kind: ModelKind::Unknown, context_tokens: None, size_bytes: None }
    }
}

/// Some of the texts of an embedding request.
#[derive(Debug, Clone, Copy)]
pub(super) struct EmbedPart<'r> {
    pub(super) model: &'r str,
    pub(super) inputs: &'r [String],
    pub(super) purpose: EmbedPurpose,
    /// Only where [`Protocol::takes_dimensions`] says that a call can tell it.
    pub(super) dimensions: Option<usize>,
    /// Whether a text that is too long may be cut; else the call must fail, where [`Protocol::can_cut`] says that it can be told so.
    pub(super) cut: bool,
}

/// Vectors in the order of the inputs, unchecked.
pub(super) type Embedded = (Vec<Vec<f32>>, Usage);

/// A wire protocol. What a protocol does not have answers `None`.
pub(super) trait Protocol: Debug + Send + Sync {
    /// How the stream of a chat is framed.
    fn framing(&self) -> Framing {
        Framing::Sse
    }

    /// The call of a streamed chat.
    fn chat(&self, request: &ChatRequest) -> Option<Call>;

    /// Takes one event of the stream; breaks at its end.
    fn gather(&self, event: &[u8], gathered: &mut Gathered, sink: &mut dyn DeltaSink)
    -> Result<ControlFlow<()>, Fault>;

    /// The call that lists models.
    fn list(&self) -> Option<Call>;

    /// The address that it goes to, which for some is beside the rest.
    fn list_address<'a>(&self, address: &'a str) -> Cow<'a, str> {
        Cow::Borrowed(address)
    }

    /// The models of a listing.
    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault>;

    /// The call that embeds texts.
    fn embed(&self, _part: EmbedPart<'_>) -> Option<Call> {
        None
    }

    /// The vectors of an answer.
    fn embedded(&self, _body: &[u8]) -> Result<Embedded, Fault> {
        Err("it embeds nothing".into())
    }

    /// Whether a call can say to this model that texts which are too long are refused, or cut.
    fn can_cut(&self, _model: &str) -> bool {
        false
    }

    /// Whether a call can say to this model how long its vectors should be.
    fn takes_dimensions(&self, _model: &str) -> bool {
        false
    }

    /// Texts of one embedding call to this model at most.
    fn embed_batch(&self, _model: &str) -> usize {
        2048
    }

    /// The call that scores documents.
    fn rerank(&self, _model: &str, _query: &str, _documents: &[String]) -> Option<Call> {
        None
    }

    /// Index and score of each document, in any order.
    fn ranked(&self, _body: &[u8]) -> Result<Vec<(usize, f32)>, Fault> {
        Err("it scores nothing".into())
    }

    /// Tokens that scoring took, where the answer tells them.
    fn rank_usage(&self, _body: &[u8]) -> Usage {
        Usage::default()
    }

    /// The first field of a chat that the protocol has no place for.
    fn leaves_out(&self, _request: &ChatRequest) -> Option<&'static str> {
        None
    }

    /// The call that counts the tokens of a whole request, and the address that it goes to where it is another one.
    fn count_prompt(&self, _request: &ChatRequest) -> Option<Call> {
        None
    }

    /// The call that counts the tokens of a text.
    fn count_text(&self, _model: &str, _text: &str) -> Option<Call> {
        None
    }

    /// The number of an answer to one of the two.
    fn counted(&self, _body: &[u8]) -> Result<Option<usize>, Fault> {
        Ok(None)
    }

    /// The address that [`Protocol::count_text`] goes to, which for some is beside the rest.
    fn count_address<'a>(&self, address: &'a str) -> Option<&'a str> {
        Some(address)
    }

    /// The call that asks for the server's version.
    fn version(&self) -> Option<Call> {
        None
    }

    /// The context that every model is run with, where that is ours to say.
    fn own_context(&self) -> Option<usize> {
        None
    }

    /// The call that asks what a model was trained for, where [`Protocol::own_context`] may be more.
    fn about(&self, _model: &str) -> Option<Call> {
        None
    }

    /// The context that the answer to it tells.
    fn trained_context(&self, _body: &[u8]) -> Result<Option<usize>, Fault> {
        Ok(None)
    }
}

/// The first field that is given.
pub(super) fn first_given(fields: &[(&'static str, bool)]) -> Option<&'static str> {
    fields.iter().find(|(_, given)| *given).map(|(name, _)| *name)
}

/// Whether a number is given that changes something: clients write out what does not.
pub(super) fn changes(given: Option<f32>, nothing: f32) -> bool {
    given.is_some_and(|given| given != nothing)
}

/// Reads JSON, or says what is wrong with it.
pub(super) fn json<'b, T: serde::Deserialize<'b>>(body: &'b [u8]) -> Result<T, Fault> {
    serde_json::from_slice(body).map_err(|error| {
        let start = String::from_utf8_lossy(&body[..body.len().min(200)]).into_owned();
        let start = crate::catalog::clip(&start);
        Fault::Broken(format!("it is not the expected JSON: {error}; it begins with '{start}'"))
    })
}

/// Index and score of each document, which stand in this field of an answer in the shape that most services share.
pub(super) fn ranks_in(body: &[u8], field: &str) -> Result<Vec<(usize, f32)>, Fault> {
    #[derive(serde::Deserialize)]
    struct Rank {
        index: usize,
        relevance_score: f32,
    }
    let mut answer: Value = json(body)?;
    // An answer that is no object has no field, and must not be indexed like one.
    let ranks = answer.get_mut(field).map(Value::take).unwrap_or_default();
    let ranks: Vec<Rank> = serde_json::from_value(ranks)
        .map_err(|error| Fault::Broken(format!("its {field:?} are no scores: {error}")))?;
    Ok(ranks.into_iter().map(|rank| (rank.index, rank.relevance_score)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_answers_with_scores_and_others_when_ranks_are_read_then_the_others_are_broken_whatever_json_they_are() {
        let ranks = br#"{"results": [{"index": 1, "relevance_score": 0.5, "document": {}}, {"index": 0, "relevance_score": 0}]}"#;
        assert_eq!(ranks_in(ranks, "results"), Ok(vec![(1, 0.5), (0, 0.0)]));
        for wrong in [
            r#"{"data": []}"#,
            r#"{"results": 1}"#,
            r#"{"results": [{"index": -1, "relevance_score": 0}]}"#,
            "[]",
            "null",
            "7",
            "\"x\"",
        ] {
            let fault = ranks_in(wrong.as_bytes(), "results");
            assert!(matches!(&fault, Err(Fault::Broken(reason)) if reason.contains("results")), "{wrong}: {fault:?}");
        }
        assert!(matches!(ranks_in(b"<html>", "results"), Err(Fault::Broken(_))));
    }
}
