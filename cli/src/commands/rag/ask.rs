//! `riverrun rag ask`.

use riverrun_api::wire::{AskBody, AskDone, CitationView};
use serde_json::Value;

use super::super::chat::stream;
use super::super::search::filter;
use crate::args::AskArgs;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, print_json, print_line, print_piece, stdout_is_terminal, tell};

/// Characters of a quote that people see.
const SHOWN: usize = 200;

pub async fn run(connection: &Connection, args: AskArgs, output: Output) -> Result<(), CliError> {
    let search = args.search;
    // Numbers that the check adds are only in the whole answer: a file gets that, a person sees it being written.
    let streams = !args.no_stream && !output.json && stdout_is_terminal();
    let body = AskBody {
        query: search.query,
        collection: search.collection,
        namespace: search.namespace,
        k: search.k,
        filter: filter(search.filter.as_deref())?,
        fusion: search.fusion.map(Into::into),
        provider: args.provider,
        model: args.model,
        stream: Some(streams),
    };
    if !streams {
        let done: Value = connection.client.post("/rag/ask", &body).await?;
        if output.json {
            return print_json(&done);
        }
        let done: AskDone = serde_json::from_value(done).map_err(std::io::Error::other)?;
        print_line(&done.answer)?;
        return sources(&done);
    }
    let mut written = String::new();
    let mut on_delta = |piece: &str| {
        written.push_str(piece);
        print_piece(piece)
    };
    let body = serde_json::to_value(&body).map_err(std::io::Error::other)?;
    let done: AskDone = stream(connection, "/rag/ask", body, &mut on_delta).await?;
    print_piece("\n")?;
    if written.trim() != done.answer.trim() {
        tell("\nwith checked citations:");
        print_line(&done.answer)?;
    }
    sources(&done)
}

fn sources(done: &AskDone) -> Result<(), CliError> {
    if !done.citations.is_empty() {
        print_line(" ")?;
    }
    for citation in &done.citations {
        print_line(&shown(citation))?;
    }
    for note in &done.notes {
        tell(&format!("note: {note}"));
    }
    if let Some(model) = &done.model {
        tell(&format!("\n{model} · {} tokens", done.usage.total_tokens));
    }
    Ok(())
}

fn shown(citation: &CitationView) -> String {
    let page = citation.page.map(|page| format!(" page {page}")).unwrap_or_default();
    let doubt = if citation.supported { "" } else { " (not supported by the quote)" };
    let span = citation.span;
    format!(
        "[{}] {} bytes {}..{}{page}{doubt}\n    “{}”",
        citation.n,
        citation.source,
        span.start,
        span.end,
        clip(&citation.quote, SHOWN)
    )
}
