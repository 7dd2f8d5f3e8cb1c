//! OpenAI's API as its clients use it.

use serde_json::{Value, json};

use crate::harness::{Api, Reply, test};

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
