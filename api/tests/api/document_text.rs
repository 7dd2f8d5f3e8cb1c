//! Citations open their source: parts of a document's stored text.

use serde_json::{Value, json};

use crate::harness::{Api, problem, test};

const TEXT: &str = "# Größe\n\nDer Zaun ist zwölf Meter lang 𝄞 und grün. A gate of oak closes it.";

/// A document of a collection of its own, and its stored text.
async fn document(api: &'static Api, collection: &str) -> (String, String) {
    api.ingest(collection, &[("fence.md", TEXT)]).await;
    let listed = api.get(&format!("/documents?collection={collection}")).await.body;
    let id = listed["items"][0]["document_id"].as_str().unwrap().to_owned();
    let whole = api.get(&format!("/documents/{id}/text")).await;
    assert_eq!(whole.status, 200, "{}", whole.body);
    let text = whole.body["text"].as_str().unwrap().to_owned();
    assert_eq!(
        (&whole.body["size_bytes"], &whole.body["span"]),
        (&json!(text.len()), &json!({"start": 0, "end": text.len()})),
        "{}",
        whole.body
    );
    (id, text)
}

#[test]
fn given_what_a_search_found_when_its_span_is_read_then_it_is_the_chunk() {
    test(async |api| {
        let (id, _) = document(api, "fence-spans").await;
        let query = json!({"query": "gate of oak", "collection": "fence-spans", "k": 1});
        let item = api.post("/rag/search", query).await.body["items"][0].clone();
        let path = format!("/documents/{id}/text?start={}&end={}", item["span"]["start"], item["span"]["end"]);
        let read = api.get(&path).await.body;
        assert_eq!((&read["text"], &read["span"]), (&item["text"], &item["span"]), "{read}");
        assert_eq!((&read["source"], &read["collection"]), (&item["source"], &json!("fence-spans")));
    });
}

#[test]
fn given_context_for_an_answer_when_asked_then_its_quotes_are_bytes_of_the_document_and_too_much_is_refused() {
    test(async |api| {
        let (id, _) = document(api, "fence-asked").await;
        let body = |around: usize| {
            let query = "Is there a gate of oak?";
            json!({"query": query, "collection": "fence-asked", "k": 1, "mode": "sparse", "context_bytes": around})
        };
        let asked = api.post("/rag/ask", body(500)).await;
        assert_eq!(asked.status, 200, "{}", asked.body);
        for citation in asked.body["citations"].as_array().unwrap() {
            let span = &citation["span"];
            let path = format!("/documents/{id}/text?start={}&end={}", span["start"], span["end"]);
            assert_eq!(api.get(&path).await.body["text"], citation["quote"], "{citation}");
        }
        let refused = api.post("/rag/ask", body(20_001)).await;
        problem(&refused, &[422]);
        assert_eq!(refused.body["errors"][0]["field"], "context_bytes", "{}", refused.body);
    });
}

#[test]
fn given_ranges_when_they_are_read_then_whole_characters_come_and_nothing_beyond_the_end() {
    test(async |api| {
        let (id, text) = document(api, "fence-ranges").await;
        for (start, end) in [(0, 1), (4, 5), (5, 6), (0, 10_000), (9_999, 10_000), (3, 3)] {
            let read = api.get(&format!("/documents/{id}/text?start={start}&end={end}")).await;
            assert_eq!(read.status, 200, "{start}..{end}: {}", read.body);
            let at = |name: &str| read.body["span"][name].as_u64().unwrap() as usize;
            assert_eq!(read.body["text"], json!(&text[at("start")..at("end")]), "{start}..{end}");
            assert!(at("start") <= start && at("end") >= end.min(text.len()), "{start}..{end}: {}", read.body);
        }
        problem(&api.get(&format!("/documents/{id}/text?start=5&end=4")).await, &[422]);
        problem(&api.get(&format!("/documents/{id}/text?start=-1")).await, &[422]);
    });
}

#[test]
fn given_what_is_not_there_when_its_text_is_asked_for_then_the_answer_is_404() {
    test(async |api| {
        let (id, _) = document(api, "fence-gone").await;
        let versions: Value = api.get(&format!("/documents/{id}")).await.body["versions"].clone();
        let version = versions[0]["version"].as_str().unwrap();
        assert_eq!(api.get(&format!("/documents/{id}/text?version={version}")).await.status, 200);
        for path in [
            format!("/documents/{id}/text?version=other"),
            format!("/documents/{id}/text?namespace=another"),
            "/documents/doc_00000000000000000000000000/text".to_owned(),
            "/documents/nonsense/text".to_owned(),
        ] {
            problem(&api.get(&path).await, &[404]);
        }
    });
}
