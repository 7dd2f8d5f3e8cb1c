//! `riverrun rag ask`.

use riverrun_api::wire::{AnswerSentence, AskBody, AskDone, CitationView};
use riverrun_schemas::counted;
use serde_json::Value;

use super::super::chat::stream;
use crate::args::AskArgs;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, clip, print_json, print_line, print_piece, stdout_is_terminal, tell};

/// Characters of a quote that people see.
const SHOWN: usize = 200;

pub async fn run(connection: &Connection, args: AskArgs, output: Output) -> Result<(), CliError> {
    // Numbers that the check adds are only in the whole answer: a file gets that, a person sees it being written.
    let streams = !args.no_stream && !output.json && stdout_is_terminal();
    let body = AskBody {
        provider: args.provider,
        model: args.model,
        stream: Some(streams),
        ..AskBody::from(args.search.body()?)
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
    for (sentence, times) in unsupported(done) {
        let again = if times > 1 { format!(" ({times} times)") } else { String::new() };
        print_line(&format!("not supported by what was found: “{}”{again}", clip(sentence, SHOWN)))?;
    }
    for note in notes(done) {
        tell(&format!("note: {note}"));
    }
    if let Some(model) = &done.model {
        let cost = done.usage.cost_usd.map(|cost| format!(" · {cost:.6} USD")).unwrap_or_default();
        tell(&format!("\n{model} · {}{cost}", counted(done.usage.total_tokens, "token")));
    }
    Ok(())
}

/// Sentences whose words the cited chunks do not have, and how often each stands in the answer: small models say one over and over.
fn unsupported(done: &AskDone) -> Vec<(&str, usize)> {
    let text = |sentence: &AnswerSentence| {
        let span = sentence.span;
        done.answer.get(usize::try_from(span.start).ok()?..usize::try_from(span.end).ok()?)
    };
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for sentence in done.sentences.iter().filter(|sentence| sentence.supported == Some(false)).filter_map(text) {
        match counted.iter_mut().find(|(known, _)| *known == sentence) {
            Some((_, times)) => *times += 1,
            None => counted.push((sentence, 1)),
        }
    }
    counted
}

/// What the answer lacks, or had and lost.
fn notes(done: &AskDone) -> Vec<String> {
    let mut notes = done.notes.clone();
    if !done.dropped.is_empty() {
        let left_out = done.dropped.len();
        notes.push(format!("{left_out} of the chunks that were found did not fit in the model's context"));
    }
    if !done.removed_citations.is_empty() {
        let numbers = done.removed_citations.join(", ");
        notes.push(format!("the model cited {numbers}, which is no source; it was taken out"));
    }
    notes
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn answered(changes: &Value) -> AskDone {
        let mut done = json!({
            "answer": "Die Elbe entspringt im Riesengebirge [1]. Grüße!  It is 9 km long [1].", "found": true, "citations": [],
            "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
            "took_ms": {"embed": 0.0, "dense": 0.0, "sparse": 0.0, "fuse": 0.0, "rerank": null, "generate": 1.0},
            "trace_id": null, "model": "m", "finish": "stop",
        });
        done.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        serde_json::from_value(done).unwrap()
    }

    #[test]
    fn given_sentences_without_support_when_an_answer_is_shown_then_they_are_named() {
        let sentence = |start: usize, end: usize, supported: Option<bool>| json!({"span": {"start": start, "end": end}, "citations": [1], "supported": supported});
        let answer = answered(&json!({})).answer;
        let last = answer.find("It is").unwrap();
        let sentences = json!({"sentences": [
            sentence(0, 41, Some(true)), sentence(42, last - 2, None), sentence(last, answer.len(), Some(false)),
            // Of no answer of ours: bytes that are none are left alone.
            sentence(last, answer.len() + 9, Some(false)), sentence(45, 46, Some(false)),
        ]});
        assert_eq!(unsupported(&answered(&sentences)), [("It is 9 km long [1].", 1)]);
        assert!(unsupported(&answered(&json!({}))).is_empty(), "an older server says nothing of sentences");
    }

    #[test]
    fn given_a_sentence_that_is_said_over_and_over_when_an_answer_is_shown_then_it_is_named_once_and_counted() {
        let said = ["It is 9 km long.", "It is deep.", "It is 9 km long.", "It is 9 km long."];
        let mut start = 0;
        let mut sentences = Vec::new();
        for sentence in said {
            sentences.push(
                json!({"span": {"start": start, "end": start + sentence.len()}, "citations": [], "supported": false}),
            );
            start += sentence.len() + 1;
        }
        let done = answered(&json!({"answer": said.join(" "), "sentences": sentences}));
        assert_eq!(unsupported(&done), [("It is 9 km long.", 3), ("It is deep.", 1)]);
    }

    #[test]
    fn given_what_an_answer_lost_when_it_is_shown_then_notes_tell_it() {
        let dropped = json!({"chunk_id": "chk_x", "source": "a.md", "reason": "it does not fit"});
        let done =
            answered(&json!({"notes": ["cut"], "dropped": [dropped, dropped], "removed_citations": ["7", "99"]}));
        let notes = notes(&done);
        assert_eq!(notes.len(), 3, "{notes:?}");
        assert!(
            notes[0] == "cut" && notes[1].starts_with("2 of the chunks") && notes[2].contains("7, 99"),
            "{notes:?}"
        );
    }
}
