//! Reads a page of the public internet as text.

use std::time::Duration;

use async_trait::async_trait;
use riverrun_knowledge::web::{FetchLimits, GuardedClient, WebError, readable};
use riverrun_schemas::agent::ToolEffect;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Permission, Tool, ToolContext, ToolError, ToolLimits, ToolManifest, parse, schema_of};

const LIMITS: FetchLimits = FetchLimits { max_bytes: 5 << 20, timeout: Duration::from_secs(20), max_redirects: 5 };
/// Most characters that one call gives.
const MAX_TEXT: usize = 8_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// The address, beginning with https:// or http://
    #[schemars(length(max = 2_000))]
    url: String,
    /// First character to read; 0 when left out. Use it to read on
    #[serde(default)]
    start: Option<usize>,
}

pub(super) struct WebFetch {
    web: GuardedClient,
}

impl WebFetch {
    pub(super) fn new(web: GuardedClient) -> Self {
        Self { web }
    }
}

#[async_trait]
impl Tool for WebFetch {
    fn manifest(&self) -> ToolManifest {
        ToolManifest::builtin(
            "web_fetch",
            "Reads a web page as text. Use it only for an address that the user gave or asked for.",
            schema_of::<Arguments>(),
            // It changes nothing; that an address can carry words out is the policy's matter.
            ToolEffect::None,
        )
        .needing(&[Permission::Network])
        .limited(ToolLimits { timeout: LIMITS.timeout + Duration::from_secs(1), ..ToolLimits::default() })
    }

    async fn call(&self, arguments: Value, _: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { url, start } = parse(arguments)?;
        let fetched = self.web.get(&url, LIMITS).await.map_err(|error| match error {
            WebError::TimedOut { limit } => ToolError::TimedOut(limit),
            refused => ToolError::Failed(refused.to_string()),
        })?;
        let Some(text) = readable(&fetched) else {
            let kind = fetched.content_type.as_deref().unwrap_or("of no named kind");
            return Err(ToolError::Failed(format!("the page is {kind}, which is no text")));
        };
        let (start, total) = (start.unwrap_or(0), text.chars().count());
        let shown: String = text.chars().skip(start).take(MAX_TEXT).collect();
        let end = (start + shown.chars().count()).min(total);
        Ok(json!({
            "url": fetched.final_url,
            "status": fetched.status,
            "start": start.min(total),
            "end": end,
            "total_characters": total,
            "text": shown,
        }))
    }
}
