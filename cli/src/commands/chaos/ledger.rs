//! A tool with an effect outside: a line in a file. The file outlives every process, and says what really happened.

use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use async_trait::async_trait;
use riverrun_agents::tools::{Tool, ToolContext, ToolError, ToolManifest};
use riverrun_schemas::agent::ToolEffect;
use serde_json::{Value, json};

/// The tool's name.
pub(super) const LEDGER: &str = "ledger";

/// Writes the call's idempotency key.
pub(super) struct Ledger {
    pub(super) file: PathBuf,
    /// Before and after the effect, so that a process can die on either side of it.
    pub(super) pause: Duration,
    /// Refuse a key that was booked before, as services with idempotency keys do. Only they are safe from a process that
    /// was frozen in the middle of a call: nobody can call its call back.
    pub(super) honours_keys: bool,
}

#[async_trait]
impl Tool for Ledger {
    fn manifest(&self) -> ToolManifest {
        let schema = json!({
            "type": "object",
            "properties": { "amount": { "type": "integer" } },
            "required": ["amount"],
            "additionalProperties": false,
        });
        ToolManifest::builtin(LEDGER, "Books an amount. Each call changes the books.", schema, ToolEffect::External)
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        tokio::time::sleep(self.pause).await;
        self.book(&context.call_id).map_err(|error| ToolError::Failed(error.to_string()))?;
        tokio::time::sleep(self.pause).await;
        Ok(json!({ "booked": arguments["amount"] }))
    }
}

impl Ledger {
    fn book(&self, call_id: &str) -> std::io::Result<()> {
        if self.honours_keys {
            let keys = self.file.with_extension("keys");
            std::fs::create_dir_all(&keys)?;
            // The one who makes the file books; whoever comes later finds it.
            match std::fs::OpenOptions::new().write(true).create_new(true).open(keys.join(call_id)) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                    return append(&refused_file(&self.file), call_id);
                }
                Err(error) => return Err(error),
            }
        }
        append(&self.file, call_id)
    }
}

fn refused_file(file: &Path) -> PathBuf {
    file.with_extension("refused")
}

/// How many calls were refused because their key was booked before.
pub(super) fn refused(file: &Path) -> std::io::Result<usize> {
    lines(&refused_file(file)).map(|lines| lines.len())
}

/// One write of one line: lines of several processes do not mix.
fn append(file: &Path, call_id: &str) -> std::io::Result<()> {
    std::fs::OpenOptions::new().create(true).append(true).open(file)?.write_all(format!("{call_id}\n").as_bytes())
}

/// How often each call has taken effect.
pub(super) fn effects(file: &Path) -> std::io::Result<HashMap<String, usize>> {
    let mut counts = HashMap::new();
    for line in lines(file)? {
        *counts.entry(line).or_default() += 1;
    }
    Ok(counts)
}

/// The lines of a file; none when it is not there.
fn lines(file: &Path) -> std::io::Result<Vec<String>> {
    match std::fs::read_to_string(file) {
        Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
