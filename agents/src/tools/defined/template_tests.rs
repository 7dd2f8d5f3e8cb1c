use serde_json::json;

use super::*;

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

/// Values that mean something to whoever reads a URL, a shell, a template or a header.
const HOSTILE: &[&str] = &[
    "../../admin",
    "a/b",
    "a?x=1",
    "a#b",
    "a&admin=true",
    "a=b",
    "%2e%2e%2f",
    "%00",
    "a\0b",
    "a\r\nHost: evil.example",
    "a b",
    "@evil.example",
    "//evil.example",
    "\\\\evil.example",
    "http://evil.example/",
    "{{7*7}}",
    "{city}",
    "${HOME}",
    "$(id)",
    "`id`",
    "; rm -rf /",
    "| cat /etc/passwd",
    "'\"<>",
    "ä😀",
    "\u{202e}evil",
    ";jsessionid=1",
];

#[test]
fn given_hostile_values_when_a_url_is_filled_then_they_stay_one_value() {
    let template = UrlTemplate::parse("https://api.example/v1/{city}/weather?days={days}&fixed=1&q={city}").unwrap();
    for value in HOSTILE {
        let url =
            template.fill(&object(json!({ "city": value, "days": value }))).unwrap_or_else(|e| panic!("{value}: {e}"));
        assert_eq!((url.scheme(), url.host_str(), url.port()), ("https", Some("api.example"), None), "{value}");
        let segments: Vec<&str> = url.path_segments().unwrap().collect();
        assert_eq!((segments.len(), segments[0], segments[2]), (3, "v1", "weather"), "{url}");
        let pairs: Vec<(String, String)> = url.query_pairs().into_owned().collect();
        assert_eq!(
            pairs,
            [("days".into(), (*value).into()), ("fixed".into(), "1".into()), ("q".into(), (*value).into())]
                as [(String, String); 3],
            "{url}"
        );
        assert_eq!(url.fragment(), None, "{url}");
    }
}

#[test]
fn given_values_that_are_steps_when_a_path_is_filled_then_they_are_refused() {
    for (template, value) in [
        ("https://a.example/x/{v}", "."),
        ("https://a.example/x/{v}", ".."),
        ("https://a.example/x/{v}/y", ".."),
        ("https://a.example/x/.{v}", "."),
        ("https://a.example/x/{v}", ""),
    ] {
        let filled = UrlTemplate::parse(template).unwrap().fill(&object(json!({ "v": value })));
        assert!(filled.is_err(), "{template} {value:?} {filled:?}");
    }
}

#[test]
fn given_arguments_that_are_left_out_when_a_url_is_filled_then_their_pair_is_too() {
    let template = UrlTemplate::parse("http://a.example?x={x}&n={n}").unwrap();
    assert_eq!(template.fill(&object(json!({ "n": 7, "x": null }))).unwrap().as_str(), "http://a.example/?n=7");
    assert_eq!(template.names().into_iter().collect::<Vec<_>>(), ["n", "x"]);
    assert!(template.needed().is_empty());
}

#[test]
fn given_templates_that_let_a_value_choose_where_to_when_they_are_read_then_they_are_refused() {
    for text in [
        "{url}",
        "https://{host}/x",
        "https://a.example:{port}/",
        "https://{user}@a.example/",
        "https://user:pw@a.example/",
        "{scheme}://a.example/",
        "ftp://a.example/{x}",
        "file:///{x}",
        "https://a.example/?{name}=1",
        "https://a.example/{}",
        "https://a.example/{a b}",
        "https://a.example/{a",
        "https://a.example/a}",
        "https://a.example/{{{x}}",
        "https://a.example/#{x}",
        "https:///x",
    ] {
        let error = UrlTemplate::parse(text).expect_err(text);
        assert!(!error.reason.is_empty() && !error.fix.is_empty());
    }
}

#[test]
fn given_a_body_when_it_is_filled_then_values_keep_their_type_and_the_shape_is_the_files() {
    let body = json!({ "title": "{title}", "note": "about {title}", "n": "{n}", "list": ["{title}", 1], "gone": "{gone}", "{title}": 1 });
    let title = "\", \"admin\": true, \"x\": \"";
    let filled = fill_body(&body, &object(json!({ "title": title, "n": 3 }))).unwrap();
    assert_eq!(
        filled,
        json!({ "title": title, "note": format!("about {title}"), "n": 3, "list": [title, 1], "{title}": 1 })
    );
}

#[test]
fn braces_are_written_twice_and_values_are_never_read_as_templates() {
    let template = Template::parse("{{x}} {x}").unwrap();
    assert_eq!(template.fill(&object(json!({ "x": "{y}" })), str::to_owned).unwrap(), "{x} {y}");
    assert_eq!(Template::parse("{x}").unwrap().whole(), Some("x"));
    assert_eq!(Template::parse("-{x}").unwrap().whole(), None);
}
