//! E-mail (RFC 5322): the headers that people read, the text or else the HTML, the names of what is attached, and attached
//! messages as sections behind it.

use mail_parser::{Address, Message, MessageParser, MimeHeaders};

use super::builder::Builder;
use super::{ExtractedText, Source, SourceError, html};
use crate::chunking::{self, Chunker};

/// Most attachments that are named.
const MAX_NAMED: usize = 100;

/// How deep messages are read that are attached to each other; one within the last is left out.
const MAX_DEPTH: u8 = 5;

/// Most attached messages of one document, a digest of a mailing list among them.
const MAX_ATTACHED: usize = 1000;

/// One message.
pub(super) struct Email;

impl Source for Email {
    fn name(&self) -> &'static str {
        "eml"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["eml"]
    }

    fn media_type(&self) -> &'static str {
        "message/rfc822"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn hostile(&self) -> bool {
        true
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        if bytes.trim_ascii().is_empty() {
            return Err(SourceError::Empty { name: name.to_owned(), detail: "" });
        }
        let message = MessageParser::default()
            .parse(bytes)
            .ok_or_else(|| SourceError::malformed(name, "e-mail", "it has no headers"))?;
        if message.from().is_none() && message.subject().is_none() && message.date().is_none() && message.to().is_none()
        {
            return Err(SourceError::malformed(name, "e-mail", "it has neither sender, receiver, subject nor date"));
        }
        let mut out = Builder::default();
        out.title(message.subject().unwrap_or_default());
        out.author(&people(message.from()));
        let mut room = MAX_ATTACHED;
        write(name, &message, 1, &mut room, &mut out)?;
        out.finish(name, "it has neither headers nor a body")
    }
}

/// One message, and those that are attached to it while there is room for them. `depth` counts from 1.
fn write(name: &str, message: &Message<'_>, depth: u8, room: &mut usize, out: &mut Builder) -> Result<(), SourceError> {
    let header = |out: &mut Builder, header: &str, value: String| {
        if !value.trim().is_empty() {
            out.line(&format!("{header}: {}", value.split_whitespace().collect::<Vec<_>>().join(" ")));
        }
    };
    header(out, "Subject", message.subject().unwrap_or_default().to_owned());
    header(out, "From", people(message.from()));
    header(out, "To", people(message.to()));
    header(out, "Cc", people(message.cc()));
    header(out, "Date", message.date().map(|date| date.to_rfc3339()).unwrap_or_default());
    let names: Vec<&str> = message.attachments().filter_map(|part| part.attachment_name()).take(MAX_NAMED).collect();
    header(out, "Attachments", names.join(", "));
    out.paragraph(&body(name, message)?);
    if depth == MAX_DEPTH {
        return Ok(());
    }
    for attached in message.attachments().filter_map(|part| part.message()) {
        let Some(left) = room.checked_sub(1) else { break };
        *room = left;
        out.heading(depth, "Attached message");
        write(name, attached, depth + 1, room, out)?;
    }
    Ok(())
}

/// The plain text where a writer gave one, else what is seen of the HTML.
fn body(name: &str, message: &Message<'_>) -> Result<String, SourceError> {
    let is_plain = message
        .text_body
        .first()
        .and_then(|part| message.parts.get(*part as usize))
        .is_some_and(|part| part.is_text() && !part.is_text_html());
    if is_plain {
        let parts = (0..message.text_body_count()).filter_map(|part| message.body_text(part));
        return Ok(parts.collect::<Vec<_>>().join("\n\n").replace("\r\n", "\n"));
    }
    let mut seen = Vec::new();
    for part in (0..message.html_body_count()).filter_map(|part| message.body_html(part)) {
        seen.push(html::visible(name, &part)?.text);
    }
    Ok(seen.join("\n\n"))
}

fn people(address: Option<&Address<'_>>) -> String {
    let one = |person: &mail_parser::Addr<'_>| match (person.name(), person.address()) {
        (Some(name), Some(address)) => format!("{name} <{address}>"),
        (Some(only), None) | (None, Some(only)) => only.to_owned(),
        (None, None) => String::new(),
    };
    address.map(|address| address.iter().map(one).collect::<Vec<_>>().join(", ")).unwrap_or_default()
}
