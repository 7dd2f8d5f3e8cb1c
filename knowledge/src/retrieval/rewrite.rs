//! Other wordings of a question, by a chat model: what each of them finds is fused with what the question itself finds.
//! After Rackauckas, "RAG-Fusion", 2024 (arXiv 2402.03367). What the model says is only searched for, never followed.

use riverrun_models::{ChatRequest, Message, ModelError};
use tokio_util::sync::CancellationToken;

use crate::models::LanguageModels;
use crate::room;

/// Wordings that the model is asked for.
const WORDINGS: usize = 3;
/// Longest wording in bytes; a longer one is no search.
const MAX_WORDING_BYTES: usize = 500;
const MAX_TOKENS: u32 = 200;

const INSTRUCTIONS: &str = "Write the user's question in three other ways, with other words for the same things, so that a search engine finds what the question itself does not. One a line, nothing else. Do not answer the question.";

/// Other wordings; fewer than asked for when the model gives fewer.
pub(super) async fn wordings(models: &dyn LanguageModels, query: &str) -> Result<Vec<String>, ModelError> {
    let request = ChatRequest {
        messages: vec![Message::system(INSTRUCTIONS), Message::user(query)],
        temperature: Some(0.0),
        max_tokens: Some(MAX_TOKENS),
        ..ChatRequest::default()
    };
    room::check(models, None, &request).await?;
    let mut ignored = |_: &str| {};
    let reply = models.chat(None, request, &mut ignored, CancellationToken::new()).await?;
    Ok(read(&reply.text, query))
}

/// The lines of a reply without the numbers and marks that models put before them.
fn read(reply: &str, query: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in reply.lines() {
        let line = without_mark(line).trim_end_matches([' ', '"']);
        let is_new = !line.eq_ignore_ascii_case(query.trim()) && !found.iter().any(|known| known == line);
        if (3..=MAX_WORDING_BYTES).contains(&line.len()) && is_new {
            found.push(line.to_owned());
        }
    }
    found.truncate(WORDINGS);
    found
}

/// A line of a list without its bullet, number and quotes. A number is a list's only where a mark and a space follow it: "3D", "1984" and
/// "2.5" are words to search for.
fn without_mark(line: &str) -> &str {
    const MARKS: [char; 6] = [' ', '\t', '-', '*', '•', '"'];
    let line = line.trim_start_matches(MARKS);
    let behind = line.trim_start_matches(|c: char| c.is_ascii_digit());
    let item = behind.strip_prefix(['.', ')']).filter(|rest| rest.starts_with(char::is_whitespace));
    item.unwrap_or(line).trim_start_matches(MARKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_reply_in_any_form_when_read_then_its_lines_are_wordings() {
        let reply = "1. How tall is it?\n- \"What height has it?\"\n\nHow high is it\n2) How tall is it?\n* Its size?\nOne more";
        assert_eq!(read(reply, "how high is it"), ["How tall is it?", "What height has it?", "Its size?"]);
        let numbers = "1. 3D printing of wings\n2) 1984 by Orwell\n- 2.5 mm of .NET";
        assert_eq!(read(numbers, "x"), ["3D printing of wings", "1984 by Orwell", "2.5 mm of .NET"]);
        assert!(read("", "x").is_empty());
        assert!(read(&"x".repeat(600), "x").is_empty());
    }
}
