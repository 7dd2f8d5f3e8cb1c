//! XML as office documents and books have it, without ever resolving an entity that a document declares.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, BytesStart, Event};

use super::{Fault, SourceError};

/// Most elements that stand in each other.
const MAX_DEPTH: usize = 256;

/// What a walk through a document sees, without namespaces.
pub(super) enum Node<'n> {
    /// An element begins.
    Open(&'n Tag<'n>),
    /// An element ends; each that began does.
    Close(&'n str),
    /// Characters, entities resolved.
    Text(&'n str),
}

/// The beginning of an element.
pub(super) struct Tag<'n> {
    start: &'n BytesStart<'n>,
    local: &'n str,
}

impl Tag<'_> {
    /// Its name without the namespace.
    pub(super) fn name(&self) -> &str {
        self.local
    }

    /// An attribute by its name without the namespace.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        self.start.attributes().with_checks(false).flatten().find_map(|attribute| {
            let found = local(attribute.key.as_ref()) == name;
            found.then(|| {
                quick_xml::escape::unescape(&attribute.value)
                    .map_or_else(|_| attribute.value.to_string(), |value| value.into_owned())
            })
        })
    }

    /// An attribute by its whole name, such as `r:id`.
    pub(super) fn qualified(&self, name: &str) -> Option<String> {
        let attribute =
            self.start.attributes().with_checks(false).flatten().find(|attribute| attribute.key.as_ref() == name)?;
        Some(
            quick_xml::escape::unescape(&attribute.value)
                .map_or_else(|_| attribute.value.to_string(), |value| value.into_owned()),
        )
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

/// Walks through a document. `name` and `format` are for messages.
pub(super) fn walk(name: &str, format: &str, xml: &str, mut see: impl FnMut(Node<'_>)) -> Result<(), SourceError> {
    let mut reader = Reader::from_str(xml);
    let mut depth = 0usize;
    loop {
        match reader.read_event().map_err(|error| SourceError::malformed(name, format, error))? {
            Event::Start(start) => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return Err(SourceError::fault(
                        name,
                        Fault::LimitExceeded,
                        format!("has more than {MAX_DEPTH} elements in each other"),
                        "save it with less nesting",
                    ));
                }
                open(&start, &mut see);
            }
            Event::Empty(start) => {
                open(&start, &mut see);
                see(Node::Close(local(start.name().as_ref())));
            }
            Event::End(end) => {
                depth = depth.saturating_sub(1);
                see(Node::Close(local(end.name().as_ref())));
            }
            Event::Text(text) => see(Node::Text(&text)),
            Event::CData(text) => see(Node::Text(text.as_ref())),
            Event::GeneralRef(reference) => {
                if let Some(text) = resolved(&reference) {
                    see(Node::Text(&text));
                }
            }
            Event::Eof if depth > 0 => return Err(SourceError::malformed(name, format, "it is cut off")),
            Event::Eof => return Ok(()),
            Event::Comment(_) | Event::Decl(_) | Event::PI(_) | Event::DocType(_) => {}
        }
    }
}

fn open(start: &BytesStart<'_>, see: &mut impl FnMut(Node<'_>)) {
    let qualified = start.name();
    see(Node::Open(&Tag { start, local: local(qualified.as_ref()) }));
}

/// Characters by number and the five that XML predefines; what a document declares itself is left out.
fn resolved(reference: &BytesRef<'_>) -> Option<String> {
    if let Ok(Some(character)) = reference.resolve_char_ref() {
        return Some(character.to_string());
    }
    let text = match &**reference {
        "lt" => "<",
        "gt" => ">",
        "amp" => "&",
        "apos" => "'",
        "quot" => "\"",
        "nbsp" => " ",
        _ => return None,
    };
    Some(text.to_owned())
}

/// XML in UTF-8 or UTF-16 as text.
pub(super) fn decode(bytes: &[u8]) -> Option<String> {
    use encoding_rs::{UTF_16BE, UTF_16LE};
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => UTF_16LE.decode_without_bom_handling_and_without_replacement(rest)?.into_owned(),
        [0xfe, 0xff, rest @ ..] => UTF_16BE.decode_without_bom_handling_and_without_replacement(rest)?.into_owned(),
        [0xef, 0xbb, 0xbf, rest @ ..] => String::from_utf8(rest.to_vec()).ok()?,
        bytes => String::from_utf8(bytes.to_vec()).ok()?,
    };
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(xml: &str) -> Result<String, SourceError> {
        let mut out = String::new();
        walk("a.xml", "XML", xml, |node| {
            if let Node::Text(text) = node {
                out.push_str(text);
            }
        })?;
        Ok(out)
    }

    #[test]
    fn given_entities_when_walked_then_those_of_xml_are_resolved_and_declared_ones_are_not() {
        let bomb = r#"<!DOCTYPE a [<!ENTITY x "xxxxxxxx"><!ENTITY y "&x;&x;"><!ENTITY f SYSTEM "file:///etc/passwd">]><a>1 &lt; 2 &#65;&y;&f;</a>"#;
        assert_eq!(words(bomb).unwrap(), "1 < 2 A");
    }

    #[test]
    fn given_xml_that_is_cut_off_or_too_deep_when_walked_then_it_is_refused() {
        assert_eq!(words("<a><b>x</b>").unwrap_err().code(), "malformed_document");
        assert_eq!(words("<a><b></a>").unwrap_err().code(), "malformed_document");
        let deep = format!("{}{}", "<a>".repeat(100_000), "</a>".repeat(100_000));
        assert_eq!(words(&deep).unwrap_err().code(), "limit_exceeded");
    }
}
