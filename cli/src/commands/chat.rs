//! `riverrun chat`.

use axum::http::Method;
use futures::StreamExt;
use riverrun_api::wire::{ChatBody, ChatDone, ChatMessage};
use serde::Deserialize;
use serde_json::Value;

use crate::args::ChatArgs;
use crate::client::SseEvent;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_piece, tell};

#[derive(Deserialize)]
struct Delta {
    text: String,
}

pub async fn run(connection: &Connection, args: ChatArgs, output: Output) -> Result<(), CliError> {
    let body = ChatBody {
        messages: vec![ChatMessage { role: "user".to_owned(), content: args.prompt }],
        provider: args.provider,
        model: args.model,
        temperature: args.temperature,
        max_tokens: None,
        stream: Some(!args.no_stream && !output.json),
    };
    if body.stream == Some(false) {
        let done: ChatDone = connection.client.post("/chat", &body).await?;
        output.show(&done, |done| done.text.clone())?;
        return Ok(());
    }
    let done: ChatDone =
        stream(connection, "/chat", serde_json::to_value(&body).map_err(std::io::Error::other)?, &mut |piece| {
            print_piece(piece)
        })
        .await?;
    print_piece("\n")?;
    tell(&format!("{} · {} tokens", done.model, done.usage.total_tokens));
    Ok(())
}

/// Reads a stream of `delta` events up to its `final` one.
pub async fn stream<T: serde::de::DeserializeOwned>(
    connection: &Connection,
    path: &str,
    body: Value,
    on_delta: &mut (dyn FnMut(&str) -> Result<(), CliError> + Send),
) -> Result<T, CliError> {
    let events = connection.client.events(Method::POST, path, Some(body)).await?;
    let mut events = std::pin::pin!(events);
    while let Some(event) = events.next().await {
        let event: SseEvent = event?;
        match event.name.as_str() {
            "delta" => on_delta(&event.json::<Delta>()?.text)?,
            "final" => return event.json(),
            "error" => return Err(event.failure()),
            _ => {} // what a later version adds
        }
    }
    Err(CliError::new(Exit::Failed, "the answer broke off before its end")
        .hint("try again; riverrun diagnose shows what is down"))
}
