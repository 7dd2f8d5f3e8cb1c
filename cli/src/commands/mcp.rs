//! `riverrun mcp`: a client's child process that speaks the Model Context Protocol. Nothing else is written to stdout.

use std::sync::Arc;

use async_trait::async_trait;
use axum::http::Method;
use riverrun_api::mcp::{Backend, McpServer, hint_over_mcp};
use riverrun_schemas::Namespace;
use serde_json::Value;

use crate::args::NamespaceArgs;
use crate::client::Client;
use crate::error::{CliError, Exit};
use crate::host::Connection;

/// The API behind this command: a running server's, or that of the stack that it hosts.
struct Api(Client);

#[async_trait]
impl Backend for Api {
    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> Result<Value, String> {
        let answer: Result<Value, CliError> = match body {
            Some(body) => self.0.post(path, &body).await,
            None if method == Method::GET => self.0.get(path).await,
            None => self.0.post(path, &Value::Null).await,
        };
        answer.map_err(|error| match hint_over_mcp(error.code.as_deref(), error.hint.as_deref()) {
            Some(hint) => format!("{}\nhint: {hint}", error.message),
            None => error.message,
        })
    }
}

pub async fn run(connection: &Connection, args: NamespaceArgs) -> Result<(), CliError> {
    let namespace = match args.namespace {
        None => Namespace::default(),
        Some(name) => name.parse().map_err(|error| CliError::new(Exit::Usage, format!("--namespace: {error}")))?,
    };
    let server = McpServer::new(Arc::new(Api(connection.client.clone())), namespace);
    server.serve_stdio().await.map_err(|reason| {
        CliError::new(Exit::Failed, format!("the MCP client can't be served: {reason}"))
            .hint("riverrun mcp is started by an MCP client; docs/tools.md shows how")
    })
}
