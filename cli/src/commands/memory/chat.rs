//! `riverrun memory chat`.

use riverrun_api::wire::{LeftOutView, MemoryChatBody, MemoryChatDone};
use riverrun_schemas::counted;

use super::super::chat::stream;
use super::ChatArgs;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, print_piece, tell};

pub(super) async fn run(connection: &Connection, args: ChatArgs, output: Output) -> Result<(), CliError> {
    let body = MemoryChatBody {
        text: args.text,
        namespace: args.session.namespace,
        session: args.session.session,
        provider: args.provider,
        model: args.model,
        temperature: args.temperature,
        stream: Some(!args.no_stream && !output.json),
    };
    if body.stream == Some(false) {
        let done: MemoryChatDone = connection.client.post("/memory/chat", &body).await?;
        output.show(&done, |done| done.text.clone())?;
        return told(&done, output);
    }
    let body = serde_json::to_value(&body).map_err(std::io::Error::other)?;
    let done: MemoryChatDone = stream(connection, "/memory/chat", body, &mut |piece| print_piece(piece)).await?;
    print_piece("\n")?;
    told(&done, output)
}

fn told(done: &MemoryChatDone, output: Output) -> Result<(), CliError> {
    if output.json {
        return Ok(());
    }
    let summary = if done.summarized { ", a summary" } else { "" };
    let model = done.model.as_deref().unwrap_or("answered before");
    tell(&format!(
        "{model} · {} · shown: {}, {}{summary}",
        counted(done.usage.total_tokens, "token"),
        counted(done.turns_shown, "turn"),
        counted(done.recalled.len(), "memory")
    ));
    if let Some(left_out) = &done.left_out {
        tell(&missing(left_out));
    }
    for note in &done.notes {
        tell(&format!("note: {note}"));
    }
    Ok(())
}

/// What the model did not see, in a line.
fn missing(left_out: &LeftOutView) -> String {
    let about = if left_out.estimated { "about " } else { "" };
    let context = match left_out.context_tokens {
        0 => String::new(),
        tokens => format!(" of {tokens}"),
    };
    let summary = if left_out.summary { ", the summary" } else { "" };
    format!(
        "left out, since {about}{} tokens do not fit the model's context{context}: {}, {}{summary}; sent: {about}{}",
        left_out.tokens_before,
        counted(left_out.turns, "turn"),
        counted(left_out.memories, "memory"),
        counted(left_out.tokens_after, "token")
    )
}
