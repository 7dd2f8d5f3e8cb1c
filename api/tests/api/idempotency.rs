//! A repeat with its key gets the first answer and starts nothing: every POST of the description that writes. What is accepted
//! says where to look.

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use crate::harness::{Api, Reply, problem, test, wait_for};

/// What is asked for: an address and a body.
struct Asked {
    path: String,
    content: Content,
}

enum Content {
    Json(Value),
    /// A form with this file; each request has a boundary of its own.
    Form(&'static str),
}

impl Asked {
    fn json(path: impl Into<String>, body: Value) -> Self {
        Self { path: path.into(), content: Content::Json(body) }
    }

    async fn send(&self, api: &Api, key: &str, boundary: &str) -> Reply {
        let request = Request::post(&self.path).header("host", "localhost").header("idempotency-key", key);
        let request = match &self.content {
            Content::Json(body) => request.header("content-type", "application/json").body(body.to_string()),
            Content::Form(file) => {
                let kind = format!("multipart/form-data; boundary={boundary}");
                request.header("content-type", kind).body(form(file, boundary))
            }
        };
        api.send(request.unwrap().map(Body::from)).await
    }

    /// The same request with another word in it.
    fn changed(&self) -> Self {
        match &self.content {
            Content::Json(body) => {
                let mut body = body.clone();
                body["other"] = json!(1);
                Self::json(&self.path, body)
            }
            Content::Form(_) => Self { path: self.path.clone(), content: Content::Form(OTHER_EXAMPLES) },
        }
    }
}

fn form(file: &str, boundary: &str) -> String {
    let part = |head: &str, text: &str| {
        format!("--{boundary}\r\ncontent-disposition: form-data; name={head}\r\n\r\n{text}\r\n")
    };
    let parts = [part("\"name\"", "keyed"), part("\"file\"; filename=\"keyed.jsonl\"", file)];
    format!("{}--{boundary}--\r\n", parts.concat())
}

const EXAMPLES: &str = "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"c\", \"completion\": \"d\"}\n";

const OTHER_EXAMPLES: &str = "{\"prompt\": \"a\", \"completion\": \"another\"}\n";

/// A run that waits for a person, and the step at which it does.
async fn waiting(api: &Api, id: &str) -> (String, i64) {
    let body = json!({ "task": format!("wait [[steps=1 id={id}]]"), "agent": "react", "approval": "always" });
    let run_id = api.post("/runs", body).await.body["run_id"].as_str().unwrap().to_owned();
    let step = wait_for("the run to ask", async || {
        let run = api.get(&format!("/runs/{run_id}")).await.body;
        run["pending_approvals"][0]["step"].as_i64()
    })
    .await;
    (run_id, step)
}

async fn project(api: &Api, name: &str) -> String {
    let folder = api.files.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("a.py"), "def f():\n    return 1\n").unwrap();
    let reply = api.post("/projects/import", json!({ "source": folder })).await;
    let id = reply.body["project_id"].as_str().unwrap_or_else(|| panic!("{}", reply.body)).to_owned();
    wait_for("the project", async || {
        (api.get(&format!("/projects/{id}")).await.body["status"] == "imported").then_some(())
    })
    .await;
    id
}

async fn training(api: &Api, key: &str) -> Asked {
    let dataset = Asked { path: "/finetune/datasets".into(), content: Content::Form(EXAMPLES) };
    let reply = dataset.send(api, &format!("{key}-dataset"), "XX").await;
    assert_eq!(reply.status, 201, "{}", reply.body);
    // Nobody has that model: the training is accepted, and fails.
    let body = json!({ "name": "keyed", "method": "sft_lora", "dataset": "keyed", "base_model": "nobody-has-this" });
    Asked::json("/finetune/jobs", body)
}

fn task(id: &str) -> Value {
    json!({ "task": format!("once [[steps=0 id={id}]]"), "agent": "react" })
}

/// A request for an operation, and the statuses that its answer may have: one of success where the test can bring that about.
async fn asked(api: &Api, route: &str) -> Option<(Asked, &'static [u16])> {
    let found: (Asked, &'static [u16]) = match route {
        "/agent/run" => (Asked::json(route, task("key-waited")), &[200]),
        "/runs" => (Asked::json(route, task("key-run")), &[202]),
        "/runs/{id}/approvals/{step}" => {
            let (run_id, step) = waiting(api, "key-approve").await;
            let path = format!("/runs/{run_id}/approvals/{step}");
            (Asked::json(path, json!({ "decision": "approve" })), &[202])
        }
        "/runs/{id}/cancel" | "/runs/{id}/resume" => {
            let (run_id, _) = waiting(api, "key-open").await;
            (Asked::json(route.replace("{id}", &run_id), json!({})), &[202])
        }
        "/runs/{id}/fork" => {
            let run_id = api.post("/agent/run", task("key-source")).await.body["run_id"].as_str().unwrap().to_owned();
            (Asked::json(route.replace("{id}", &run_id), json!({ "at_seq": 0 })), &[202])
        }
        "/chains" => (Asked::json(route, json!({ "runs": [{ "name": "one", "run": task("key-chain") }] })), &[202]),
        "/chains/{id}/cancel" => {
            let run = json!({ "task": "wait [[steps=1 id=key-chained]]", "agent": "react", "approval": "always" });
            let reply = api.post("/chains", json!({ "runs": [{ "name": "one", "run": run }] })).await;
            let path = route.replace("{id}", reply.body["chain_id"].as_str().unwrap());
            (Asked::json(path, json!({})), &[202])
        }
        "/v1/chat/completions" => {
            let messages = json!([{ "role": "user", "content": "once [[steps=0 id=key-openai]]" }]);
            (Asked::json(route, json!({ "model": "agent/react", "messages": messages })), &[200])
        }
        "/tools/{name}/call" => {
            let body = json!({ "arguments": { "expression": "6*7" } });
            (Asked::json("/tools/calculator/call", body), &[200])
        }
        "/ingest" => {
            let path = api.files.join("key-ingest.md");
            std::fs::write(&path, "# Key\n\nOnce.").unwrap();
            (Asked::json(route, json!({ "source": path, "collection": "key-ingest" })), &[202])
        }
        "/collections/{name}/rebuild" => {
            api.ingest("key-rebuilt", &[("a.md", "# Key\n\nAgain.")]).await;
            (Asked::json("/collections/key-rebuilt/rebuild", json!({ "afresh": true })), &[200, 202])
        }
        "/collections/{name}/tune" => {
            api.ingest("key-tuned", &[("a.md", "# Key\n\nTuned.")]).await;
            (Asked::json("/collections/key-tuned/tune", json!({ "off": true })), &[200, 202])
        }
        "/collections/{name}/reembed" => {
            api.ingest("key-renewed", &[("a.md", "# Key\n\nAnew.")]).await;
            let body = json!({ "model": "ollama/other-embed" });
            (Asked::json("/collections/key-renewed/reembed", body), &[200, 202])
        }
        "/memory/turns" => {
            let body = json!({ "role": "user", "text": "once", "session": "key-turns" });
            (Asked::json(route, body), &[200, 202])
        }
        "/memory/chat" => {
            let body = json!({ "text": "hello there", "session": "key-chat", "stream": false });
            (Asked::json(route, body), &[200])
        }
        "/models/probe" => (Asked::json(route, json!({ "model": "ollama/key-probed" })), &[200]),
        "/finetune/datasets" => (Asked { path: route.into(), content: Content::Form(EXAMPLES) }, &[201]),
        "/finetune/jobs" => (training(api, "key-job").await, &[202]),
        "/finetune/jobs/{id}/cancel" => {
            let started = training(api, "key-stopped").await.send(api, "key-stopped", "XX").await;
            let path = route.replace("{id}", started.body["job_id"].as_str().unwrap());
            // It may have failed before.
            (Asked::json(path, json!({})), &[202, 409])
        }
        "/finetune/registry/{model}/{version}/stage" => {
            (Asked::json("/finetune/registry/nothing/1/stage", json!({ "stage": "production" })), &[404, 422])
        }
        "/projects/import" => {
            let folder = api.files.join("key-import");
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("a.py"), "x = 1\n").unwrap();
            (Asked::json(route, json!({ "source": folder })), &[200, 202])
        }
        "/projects/{id}/analyze" => {
            let path = route.replace("{id}", &project(api, "key-analyze").await);
            (Asked::json(path, json!({ "review": false })), &[200, 202])
        }
        "/projects/{id}/improve" => {
            let path = route.replace("{id}", &project(api, "key-improve").await);
            (Asked::json(path, json!({ "file": "a.py", "instruction": "better" })), &[200, 202])
        }
        "/projects/{id}/apply" | "/projects/{id}/revert" => {
            let path = route.replace("{id}", &project(api, "key-change").await);
            (Asked::json(path, json!({ "file": "a.py", "confirm": true })), &[404, 409])
        }
        "/projects/tools" => (Asked::json(route, json!({ "names": ["nothing"] })), &[404, 422]),
        // Another test sweeps, and a process does that once at a time.
        "/blobs/sweep" => (Asked::json(route, json!({ "grace_hours": 0 })), &[422]),
        "/dlq/{id}/redrive" | "/dlq/{id}/drop" => {
            (Asked::json(route.replace("{id}", "riverrun.ingest.commands.dlq:99"), json!({})), &[404])
        }
        _ => return None,
    };
    Some(found)
}

/// The POSTs that the description says take a key.
fn routes() -> Vec<String> {
    let document = serde_json::to_value(riverrun_api::openapi()).unwrap();
    let takes_key = |item: &Value| {
        let parameters = item["post"]["parameters"].as_array();
        parameters.is_some_and(|all| all.iter().any(|one| one["name"] == "Idempotency-Key"))
    };
    let paths = document["paths"].as_object().unwrap();
    paths.iter().filter(|(_, item)| takes_key(item)).map(|(path, _)| path.clone()).collect()
}

fn location(reply: &Reply) -> Option<&str> {
    reply.headers.get("location").map(|place| place.to_str().unwrap())
}

#[test]
fn given_any_post_that_writes_when_it_comes_again_with_its_key_then_it_is_the_first_answer_and_another_body_is_a_conflict()
 {
    test(async |api| {
        let routes = routes();
        assert!(routes.len() > 20, "{routes:?}");
        for route in routes {
            let Some((asked, statuses)) = asked(api, &route).await else {
                panic!("say in api/tests/api/idempotency.rs what is asked of POST {route}")
            };
            let key = format!("every-{route}");
            let first = asked.send(api, &key, "XX").await;
            assert!(statuses.contains(&first.status), "{route}: {} {}", first.status, first.body);
            // What is under way goes on, and may end: the answer stays what it was.
            for boundary in ["XX", "YY"] {
                let again = asked.send(api, &key, boundary).await;
                assert_eq!((again.status, &again.body), (first.status, &first.body), "{route}");
                assert_eq!(location(&again), location(&first), "{route}");
            }
            if first.status == 202 {
                let place = location(&first).unwrap_or_else(|| panic!("{route}: 202 without a place"));
                wait_for(place, async || (api.get(place).await.status == 200).then_some(())).await;
            }
            if (200..300).contains(&first.status) {
                let refused = asked.changed().send(api, &key, "XX").await;
                assert_eq!(refused.status, 409, "{route}: {}", refused.body);
            }
        }
    });
}

#[test]
fn given_what_is_said_to_a_run_when_it_comes_twice_at_once_and_after_its_end_then_it_is_said_once() {
    test(async |api| {
        for what in ["approve", "cancel"] {
            let (run_id, step) = waiting(api, &format!("key-{what}-twice")).await;
            let (path, body) = match what {
                "approve" => (format!("/runs/{run_id}/approvals/{step}"), json!({ "decision": "approve" })),
                _ => (format!("/runs/{run_id}/cancel"), json!({})),
            };
            let key = [("idempotency-key", what)];
            let (first, second) =
                tokio::join!(api.post_with(&path, body.clone(), &key), api.post_with(&path, body.clone(), &key));
            assert_eq!((first.status, second.status), (202, 202), "{} {}", first.body, second.body);
            wait_for("the run to go on", async || {
                let run = api.get(&format!("/runs/{run_id}")).await.body;
                run["finished_at"].is_string().then_some(())
            })
            .await;
            let again = api.post_with(&path, body.clone(), &key).await;
            assert_eq!((again.status, &again.body), (202, &first.body), "{what}");
            problem(&api.post(&path, body).await, &[409]);
        }
    });
}

#[test]
fn given_a_request_that_was_refused_when_what_lacked_is_there_then_the_same_key_does_it() {
    test(async |api| {
        let path = api.files.join("key-later.md");
        let body = json!({ "source": path, "collection": "key-later" });
        let key = [("idempotency-key", "later")];
        problem(&api.post_with("/ingest", body.clone(), &key).await, &[404]);
        std::fs::write(&path, "# Later\n\nNow it is here.").unwrap();
        let started = api.post_with("/ingest", body, &key).await;
        assert_eq!(started.status, 202, "{}", started.body);
        api.ingest_end(started.body["ingest_id"].as_str().unwrap()).await;
    });
}

#[test]
fn given_a_key_of_a_run_when_it_is_asked_for_by_another_route_then_it_is_the_same_run_also_where_that_has_failed() {
    test(async |api| {
        for (id, budget, ends) in [("key-shared", 100_000, "succeeded"), ("key-failed", 1, "failed")] {
            let body = |task: &str| {
                let task = format!("{task} [[steps=2 id={id}]]");
                json!({ "task": task, "agent": "react", "budget": { "tokens": budget } })
            };
            let key = [("idempotency-key", id)];
            let started = api.post_with("/runs", body("once"), &key).await;
            assert_eq!(started.status, 202, "{}", started.body);
            for _ in 0..2 {
                let waited = api.post_with("/agent/run", body("once"), &key).await;
                assert_eq!((waited.status, &waited.body["status"]), (200, &json!(ends)), "{}", waited.body);
                assert_eq!(waited.body["run_id"], started.body["run_id"], "{id}");
            }
            // Of a namespace that is said no answer is kept: the log knows the run.
            let mut named = body("once");
            named["namespace"] = json!("default");
            let again = api.post_with("/agent/run", named.clone(), &key).await;
            assert_eq!((again.status, &again.body["run_id"]), (200, &started.body["run_id"]), "{}", again.body);
            named["task"] = json!("another task");
            let other = problem(&api.post_with("/runs", named, &key).await, &[409]);
            assert_eq!(other["code"], "idempotency_key_reused");
        }
    });
}

#[test]
fn given_a_training_of_a_former_name_when_it_is_asked_for_then_its_id_is_read_and_new_ones_have_the_new_name() {
    test(async |api| {
        let started = training(api, "key-named").await.send(api, "key-named", "XX").await;
        let id = started.body["job_id"].as_str().unwrap();
        assert!(id.starts_with("job_"), "{id}");
        let former = api.get("/finetune/jobs/ftj_01h455vb4pex5vsknk084sn02q").await;
        assert_eq!(problem(&former, &[404])["code"], "finetune_job_not_found");
        let none = api.get("/finetune/jobs/xyz_01h455vb4pex5vsknk084sn02q").await;
        assert_eq!(problem(&none, &[404])["code"], "not_found");
    });
}
