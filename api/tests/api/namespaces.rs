//! Nothing of a namespace shows in another: tried with every operation of the OpenAPI document, so that a new one is tried
//! as well, and one that this test can't ask anything of breaks it.
//!
//! An owner has a run, a document, a conversation and all that follows from them, each with a word that is nowhere else. A
//! stranger then asks every operation for the owner's ids and names under its own namespace. It must get 404 or a list
//! without the word. The owner asks the same and must get an answer, which shows that the question was a real one.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Map, Value, json};

use crate::harness::{Api, Reply, test, wait_for};

const OWNER: &str = "owner";
/// The owner's name is its beginning, and it asks for names that begin alike.
const STRANGER: &str = "owner-2";
/// In everything that the owner has, and in no question.
const WORD: &str = "zanzibar";

/// Operations that hold nothing of a namespace, each with its reason.
const NOT_OF_A_NAMESPACE: &[(&str, &str)] = &[
    ("get /health", "about this process"),
    ("get /ready", "about this process"),
    ("get /diagnose", "about this process"),
    ("get /metrics", "figures without content"),
    ("get /auth/session", "about the caller"),
    ("post /auth/session", "about the caller"),
    ("delete /auth/session", "about the caller"),
    ("get /agents", "agent types are the same for all"),
    ("get /providers", "model providers are the same for all"),
    ("get /models", "models are the same for all"),
    ("get /models/cards", "models are the same for all"),
    ("post /models/probe", "models are the same for all"),
    ("post /chat", "words to a model, nothing is kept"),
    ("post /embed", "text to a model, nothing is kept"),
    ("get /topics", "names and sizes, no records"),
    ("get /dlq", "for operators: a record that can't be read has no namespace"),
    ("get /dlq/{id}", "for operators"),
    ("post /dlq/{id}/redrive", "for operators"),
    ("post /dlq/{id}/drop", "for operators"),
    ("get /blobs", "for operators: hashes without content"),
    ("get /blobs/check", "for operators"),
    ("post /blobs/sweep", "for operators"),
    ("get /finetune/defaults", "datasets and models belong to the machine, as models do"),
    ("post /finetune/estimate", "datasets and models belong to the machine, as models do"),
    ("post /finetune/jobs", "datasets and models belong to the machine, as models do"),
    ("get /finetune/jobs", "datasets and models belong to the machine, as models do"),
    ("get /finetune/jobs/{id}", "datasets and models belong to the machine, as models do"),
    ("post /finetune/jobs/{id}/cancel", "datasets and models belong to the machine, as models do"),
    ("post /finetune/datasets", "datasets and models belong to the machine, as models do"),
    ("get /finetune/datasets", "datasets and models belong to the machine, as models do"),
    ("get /finetune/datasets/{name}", "datasets and models belong to the machine, as models do"),
    ("get /finetune/registry", "datasets and models belong to the machine, as models do"),
    ("get /finetune/registry/{model}/{version}", "datasets and models belong to the machine, as models do"),
    ("post /finetune/registry/{model}/{version}/stage", "datasets and models belong to the machine, as models do"),
    (
        "get /finetune/registry/{model}/{version}/files/{file}",
        "datasets and models belong to the machine, as models do",
    ),
    ("get /v1/models", "names of models and agents"),
    ("get /projects/tools", "linters belong to the machine, as models do"),
    ("post /projects/tools", "linters belong to the machine, as models do"),
    ("delete /projects/tools/{name}", "linters belong to the machine, as models do"),
    ("post /v1/embeddings", "text to a model, nothing is kept"),
];

/// The schema registry: schemas are public.
const REGISTRY: [&str; 5] = ["/schemas", "/subjects", "/config", "/mode", "/contexts"];

/// Operations of the owner that may be refused although they are right: the run has ended, the collection has that model.
const MAY_CONFLICT: &[&str] = &[
    "post /runs/{id}/cancel",
    "post /chains/{id}/cancel",
    "post /runs/{id}/resume",
    "post /runs/{id}/approvals/{step}",
    "post /collections/{name}/reembed",
    // It asks for a new one, and it has one.
    "put /canvases/{id}",
];

/// Operations that a stranger may be refused with a conflict: they name something, and it has something of that name itself.
/// What is found by an id must be as unknown to it as what never was.
const NAMES_ITS_OWN: &[&str] = &["post /collections/{name}/reembed", "put /canvases/{id}"];

struct Owned {
    values: BTreeMap<&'static str, String>,
}

impl Owned {
    async fn new(api: &'static Api) -> Self {
        let file = api.files.join("owned.md");
        std::fs::write(&file, format!("# Notes\n\nThe {WORD} of the owner is here and nowhere else.\n")).unwrap();
        // Whoever reads a file of their own may find it: this one has nothing of the owner's.
        let other = api.files.join("other.md");
        std::fs::write(&other, "# Other\n\nNothing of interest is blue.\n").unwrap();
        let ingest = json!({ "source": file, "collection": "papers", "namespace": OWNER });
        let ingest = api.post("/ingest", ingest).await;
        assert_eq!(ingest.status, 202, "{}", ingest.body);
        let ingest_id = ingest.body["ingest_id"].as_str().unwrap().to_owned();
        assert_eq!(api.ingest_end(&ingest_id).await["indexed"], 1);
        let documents = api.get(&format!("/documents?collection=papers&namespace={OWNER}")).await;
        let document_id = documents.body["items"][0]["document_id"].as_str().unwrap().to_owned();

        // A collection of its own that gets another model, and then goes.
        let body = json!({ "source": other, "collection": "renewed", "namespace": OWNER });
        let ingest = api.post("/ingest", body).await;
        assert_eq!(api.ingest_end(ingest.body["ingest_id"].as_str().unwrap()).await["indexed"], 1);
        let body = json!({ "model": "ollama/other-embed", "namespace": OWNER });
        let renewed = api.post("/collections/renewed/reembed", body).await;
        assert!(matches!(renewed.status, 200 | 202), "{}", renewed.body);
        let reembedding_id = renewed.body["reembedding_id"].as_str().unwrap().to_owned();
        wait_for("the end of it", async || {
            let view = api.get(&format!("/reembeddings/{reembedding_id}")).await.body;
            view["finished_at"].is_string().then_some(())
        })
        .await;
        let tuned = api.post("/collections/renewed/tune", json!({ "off": true, "namespace": OWNER })).await;
        assert!(matches!(tuned.status, 200 | 202), "{}", tuned.body);
        let tuning_id = tuned.body["tuning_id"].as_str().unwrap().to_owned();
        let rebuilt = api.post("/collections/renewed/rebuild", json!({ "namespace": OWNER })).await;
        assert!(matches!(rebuilt.status, 200 | 202), "{}", rebuilt.body);
        let rebuild_id = rebuilt.body["rebuild_id"].as_str().unwrap().to_owned();
        let request = Request::builder().method("DELETE").uri(format!("/collections/renewed?namespace={OWNER}"));
        let gone = api.send(request.header("host", "localhost").body(Body::empty()).unwrap()).await;
        assert_eq!(gone.status, 200, "{}", gone.body);
        let deletion_id = gone.body["deletion_id"].as_str().unwrap().to_owned();

        let run = json!({ "task": format!("the {WORD} [[steps=1]]"), "agent": "react", "namespace": OWNER, "session": "talk" });
        let run = api.post("/agent/run", run).await;
        assert_eq!(run.status, 200, "{}", run.body);

        let part = json!({ "name": "one", "run": { "task": format!("the {WORD} [[steps=1]]"), "agent": "react" } });
        let chain = api.post("/chains", json!({ "namespace": OWNER, "runs": [part] })).await;
        assert_eq!(chain.status, 202, "{}", chain.body);

        // An exchange becomes an episode when the next one begins.
        let mut turn_id = String::new();
        for (role, text) in
            [("user", format!("my {WORD} is blue")), ("assistant", "good".into()), ("user", "bye".into())]
        {
            let turn = json!({ "role": role, "text": text, "namespace": OWNER, "session": "talk" });
            let reply = api.post("/memory/turns", turn).await;
            assert_eq!(reply.status, 200, "{}", reply.body);
            if turn_id.is_empty() {
                turn_id = reply.body["turn_id"].as_str().unwrap().to_owned();
            }
        }
        let code = api.files.join("code");
        std::fs::create_dir_all(&code).unwrap();
        std::fs::write(code.join("a.py"), format!("def {WORD}():\n    return 1\n")).unwrap();
        // And a folder that has nothing of the owner's, for who imports one of their own.
        let other_code = api.files.join("other-code");
        std::fs::create_dir_all(&other_code).unwrap();
        std::fs::write(other_code.join("a.py"), "x = 1\n").unwrap();
        let import = json!({ "source": code, "namespace": OWNER, "name": WORD });
        let import = api.post("/projects/import", import).await;
        assert_eq!(import.status, 200, "{}", import.body);
        let project_id = import.body["project_id"].as_str().unwrap().to_owned();
        wait_for("the project", async || {
            let reply = api.get(&format!("/projects/{project_id}?namespace={OWNER}")).await;
            (reply.body["status"] == "imported").then_some(())
        })
        .await;
        let project = |rest: &str| format!("/projects/{project_id}/{rest}?namespace={OWNER}");
        let analyzed = api.post(&project("analyze"), json!({ "review": false })).await;
        assert_eq!(analyzed.status, 200, "{}", analyzed.body);
        let proposal = api.post(&project("improve"), json!({ "file": "a.py" })).await;
        assert_eq!((proposal.status, &proposal.body["status"]), (200, &json!("proposed")), "{}", proposal.body);
        let proposal_id = proposal.body["proposal_id"].as_str().unwrap().to_owned();
        let canvas = json!({ "revision": 0, "namespace": OWNER, "document": canvas(WORD) }).to_string();
        let request = Request::builder().method("PUT").uri("/canvases/board").header("host", "localhost");
        let kept = api.send(request.header("content-type", "application/json").body(Body::from(canvas)).unwrap()).await;
        assert_eq!(kept.status, 200, "{}", kept.body);
        let values = BTreeMap::from([
            ("project_id", project_id),
            ("proposal_id", proposal_id),
            ("run_id", run.body["run_id"].as_str().unwrap().to_owned()),
            ("chain_id", chain.body["chain_id"].as_str().unwrap().to_owned()),
            ("ingest_id", ingest_id),
            ("document_id", document_id),
            ("reembedding_id", reembedding_id),
            ("tuning_id", tuning_id),
            ("rebuild_id", rebuild_id),
            ("deletion_id", deletion_id),
            ("turn_id", turn_id),
            ("source", other.to_str().unwrap().to_owned()),
            ("code", other_code.to_str().unwrap().to_owned()),
        ]);
        Self { values }
    }

    /// What the owner has under that name at that place; `None` for what this test does not know.
    fn value(&self, path: &str, name: &str) -> Option<Value> {
        let of = |name: &str| Some(json!(self.values[name]));
        match (path, name) {
            (path, "id" | "with") if path.starts_with("/runs") => of("run_id"),
            (path, "id") if path.starts_with("/canvases") => Some(json!("board")),
            (_, "revision") => Some(json!(0)),
            (_, "document") => Some(canvas("Board")),
            (path, "id") if path.starts_with("/chains") => of("chain_id"),
            ("/runs", "chain") => of("chain_id"),
            (path, "id") if path.starts_with("/projects") => of("project_id"),
            (_, "proposal") => of("proposal_id"),
            (_, "confirm") => Some(json!(true)),
            (path, "path" | "file") if path.starts_with("/projects") => Some(json!("a.py")),
            (path, "id") if path.starts_with("/ingest") => of("ingest_id"),
            (path, "id") if path.starts_with("/documents") => of("document_id"),
            (path, "id") if path.starts_with("/deletions") => of("deletion_id"),
            (path, "id") if path.starts_with("/reembeddings") => of("reembedding_id"),
            (path, "id") if path.starts_with("/rebuilds") => of("rebuild_id"),
            (path, "id") if path.starts_with("/tunings") => of("tuning_id"),
            (path, "off") if path.ends_with("/tune") => Some(json!(true)),
            (path, "id") if path.starts_with("/memory") => of("turn_id"),
            (path, "name") if path.starts_with("/collections") => Some(json!("papers")),
            (path, "name") if path.starts_with("/tools") => Some(json!("knowledge_search")),
            ("/chains", "runs") => {
                let run = json!({ "task": "what is blue?", "collections": ["papers"] });
                Some(json!([{ "name": "one", "run": run }]))
            }
            (_, "collection") => Some(json!("papers")),
            (_, "collections") => Some(json!(["papers"])),
            (_, "session") => Some(json!("talk")),
            ("/projects/import", "source") => of("code"),
            (_, "source") => of("source"),
            (_, "query" | "text" | "task") => Some(json!("what is blue?")),
            (_, "role") => Some(json!("user")),
            (_, "step") => Some(json!(1)),
            // The run of a session begins with a call and its result.
            (_, "at_seq") => Some(json!(2)),
            (_, "decision") => Some(json!("approve")),
            (_, "sql") => Some(json!("SELECT 1")),
            (_, "arguments") => Some(json!({ "query": "what is blue?" })),
            (_, "stream") => Some(json!(false)),
            (_, "agent") => Some(json!("react")),
            (_, "model") => Some(json!("agent/react")),
            (_, "messages") => Some(json!([{ "role": "user", "content": "what is blue?" }])),
            _ => None,
        }
    }
}

fn canvas(name: &str) -> Value {
    json!({ "format": "riverrun.canvas", "version": 1, "name": name, "namespace": "default", "nodes": [], "edges": [] })
}

/// One operation of the document.
struct Operation {
    name: String,
    method: String,
    path: String,
    parameters: Vec<(String, String, bool)>,
    body: Option<(Vec<String>, Vec<String>)>,
}

fn operations(document: &Value) -> Vec<Operation> {
    let mut found = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let parameter = |one: &Value| {
                let text = |field: &str| one[field].as_str().unwrap().to_owned();
                (text("in"), text("name"), one["required"] == json!(true))
            };
            found.push(Operation {
                name: format!("{method} {path}"),
                method: method.to_uppercase(),
                path: path.clone(),
                parameters: parameters.iter().map(parameter).collect(),
                body: body(document, operation),
            });
        }
    }
    found
}

/// Names of the body's fields, and of those that must be there.
fn body(document: &Value, operation: &Value) -> Option<(Vec<String>, Vec<String>)> {
    let mut schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if schema.is_null() {
        return None;
    }
    while let Some(reference) = schema["$ref"].as_str() {
        schema = document.pointer(reference.trim_start_matches('#')).unwrap();
    }
    let names = schema["properties"].as_object().map(|fields| fields.keys().cloned().collect()).unwrap_or_default();
    let required = schema["required"].as_array().cloned().unwrap_or_default();
    Some((names, required.iter().map(|name| name.as_str().unwrap().to_owned()).collect()))
}

/// How what stands in a path is written.
#[derive(Debug, Clone, Copy)]
enum Spelling {
    Plain,
    /// The same with its first character encoded, as every route reads it.
    Encoded,
}

impl Spelling {
    fn of(self, text: &str) -> String {
        match (self, text.bytes().next()) {
            (Spelling::Encoded, Some(first)) if first.is_ascii() => format!("%{first:02X}{}", &text[1..]),
            (Spelling::Encoded | Spelling::Plain, _) => text.to_owned(),
        }
    }
}

/// The question for the owner's things under a namespace.
fn question(
    operation: &Operation,
    owned: &Owned,
    namespace: &str,
    spelling: Spelling,
) -> Result<Request<Body>, String> {
    let value = |name: &str| match name {
        "namespace" => Some(json!(namespace)),
        _ => owned.value(&operation.path, name),
    };
    let plain = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (mut path, mut query, mut scoped) = (operation.path.clone(), Vec::new(), false);
    for (place, name, required) in &operation.parameters {
        let Some(value) = value(name) else {
            if *required {
                return Err(format!("no value is known for the parameter {name:?}"));
            }
            continue;
        };
        scoped |= name == "namespace";
        match place.as_str() {
            "path" => path = path.replace(&format!("{{{name}}}"), &spelling.of(&plain(&value))),
            "query" => query.push(format!("{name}={}", plain(&value).replace(' ', "%20").replace('?', "%3F"))),
            _ => {}
        }
    }
    let mut fields = Map::new();
    if let Some((names, required)) = &operation.body {
        // Collections and sessions are asked for wherever they can be; what else is not needed is left out.
        let wanted = |name: &String| {
            required.contains(name)
                || (operation.path.starts_with("/v1") && matches!(name.as_str(), "model" | "messages"))
                || (operation.path.starts_with("/projects") && name == "confirm")
                || (operation.path.ends_with("/tune") && name == "off")
                || matches!(name.as_str(), "namespace" | "collections" | "session" | "stream" | "agent" | "arguments")
        };
        for name in names.iter().filter(|name| wanted(name)) {
            let Some(value) = value(name) else { return Err(format!("no value is known for the field {name:?}")) };
            scoped |= name == "namespace";
            fields.insert(name.clone(), value);
        }
    }
    if !scoped {
        return Err("it takes no namespace".to_owned());
    }
    if !query.is_empty() {
        path = format!("{path}?{}", query.join("&"));
    }
    let request = Request::builder().method(operation.method.as_str()).uri(path).header("host", "localhost");
    Ok(match operation.body {
        Some(_) => request
            .header("content-type", "application/json")
            .body(Body::from(Value::Object(fields).to_string()))
            .unwrap(),
        None => request.body(Body::empty()).unwrap(),
    })
}

fn is_exempt(operation: &Operation) -> bool {
    NOT_OF_A_NAMESPACE.iter().any(|(name, _)| *name == operation.name)
        || REGISTRY.iter().any(|prefix| operation.path.starts_with(prefix))
}

fn show(reply: &Reply) -> String {
    format!("{} {:.400}", reply.status, reply.body.to_string())
}

/// What a stranger may get: that there is nothing, or an answer with nothing of the owner in it.
fn reveals(reply: &Reply, may_conflict: bool) -> Option<&'static str> {
    let text = reply.body.to_string();
    match reply.status {
        _ if text.contains(WORD) => Some("the owner's word is in it"),
        200 | 202 | 404 => None,
        // With something of its own that has the same name.
        409 if may_conflict => None,
        _ => Some("it is neither an answer nor a 404"),
    }
}

#[test]
fn given_what_an_owner_has_when_a_stranger_asks_every_operation_for_it_then_nothing_shows() {
    test(async |api| {
        let owned = Owned::new(api).await;
        let document = api.get("/openapi.json").await.body;
        let mut faults = Vec::new();
        // What removes comes last: the owner's things are asked for by all the others.
        let mut all = operations(&document);
        // And a collection after its documents.
        all.sort_by_key(|operation| (operation.method == "DELETE", operation.path.starts_with("/collections")));
        for operation in all.iter().filter(|operation| !is_exempt(operation)) {
            let ask = |namespace: &str, spelling| question(operation, &owned, namespace, spelling);
            let spellings = [Spelling::Plain, Spelling::Encoded];
            let spellings = if operation.path.contains('{') { &spellings[..] } else { &spellings[..1] };
            let owner = match ask(OWNER, Spelling::Plain) {
                Ok(owner) => owner,
                Err(reason) => {
                    faults.push(format!("{} can't be tried: {reason}; teach this test", operation.name));
                    continue;
                }
            };
            for spelling in spellings {
                let reply = api.send(ask(STRANGER, *spelling).unwrap()).await;
                if let Some(fault) = reveals(&reply, NAMES_ITS_OWN.contains(&operation.name.as_str())) {
                    faults.push(format!("{} to a stranger, {spelling:?}: {fault}: {}", operation.name, show(&reply)));
                }
            }
            let may_conflict = MAY_CONFLICT.contains(&operation.name.as_str());
            let reply = api.send(owner).await;
            if !(reply.status < 300 || reply.status == 409 && may_conflict) {
                faults.push(format!("{} to the owner: the question was none: {}", operation.name, show(&reply)));
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    });
}

#[test]
fn given_names_that_could_be_taken_for_one_another_when_they_hold_something_then_each_shows_its_own() {
    test(async |api| {
        // Pairs that would join to the same text, and names that begin alike.
        let pairs = [
            ("ns-a", "s"),
            ("ns-a", "s1"),
            ("ns-a", "S"),
            ("ns-a-b", "s"),
            ("ns-a", "b__s"),
            ("ns-a", "b/s"),
            ("ns", "a/s"),
        ];
        for (index, (namespace, session)) in pairs.iter().enumerate() {
            let text = format!("own words {index}");
            let turn = json!({ "role": "user", "text": text, "namespace": namespace, "session": session });
            assert_eq!(api.post("/memory/turns", turn).await.status, 200);
        }
        for (index, (namespace, session)) in pairs.iter().enumerate() {
            let session = session.replace('/', "%2F");
            let turns = wait_for("the turn", async || {
                let reply = api.get(&format!("/memory/turns?namespace={namespace}&session={session}")).await;
                let items = reply.body["items"].as_array().unwrap().clone();
                (!items.is_empty()).then_some(items)
            })
            .await;
            assert_eq!(turns.len(), 1, "{namespace} {session}: {turns:?}");
            assert_eq!(turns[0]["text"], format!("own words {index}"));
        }
        for namespace in ["a__b", "A", "../x", "%25", "a_b", ""] {
            let reply = api.get(&format!("/memory/turns?namespace={namespace}")).await;
            assert_eq!(reply.status, 422, "namespace {namespace:?} was taken: {}", reply.body);
        }
    });
}
