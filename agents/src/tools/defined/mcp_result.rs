//! What the model is shown of an MCP server's result.

use rmcp::model::CallToolResult;
use serde_json::{Value, json};

use crate::state::canonical;

/// The texts of a result: those of its text blocks and of the resources in it; of a link to one, its name and address; of what is no
/// text, only the kind.
pub(super) fn text_of(result: &CallToolResult) -> String {
    lines_of(result).join("\n")
}

/// The value of a result: what the server gives as data, and beside it, as `text`, what it says in words and not as the same data.
pub(super) fn value_of(result: &CallToolResult) -> Value {
    let Some(data) = &result.structured_content else { return json!({ "text": text_of(result) }) };
    let same = canonical(&data.to_string());
    let words: Vec<String> = lines_of(result).into_iter().filter(|line| canonical(line) != same).collect();
    let words = words.join("\n");
    if words.trim().is_empty() {
        return data.clone();
    }
    match data {
        Value::Object(fields) if !fields.contains_key("text") => {
            let mut fields = fields.clone();
            fields.insert("text".to_owned(), Value::String(words));
            Value::Object(fields)
        }
        other => json!({ "data": other, "text": words }),
    }
}

fn lines_of(result: &CallToolResult) -> Vec<String> {
    let blocks = serde_json::to_value(&result.content).unwrap_or_default();
    blocks.as_array().into_iter().flatten().map(line_of).collect()
}

fn line_of(block: &Value) -> String {
    let resource = &block["resource"];
    match block["type"].as_str() {
        Some("text") => block["text"].as_str().unwrap_or_default().to_owned(),
        Some("resource") => match (resource["text"].as_str(), resource["uri"].as_str()) {
            (Some(text), _) => text.to_owned(),
            (None, Some(uri)) => format!("[resource {uri} left out]"),
            (None, None) => "[resource left out]".to_owned(),
        },
        Some("resource_link") => {
            let text = |field: &str| block[field].as_str().unwrap_or_default();
            format!("{} ({})", text("name"), text("uri"))
        }
        other => format!("[{} left out]", other.unwrap_or("content")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(value: Value) -> CallToolResult {
        serde_json::from_value(value).expect("a result of a tool")
    }

    #[test]
    fn given_blocks_of_every_kind_when_they_are_read_then_texts_and_links_are_there_and_the_rest_is_named() {
        let blocks = json!({"content": [
            {"type": "text", "text": "Found:"},
            {"type": "resource", "resource": {"uri": "file:///a.txt", "mimeType": "text/plain", "text": "words of a"}},
            {"type": "resource", "resource": {"uri": "file:///b.png", "mimeType": "image/png", "blob": "AAAA"}},
            {"type": "resource_link", "uri": "file:///c.txt", "name": "c.txt"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
        ]});
        let text = "Found:\nwords of a\n[resource file:///b.png left out]\nc.txt (file:///c.txt)\n[image left out]";
        assert_eq!(text_of(&result(blocks.clone())), text);
        assert_eq!(value_of(&result(blocks)), json!({ "text": text }));
    }

    #[test]
    fn given_data_beside_text_when_they_are_read_then_the_text_is_kept_unless_it_is_the_same_data() {
        for (data, texts, value) in [
            (json!({"n": 1, "m": 2}), vec!["{\"m\": 2, \"n\": 1.0}"], json!({"n": 1, "m": 2})),
            (json!({"n": 1}), vec!["{\"n\": 1}", "One was found."], json!({"n": 1, "text": "One was found."})),
            (json!({"text": "a"}), vec!["b"], json!({"data": {"text": "a"}, "text": "b"})),
            (json!({"n": 1}), vec![], json!({"n": 1})),
        ] {
            let content: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
            let given = result(json!({ "content": content, "structuredContent": data }));
            assert_eq!(value_of(&given), value, "{texts:?}");
        }
    }
}
