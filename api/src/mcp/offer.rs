//! What the MCP server offers, and which request each call becomes. Pure.

use std::sync::Arc;

use axum::http::Method;
use riverrun_knowledge::retrieval::MAX_CONTEXT_BYTES;
use riverrun_schemas::Namespace;
use rmcp::model::{Tool, ToolAnnotations};
use serde_json::{Map, Value, json};

/// Longest that a run for a client takes, in seconds.
const RUN_SECONDS: i64 = 600;

/// An offer of our own: name, description, schema, whether it only reads.
struct Own {
    name: &'static str,
    description: &'static str,
    schema: fn() -> Value,
    reads: bool,
}

const OWN: &[Own] = &[
    Own {
        name: "run_agent",
        description: "Runs an agent on a task and gives its answer with citations. Tools of the run that change something \
                      outside wait for a person's approval at riverrun: the status is then waiting_approval, with what is asked.",
        schema: run_schema,
        reads: false,
    },
    Own {
        name: "list_agents",
        description: "The kinds of agents, with what each can do.",
        schema: nothing,
        reads: true,
    },
    Own {
        name: "list_collections",
        description: "The document collections that can be searched and asked.",
        schema: nothing,
        reads: true,
    },
    Own {
        name: "search_collection",
        description: "Finds passages in a collection, by meaning and by words.",
        schema: search_schema,
        reads: true,
    },
    Own {
        name: "ask_collection",
        description: "Answers a question from a collection, with citations that were checked.",
        schema: search_schema,
        reads: true,
    },
];

fn nothing() -> Value {
    json!({ "type": "object", "properties": {}, "additionalProperties": false })
}

fn run_schema() -> Value {
    let agents: Vec<&str> = riverrun_agents::catalog().iter().map(|manifest| manifest.name).collect();
    json!({
        "type": "object",
        "properties": {
            "task": { "type": "string", "description": "The task, in words" },
            "agent": { "type": "string", "enum": agents, "description": "Left out, the one that fits is chosen" },
            "collections": { "type": "array", "items": { "type": "string" }, "description": "The only collections it may read" },
            "tools": { "type": "array", "items": { "type": "string" }, "description": "The only tools it may use" },
            "session": { "type": "string", "description": "Conversation that the run belongs to" },
            "model": { "type": "string", "description": "Chat model" },
        },
        "required": ["task"],
        "additionalProperties": false,
    })
}

fn search_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": { "type": "string", "description": "What to look for, or the question" },
            "collection": { "type": "string", "description": "A name of list_collections" },
            "k": { "type": "integer", "minimum": 1, "maximum": 50, "description": "How many passages" },
            "context_bytes": { "type": "integer", "minimum": 0, "maximum": MAX_CONTEXT_BYTES, "description": "Bytes of the document before and behind each passage" },
        },
        "required": ["query", "collection"],
        "additionalProperties": false,
    })
}

/// Those of our own.
pub(super) fn own_tools() -> Vec<Tool> {
    OWN.iter()
        .map(|own| {
            let schema = (own.schema)().as_object().cloned().unwrap_or_default();
            let hints = ToolAnnotations::new().read_only(own.reads);
            Tool::new(own.name, own.description, Arc::new(schema)).annotate(hints)
        })
        .collect()
}

/// An entry of `GET /tools`; `None` for one that nobody could approve, or whose name is one of ours.
pub(super) fn tool(entry: &Value) -> Option<Tool> {
    let name = entry["name"].as_str()?.to_owned();
    let asks = entry["needs_approval"].as_bool().unwrap_or_else(|| entry["effect"] == "external");
    if asks || OWN.iter().any(|own| own.name == name) {
        return None;
    }
    let description = entry["description"].as_str().unwrap_or_default().to_owned();
    let schema = entry["input_schema"].as_object().cloned().unwrap_or_default();
    let hints = ToolAnnotations::new().read_only(entry["effect"] == "none");
    Some(Tool::new(name, description, Arc::new(schema)).annotate(hints))
}

/// The request that a call becomes. The namespace is the server's own, whatever the arguments say.
pub(super) fn request(
    name: &str,
    mut arguments: Map<String, Value>,
    namespace: &Namespace,
) -> Result<(Method, String, Option<Value>), String> {
    arguments.remove("namespace");
    let with_namespace = |mut body: Map<String, Value>| {
        body.insert("namespace".to_owned(), json!(namespace));
        Some(Value::Object(body))
    };
    Ok(match name {
        "run_agent" => {
            arguments.remove("approval");
            arguments.insert("budget".to_owned(), json!({ "seconds": RUN_SECONDS }));
            (Method::POST, "/agent/run".to_owned(), with_namespace(arguments))
        }
        "list_agents" => (Method::GET, "/agents".to_owned(), None),
        "list_collections" => (Method::GET, format!("/collections?namespace={namespace}"), None),
        "search_collection" => (Method::POST, "/rag/search".to_owned(), with_namespace(arguments)),
        "ask_collection" => (Method::POST, "/rag/ask".to_owned(), with_namespace(arguments)),
        tool if is_name(tool) => {
            let body = Map::from_iter([("arguments".to_owned(), Value::Object(arguments))]);
            (Method::POST, format!("/tools/{tool}/call"), with_namespace(body))
        }
        other => return Err(format!("there is no tool {:?}", other.chars().take(80).collect::<String>())),
    })
}

/// A name that can stand in a path as it is.
fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// What of an answer a client's model needs.
pub(super) fn answer(name: &str, answer: Value) -> Value {
    match name {
        "run_agent" => {
            let kept = [
                "run_id",
                "status",
                "agent",
                "answer",
                "citations",
                "pending_approvals",
                "stop_reason",
                "error",
                "usage",
            ];
            let kept = kept.iter().filter_map(|key| Some(((*key).to_owned(), answer.get(key)?.clone())));
            Value::Object(kept.collect())
        }
        _ if answer.get("call_id").is_some() && answer.get("result").is_some() => answer["result"].clone(),
        _ => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(name: &str, arguments: Value) -> (String, Value) {
        let namespace = "team".parse().unwrap();
        let (_, path, body) = request(name, arguments.as_object().unwrap().clone(), &namespace).unwrap();
        (path, body.unwrap_or_default())
    }

    #[test]
    fn given_calls_when_they_become_requests_then_the_namespace_is_the_servers_and_nothing_is_confirmed() {
        let foreign = json!({ "query": "x", "collection": "c", "namespace": "other" });
        assert_eq!(
            body("search_collection", foreign),
            ("/rag/search".into(), json!({ "query": "x", "collection": "c", "namespace": "team" }))
        );
        let (path, run) = body("run_agent", json!({ "task": "x", "approval": "never", "namespace": "other" }));
        assert_eq!((path.as_str(), run["namespace"].as_str(), run.get("approval")), ("/agent/run", Some("team"), None));
        let (path, call) = body("order", json!({ "confirm": true, "namespace": "other" }));
        assert_eq!(path, "/tools/order/call");
        assert_eq!(call, json!({ "arguments": { "confirm": true }, "namespace": "team" }));
        assert_eq!(body("list_collections", json!({})).0, "/collections?namespace=team");
    }

    #[test]
    fn given_a_run_that_waits_for_a_person_when_it_is_answered_then_the_client_learns_which_and_for_what() {
        let pending = json!([{ "step": 2, "tool": "pay", "arguments": {}, "reason": "it changes something outside" }]);
        let run =
            json!({ "run_id": "run_x", "status": "waiting_approval", "pending_approvals": pending, "steps": [1] });
        let told = json!({ "run_id": "run_x", "status": "waiting_approval", "pending_approvals": pending });
        assert_eq!(answer("run_agent", run), told);
    }

    #[test]
    fn given_names_that_are_none_when_they_are_called_then_they_reach_no_route() {
        for name in ["", "../runs", "a/b", "a?b", "a b", "ä", &"a".repeat(65)] {
            assert!(request(name, Map::new(), &Namespace::default()).is_err(), "{name:?}");
        }
    }

    #[test]
    fn given_tools_when_they_are_offered_then_none_that_would_have_to_ask() {
        let entry = |name: &str, effect: &str| json!({ "name": name, "effect": effect, "description": "d", "input_schema": { "type": "object" } });
        assert_eq!(tool(&entry("clock", "none")).unwrap().name, "clock");
        assert!(tool(&entry("pay", "external")).is_none());
        assert!(tool(&entry("run_agent", "none")).is_none(), "ours is not replaced");
        let mut allowed = entry("pay", "external");
        allowed["needs_approval"] = json!(false);
        assert!(tool(&allowed).is_some());
        let mut ruled = entry("clock", "none");
        ruled["needs_approval"] = json!(true);
        assert!(tool(&ruled).is_none(), "a rule asks about it, or denies it");
    }
}
