//! Tokens of a chat that nobody counted, from the length of its texts.

use crate::provider::ChatRequest;

/// Bytes of a token in usual text.
const BYTES_PER_TOKEN: usize = 4;
/// Tokens that a chat template puts around a message.
const AROUND_MESSAGE: usize = 4;

/// Tokens of so many bytes of text.
pub(crate) fn tokens_of(bytes: usize) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN) as u64
}

/// Tokens of all that a request shows the model.
pub(crate) fn prompt_tokens(request: &ChatRequest) -> u64 {
    let said: usize = request.messages.iter().map(|message| message.content.len()).sum();
    let calls = request.messages.iter().flat_map(|message| &message.tool_calls);
    let called: usize = calls.map(|call| call.name.len() + call.arguments.to_string().len()).sum();
    let tools = request.tools.iter();
    let offered: usize =
        tools.map(|tool| tool.name.len() + tool.description.len() + tool.parameters.to_string().len()).sum();
    let around = (request.messages.len() * AROUND_MESSAGE) as u64;
    tokens_of(said + called + offered) + around
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::provider::{Message, ToolCall, ToolSpec};

    #[test]
    fn given_a_request_when_its_tokens_are_estimated_then_all_that_the_model_reads_counts() {
        let plain = ChatRequest { messages: vec![Message::user("x".repeat(40))], ..ChatRequest::default() };
        assert_eq!((tokens_of(0), tokens_of(1), prompt_tokens(&plain)), (0, 1, 14));
        let parameters = json!({"type": "object"});
        let tool = ToolSpec { name: "clock".into(), description: "the time".into(), parameters };
        let offered = ChatRequest { tools: vec![tool], ..plain.clone() };
        let call = ToolCall { id: "1".into(), name: "clock".into(), arguments: json!({"zone": "UTC"}) };
        let mut called = plain.clone();
        called.messages.push(Message { tool_calls: vec![call], ..Message::assistant("") });
        for more in [offered, called] {
            assert!(prompt_tokens(&more) > prompt_tokens(&plain), "{more:?}");
        }
    }
}
