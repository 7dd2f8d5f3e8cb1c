//! Puts a fact down in the memory of the run's conversation.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::NoteId;
use riverrun_schemas::agent::ToolEffect;
use riverrun_schemas::memory::{TurnRole, run_turn_id};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Permission, Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};
use crate::memory::{MAX_NOTE_CHARS, Memory, NewNote};

/// The tool's name.
pub const NOTE: &str = "note";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The fact, in one sentence that can be understood alone
    #[schemars(length(min = 1, max = 2000))]
    text: String,
}

/// Writes to the memory of the run's conversation. The note names the run's task as what it comes from.
pub struct Note {
    memory: Arc<dyn Memory>,
}

impl Note {
    /// Over that memory.
    pub fn new(memory: Arc<dyn Memory>) -> Self {
        Self { memory }
    }
}

#[async_trait]
impl Tool for Note {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            NOTE,
            "Notes a fact, so that it is remembered in later runs of this conversation. Use it when the user asks to remember something.",
            schema_of::<Arguments>(),
            ToolEffect::Idempotent,
        )
        .needing(&[Permission::Memory])
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { text } = parse(arguments)?;
        let text = text.trim();
        let length = text.chars().count();
        if !(1..=MAX_NOTE_CHARS).contains(&length) {
            return Err(ToolError::Arguments(format!(
                "text has {length} characters, not between 1 and {MAX_NOTE_CHARS}"
            )));
        }
        let scope = context
            .memory
            .as_ref()
            .ok_or_else(|| ToolError::Failed("the run belongs to no conversation, so nothing can be noted".into()))?;
        let note = NewNote {
            note_id: NoteId::derive(&["call", &scope.run_id.to_string(), &context.call_id]),
            text: text.to_owned(),
            turn_ids: vec![run_turn_id(scope.run_id, TurnRole::User)],
            run_id: Some(scope.run_id),
        };
        let note_id = note.note_id;
        self.memory.note(&scope.session, note).await.map_err(|error| ToolError::Failed(error.to_string()))?;
        Ok(json!({ "note_id": note_id }))
    }
}
