//! OpenAI's API as its clients use it.

use serde_json::{Value, json};

use crate::harness::{Api, Reply, test, wait_for};

async fn complete(api: &Api, body: Value) -> Reply {
    api.post("/v1/chat/completions", body).await
}

/// The chunks of a stream up to its end.
fn chunks(reply: &Reply) -> Vec<Value> {
    let text = reply.body.as_str().unwrap();
    let mut events: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    assert_eq!(events.pop(), Some("[DONE]"), "{text}");
    events.into_iter().map(|event| serde_json::from_str(event).unwrap()).collect()
}

/// The texts of a field of the deltas, joined as clients join them.
fn joined(chunks: &[Value], field: &str) -> String {
    chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][field].as_str()).collect()
}

#[test]
fn given_a_stream_when_a_client_joins_its_deltas_then_the_role_is_there_once() {
    test(async |api| {
        for (model, text, answer) in [
            ("default", "hello", "It is as the notes say [1]."),
            ("agent/react", "[[steps=1 id=openai-role]] count", "done after 1 steps"),
        ] {
            let messages = json!([{ "role": "user", "content": text }]);
            let reply = complete(api, json!({ "model": model, "messages": messages, "stream": true })).await;
            let chunks = chunks(&reply);
            assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant", "{model}");
            assert_eq!((joined(&chunks, "role").as_str(), joined(&chunks, "content").as_str()), ("assistant", answer));
        }
    });
}

#[test]
fn given_a_client_that_insists_on_a_call_when_it_asks_then_the_answer_is_that_call_whole_and_streamed() {
    test(async |api| {
        let call = |name: &str| {
            let argument = json!({ "type": "string" });
            let parameters = json!({ "type": "object", "properties": { "thought": argument } });
            json!({ "type": "function", "function": { "name": name, "parameters": parameters } })
        };
        let body = |stream: bool| {
            json!({
                "model": "default", "messages": [{ "role": "user", "content": "hello" }], "stream": stream,
                "tools": [call("other"), call("note")], "tool_choice": { "type": "function", "function": { "name": "note" } },
            })
        };
        let whole = complete(api, body(false)).await.body;
        let choice = &whole["choices"][0];
        assert_eq!((&choice["finish_reason"], &choice["message"]["content"]), (&json!("tool_calls"), &Value::Null));
        let function = &choice["message"]["tool_calls"][0]["function"];
        assert_eq!(function["name"], "note");
        let arguments: Value = serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap();
        assert_eq!(arguments["thought"], "enough", "the model server answers so where a form is asked for");
        let chunks = chunks(&complete(api, body(true)).await);
        assert_eq!(joined(&chunks, "content"), "");
        let calls: Vec<&Value> =
            chunks.iter().flat_map(|chunk| chunk["choices"][0]["delta"]["tool_calls"].as_array()).flatten().collect();
        assert_eq!((calls.len(), &calls[0]["function"]["name"]), (1, &json!("note")));
    });
}

/// The bodies that Open WebUI 0.12.4 sends by itself, as a server saw them, with fewer tools and shorter texts: its page's chat, the same
/// behind a call of one of its tools, a chat of its API, and what it has titles, tags and an emoji written by.
fn bodies_of_open_webui(model: &str) -> Vec<Value> {
    let user = json!([{ "role": "user", "content": "hello there" }]);
    let number = json!({ "default": 0, "description": "days to go back", "type": "integer" });
    let questions = json!({ "description": "1 to 3", "type": "array", "items": { "additionalProperties": true, "type": "object" } });
    let tool = |name: &str, parameters: Value| json!({ "type": "function", "function": { "name": name, "description": "does so", "parameters": parameters } });
    let tools = json!([
        tool("get_current_timestamp", json!({ "properties": {}, "type": "object" })),
        tool("calculate_timestamp", json!({ "properties": { "days_ago": number }, "type": "object" })),
        tool(
            "ask_user",
            json!({ "properties": { "questions": questions }, "required": ["questions"], "type": "object" })
        ),
    ]);
    let function = json!({ "name": "get_current_timestamp", "arguments": "{}" });
    let called = json!([
        { "role": "user", "content": "what time is it" },
        { "role": "assistant", "content": "let me look", "tool_calls": [{ "id": "call_1", "type": "function", "function": function }] },
        { "role": "tool", "tool_call_id": "call_1", "content": "{\"current_timestamp\":1795993948}" },
    ]);
    let task =
        json!([{ "role": "user", "content": "### Task:\nGenerate a concise title summarizing the chat history." }]);
    vec![
        json!({ "stream": true, "model": model, "messages": user, "tools": tools }),
        json!({ "stream": true, "model": model, "messages": user, "stream_options": { "include_usage": true }, "tools": tools }),
        json!({ "stream": true, "model": model, "messages": called, "tools": tools }),
        json!({ "model": model, "messages": user, "stream": false }),
        json!({ "model": model, "messages": task, "stream": false }),
        json!({ "model": model, "messages": task, "stream": false, "max_tokens": 1000 }),
        json!({ "model": model, "messages": task, "stream": false, "max_tokens": 4 }),
    ]
}

#[test]
fn given_the_bodies_that_open_webui_sends_when_models_and_agents_get_them_then_both_answer() {
    test(async |api| {
        for model in ["default", "agent/react"] {
            let of_agent = model.starts_with("agent/");
            for body in bodies_of_open_webui(model) {
                let offered = body["tools"].as_array().map_or(0, Vec::len);
                let reply = complete(api, body.clone()).await;
                assert_eq!(reply.status, 200, "{body}: {}", reply.body);
                let (text, told) = if body["stream"] == true {
                    let chunks = chunks(&reply);
                    assert!(chunks.iter().all(|chunk| chunk.get("error").is_none()), "{body}: {chunks:?}");
                    (joined(&chunks, "content"), chunks[0]["unused_tools"].clone())
                } else {
                    let text = reply.body["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned();
                    (text, reply.body["unused_tools"].clone())
                };
                assert!(!text.is_empty(), "{body}: {}", reply.body);
                let wanted = if of_agent && offered > 0 { json!(offered) } else { Value::Null };
                assert_eq!(told, wanted, "an agent says that it has tools of its own: {body}");
            }
        }
        let vectors = json!({ "model": "default", "input": ["Rivers run to the sea."] });
        let reply = api.post("/v1/embeddings", vectors).await;
        assert_eq!(reply.status, 200, "{}", reply.body);
        assert!(reply.body["data"][0]["embedding"].is_array(), "{}", reply.body);
    });
}

#[test]
fn given_a_run_behind_a_chat_when_it_is_cancelled_then_the_client_is_told_so_and_not_to_ask_again() {
    test(async |api| {
        for stream in [false, true] {
            let task = format!("slow [[steps=7 delay_ms=400 id=openai-cancel-{stream}]]");
            let messages = json!([{ "role": "user", "content": task }]);
            let asked = complete(api, json!({ "model": "agent/react", "messages": messages, "stream": stream }));
            let cancelled = async {
                let run_id = wait_for("the run", async || {
                    let page = api.get("/runs?status=running&limit=500").await.body;
                    let run = page["items"].as_array()?.iter().find(|run| run["task"] == task.as_str())?.clone();
                    run["run_id"].as_str().map(str::to_owned)
                })
                .await;
                api.post(&format!("/runs/{run_id}/cancel"), json!({})).await.status
            };
            let (reply, accepted) = tokio::join!(asked, cancelled);
            assert_eq!(accepted, 202);
            if stream {
                let chunks = chunks(&reply);
                assert_eq!(chunks.last().unwrap()["error"]["code"], "run_cancelled", "{chunks:?}");
                continue;
            }
            assert_eq!((reply.status, &reply.body["error"]["code"]), (409, &json!("run_cancelled")), "{}", reply.body);
            assert_eq!(reply.headers["x-should-retry"], "false");
        }
    });
}

#[test]
fn given_a_text_that_is_cut_when_it_is_embedded_then_the_list_says_so_and_no_other_does() {
    test(async |api| {
        let embed = async |texts: Value| {
            let reply = api.post("/v1/embeddings", json!({ "model": "default", "input": texts })).await;
            (reply.body["data"].as_array().map(Vec::len), reply.body["truncated"].clone())
        };
        assert_eq!(embed(json!(["short", "[[too long]] and more", "short too"])).await, (Some(3), json!(1)));
        assert_eq!(embed(json!(["short"])).await, (Some(1), Value::Null));
    });
}

#[test]
fn given_a_length_and_a_purpose_when_texts_are_embedded_then_what_can_not_be_is_refused_by_name() {
    test(async |api| {
        for (more, wrong) in [
            (json!({}), None),
            (json!({ "dimensions": 64, "input_type": "query" }), None),
            (json!({ "input_type": "document" }), None),
            (json!({ "dimensions": 63 }), Some("dimensions")),
            (json!({ "dimensions": 0 }), Some("dimensions")),
            (json!({ "input_type": "classification" }), Some("input_type")),
        ] {
            let mut body = json!({ "model": "default", "input": ["Rivers run to the sea."] });
            body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            let reply = api.post("/v1/embeddings", body).await;
            match wrong {
                None => assert_eq!(
                    reply.body["data"][0]["embedding"].as_array().map(Vec::len),
                    Some(64),
                    "{more}: {}",
                    reply.body
                ),
                Some(field) => {
                    assert_eq!(
                        (reply.status, &reply.body["error"]["param"]),
                        (400, &json!(field)),
                        "{more}: {}",
                        reply.body
                    );
                }
            }
        }
    });
}

#[test]
fn given_a_model_of_a_server_when_it_is_asked_to_think_then_the_field_is_refused_and_no_thoughts_are_fine() {
    test(async |api| {
        let ask = async |field: &str, value: Value| {
            let messages = json!([{ "role": "user", "content": "hello" }]);
            complete(api, json!({ "model": "default", "messages": messages, field: value })).await
        };
        for (field, value) in [
            ("reasoning_effort", json!("high")),
            ("reasoning_effort", json!("much")),
            ("chat_template_kwargs", json!({ "enable_thinking": false })),
            ("chat_template_kwargs", json!({ "colour": "red" })),
        ] {
            let reply = ask(field, value).await;
            assert_eq!((reply.status, &reply.body["error"]["param"]), (400, &json!(field)), "{}", reply.body);
        }
        for (field, value) in [("reasoning_effort", json!("none")), ("chat_template_kwargs", json!({}))] {
            let reply = ask(field, value).await;
            let message = &reply.body["choices"][0]["message"];
            assert_eq!((reply.status, message.get("reasoning_content")), (200, None), "{}", reply.body);
        }
    });
}

#[test]
fn given_token_ids_when_they_are_to_be_embedded_then_the_answer_says_what_is_read() {
    test(async |api| {
        for input in [json!([1, 2, 3]), json!([[1, 2], [3]]), json!(7)] {
            let reply = api.post("/v1/embeddings", json!({ "model": "default", "input": input })).await;
            let error = &reply.body["error"];
            assert_eq!((reply.status, &error["param"]), (400, &json!("input")), "{}", reply.body);
            assert!(error["message"].as_str().unwrap().contains("token ids are not read"), "{}", reply.body);
        }
    });
}
