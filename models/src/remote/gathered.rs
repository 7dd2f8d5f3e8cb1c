//! What the stream of a chat brought so far, whatever the protocol.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::protocol::Fault;
use crate::local::{Piece, ThoughtSplitter};
use crate::provider::{ChatReply, ChatRequest, DeltaSink, FinishReason, ToolCall, Usage};

/// Calls in one message beyond this are refused: the index comes from the server.
const MAX_TOOL_CALLS: usize = 128;

/// The parts of a reply.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    text: String,
    /// What a model thinks before its answer, where the service leaves it in the text.
    thoughts: ThoughtSplitter,
    /// Bytes of the text as it came, thoughts among it.
    came: usize,
    calls: BTreeMap<usize, PartialCall>,
    pub(super) usage: Usage,
    pub(super) finish: Option<FinishReason>,
    /// What the service calls the reason for which it withheld the answer or the rest of it.
    pub(super) withheld: Option<String>,
    pub(super) schema: Schema,
}

/// What the whole answer must be.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Schema {
    /// Anything.
    #[default]
    None,
    /// An object of a schema.
    Object,
    /// Another JSON value of a schema.
    Other,
}

#[derive(Debug, Default)]
struct PartialCall {
    id: String,
    name: String,
    arguments: String,
}

impl Gathered {
    pub(super) fn of(request: &ChatRequest) -> Self {
        let schema = match &request.response_schema {
            None => Schema::None,
            Some(schema) if schema["type"] == "object" => Schema::Object,
            Some(_) => Schema::Other,
        };
        Gathered { schema, ..Gathered::default() }
    }

    /// A piece of the text. A block of thoughts at its beginning is no part of it.
    pub(super) fn say(&mut self, text: &str, sink: &mut dyn DeltaSink) {
        self.came += text.len();
        let piece = self.thoughts.push(text);
        self.take(&piece, sink);
    }

    /// A piece of the thoughts, where the service tells them apart. Behind the beginning of the answer they are dropped.
    pub(super) fn think(&mut self, thoughts: &str, sink: &mut dyn DeltaSink) {
        self.came += thoughts.len();
        if self.text.is_empty() && !thoughts.is_empty() {
            sink.thought(thoughts);
        }
    }

    /// No more text comes.
    pub(super) fn end(&mut self, sink: &mut dyn DeltaSink) {
        let rest = self.thoughts.finish();
        self.take(&rest, sink);
    }

    fn take(&mut self, piece: &Piece, sink: &mut dyn DeltaSink) {
        if !piece.thoughts.is_empty() {
            sink.thought(&piece.thoughts);
        }
        if !piece.text.is_empty() {
            sink.delta(&piece.text);
            self.text.push_str(&piece.text);
        }
    }

    /// Bytes of what came: of the text, of thoughts and of calls.
    pub(super) fn bytes(&self) -> usize {
        let calls = self.calls.values().map(|call| call.name.len() + call.arguments.len());
        self.came + calls.sum::<usize>()
    }

    /// Pieces of the call at `index`.
    pub(super) fn call(&mut self, index: usize, id: &str, name: &str, arguments: &str) -> Result<(), Fault> {
        if !self.calls.contains_key(&index) && self.calls.len() >= MAX_TOOL_CALLS {
            return Err(Fault::Broken(format!("it calls more than {MAX_TOOL_CALLS} tools at once")));
        }
        let call = self.calls.entry(index).or_default();
        push_unless_there(&mut call.id, id);
        push_unless_there(&mut call.name, name);
        call.arguments.push_str(arguments);
        Ok(())
    }

    /// Where a piece without an index goes: with an id of its own it begins a call, else it goes on with the last one.
    pub(super) fn index_of(&self, id: &str) -> usize {
        let last = self.calls.last_key_value();
        let known = self.calls.iter().find(|(_, call)| !id.is_empty() && call.id == id).map(|(index, _)| *index);
        known.unwrap_or_else(|| match last {
            None => 0,
            Some((last, _)) if id.is_empty() => *last,
            Some((last, _)) => last + 1,
        })
    }

    /// A call that comes in one piece.
    pub(super) fn whole_call(&mut self, id: Option<&str>, name: &str, arguments: &Value) -> Result<(), Fault> {
        let index = self.calls.keys().next_back().map_or(0, |last| last + 1);
        self.call(index, id.unwrap_or_default(), name, &arguments.to_string())
    }

    /// The call at `index` in its pieces so far: name and arguments.
    pub(super) fn partial(&self, index: usize) -> Option<(&str, &str)> {
        self.calls.get(&index).map(|call| (call.name.as_str(), call.arguments.as_str()))
    }

    /// Takes the call at `index` out: it was none.
    pub(super) fn drop_call(&mut self, index: usize) {
        self.calls.remove(&index);
    }

    pub(super) fn into_reply(self, model: String, cancelled: bool) -> ChatReply {
        // A call that was cut off in the middle is no call.
        let calls = self.calls.into_values().filter(|call| !cancelled && !call.name.is_empty());
        let tool_calls: Vec<ToolCall> = calls.enumerate().map(into_call).collect();
        let finish = match self.finish {
            _ if cancelled => FinishReason::Cancelled,
            _ if !tool_calls.is_empty() => FinishReason::ToolCalls,
            // A call without a name is none.
            Some(FinishReason::ToolCalls) | None => FinishReason::Stop,
            Some(finish) => finish,
        };
        ChatReply { text: self.text, tool_calls, usage: self.usage, finish, model }
    }
}

/// Some servers send id and name with every piece of a call.
fn push_unless_there(whole: &mut String, piece: &str) {
    if whole.as_str() != piece {
        whole.push_str(piece);
    }
}

fn into_call((position, call): (usize, PartialCall)) -> ToolCall {
    let id = if call.id.is_empty() { format!("call_{}", position + 1) } else { call.id };
    let arguments = match call.arguments.trim() {
        "" => json!({}),
        // What is no JSON is passed on as it is: who checks arguments says so to the model.
        text => serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned())),
    };
    ToolCall { id, name: call.name, arguments }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a sink was given.
    #[derive(Default)]
    struct Heard {
        thoughts: String,
        text: String,
    }

    impl DeltaSink for Heard {
        fn delta(&mut self, text: &str) {
            self.text.push_str(text);
        }

        fn thought(&mut self, text: &str) {
            assert!(self.text.is_empty(), "thoughts come first");
            self.thoughts.push_str(text);
        }
    }

    fn gathered(pieces: &[&str]) -> (String, Heard) {
        let (mut gathered, mut heard) = (Gathered::default(), Heard::default());
        for piece in pieces {
            gathered.say(piece, &mut heard);
        }
        assert_eq!(gathered.bytes(), pieces.concat().len(), "all that came is counted");
        gathered.end(&mut heard);
        (gathered.into_reply("m".into(), false).text, heard)
    }

    #[test]
    fn given_thoughts_in_a_services_text_when_it_comes_in_any_two_pieces_then_they_are_no_part_of_the_answer() {
        for (text, thoughts, answer) in [
            ("<think>\nhm, <ä>\n</think>\n\nParis", "hm, <ä>", "Paris"),
            ("\n<think></think>{\"tool\": \"clock\"}", "", "{\"tool\": \"clock\"}"),
            ("[THINK]hm[/THINK]Paris", "hm", "Paris"),
            ("<think>hm, cut o", "hm, cut o", ""),
            ("<think>hm</thi", "hm</thi", ""),
            ("<thi", "", "<thi"),
            ("[", "", "["),
            ("[1, 2]", "", "[1, 2]"),
            ("größer <think>hm</think>", "", "größer <think>hm</think>"),
        ] {
            let cuts = text.char_indices().map(|(at, _)| at).chain([text.len()]);
            for at in cuts {
                let (reply, heard) = gathered(&[&text[..at], &text[at..]]);
                assert_eq!((reply.as_str(), heard.text.as_str()), (answer, answer), "{text:?} at {at}");
                assert_eq!(heard.thoughts, thoughts, "{text:?} at {at}");
            }
            let letters: Vec<&str> = text.split("").filter(|letter| !letter.is_empty()).collect();
            assert_eq!(gathered(&letters).0, answer, "{text:?} letter by letter");
        }
    }

    #[test]
    fn given_thoughts_that_a_service_tells_apart_when_they_come_then_only_the_sink_hears_them() {
        let (mut gathered, mut heard) = (Gathered::default(), Heard::default());
        gathered.think("hm", &mut heard);
        gathered.say("Paris", &mut heard);
        gathered.think("too late", &mut heard);
        gathered.end(&mut heard);
        assert_eq!((heard.thoughts.as_str(), heard.text.as_str()), ("hm", "Paris"));
        assert_eq!(gathered.into_reply("m".into(), false).text, "Paris");
    }

    #[test]
    fn given_a_server_that_repeats_id_and_name_when_pieces_come_then_the_call_has_them_once() {
        let mut gathered = Gathered::default();
        gathered.call(0, "call_a", "clock", "{\"zone\":").unwrap();
        gathered.call(0, "call_a", "clock", "\"UTC\"}").unwrap();
        let calls = gathered.into_reply("m".into(), false).tool_calls;
        assert_eq!(calls, [ToolCall { id: "call_a".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) }]);
    }

    #[test]
    fn given_pieces_without_an_index_when_they_come_then_an_id_begins_a_call_and_the_rest_goes_on_with_it() {
        let mut gathered = Gathered::default();
        for (id, name, arguments) in [("a", "clock", "{"), ("", "", "}"), ("b", "calc", "{}"), ("a", "", "")] {
            gathered.call(gathered.index_of(id), id, name, arguments).unwrap();
        }
        let calls = gathered.into_reply("m".into(), false).tool_calls;
        let shown: Vec<(&str, &str)> = calls.iter().map(|call| (call.id.as_str(), call.name.as_str())).collect();
        assert_eq!(shown, [("a", "clock"), ("b", "calc")]);
        assert!(calls.iter().all(|call| call.arguments == json!({})), "{calls:?}");
    }
}
