//! Sources of every kind over HTTP: what is read, and what is refused before anything is.

use serde_json::{Value, json};

use crate::harness::{problem, test};

#[test]
fn given_a_folder_of_formats_when_it_is_ingested_then_each_is_found_and_globs_count() {
    test(async |api| {
        let files = [
            ("page.html", "<title>t</title><script>evil()</script><h1>Quokka</h1><p>A quokka smiles at noon.</p>"),
            ("prices.csv", "launch;price\r\nwinch;9\r\n\"aero tow\";42\r\n"),
            ("fleet.jsonl", "{\"glider\": \"ASK 21\", \"seats\": 2}\n"),
            ("mail.eml", "From: ann@example.org\r\nSubject: Cable\r\n\r\nThe cable was replaced.\r\n"),
            ("main.rs", "fn pangolin() -> u32 { 7 }\n"),
            ("torn.json", "{\"a\""),
        ];
        let done = api.ingest("formats", &files).await;
        assert_eq!((&done["indexed"], &done["failed"]), (&json!(5), &json!(1)), "{done}");
        assert_eq!(done["failures"][0]["error"]["code"], "malformed_document");
        for (query, name) in [
            ("quokka smiles", "page.html"),
            ("price of an aero tow", "prices.csv"),
            ("glider ASK 21 seats", "fleet.jsonl"),
        ] {
            let found = api.post("/rag/search", json!({"query": query, "collection": "formats", "k": 3})).await.body;
            let items = found["items"].as_array().unwrap();
            assert!(items.iter().any(|item| item["source"].as_str().unwrap().ends_with(name)), "{query}: {found}");
            assert!(!found.to_string().contains("evil()"), "{found}");
        }
        let folder = api.files.join("formats");
        let body =
            json!({"source": folder, "collection": "globbed", "include": ["*.csv", "*.rs"], "exclude": ["main.*"]});
        let reply = api.post("/ingest", body).await;
        let done = api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        assert_eq!((&done["indexed"], &done["failed"], &done["skipped"]), (&json!(1), &json!(0), &json!(5)), "{done}");
    });
}

#[test]
fn given_a_database_file_when_it_is_asked_then_its_rows_are_found_and_only_reading_is_done() {
    test(async |api| {
        let file = api.files.join("shop.db");
        let made = std::process::Command::new("python3")
            .args(["-c", "import sqlite3,sys; c=sqlite3.connect(sys.argv[1]); c.execute('CREATE TABLE t(name TEXT, price REAL)'); c.execute(\"INSERT INTO t VALUES('Dugong plush', 12.5)\"); c.commit()"])
            .arg(&file)
            .status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("python3 is not there to make a database; nothing is tested");
            return;
        }
        let source = format!("sqlite:{}", file.display());
        let reply =
            api.post("/ingest", json!({"source": source, "collection": "shop", "query": "SELECT * FROM t"})).await;
        assert_eq!(reply.status, 202, "{}", reply.body);
        let done = api.ingest_end(reply.body["ingest_id"].as_str().unwrap()).await;
        assert_eq!(done["indexed"], 1, "{done}");
        let found = api.post("/rag/search", json!({"query": "dugong plush", "collection": "shop", "k": 1})).await.body;
        assert_eq!(found["items"][0]["text"], "name: Dugong plush; price: 12.5", "{found}");
        let reply = api.post("/ingest", json!({"source": source, "collection": "shop", "query": "DROP TABLE t"})).await;
        assert_eq!(problem(&reply, &[422])["code"], "query_refused");
    });
}

#[test]
fn given_addresses_that_lead_elsewhere_when_they_are_named_then_each_is_refused_with_its_rule() {
    test(async |api| {
        for (source, query, code) in [
            ("http://169.254.169.254/latest/meta-data/", None, "address_not_allowed"),
            ("http://2130706433/", None, "address_not_allowed"),
            ("http://user@127.0.0.1:80/", None, "credentials_in_url"),
            ("file:///etc/passwd", None, "address_refused"),
            ("ext::sh -c id", None, "address_refused"),
            ("--upload-pack=touch /tmp/p", None, "address_refused"),
            ("sqlite:/etc/passwd", Some("SELECT 1"), "source_not_allowed"),
            ("postgres:///db?host=/tmp", Some("SELECT 1"), "source_not_allowed"),
            ("mongodb://h/d/c", None, "source_not_allowed"),
        ] {
            let mut body = json!({"source": source, "collection": "c"});
            if let Some(query) = query {
                body["query"] = Value::from(query);
            }
            assert_eq!(problem(&api.post("/ingest", body).await, &[422])["code"], code, "{source}");
        }
        let topic = problem(
            &api.post("/ingest", json!({"source": "riverrun.documents", "type": "kafka", "collection": "c"})).await,
            &[422],
        );
        assert!(topic["hint"].as_str().unwrap().contains("stream consume"), "{topic}");
    });
}
