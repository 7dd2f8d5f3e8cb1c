//! From documents to cited answers, over HTTP.

use axum::body::Body;
use axum::http::Request;
use riverrun_api::ApiConfig;
use riverrun_api::wire::AskDone;
use riverrun_knowledge::retrieval::Fusion;
use serde_json::json;

use crate::harness::{Api, Reply, problem, test};

const NOTES: &[(&str, &str)] = &[
    ("winch.md", "# Winch\n\nA winch launch costs twelve euros. The winch stands at the north end."),
    ("tow.md", "# Tow\n\nAn aero tow costs forty euros and needs a tow pilot."),
];

#[test]
fn given_a_folder_when_it_is_ingested_then_it_can_be_found_and_again_is_no_work() {
    test(async |api| {
        let done = api.ingest("notes", NOTES).await;
        assert_eq!(
            (&done["status"], &done["documents"], &done["indexed"], &done["failed"]),
            (&json!("done"), &json!(2), &json!(2), &json!(0)),
            "{done}"
        );
        let again = api.ingest("notes", NOTES).await;
        assert_eq!((&again["unchanged"], &again["indexed"]), (&json!(2), &json!(0)), "{again}");

        let listed = api.get("/collections?namespace=default").await.body;
        let notes = listed["items"].as_array().unwrap().iter().find(|item| item["name"] == "notes").unwrap().clone();
        assert_eq!(
            (&notes["documents"], &notes["chunks"], &notes["physical_name"]),
            (&json!(2), &done["chunks"], &json!("default__notes")),
            "{notes}"
        );
        assert_eq!(notes["embedding"], json!({"model": "ollama/stub-embed", "dimensions": 64}));
        let documents = api.get("/documents?collection=notes&limit=1").await.body;
        assert_eq!(documents["items"].as_array().unwrap().len(), 1);
        let rest = api
            .get(&format!(
                "/documents?collection=notes&cursor={}",
                documents["next_cursor"].as_str().unwrap().replace('/', "%2F")
            ))
            .await
            .body;
        assert_eq!((rest["items"].as_array().unwrap().len(), &rest["next_cursor"]), (1, &json!(null)));

        let found = api
            .post("/rag/search", json!({"query": "what does a winch launch cost", "collection": "notes", "k": 1}))
            .await
            .body;
        let item = &found["items"][0];
        assert!(item["source"].as_str().unwrap().ends_with("winch.md"), "{found}");
        let text = std::fs::read_to_string(api.files.join("notes/winch.md")).unwrap();
        let span = |name: &str| item["span"][name].as_u64().unwrap() as usize;
        assert_eq!(&text[span("start")..span("end")], item["text"]);
        assert!(item["scores"]["fused"].is_number() && found["took_ms"]["embed"].is_number());
        let filter = json!({"sources": [api.files.join("notes/tow.md")]});
        let filtered = api
            .post(
                "/rag/search",
                json!({"query": "what does a winch launch cost", "collection": "notes", "filter": filter}),
            )
            .await
            .body;
        assert!(
            filtered["items"]
                .as_array()
                .unwrap()
                .iter()
                .all(|item| item["source"].as_str().unwrap().ends_with("tow.md")),
            "{filtered}"
        );

        let asked =
            api.post("/rag/ask", json!({"query": "What does a winch launch cost?", "collection": "notes"})).await.body;
        assert!(asked["answer"].as_str().unwrap().starts_with("It is as the notes say"), "{asked}");
        assert_eq!((&asked["citations"][0]["n"], &asked["trace_id"]), (&json!(1), &json!(null)), "{asked}");
        let read: AskDone = serde_json::from_value(asked.clone()).unwrap();
        assert!(!read.sentences.is_empty() && read.finish.as_deref() == Some("stop"), "{asked}");
        let span = read.sentences[0].span;
        assert_eq!((span.start, &read.answer[..span.end as usize]), (0, read.answer.as_str()), "{asked}");
    });
}

#[test]
fn given_options_of_a_search_when_a_question_is_asked_then_they_hold_for_what_the_model_reads() {
    test(async |api| {
        api.ingest("options", NOTES).await;
        let body = json!({"query": "What does a winch launch cost?", "collection": "options", "k": 1, "mode": "sparse",
            "rerank": false, "wordings": ["aero tow pilot"], "rewrite": true});
        let asked = api.post("/rag/ask", body).await.body;
        let times = &asked["took_ms"];
        assert!(times["rewrite"].is_number() && times["embed"] == 0.0 && times["dense"] == 0.0, "{asked}");
        assert!(asked["citations"][0]["n"] == 1 && times["rerank"].is_null(), "{asked}");
    });
}

#[test]
fn given_a_question_when_the_answer_is_streamed_then_the_pieces_are_its_beginning_and_the_whole_comes_last() {
    test(async |api| {
        api.ingest("streamed", NOTES).await;
        let reply = api
            .post("/rag/ask", json!({"query": "What does a tow cost?", "collection": "streamed", "stream": true}))
            .await;
        assert_eq!(reply.headers["content-type"], "text/event-stream");
        let text = reply.body.as_str().unwrap();
        assert!(text.contains("event: delta") && text.contains("It is as"), "{text}");
        let last = text.rsplit("event: final\ndata: ").next().unwrap();
        let whole: serde_json::Value = serde_json::from_str(last.trim()).unwrap();
        assert!(whole["answer"].is_string() && whole["citations"].is_array());
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn given_fusion_by_scores_as_a_setting_when_searched_then_it_holds_where_the_search_names_none() {
    let api = Api::configured(|config| ApiConfig { rag_fusion: Fusion::Scores, ..config }).await;
    api.ingest("fused", NOTES).await;
    let best = async |fusion: Option<&str>| {
        let mut body = json!({"query": "what does a winch launch cost", "collection": "fused"});
        if let Some(fusion) = fusion {
            body["fusion"] = json!(fusion);
        }
        let found = api.post("/rag/search", body).await.body;
        found["items"][0]["scores"]["fused"].as_f64().unwrap_or_else(|| panic!("{found}"))
    };
    let (unnamed, by_scores, by_ranks) = (best(None).await, best(Some("scores")).await, best(Some("rrf")).await);
    // The best by meaning has 0.8 at least; by ranks nothing has more than two first places.
    assert!(unnamed == by_scores && by_scores >= 0.8 - 1e-9, "{unnamed} and {by_scores}");
    assert!((1.0 / 61.0..=2.0 / 61.0 + 1e-9).contains(&by_ranks), "{by_ranks}");
    api.stop().await;
}

#[test]
fn given_a_question_that_was_answered_when_it_comes_again_then_the_answer_is_the_same_until_the_collection_changes() {
    test(async |api| {
        const HIT: &str = "x-riverrun-cache";
        api.ingest("asked", NOTES).await;
        let body = json!({"query": "What does a tow cost?", "collection": "asked"});
        let first = api.post("/rag/ask", body.clone()).await;
        assert!(!first.headers.contains_key(HIT) && first.body["answer"].is_string(), "{}", first.body);
        let again = api.post("/rag/ask", body.clone()).await;
        assert_eq!((again.headers[HIT].as_bytes(), &again.body), (&b"hit"[..], &first.body));
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        let streamed = api.post("/rag/ask", streamed).await;
        assert_eq!(streamed.headers[HIT], "hit");
        let text = streamed.body.as_str().unwrap();
        assert!(text.contains("event: delta") && text.contains("event: final"), "{text}");
        let other = json!({"query": "What does a tow cost?", "collection": "asked", "k": 1});
        assert!(!api.post("/rag/ask", other).await.headers.contains_key(HIT), "another question");
        let otherwise = json!({"query": "What does a tow cost?", "collection": "asked", "fusion": "scores"});
        let reply = api.post("/rag/ask", otherwise).await;
        assert!(!reply.headers.contains_key(HIT) && reply.body["answer"].is_string(), "{}", reply.body);
        api.ingest("asked", &[("more.md", "# More\n\nA tow costs more on Sundays.")]).await;
        assert!(!api.post("/rag/ask", body).await.headers.contains_key(HIT), "another collection");
    });
}

#[test]
fn given_a_key_when_an_ingest_comes_again_then_it_is_the_same_one() {
    test(async |api| {
        let path = api.files.join("keyed.md");
        std::fs::write(&path, "# Keyed\n\nOnce.").unwrap();
        let key = [("idempotency-key", "ingest-1")];
        let body = json!({"source": path, "collection": "keyed"});
        let first = api.post_with("/ingest", body.clone(), &key).await;
        let again = api.post_with("/ingest", body.clone(), &key).await;
        let id = first.body["ingest_id"].as_str().unwrap();
        assert_eq!(again.body["ingest_id"], id);
        api.ingest_end(id).await;
        assert_eq!(api.post_with("/ingest", body, &key).await.body["ingest_id"], id, "also when it has ended");
        problem(&api.post_with("/ingest", json!({"source": path, "collection": "other"}), &key).await, &[409]);
    });
}

async fn upload(api: &Api, fields: &[(&str, Option<&str>, &[u8])]) -> Reply {
    let mut body = Vec::new();
    for (name, file, content) in fields {
        let file = file.map(|file| format!("; filename=\"{file}\"")).unwrap_or_default();
        body.extend_from_slice(
            format!("--XX\r\ncontent-disposition: form-data; name=\"{name}\"{file}\r\n\r\n").as_bytes(),
        );
        body.extend_from_slice(content);
        body.extend_from_slice(b"\r\n");
    }
    body.extend_from_slice(b"--XX--\r\n");
    let request =
        Request::post("/ingest").header("host", "localhost").header("content-type", "multipart/form-data; boundary=XX");
    api.send(request.body(Body::from(body)).unwrap()).await
}

#[test]
fn given_files_when_they_are_uploaded_then_they_can_be_found_under_their_names() {
    test(async |api| {
        let reply = upload(
            api,
            &[
                ("collection", None, b"uploads"),
                ("metadata", None, br#"{"team": "a"}"#),
                ("file", Some("bees.md"), b"# Bees\n\nBees make honey."),
                ("file", Some("ants.txt"), b"Ants do not."),
            ],
        )
        .await;
        assert_eq!((reply.status, &reply.body["documents"]), (202, &json!(2)), "{}", reply.body);
        let done = api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        assert_eq!((&done["status"], &done["indexed"]), (&json!("done"), &json!(2)), "{done}");
        let found =
            api.post("/rag/search", json!({"query": "who makes honey", "collection": "uploads", "k": 1})).await.body;
        assert_eq!(
            (&found["items"][0]["source"], &found["items"][0]["metadata"]["team"]),
            (&json!("upload/bees.md"), &json!("a")),
            "{found}"
        );
    });
}

#[test]
fn given_uploads_that_can_not_be_when_they_come_then_they_are_refused() {
    let large = vec![b'x'; (20 << 20) + 1];
    test(async |api| {
        let collection = ("collection", None, b"u".as_slice());
        for (status, fields) in [
            (422, vec![collection]),
            (422, vec![("file", Some("a.md"), b"x".as_slice())]),
            (422, vec![collection, ("file", Some("../a.md"), b"x")]),
            (422, vec![collection, ("file", Some("a.exe"), b"MZ")]),
            (422, vec![collection, ("nonsense", None, b"x"), ("file", Some("a.md"), b"x")]),
            (422, vec![collection, ("metadata", None, b"[]"), ("file", Some("a.md"), b"x")]),
            (422, vec![collection, ("file", Some("a.md"), b"x"), ("file", Some("a.md"), b"y")]),
            (413, vec![collection, ("file", Some("a.md"), &large)]),
        ] {
            let reply = upload(api, &fields).await;
            problem(&reply, &[status]);
        }
    });
}

#[test]
fn given_documents_that_hold_no_text_when_they_are_ingested_then_each_is_told_with_its_reason() {
    test(async |api| {
        let folder = api.files.join("odd");
        std::fs::create_dir_all(&folder).unwrap();
        let bytes: Vec<u8> = (0..=255u8).cycle().take(5_000).collect();
        std::fs::write(folder.join("binary.txt"), bytes).unwrap();
        std::fs::write(folder.join("empty.md"), "").unwrap();
        std::fs::write(folder.join("good.md"), "# Good\n\nWords.").unwrap();
        let reply = api.post("/ingest", json!({"source": folder, "collection": "odd"})).await;
        let done = api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        assert_eq!((&done["indexed"], &done["failed"]), (&json!(1), &json!(2)), "{done}");
        for failure in done["failures"].as_array().unwrap() {
            assert!(failure["error"]["code"].is_string() && failure["error"]["message"].is_string(), "{failure}");
        }
    });
}

#[test]
fn given_a_collection_when_it_is_embedded_anew_then_searches_go_on_and_the_old_model_is_refused_with_the_fix() {
    const OTHER: &str = "ollama/other-embed";
    test(async |api| {
        let done = api.ingest("renewed", NOTES).await;
        assert_eq!(done["indexed"], 2, "{done}");
        let question = json!({"query": "what does a winch launch cost", "collection": "renewed", "k": 1});
        let before = api.post("/rag/search", question.clone()).await.body["items"][0]["chunk_id"].clone();

        let path = "/collections/renewed/reembed";
        let headers = [("idempotency-key", "renew")];
        let reply = api.post_with(path, json!({"model": OTHER}), &headers).await;
        assert!(matches!(reply.status, 200 | 202), "{} {}", reply.status, reply.body);
        let id = reply.body["reembedding_id"].as_str().unwrap().to_owned();
        let view = crate::harness::wait_for("the new vectors", async || {
            let view = api.get(&format!("/reembeddings/{id}")).await.body;
            (view["status"] != "running").then_some(view)
        })
        .await;
        assert_eq!(
            (&view["status"], &view["from_model"], &view["embed_model"], &view["documents"], &view["chunks"]),
            (&json!("done"), &json!("ollama/stub-embed"), &json!(OTHER), &json!(2), &done["chunks"]),
            "{view}"
        );
        let again = api.post_with(path, json!({"model": OTHER}), &headers).await;
        assert_eq!((again.status, &again.body["reembedding_id"]), (200, &json!(id)), "{}", again.body);

        let found = api.post("/rag/search", question).await.body;
        assert_eq!((&found["items"][0]["chunk_id"], &found["embed_model"]), (&before, &json!(OTHER)), "{found}");
        let check = api.get("/collections/renewed/check").await.body;
        assert_eq!((&check["orphans"], &check["vectors"]), (&json!([]), &done["chunks"]), "{check}");
        let refused = api.post("/ingest", json!({"source": api.files.join("renewed"), "collection": "renewed"})).await;
        let problem_of = problem(&refused, &[409]);
        assert_eq!(problem_of["code"], "embedding_model_mismatch");
        assert!(problem_of["hint"].as_str().unwrap().contains("riverrun collections reembed renewed"), "{problem_of}");

        for (status, path, body) in [
            (409, path, json!({"model": OTHER})),
            (404, "/collections/nowhere/reembed", json!({"model": OTHER})),
            (422, path, json!({"model": " "})),
            (422, path, json!({"model": OTHER, "namespace": "a__b"})),
        ] {
            problem(&api.post(path, body).await, &[status]);
        }
        assert_eq!(api.get("/reembeddings/nothing").await.status, 404);
    });
}

#[test]
fn given_a_collection_that_is_removed_and_filled_again_when_its_standing_is_asked_for_then_it_tells_both_from_each_other()
 {
    test(async |api| {
        let standing = async || {
            let reply = api.get("/collections/standing/standing").await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            (reply.body["collection"]["documents"].clone(), reply.body["removed_by"].clone())
        };
        assert_eq!(standing().await, (json!(null), json!(null)));
        api.ingest("standing", NOTES).await;
        assert_eq!(standing().await, (json!(2), json!(null)));
        let request = Request::builder().method("DELETE").uri("/collections/standing").header("host", "localhost");
        let gone = api.send(request.body(Body::empty()).unwrap()).await;
        assert_eq!(gone.status, 200, "{}", gone.body);
        assert_eq!(standing().await, (json!(null), gone.body["deletion_id"].clone()));
        api.ingest("standing", NOTES).await;
        assert_eq!(standing().await, (json!(2), gone.body["deletion_id"].clone()));
        problem(&api.get("/collections/standing/standing?namespace=a__b").await, &[422]);
    });
}

#[test]
fn given_a_collection_that_is_not_there_when_any_operation_names_it_then_those_that_are_there_are_told() {
    test(async |api| {
        api.ingest("handbook", NOTES).await;
        for (method, path, body) in [
            ("GET", "/collections/handbok/check", None),
            ("GET", "/documents?collection=handbok", None),
            ("DELETE", "/collections/handbok", None),
            ("POST", "/collections/handbok/rebuild", Some(json!({}))),
            ("POST", "/collections/handbok/reembed", Some(json!({}))),
            ("POST", "/rag/search", Some(json!({"query": "x", "collection": "handbok"}))),
        ] {
            let reply = match &body {
                Some(body) => api.post(path, body.clone()).await,
                None => {
                    let request = Request::builder().method(method).uri(path).header("host", "localhost");
                    api.send(request.body(Body::empty()).unwrap()).await
                }
            };
            let found = problem(&reply, &[404]);
            let hint = found["hint"].as_str().unwrap();
            assert!(hint.starts_with("existing collections: ") && hint.contains("handbook"), "{method} {path}: {hint}");
        }
    });
}

#[test]
fn given_a_collection_when_it_is_made_again_then_it_is_whole_and_says_what_was_done() {
    test(async |api| {
        let done = api.ingest("again", NOTES).await;
        let chunks = done["chunks"].as_i64().unwrap();
        let question = json!({"query": "what does a winch launch cost", "collection": "again", "k": 1});
        let before = api.post("/rag/search", question.clone()).await.body["items"][0]["chunk_id"].clone();
        let ended = async |reply: crate::harness::Reply| {
            assert!(matches!(reply.status, 200 | 202), "{} {}", reply.status, reply.body);
            let id = reply.body["rebuild_id"].as_str().unwrap().to_owned();
            crate::harness::wait_for("the end", async || {
                let view = api.get(&format!("/rebuilds/{id}")).await.body;
                (view["status"] != "running").then_some(view)
            })
            .await
        };
        let path = "/collections/again/rebuild";
        // A whole collection is left alone; afresh it is made again.
        for (body, written) in [(json!({}), 0), (json!({"afresh": true}), chunks)] {
            let view = ended(api.post(path, body).await).await;
            let result = &view["result"];
            assert_eq!(
                (&view["status"], &result["vectors"], &result["keywords"], &result["chunks"], &result["embedded"]),
                (&json!("done"), &json!(written), &json!(written), &json!(chunks), &json!(0)),
                "{view}"
            );
            let found = api.post("/rag/search", question.clone()).await.body;
            assert_eq!((&found["items"][0]["chunk_id"], &found["incomplete"]), (&before, &json!(null)), "{found}");
            let check = api.get("/collections/again/check").await.body;
            assert_eq!((&check["orphans"], &check["missing"], &check["surplus"]), (&json!([]), &json!(0), &json!(0)));
            assert_eq!((&check["keywords"], &check["problems"]), (&json!(chunks), &json!(null)), "{check}");
        }
        let headers = [("idempotency-key", "once")];
        let first = ended(api.post_with(path, json!({}), &headers).await).await;
        let again = api.post_with(path, json!({}), &headers).await;
        assert_eq!((again.status, &again.body), (200, &first));
        for (status, path, body) in [
            (404, "/collections/nowhere/rebuild", json!({})),
            (422, path, json!({"namespace": "a__b"})),
            (422, path, json!({"model": "x"})),
        ] {
            problem(&api.post(path, body).await, &[status]);
        }
        assert_eq!(api.get("/rebuilds/nothing").await.status, 404);
    });
}

#[test]
fn given_sizes_that_can_not_be_when_an_ingest_is_asked_for_then_the_field_is_named() {
    test(async |api| {
        let source = api.files.join("sized");
        std::fs::create_dir_all(&source).unwrap();
        std::fs::write(source.join("a.md"), "# A\n\nWords.").unwrap();
        for (sizes, words) in [
            (json!({"chunk_size": 0}), "chunk_size: is 0, which is not between 1 and 32000 characters"),
            (json!({"chunk_size": -5}), "chunk_size: is -5"),
            (json!({"chunk_size": 100, "chunk_overlap": 100}), "chunk_overlap: is 100"),
            (json!({"chunk_overlap": -1}), "chunk_overlap: is -1"),
            (json!({"chunk_unit": "words"}), "chunk_unit: \"words\" is not there; choose one of: characters, tokens"),
            (json!({"chunk_unit": "tokens", "chunk_size": 5000}), "which is not between 1 and 3000 tokens"),
        ] {
            let mut body = json!({"source": source, "collection": "sized"});
            body.as_object_mut().unwrap().extend(sizes.as_object().unwrap().clone());
            let refused = problem(&api.post("/ingest", body).await, &[422]);
            let fault = &refused["errors"][0];
            let told = format!("{}: {}", fault["field"].as_str().unwrap(), fault["reason"].as_str().unwrap());
            assert!(told.contains(words), "{refused}");
        }
        // The model of a server has no tokenizer here: the document fails and says what to do.
        let reply = api.post("/ingest", json!({"source": source, "collection": "sized", "chunk_unit": "tokens"})).await;
        let done = api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        let failure = &done["failures"][0]["error"];
        assert_eq!((&done["failed"], &failure["code"]), (&json!(1), &json!("model_unsupported")), "{done}");
        assert!(failure["hint"].as_str().unwrap().contains("RIVERRUN_CHUNK_UNIT"), "{done}");
    });
}
