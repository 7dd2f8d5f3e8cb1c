//! `riverrun chat`.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::Method;
use futures::StreamExt;
use riverrun_api::wire::{ChatBody, ChatDone, ChatMessage};
use riverrun_schemas::counted;
use serde::Deserialize;
use serde_json::Value;

use crate::args::ChatArgs;
use crate::client::SseEvent;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::input;
use crate::output::{Output, print_piece, reader_gone, tell};

#[derive(Deserialize)]
struct Delta {
    text: String,
}

/// Most bytes of what is said, files included: the API reads no more.
const MAX_PROMPT: u64 = 256 << 10;

pub async fn run(connection: &Connection, args: ChatArgs, output: Output) -> Result<(), CliError> {
    let Some(seconds) = args.timeout else { return talk(connection, args, output).await };
    match tokio::time::timeout(Duration::from_secs(seconds), talk(connection, args, output)).await {
        Ok(done) => done,
        Err(_) => Err(CliError::new(Exit::Failed, format!("the model took longer than {seconds} s"))
            .hint("raise --timeout, or use a smaller model")),
    }
}

async fn talk(connection: &Connection, args: ChatArgs, output: Output) -> Result<(), CliError> {
    let body = ChatBody {
        messages: vec![ChatMessage { role: "user".to_owned(), content: with_files(args.prompt, &args.files).await? }],
        provider: args.provider,
        model: args.model,
        temperature: args.temperature,
        max_tokens: args.max_tokens,
        stream: Some(!args.no_stream && !output.json),
    };
    if body.stream == Some(false) {
        let done: ChatDone = connection.client.post("/chat", &body).await?;
        output.show(&done, |done| done.text.clone())?;
        if !output.json {
            tell(&closing(&done));
        }
        return Ok(());
    }
    let body = serde_json::to_value(&body).map_err(std::io::Error::other)?;
    let mut on_delta = print_piece;
    let done = tokio::select! {
        done = stream::<ChatDone>(connection, "/chat", body, &mut on_delta) => done?,
        // Nobody hears the rest: the model need not go on.
        () = reader_gone() => return Ok(()),
    };
    print_piece("\n")?;
    tell(&closing(&done));
    Ok(())
}

/// What stands below an answer: who gave it, what it took, and whether it is whole.
fn closing(done: &ChatDone) -> String {
    let cost = done.usage.cost_usd.map(|cost| format!(" · {cost:.6} USD")).unwrap_or_default();
    let cut = match done.finish_reason.as_str() {
        "length" => " · cut off: by --max-tokens, or at the end of the model's context",
        "repetition" => {
            " · ended: it said the same over and over; ask otherwise, raise --temperature, or take a larger model (RIVERRUN_MODEL_REPETITION_TOKENS=0 lets it go on)"
        }
        _ => "",
    };
    format!("{} · {}{cost}{cut}", done.model, counted(done.usage.total_tokens, "token"))
}

/// What is said behind the texts of files, each under its name.
async fn with_files(prompt: String, files: &[PathBuf]) -> Result<String, CliError> {
    let mut said = String::new();
    for path in files {
        let is_there = path.exists() && !path.is_dir();
        let refused = |reason: String| {
            let fix = if is_there {
                "attach text of at most 256 KiB; larger documents are ingested and asked with `riverrun rag ask`"
            } else {
                "check the path; -f takes a file"
            };
            CliError::new(Exit::Refused, format!("{} can't be attached: {reason}", path.display())).hint(fix)
        };
        let left = MAX_PROMPT.saturating_sub(said.len() as u64);
        let bytes = input::read(path, left).await.map_err(refused)?;
        let text = String::from_utf8(bytes).map_err(|_| refused("it is no UTF-8 text".to_owned()))?;
        said.push_str(&format!("File {}:\n```\n{}\n```\n\n", path.display(), text.trim_end()));
    }
    said.push_str(&prompt);
    Ok(said)
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

#[cfg(test)]
mod tests {
    use riverrun_api::wire::UsageView;

    use super::*;

    #[test]
    fn given_an_answer_when_it_ends_then_its_cost_is_told_where_it_is_known_and_that_it_was_cut_off() {
        let done = |finish_reason: &str, cost_usd| ChatDone {
            text: String::new(),
            model: "m".to_owned(),
            finish_reason: finish_reason.to_owned(),
            usage: UsageView {
                prompt_tokens: 3,
                completion_tokens: 4,
                total_tokens: 7,
                cost_usd,
                ..UsageView::default()
            },
        };
        assert_eq!(closing(&done("stop", None)), "m · 7 tokens");
        assert_eq!(closing(&done("stop", Some(0.000_25))), "m · 7 tokens · 0.000250 USD");
        assert!(closing(&done("length", None)).contains("cut off"));
        assert!(closing(&done("repetition", None)).contains("over and over"));
    }

    #[tokio::test]
    async fn given_files_when_they_are_attached_then_they_stand_in_front_and_what_is_no_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str, content: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, content).unwrap();
            path
        };
        let text = path("a.md", "Grüße\n".as_bytes());
        let said = with_files("and now?".to_owned(), &[text]).await.unwrap();
        assert!(said.contains("a.md:\n```\nGrüße\n```\n\n") && said.ends_with("and now?"), "{said}");
        let large = path("large.txt", &vec![b'x'; MAX_PROMPT as usize + 1]);
        let endless = PathBuf::from("/dev/zero");
        let none = folder.path().join("none");
        for (bad, fix) in [
            (path("b.bin", &[0xff, 0xfe]), "256 KiB"),
            (large, "256 KiB"),
            (endless, "256 KiB"),
            (none, "check the path"),
            (folder.path().to_owned(), "check the path"),
        ] {
            let error = with_files(String::new(), &[bad]).await.unwrap_err();
            assert!(error.exit == Exit::Refused && error.hint.as_ref().unwrap().contains(fix), "{error:?}");
        }
        assert_eq!(with_files("x".to_owned(), &[]).await.unwrap(), "x");
    }
}
