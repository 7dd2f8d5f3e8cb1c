//! What a person would read of a fetched page.

use super::client::Fetched;

/// The text of a page: HTML without its code, other text as it is. `None` when it is no text.
pub fn readable(fetched: &Fetched) -> Option<String> {
    let kind = fetched.content_type.as_deref().unwrap_or("text/plain").to_ascii_lowercase();
    let essence = kind.split(';').next().unwrap_or_default().trim();
    let is_html = matches!(essence, "text/html" | "application/xhtml+xml");
    let is_text = essence.starts_with("text/")
        || essence.ends_with("+json")
        || essence.ends_with("+xml")
        || matches!(essence, "application/json" | "application/xml" | "application/javascript" | "application/yaml");
    if !is_html && !is_text || fetched.body.contains(&0) {
        return None;
    }
    let text = decoded(fetched);
    if !is_html {
        return Some(text);
    }
    let converter = htmd::HtmlToMarkdown::builder()
        .skip_tags(vec!["script", "style", "noscript", "template", "iframe", "object", "svg", "head", "img"])
        .build();
    converter.convert(&text).ok()
}

/// The body as text, in the encoding that the server names or that a mark at its beginning tells; UTF-8 where neither is there. What is no
/// letter of it is U+FFFD.
pub fn decoded(fetched: &Fetched) -> String {
    let kind = fetched.content_type.as_deref().unwrap_or_default().to_ascii_lowercase();
    let named = kind.split("charset=").nth(1).and_then(|rest| rest.split(';').next());
    let label = named.map(|label| label.trim_matches(|c: char| c == '"' || c == '\'' || c.is_whitespace()));
    let encoding = label.and_then(|label| encoding_rs::Encoding::for_label(label.as_bytes()));
    let (text, _, _) = encoding.unwrap_or(encoding_rs::UTF_8).decode(&fetched.body);
    text.into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(content_type: &str, body: &[u8]) -> Option<String> {
        readable(&Fetched {
            final_url: "http://a.example/".into(),
            status: 200,
            content_type: (!content_type.is_empty()).then(|| content_type.into()),
            body: body.to_vec(),
        })
    }

    #[test]
    fn given_a_page_when_it_is_read_then_its_words_are_there_and_its_code_is_not() {
        let html = b"<html><head><title>T</title><style>p{}</style></head><body><h1>Head</h1><p>Words<script>alert(1)</script>\
            <img src='http://evil.example/canary'><iframe src='http://evil.example/canary'></iframe></p></body></html>";
        let text = page("text/html; charset=utf-8", html).unwrap();
        assert!(text.contains("Head") && text.contains("Words"), "{text}");
        assert!(!text.contains("alert") && !text.contains("canary") && !text.contains("p{}"), "{text}");
    }

    #[test]
    fn given_bodies_of_other_kinds_when_they_are_read_then_text_is_decoded_and_the_rest_is_none() {
        assert_eq!(page("application/json", b"{\"a\":1}").as_deref(), Some("{\"a\":1}"));
        assert_eq!(page("text/plain; charset=iso-8859-1", b"\xe4").as_deref(), Some("ä"));
        assert_eq!(page("text/plain; Charset=\"ISO-8859-1\"; format=flowed", b"\xe4").as_deref(), Some("ä"));
        assert_eq!(page("", b"plain").as_deref(), Some("plain"));
        for (kind, body) in [("image/png", &b"x"[..]), ("application/octet-stream", b"x"), ("text/plain", b"a\0b")] {
            assert_eq!(page(kind, body), None, "{kind}");
        }
    }
}
