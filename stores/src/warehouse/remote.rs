//! The tables of another process, asked over its API.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::{Client, RequestBuilder, Response, redirect};
use riverrun_schemas::Namespace;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use url::Url;

use super::{QueryLimits, QueryResult, TableInfo, Warehouse, WarehouseError};

/// Where somebody listens, a connection takes no longer.
const CONNECT: Duration = Duration::from_secs(3);
/// The longest query, and the way there and back.
const ANSWER: Duration = Duration::from_secs(15);
/// Values of an answer are 8 MiB at most; written as JSON they are no more than this.
const MAX_ANSWER_BYTES: usize = 64 << 20;
/// What that process says of a statement or of itself, and is passed on as it is.
const PASSED_ON: [&str; 7] = [
    "statement_refused",
    "query_failed",
    "query_timed_out",
    "query_out_of_memory",
    "warehouse_busy",
    "warehouse_failed",
    "shutting_down",
];

/// The process that has the tables.
#[derive(Clone, PartialEq, Eq)]
pub struct RemoteConfig {
    /// The address of its API.
    pub url: String,
    /// One of its tokens, of every namespace that is asked about here; never shown.
    pub token: Option<String>,
}

impl fmt::Debug for RemoteConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteConfig").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Reads the tables of another process.
pub struct RemoteWarehouse {
    http: Client,
    address: String,
    token: Option<String>,
}

#[derive(Deserialize)]
struct Tables {
    items: Vec<TableInfo>,
}

/// A problem document of the API, as far as it is passed on.
#[derive(Deserialize)]
struct Problem {
    code: String,
    detail: String,
    hint: Option<String>,
}

impl RemoteWarehouse {
    /// A client; connects when it is first used.
    pub fn open(config: &RemoteConfig) -> Result<Self, WarehouseError> {
        let address = config.url.trim_end_matches('/').to_owned();
        let built = Client::builder()
            .user_agent(concat!("riverrun/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(CONNECT)
            .timeout(ANSWER)
            // The token goes to this address and no other.
            .redirect(redirect::Policy::none())
            .build();
        match built {
            Ok(http) => Ok(Self { http, address, token: config.token.clone() }),
            Err(error) => Err(WarehouseError::Away { address, reason: reason_of(&error) }),
        }
    }

    async fn ask<T: DeserializeOwned>(&self, request: RequestBuilder) -> Result<T, WarehouseError> {
        let request = match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        let response = request.send().await.map_err(|error| self.away(reason_of(&error)))?;
        let status = response.status();
        let body = self.body_of(response).await?;
        if status.is_success() {
            return serde_json::from_slice(&body)
                .map_err(|error| self.away(format!("its answer can't be read: {error}")));
        }
        match serde_json::from_slice(&body) {
            Ok(problem) => Err(self.said(problem)),
            Err(_) => Err(self.away(format!("status {}", status.as_u16()))),
        }
    }

    async fn body_of(&self, mut response: Response) -> Result<Vec<u8>, WarehouseError> {
        let mut body = Vec::new();
        while let Some(piece) = response.chunk().await.map_err(|error| self.away(reason_of(&error)))? {
            if body.len() + piece.len() > MAX_ANSWER_BYTES {
                return Err(self.away(format!("its answer is larger than {MAX_ANSWER_BYTES} bytes")));
            }
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// What was said of the statement is the asker's; what was said of this process (no token, too many requests, no tables there
    /// either) is a matter of its settings.
    fn said(&self, problem: Problem) -> WarehouseError {
        let Problem { code, detail, hint } = problem;
        match PASSED_ON.into_iter().find(|known| *known == code) {
            Some(code) => {
                let message = detail.strip_prefix("sql: ").unwrap_or(&detail).to_owned();
                WarehouseError::Told { code, message, hint }
            }
            None => self.away(format!("{code}: {detail}")),
        }
    }

    fn away(&self, reason: String) -> WarehouseError {
        WarehouseError::Away { address: self.address.clone(), reason }
    }
}

#[async_trait]
impl Warehouse for RemoteWarehouse {
    async fn tables(&self, namespace: &Namespace) -> Result<Vec<TableInfo>, WarehouseError> {
        let place = format!("{}/warehouse/tables", self.address);
        let place = Url::parse_with_params(&place, [("namespace", namespace.as_str())])
            .map_err(|error| self.away(format!("it is no address: {error}")))?;
        let found: Tables = self.ask(self.http.get(place)).await?;
        Ok(found.items)
    }

    async fn query(
        &self,
        namespace: &Namespace,
        sql: &str,
        limits: QueryLimits,
    ) -> Result<QueryResult, WarehouseError> {
        let body = json!({ "namespace": namespace.as_str(), "sql": sql, "limit": limits.rows });
        self.ask(self.http.post(format!("{}/warehouse/query", self.address)).json(&body)).await
    }
}

/// The innermost cause: the outer ones repeat the address.
fn reason_of(error: &reqwest::Error) -> String {
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}
