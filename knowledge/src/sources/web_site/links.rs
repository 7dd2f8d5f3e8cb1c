//! What the pages of a site link to.

use url::Url;

use super::arrived;
use crate::web::Fetched;

/// Where the links of a page lead.
pub(super) fn links(url: &Url, fetched: &Fetched) -> Vec<Url> {
    let is_html = fetched.content_type.as_deref().is_none_or(|kind| kind.to_lowercase().contains("html"));
    if !is_html {
        return Vec::new();
    }
    let page = String::from_utf8_lossy(&fetched.body);
    let own = arrived(url, fetched);
    // The first counts (HTML, 4.2.3).
    let declared = page.split('<').find_map(|tag| href(tag, "base")).and_then(|to| own.join(&to).ok());
    let base = declared.unwrap_or(own);
    page.split('<').filter_map(|tag| href(tag, "a")).filter_map(|to| base.join(&to).ok()).collect()
}

/// Where a tag of that name leads; `text` is what stands behind its `<`.
fn href(text: &str, name: &str) -> Option<String> {
    let (tag_name, rest) = text.split_at_checked(name.len())?;
    if !tag_name.eq_ignore_ascii_case(name) || !rest.starts_with(|c: char| c.is_ascii_whitespace()) {
        return None;
    }
    let attributes = rest.split('>').next().unwrap_or_default();
    let at = attributes.to_ascii_lowercase().find("href")?;
    let value = attributes[at + "href".len()..].trim_start().strip_prefix('=')?.trim_start();
    let value = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value[1..].split(quote).next().unwrap_or_default(),
        _ => value.split_whitespace().next().unwrap_or_default(),
    };
    Some(value.replace("&amp;", "&"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_page_when_its_links_are_read_then_they_are_whole_addresses() {
        let body = b"<a href='/b?x=1&amp;y=2'>b</a><A class=x HREF=c.html>c</A> <a\nhref=\"https://other.example/\">d</a><abbr href='no'>";
        let fetched = Fetched {
            final_url: "https://host/dir/a".into(),
            status: 200,
            content_type: Some("text/html".into()),
            body: body.to_vec(),
        };
        let found: Vec<String> =
            links(&Url::parse("https://host/").unwrap(), &fetched).iter().map(Url::to_string).collect();
        assert_eq!(found, ["https://host/b?x=1&y=2", "https://host/dir/c.html", "https://other.example/"]);
    }

    #[test]
    fn given_a_page_with_a_base_when_its_links_are_read_then_they_are_relative_to_it() {
        let links_of = |body: &str| -> Vec<String> {
            let fetched = Fetched {
                final_url: "https://host/dir/a".into(),
                status: 200,
                content_type: Some("text/html".into()),
                body: body.as_bytes().to_vec(),
            };
            links(&Url::parse("https://host/").unwrap(), &fetched).iter().map(Url::to_string).collect()
        };
        let page =
            "<head><BASE target=_blank\n href='/docs/'><base href='/no/'></head><a href=b>b</a><a\thref='#c'>c</a>";
        assert_eq!(links_of(page), ["https://host/docs/b", "https://host/docs/#c"]);
        assert_eq!(links_of("<basefont href=/x><a href=b>b</a><\u{e4} <a"), ["https://host/dir/b"]);
    }
}
