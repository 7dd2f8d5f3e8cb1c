//! An answer with a schema, where a service knows none but those of tools: a tool that the model must call, whose arguments are the answer.

use serde_json::{Map, Value, json};

use super::gathered::{Gathered, Schema};
use super::protocol::{Fault, json};
use crate::provider::{DeltaSink, ToolSpec};

/// The tool that a model must call when its answer has a schema: its arguments are the answer.
pub(super) const ANSWER: &str = "structured_answer";
/// What the model is told of it.
pub(super) const DESCRIPTION: &str = "Gives the answer. Call it once with the whole answer.";
/// The argument that holds an answer which is no object.
const VALUE: &str = "value";

/// The schema of a tool's arguments. A tool without any may have an empty one; here it must be an object's.
pub(super) fn arguments_schema(tool: &ToolSpec) -> Value {
    let mut schema = tool.parameters.clone();
    if schema["type"] != "object"
        && let Some(map) = schema.as_object_mut()
    {
        map.insert("type".to_owned(), json!("object"));
    }
    schema
}

/// Arguments are always an object: an answer of another kind is one argument.
pub(super) fn answer_schema(schema: &Value) -> Value {
    if schema["type"] == "object" {
        return schema.clone();
    }
    json!({"type": "object", "properties": {VALUE: schema}, "required": [VALUE], "additionalProperties": false})
}

/// A finished call of the answer's tool is the text of the reply.
pub(super) fn take_answer(index: usize, gathered: &mut Gathered, sink: &mut dyn DeltaSink) -> Result<(), Fault> {
    let Some((ANSWER, arguments)) = gathered.partial(index).filter(|_| gathered.schema != Schema::None) else {
        return Ok(());
    };
    let answer = match gathered.schema {
        Schema::Other => json::<Map<String, Value>>(arguments.as_bytes())?.get(VALUE).map(Value::to_string),
        Schema::None | Schema::Object => None,
    };
    let answer = answer.unwrap_or_else(|| arguments.to_owned());
    gathered.drop_call(index);
    gathered.say(&answer, sink);
    Ok(())
}
