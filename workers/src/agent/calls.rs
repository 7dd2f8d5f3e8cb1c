//! Uses tools for a run: what a call is made with, and what of its result goes into the event.

use bytes::Bytes;
use riverrun_agents::memory::MemoryScope;
use riverrun_agents::state::{NOT_MADE_MS, NOT_SENT};
use riverrun_agents::tools::{ToolContext, ToolError, beginning};
use riverrun_agents::{RunState, decide};
use riverrun_log::BlobError;
use riverrun_schemas::agent::{StepKind, ToolUse};
use riverrun_schemas::{BlobRef, Session, SessionName, TurnId};
use tokio_util::sync::CancellationToken;

use super::driver::{Driver, Interrupted, Left};

/// A tool's result beyond this, in bytes of JSON, goes to the blob store; its beginning stays in the event.
const MAX_INLINE_RESULT: usize = 64 << 10;

impl Driver {
    /// Uses a tool, and records what came of it: its result, why there is none, or the question what to do when nobody knows.
    pub(super) async fn call_tool(&mut self, call: ToolUse) -> Result<(), Interrupted> {
        let started = std::time::Instant::now();
        let cancel = CancellationToken::new();
        let context = self.context.clone();
        let outcome = match tool_context(&self.state, &call, cancel.clone(), self.behind) {
            Err(failure) => Err(ToolError::Failed(failure)),
            Ok((tool_context, arguments)) => {
                let used = context.toolbox.call(&call.name, arguments, &tool_context);
                tokio::pin!(used);
                let interrupted = tokio::select! {
                    outcome = &mut used => Ok(outcome),
                    interrupted = self.interruption() => Err(interrupted),
                };
                match interrupted {
                    Ok(outcome) => outcome,
                    Err(interrupted) => {
                        cancel.cancel();
                        return Err(interrupted);
                    }
                }
            }
        };
        let question = outcome.as_ref().err().and_then(|error| decide::outcome_unknown(&call, error));
        if let Some(question) = question {
            return self.append_steps(vec![question]).await;
        }
        let duration_ms = i64::try_from(started.elapsed().as_millis()).ok().map(|ms| ms.max(NOT_MADE_MS + 1));
        let mut result = ToolUse { duration_ms, ..call };
        match outcome {
            Ok(value) => self.record_result(&mut result, value).await?,
            Err(error) => {
                result.result_json = matches!(error, ToolError::NotSent(_)).then(|| NOT_SENT.to_owned());
                result.error = Some(error.to_string());
            }
        }
        self.append_steps(vec![decide::StepDraft::tool(StepKind::ToolResult, result)]).await
    }

    async fn record_result(&mut self, result: &mut ToolUse, value: serde_json::Value) -> Result<(), Interrupted> {
        let json = value.to_string();
        if json.len() <= MAX_INLINE_RESULT {
            result.result_json = Some(json);
            return Ok(());
        }
        match self.keep(json.into_bytes().into()).await? {
            Ok(blob) => {
                result.result_json = Some(beginning(&value, MAX_INLINE_RESULT).to_string());
                result.result_blob = Some(blob);
            }
            Err(error) => result.error = Some(format!("the result is large and can't be stored: {error}")),
        }
        Ok(())
    }

    /// Keeps a large result. Whoever cancels the run does not wait for the store; a worker that stops still has a moment for it, since
    /// what a call that changes something gave would have to be asked about.
    async fn keep(&mut self, json: Bytes) -> Result<Result<BlobRef, BlobError>, Interrupted> {
        let context = self.context.clone();
        let kept = context.blobs.put_bytes(json, "application/json");
        tokio::pin!(kept);
        let first = tokio::select! {
            biased;
            kept = &mut kept => Ok(kept),
            interrupted = self.interruption() => Err(interrupted),
        };
        match first {
            Ok(kept) => Ok(kept),
            Err(Interrupted::Left(Left::Stopped)) => Ok(kept.await),
            Err(interrupted) => Err(interrupted),
        }
    }
}

fn tool_context(
    state: &RunState,
    call: &ToolUse,
    cancel: CancellationToken,
    behind: Option<TurnId>,
) -> Result<(ToolContext, serde_json::Value), String> {
    let arguments = serde_json::from_str(&call.arguments_json)
        .map_err(|error| format!("recorded arguments are not JSON: {error}"))?;
    let collections = state
        .request
        .collections
        .as_ref()
        .map(|names| names.iter().map(|name| name.parse()).collect::<Result<Vec<_>, _>>())
        .transpose()
        .map_err(|error: riverrun_schemas::NameError| error.to_string())?;
    let session: Option<SessionName> = state.request.session.as_deref().and_then(|name| name.parse().ok());
    let context = ToolContext {
        namespace: state.request.namespace.clone(),
        collections,
        call_id: call.call_id.clone(),
        cancel,
        memory: session.map(|name| MemoryScope {
            session: Session::new(state.request.namespace.clone(), name),
            run_id: state.run_id,
            behind,
        }),
    };
    Ok((context, arguments))
}
