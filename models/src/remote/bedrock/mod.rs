//! Amazon Bedrock, as documented at docs.aws.amazon.com: its Converse API, which is one protocol for the chat models of all makers, and the
//! bodies that its embedding models and re-rankers have of their own.

mod events;

use std::borrow::Cow;
use std::ops::ControlFlow;

use serde::Deserialize;
use serde_json::{Value, json};

use super::forced::{ANSWER, DESCRIPTION, answer_schema, arguments_schema, take_answer};
use super::gathered::Gathered;
use super::openai::encoded;
use super::protocol::{EmbedPart, Embedded, Fault, Framing, Listed, Protocol, changes, first_given, json, ranks_in};
use super::{number, set};
use crate::http::Call;
use crate::provider::{ChatRequest, DeltaSink, EmbedPurpose, FinishReason, Message, ModelKind, Role, Usage};
use events::{Event, Piece, Started};

/// Makers whose models take no tools in a stream.
const WHOLE_WITH_TOOLS: [&str; 3] = ["meta.", "mistral.", "deepseek."];
/// Models that can be told which tool to call.
const FORCED: [&str; 2] = ["anthropic.", "amazon.nova"];
/// Reasons that end an answer because of what it says.
const WITHHELD: [&str; 3] = ["guardrail_intervened", "content_filtered", "refusal"];
/// Characters of a text that the third version of Cohere's embedding models takes.
const COHERE_V3_CHARS: usize = 2048;

/// The Converse protocol.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bedrock;

impl Protocol for Bedrock {
    fn framing(&self) -> Framing {
        Framing::Frames
    }

    fn chat(&self, request: &ChatRequest) -> Option<Call> {
        let mut body = prompt(request);
        let mut config = json!({});
        set(&mut config, "maxTokens", request.max_tokens.map(Value::from));
        set(&mut config, "temperature", request.temperature.map(number));
        set(&mut config, "topP", request.top_p.map(number));
        set(&mut config, "stopSequences", (!request.stop.is_empty()).then(|| json!(request.stop)));
        if config != json!({}) {
            body["inferenceConfig"] = config;
        }
        set(&mut body, "additionalModelRequestFields", request.top_k.and_then(|k| top_k(&request.model, k)));
        let whole = body.get("toolConfig").is_some() && is_of(&request.model, &WHOLE_WITH_TOOLS);
        let operation = if whole { "converse" } else { "converse-stream" };
        Some(Call::post(path(&request.model, operation), body))
    }

    fn leaves_out(&self, request: &ChatRequest) -> Option<&'static str> {
        first_given(&[
            ("top_k", request.top_k.is_some_and(|k| top_k(&request.model, k).is_none())),
            ("seed", request.seed.is_some()),
            ("min_p", changes(request.min_p, 0.0)),
            ("repeat_penalty", changes(request.repeat_penalty, 1.0)),
            ("frequency_penalty", changes(request.frequency_penalty, 0.0)),
            ("presence_penalty", changes(request.presence_penalty, 0.0)),
        ])
    }

    fn gather(
        &self,
        event: &[u8],
        gathered: &mut Gathered,
        sink: &mut dyn DeltaSink,
    ) -> Result<ControlFlow<()>, Fault> {
        let event: Event = json(event)?;
        if let Some(exception) = event.exception {
            return Err(exception.into());
        }
        if let Some(said) = event.message {
            return Err(Fault::Broken(said));
        }
        if let Some(Started { content_block_index, start }) = event.content_block_start
            && let Some(tool) = start.tool_use
        {
            gathered.call(content_block_index, &tool.tool_use_id, &tool.name, "")?;
        }
        if let Some(Piece { content_block_index, delta }) = event.content_block_delta {
            gathered.say(&delta.text.unwrap_or_default(), sink);
            if let Some(tool) = delta.tool_use {
                gathered.call(content_block_index, "", "", &tool.input)?;
            }
        }
        if let Some(stopped) = event.content_block_stop {
            take_answer(stopped.content_block_index, gathered, sink)?;
        }
        // An answer in one piece.
        let content = event.output.map(|output| output.message.content).unwrap_or_default();
        for (index, block) in content.into_iter().enumerate() {
            gathered.say(&block.text.unwrap_or_default(), sink);
            if let Some(tool) = block.tool_use {
                gathered.call(index, &tool.tool_use_id, &tool.name, &tool.input.to_string())?;
                take_answer(index, gathered, sink)?;
            }
        }
        let stop = event.message_stop.map(|stop| stop.stop_reason).or(event.stop_reason);
        if let Some(reason) = stop {
            finish(reason, gathered)?;
        }
        match event.metadata.map(|metadata| metadata.usage).or(event.usage) {
            // The last event, and of an answer in one piece the only one.
            Some(usage) => {
                gathered.usage = usage.into();
                Ok(ControlFlow::Break(()))
            }
            None => Ok(ControlFlow::Continue(())),
        }
    }

    fn list(&self) -> Option<Call> {
        Some(Call::get("/foundation-models"))
    }

    fn list_address<'a>(&self, address: &'a str) -> Cow<'a, str> {
        for (runtime, control) in
            [("://bedrock-runtime.", "://bedrock."), ("://bedrock-runtime-fips.", "://bedrock-fips.")]
        {
            if address.contains(runtime) {
                return Cow::Owned(address.replacen(runtime, control, 1));
            }
        }
        Cow::Borrowed(address)
    }

    fn listed(&self, body: &[u8]) -> Result<Vec<Listed>, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Entry {
            model_id: String,
            #[serde(default)]
            output_modalities: Vec<String>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Listing {
            model_summaries: Vec<Entry>,
        }
        let listing: Listing = json(body)?;
        let listed = |entry: Entry| {
            let makes = |what: &str| entry.output_modalities.iter().any(|one| one == what);
            let kind = match (makes("EMBEDDING"), makes("TEXT")) {
                _ if entry.model_id.contains(".rerank") => ModelKind::Rerank,
                (true, _) => ModelKind::Embed,
                (false, true) => ModelKind::Chat,
                (false, false) => ModelKind::Unknown,
            };
            Listed { kind, ..Listed::named(entry.model_id) }
        };
        Ok(listing.model_summaries.into_iter().map(listed).collect())
    }

    fn embed(&self, part: EmbedPart<'_>) -> Option<Call> {
        let body = if is_of(part.model, &["amazon.titan-embed-text"]) {
            let mut body = json!({"inputText": part.inputs.first()?});
            set(&mut body, "dimensions", part.dimensions.map(Value::from));
            body
        } else if is_of(part.model, &["cohere.embed"]) {
            let purpose = match part.purpose {
                EmbedPurpose::Document => "search_document",
                EmbedPurpose::Query => "search_query",
            };
            // The third version refuses longer texts, whatever it is told of cutting.
            let most = if part.cut && part.model.contains("-v3") { COHERE_V3_CHARS } else { usize::MAX };
            let texts: Vec<String> = part.inputs.iter().map(|text| text.chars().take(most).collect()).collect();
            json!({"texts": texts, "input_type": purpose, "truncate": if part.cut { "END" } else { "NONE" }})
        } else {
            return None;
        };
        Some(Call::post(path(part.model, "invoke"), body))
    }

    fn can_cut(&self, model: &str) -> bool {
        is_of(model, &["cohere.embed"])
    }

    fn embedded(&self, body: &[u8]) -> Result<Embedded, Fault> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Vectors {
            Plain(Vec<Vec<f32>>),
            Typed { float: Vec<Vec<f32>> },
        }
        #[derive(Deserialize)]
        struct Answer {
            embeddings: Option<Vectors>,
            embedding: Option<Vec<f32>>,
            #[serde(default, rename = "inputTextTokenCount")]
            tokens: u64,
        }
        let answer: Answer = json(body)?;
        let vectors = match (answer.embeddings, answer.embedding) {
            (Some(Vectors::Plain(vectors) | Vectors::Typed { float: vectors }), _) => vectors,
            (None, Some(vector)) => vec![vector],
            (None, None) => return Err("it has no vectors".into()),
        };
        Ok((vectors, Usage { prompt_tokens: answer.tokens, completion_tokens: 0, ..Usage::default() }))
    }

    fn takes_dimensions(&self, model: &str) -> bool {
        // Its first version has one length.
        is_of(model, &["amazon.titan-embed-text-v2"])
    }

    fn embed_batch(&self, model: &str) -> usize {
        if is_of(model, &["cohere.embed"]) { 96 } else { 1 }
    }

    fn rerank(&self, model: &str, query: &str, documents: &[String]) -> Option<Call> {
        let body = json!({"query": query, "documents": documents, "top_n": documents.len(), "api_version": 2});
        is_of(model, &["cohere.rerank"]).then(|| Call::post(path(model, "invoke"), body))
    }

    fn ranked(&self, body: &[u8]) -> Result<Vec<(usize, f32)>, Fault> {
        ranks_in(body, "results")
    }

    fn count_prompt(&self, request: &ChatRequest) -> Option<Call> {
        let mut prompt = prompt(request);
        if let Some(map) = prompt.as_object_mut() {
            map.remove("outputConfig");
        }
        Some(Call::post(path(&request.model, "count-tokens"), json!({"input": {"converse": prompt}})))
    }

    fn count_text(&self, model: &str, text: &str) -> Option<Call> {
        let request =
            ChatRequest { model: model.to_owned(), messages: vec![Message::user(text)], ..ChatRequest::default() };
        self.count_prompt(&request)
    }

    fn counted(&self, body: &[u8]) -> Result<Option<usize>, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Answer {
            input_tokens: usize,
        }
        json::<Answer>(body).map(|answer| Some(answer.input_tokens))
    }
}

fn path(model: &str, operation: &str) -> String {
    format!("/model/{}/{operation}", encoded(model))
}

/// Whether a model's name begins with one of these, behind the region or the address of a profile.
fn is_of(model: &str, beginnings: &[&str]) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    beginnings.iter().any(|beginning| name.starts_with(beginning) || name.contains(&format!(".{beginning}")))
}

/// The makers' own fields for it, where they have one.
fn top_k(model: &str, k: u32) -> Option<Value> {
    if is_of(model, &["anthropic."]) {
        Some(json!({"top_k": k}))
    } else if is_of(model, &["amazon.nova"]) {
        Some(json!({"inferenceConfig": {"topK": k}}))
    } else {
        None
    }
}

fn finish(reason: String, gathered: &mut Gathered) -> Result<(), Fault> {
    gathered.finish = Some(match reason.as_str() {
        "max_tokens" | "model_context_window_exceeded" => FinishReason::Length,
        "tool_use" => FinishReason::ToolCalls,
        "malformed_model_output" | "malformed_tool_use" => {
            return Err(Fault::Broken(format!("it ended its answer because of {reason}")));
        }
        _ => FinishReason::Stop,
    });
    gathered.withheld = Some(reason).filter(|reason| WITHHELD.contains(&reason.as_str()));
    Ok(())
}

/// What of a request the model reads, and what its answer must be.
fn prompt(request: &ChatRequest) -> Value {
    let mut body = json!({"messages": messages(&request.messages)});
    let system: Vec<Value> = request
        .messages
        .iter()
        .filter(|message| message.role == Role::System && !message.content.trim().is_empty())
        .map(|message| json!({"text": message.content}))
        .collect();
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    let forced = is_of(&request.model, &FORCED);
    let shown = request.tools.iter().filter(|_| forced || request.response_schema.is_none());
    let mut tools: Vec<Value> = shown
        .filter(|tool| tool.name != ANSWER)
        .map(|tool| wire_tool(&tool.name, &tool.description, &arguments_schema(tool)))
        .collect();
    let mut choice = None;
    match &request.response_schema {
        Some(schema) if forced => {
            tools.push(wire_tool(ANSWER, DESCRIPTION, &answer_schema(schema)));
            choice = Some(json!({"tool": {"name": ANSWER}}));
        }
        Some(schema) => {
            let held = json!({"jsonSchema": {"name": "answer", "schema": schema.to_string()}});
            body["outputConfig"] = json!({"textFormat": {"type": "json_schema", "structure": held}});
        }
        None => {}
    }
    if tools.is_empty() {
        // The service refuses calls of tools that it is not shown.
        tools = tools_of_the_past(&request.messages);
    }
    if !tools.is_empty() {
        body["toolConfig"] = json!({"tools": tools});
        set(&mut body["toolConfig"], "toolChoice", choice);
    }
    body
}

fn tools_of_the_past(messages: &[Message]) -> Vec<Value> {
    let calls = messages.iter().flat_map(|message| &message.tool_calls);
    let mut names: Vec<&str> = calls.map(|call| call.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| wire_tool(name, "", &json!({"type": "object"}))).collect()
}

fn wire_tool(name: &str, description: &str, schema: &Value) -> Value {
    let mut tool = json!({"name": name, "inputSchema": {"json": schema}});
    // An empty description is refused.
    set(&mut tool, "description", (!description.trim().is_empty()).then(|| json!(description)));
    json!({ "toolSpec": tool })
}

/// Turns alternate: what follows one another from the same side is one message, and the results of tools are the user's.
fn messages(messages: &[Message]) -> Vec<Value> {
    let mut wire: Vec<(&str, Vec<Value>)> = Vec::new();
    for message in messages {
        let (role, blocks) = match message.role {
            Role::System => continue,
            Role::User => ("user", text_block(&message.content)),
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let content = json!([{"text": message.content}]);
                ("user", vec![json!({"toolResult": {"toolUseId": id, "content": content}})])
            }
            Role::Assistant => {
                let mut blocks = text_block(&message.content);
                // The arguments must be an object even where the model wrote something else.
                blocks.extend(message.tool_calls.iter().map(|call| {
                    let input = if call.arguments.is_object() { call.arguments.clone() } else { json!({}) };
                    json!({"toolUse": {"toolUseId": call.id, "name": call.name, "input": input}})
                }));
                ("assistant", blocks)
            }
        };
        match wire.last_mut() {
            Some((last, all)) if *last == role => all.extend(blocks),
            _ => wire.push((role, blocks)),
        }
    }
    // The service refuses messages without content.
    wire.retain(|(_, blocks)| !blocks.is_empty());
    wire.into_iter().map(|(role, content)| json!({"role": role, "content": content})).collect()
}

fn text_block(text: &str) -> Vec<Value> {
    if text.trim().is_empty() { Vec::new() } else { vec![json!({"text": text})] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::{ToolCall, ToolSpec};

    #[test]
    fn given_names_of_models_when_their_maker_is_asked_for_then_regions_and_profiles_do_not_hide_it() {
        let profile =
            "arn:aws:bedrock:eu-central-1:111122223333:inference-profile/eu.anthropic.claude-sonnet-4-5-20250929-v1:0";
        for model in ["anthropic.claude-3-haiku-20240307-v1:0", "global.anthropic.claude-sonnet-4-5", profile] {
            assert!(is_of(model, &FORCED) && !is_of(model, &WHOLE_WITH_TOOLS), "{model}");
            assert_eq!(top_k(model, 5), Some(json!({"top_k": 5})), "{model}");
        }
        assert_eq!(top_k("us.amazon.nova-lite-v1:0", 5), Some(json!({"inferenceConfig": {"topK": 5}})));
        assert!(is_of("us.meta.llama4-scout-17b-instruct-v1:0", &WHOLE_WITH_TOOLS));
        assert!(!is_of("qwen.qwen3-32b-v1:0", &FORCED) && !is_of("notanthropic.x", &FORCED));
        assert_eq!(path("a.b-v1:0", "converse"), "/model/a.b-v1%3A0/converse");
    }

    #[test]
    fn given_the_address_of_a_runtime_when_models_are_listed_then_it_is_the_control_planes_and_others_stay() {
        for (address, listing) in [
            ("https://bedrock-runtime.eu-central-1.amazonaws.com", "https://bedrock.eu-central-1.amazonaws.com"),
            ("https://bedrock-runtime-fips.us-east-1.amazonaws.com", "https://bedrock-fips.us-east-1.amazonaws.com"),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ] {
            assert_eq!(Bedrock.list_address(address), listing);
        }
    }

    #[test]
    fn given_a_conversation_when_it_is_sent_then_turns_alternate_and_calls_have_a_tool_even_where_none_is_shown() {
        let call = |id: &str| ToolCall { id: id.into(), name: "clock".into(), arguments: json!("{bad") };
        let request = ChatRequest {
            model: "mistral.mistral-large-2402-v1:0".into(),
            messages: vec![
                Message::system(" "),
                Message::user("a"),
                Message::user("b"),
                Message { tool_calls: vec![call("1"), call("2")], ..Message::assistant("") },
                Message::tool("1", "x"),
                Message::tool("2", "y"),
                Message::assistant(" "),
            ],
            ..ChatRequest::default()
        };
        let wire = prompt(&request);
        let roles: Vec<&str> =
            wire["messages"].as_array().unwrap().iter().map(|message| message["role"].as_str().unwrap()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        let used = &wire["messages"][1]["content"][0]["toolUse"];
        assert_eq!(*used, json!({"toolUseId": "1", "name": "clock", "input": {}}));
        let result = &wire["messages"][2]["content"][1]["toolResult"];
        assert_eq!(*result, json!({"toolUseId": "2", "content": [{"text": "y"}]}));
        let spec = json!({"toolSpec": {"name": "clock", "inputSchema": {"json": {"type": "object"}}}});
        assert_eq!(wire["toolConfig"], json!({"tools": [spec]}));
        assert_eq!(wire.get("system"), None, "blank text is refused");
        assert!(Bedrock.chat(&request).unwrap().path.ends_with("/converse"));
    }

    #[test]
    fn given_a_schema_when_the_model_can_not_be_told_which_tool_to_call_then_its_text_is_held_to_it() {
        let tool = ToolSpec { name: "clock".into(), description: String::new(), parameters: json!({}) };
        let request = |model: &str| ChatRequest {
            model: model.into(),
            messages: vec![Message::user("a")],
            tools: vec![tool.clone()],
            response_schema: Some(json!({"type": "array"})),
            ..ChatRequest::default()
        };
        let wire = prompt(&request("qwen.qwen3-32b-v1:0"));
        let held = json!({"name": "answer", "schema": r#"{"type":"array"}"#});
        assert_eq!(wire["outputConfig"]["textFormat"]["structure"]["jsonSchema"], held);
        assert_eq!(wire.get("toolConfig"), None);
        let wire = prompt(&request("us.amazon.nova-pro-v1:0"));
        assert_eq!(wire["toolConfig"]["toolChoice"], json!({"tool": {"name": ANSWER}}));
        let answer = &wire["toolConfig"]["tools"][1]["toolSpec"]["inputSchema"]["json"];
        assert_eq!(answer["properties"]["value"], json!({"type": "array"}));
        assert_eq!(wire.get("outputConfig"), None);
    }
}
