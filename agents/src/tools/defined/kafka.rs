//! A tool that any program serves: a call is an event on `riverrun.tools.calls`, its answer one on
//! `riverrun.tools.results`.

use std::sync::{Arc, OnceLock};

use async_trait::async_trait;
use riverrun_log::LogError;
use riverrun_schemas::now_ms;
use riverrun_schemas::tools::{ToolAnswered, ToolCalled};
use serde_json::Value;

use super::file;
use crate::tools::tool_topics::ToolTopics;
use crate::tools::{Permission, Tool, ToolContext, ToolError, ToolManifest, ToolSource};

/// Longest error of an answer that is told, in characters.
const MAX_ERROR_TEXT: usize = 2_000;

/// The topics, once the log is there.
pub(super) type Topics = Arc<OnceLock<ToolTopics>>;

pub(super) struct KafkaTool {
    manifest: ToolManifest,
    topics: Topics,
}

impl KafkaTool {
    pub(super) fn new(mut manifest: ToolManifest, topics: Topics) -> Self {
        manifest.source = ToolSource::Kafka;
        manifest.permissions = vec![Permission::Log];
        Self { manifest, topics }
    }
}

#[async_trait]
impl Tool for KafkaTool {
    fn manifest(&self) -> ToolManifest {
        self.manifest.clone()
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let topics =
            self.topics.get().ok_or_else(|| ToolError::NotSent("this process has no log to ask on".to_owned()))?;
        // The time that nobody waits any longer does not move with how long the log takes.
        let at = now_ms();
        let reach_time = file::reach_time(self.manifest.limits);
        tokio::time::timeout(reach_time, topics.ready()).await.map_err(|_| {
            ToolError::NotSent(format!("the log could not be read within {reach_time:?}: nothing was asked"))
        })?;
        let timeout_ms = i64::try_from(self.manifest.limits.timeout.as_millis()).unwrap_or(i64::MAX);
        let call = ToolCalled {
            call_id: context.call_id.clone(),
            tool: self.manifest.name.clone(),
            namespace: context.namespace.clone(),
            arguments_json: arguments.to_string(),
            deadline: at.saturating_add(timeout_ms),
            at,
        };
        let answered = topics.call(call).await.map_err(|error| unwritten(&error))?;
        result(answered)
    }
}

/// A call whose record could not be written, or was written without the writer having heard of it.
fn unwritten(error: &LogError) -> ToolError {
    let reason = error.to_string();
    if matches!(error, LogError::TooLarge { .. } | LogError::Encode(_)) {
        ToolError::NotSent(reason)
    } else if error.retryable() || matches!(error, LogError::Stopped(_)) {
        ToolError::Lost(reason)
    } else {
        ToolError::Failed(reason)
    }
}

fn result(answered: ToolAnswered) -> Result<Value, ToolError> {
    match (answered.error, answered.result_json) {
        (Some(error), _) => Err(ToolError::Failed(error.chars().take(MAX_ERROR_TEXT).collect())),
        (None, Some(text)) => serde_json::from_str(&text)
            .map_err(|error| ToolError::Failed(format!("the answer's result_json is no JSON: {error}"))),
        (None, None) => Ok(Value::Null),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn answers_become_results_or_errors() {
        let answered = |result_json: Option<&str>, error: Option<&str>| {
            let (result_json, error) = (result_json.map(str::to_owned), error.map(str::to_owned));
            result(ToolAnswered { call_id: "c".into(), result_json, error, at: 0 })
        };
        assert_eq!(answered(Some("{\"a\":1}"), None), Ok(json!({ "a": 1 })));
        assert_eq!(answered(None, None), Ok(Value::Null));
        assert_eq!(answered(Some("1"), Some("no such part")), Err(ToolError::Failed("no such part".into())));
        assert!(answered(Some("{"), None).unwrap_err().to_string().contains("no JSON"));
    }
}
