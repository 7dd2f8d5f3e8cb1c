//! Against a registry that keeps the rules of Confluent's, in memory, behind real HTTP.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use riverrun_schemas::agent::{AgentCommand, CancelRun};
use riverrun_schemas::{RunId, Topic};
use serde_json::{Value, json};
use wiremock::matchers::any;
use wiremock::{Mock, MockServer, Request, Respond, ResponseTemplate};

use super::*;

/// An id that no build of riverrun has.
const STRANGE: u32 = 999_999;
const SHOP: &str = r#"{"type":"record","name":"Order","namespace":"shop","fields":[]}"#;

#[derive(Default)]
struct State {
    versions: BTreeMap<(String, u64), (u64, String)>,
    modes: HashMap<String, String>,
    /// `None`: a registry without modes.
    global: Option<String>,
    /// It takes ids, and does not keep to them.
    ignores_ids: bool,
    incompatible: bool,
    /// Who may ask.
    wanted: Option<String>,
    /// So many answers are 503 from now on.
    away: usize,
    delay: Duration,
    asked: usize,
    writes: usize,
}

#[derive(Clone, Default)]
struct There(Arc<Mutex<State>>);

impl There {
    /// An empty one.
    fn new() -> Self {
        let there = Self::default();
        there.0.lock().global = Some("READWRITE".to_owned());
        there
    }

    async fn serve(&self) -> (MockServer, RegistryConfig) {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(self.clone()).mount(&server).await;
        let config = RegistryConfig { url: server.uri(), credentials: Credentials::None, ca_pem: None };
        (server, config)
    }
}

fn error(code: u64, message: &str) -> ResponseTemplate {
    let status = if code > 1_000 { code / 100 } else { code };
    ResponseTemplate::new(u16::try_from(status).unwrap())
        .set_body_json(json!({ "error_code": code, "message": message }))
}

fn ok(body: Value) -> ResponseTemplate {
    ResponseTemplate::new(200).set_body_json(body)
}

impl Respond for There {
    fn respond(&self, request: &Request) -> ResponseTemplate {
        let mut state = self.0.lock();
        state.asked += 1;
        if state.away > 0 {
            state.away -= 1;
            return ResponseTemplate::new(503);
        }
        let given = request.headers.get("authorization").map(|value| value.to_str().unwrap().to_owned());
        if state.wanted.is_some() && given != state.wanted {
            return error(401, "Unauthorized");
        }
        let delay = state.delay;
        state.answer(request).set_delay(delay)
    }
}

impl State {
    fn answer(&mut self, request: &Request) -> ResponseTemplate {
        let path: Vec<&str> = request.url.path().trim_matches('/').split('/').collect();
        let body: Value = serde_json::from_slice(&request.body).unwrap_or_default();
        match (request.method.as_str(), path.as_slice()) {
            ("GET", ["v1", "metadata", "version"]) => ok(json!({ "version": "7.9.1" })),
            ("GET", ["schemas", "ids", id]) => self.by_id(id.parse().unwrap()),
            ("GET", ["subjects", subject, "versions", version]) => self.version(subject, version.parse().unwrap()),
            ("POST", ["compatibility", "subjects", subject, "versions", "latest"]) => self.compare(subject),
            ("POST", ["subjects", subject, "versions"]) => self.register(subject, &body),
            ("GET", ["mode"]) => match &self.global {
                Some(mode) => ok(json!({ "mode": mode })),
                None => ResponseTemplate::new(404),
            },
            (method, ["mode", subject]) if self.global.is_some() => self.mode(method, subject, &body),
            _ => ResponseTemplate::new(404).set_body_string("no such page"),
        }
    }

    fn by_id(&self, id: u64) -> ResponseTemplate {
        match self.versions.values().find(|(its, _)| *its == id) {
            Some((_, schema)) => ok(json!({ "schema": schema })),
            None => error(40403, "Schema not found"),
        }
    }

    fn version(&self, subject: &str, version: u64) -> ResponseTemplate {
        match self.versions.get(&(subject.to_owned(), version)) {
            Some((id, schema)) => ok(json!({ "subject": subject, "version": version, "id": id, "schema": schema })),
            None => error(40402, "Version not found"),
        }
    }

    fn compare(&self, subject: &str) -> ResponseTemplate {
        match self.versions.keys().any(|(its, _)| its == subject) {
            true => ok(json!({ "is_compatible": !self.incompatible, "messages": ["a reader lacks a default"] })),
            false => error(40402, "Version not found"),
        }
    }

    fn mode(&mut self, method: &str, subject: &str, body: &Value) -> ResponseTemplate {
        let none = || error(40409, "no subject-level mode");
        match method {
            "GET" => self.modes.get(subject).map_or_else(none, |mode| ok(json!({ "mode": mode }))),
            "DELETE" => self.modes.remove(subject).map_or_else(none, |mode| ok(json!(mode))),
            _ => {
                self.writes += 1;
                self.modes.insert(subject.to_owned(), body["mode"].as_str().unwrap().to_owned());
                ok(body.clone())
            }
        }
    }

    fn register(&mut self, subject: &str, body: &Value) -> ResponseTemplate {
        self.writes += 1;
        let mode = self.modes.get(subject).or(self.global.as_ref());
        if mode.is_none_or(|mode| mode != "IMPORT") {
            return error(42205, "Subject is not in import mode");
        }
        let (mut id, text) = (body["id"].as_u64().unwrap(), body["schema"].as_str().unwrap().to_owned());
        if self.ignores_ids {
            id += 100_000;
        }
        if self.versions.values().any(|(its, schema)| *its == id && *schema != text) {
            return error(42205, "Overwrite new schema with id is not permitted");
        }
        self.versions.insert((subject.to_owned(), body["version"].as_u64().unwrap()), (id, text));
        ok(json!({ "id": id }))
    }

    /// Puts everything of this build into it, as if it had been imported.
    fn fill(&mut self) {
        for schema in registry::all() {
            // As another server writes it: laid out anew.
            let text = serde_json::from_str::<Value>(schema.text).unwrap().to_string();
            self.versions.insert((schema.subject(), u64::from(schema.version)), (u64::from(schema.id), text));
        }
    }
}

#[tokio::test]
async fn given_an_empty_registry_when_it_is_joined_twice_then_it_has_every_schema_under_its_id_and_nothing_is_done_again()
 {
    let there = There::new();
    let (_server, config) = there.serve().await;
    let schemas = SchemaRegistry::join(&config).await.unwrap();
    let writes = {
        let state = there.0.lock();
        for schema in registry::all() {
            let (id, text) = &state.versions[&(schema.subject(), u64::from(schema.version))];
            assert_eq!((*id, text.as_str()), (u64::from(schema.id), schema.text), "{}", schema.subject());
        }
        assert!(state.modes.is_empty(), "subjects are left in {:?}", state.modes);
        state.writes
    };
    SchemaRegistry::join(&config).await.unwrap();
    assert_eq!(there.0.lock().writes, writes);
    let status = schemas.registry().unwrap().status().await;
    assert_eq!(status, RegistryStatus { version: Some("7.9.1".to_owned()), trouble: None });
    there.0.lock().versions.clear();
    let trouble = schemas.registry().unwrap().status().await.trouble.unwrap();
    assert!(matches!(trouble, RegistryError::Missing { .. }), "{trouble}");
}

#[tokio::test]
async fn given_a_registry_that_has_older_schemas_when_it_is_joined_then_only_the_newer_ones_are_added() {
    let there = There::new();
    let newer = registry::all().iter().find(|schema| schema.version > 1).unwrap();
    let place = (newer.subject(), u64::from(newer.version));
    {
        let mut state = there.0.lock();
        state.fill();
        state.versions.remove(&place);
        state.modes.insert(newer.subject(), "READWRITE".to_owned());
    }
    let (_server, config) = there.serve().await;
    SchemaRegistry::join(&config).await.unwrap();
    let state = there.0.lock();
    assert_eq!(state.versions[&place].0, u64::from(newer.id));
    assert_eq!(state.modes[&newer.subject()], "READWRITE");
    assert_eq!(state.writes, 3, "to IMPORT, the schema, and back");
}

#[tokio::test]
async fn given_a_registry_that_takes_no_writes_when_it_has_every_schema_then_it_is_joined() {
    let there = There::new();
    there.0.lock().fill();
    for global in [Some("READONLY".to_owned()), None] {
        there.0.lock().global = global;
        let (_server, config) = there.serve().await;
        SchemaRegistry::join(&config).await.unwrap();
    }
    assert_eq!(there.0.lock().writes, 0);
}

#[tokio::test]
async fn given_a_registry_that_can_not_take_the_schemas_when_it_is_joined_then_it_is_refused_with_what_to_do() {
    type Change = fn(&mut State);
    type Expected = fn(&RegistryError) -> bool;
    let cases: [(Change, Expected, bool); 7] = [
        (
            |state| {
                state.versions.insert(("shop-Order".into(), 1), (3, SHOP.to_owned()));
            },
            |error| matches!(error, RegistryError::IdTaken { id: 3, theirs, .. } if theirs == "shop.Order"),
            false,
        ),
        (
            |state| {
                let mine = &registry::all()[0];
                state.versions.insert((mine.subject(), 1), (100_001, mine.text.to_owned()));
            },
            |error| matches!(error, RegistryError::VersionTaken { theirs, .. } if theirs.contains("100001")),
            false,
        ),
        (
            |state| {
                let mine = &registry::all()[0];
                state.versions.insert((mine.subject(), 1), (u64::from(mine.id), SHOP.to_owned()));
            },
            |error| matches!(error, RegistryError::VersionTaken { theirs, .. } if theirs == "another shop.Order"),
            false,
        ),
        (
            |state| {
                state.fill();
                let newer = registry::all().iter().find(|schema| schema.version > 1).unwrap();
                state.versions.remove(&(newer.subject(), u64::from(newer.version)));
                state.incompatible = true;
            },
            |error| matches!(error, RegistryError::Incompatible { reasons, .. } if reasons.contains("default")),
            false,
        ),
        (
            |state| state.global = Some("READONLY".to_owned()),
            |error| matches!(error, RegistryError::ReadOnly { mode, .. } if mode == "READONLY"),
            false,
        ),
        (|state| state.global = None, |error| matches!(error, RegistryError::NoImport { .. }), false),
        (
            |state| state.ignores_ids = true,
            |error| matches!(error, RegistryError::IdIgnored { wanted, given, .. } if *given == u64::from(*wanted) + 100_000),
            true,
        ),
    ];
    for (change, expected, writes) in cases {
        let there = There::new();
        change(&mut there.0.lock());
        let (_server, config) = there.serve().await;
        let error = SchemaRegistry::join(&config).await.unwrap_err();
        assert!(expected(&error) && !error.hint().is_empty() && !error.retryable(), "{error:?}");
        let state = there.0.lock();
        assert_eq!(state.writes > 0, writes, "{error}");
        assert!(state.modes.values().all(|mode| mode != "IMPORT"), "{error}");
    }
}

#[tokio::test]
async fn given_a_registry_that_wants_credentials_when_it_is_joined_then_only_the_right_ones_do_and_none_is_told() {
    let there = There::new();
    there.0.lock().fill();
    let basic = Credentials::Basic { user: "ann".to_owned(), password: "s3cret".to_owned() };
    let (_server, config) = there.serve().await;
    for (wanted, right) in
        [("Basic YW5uOnMzY3JldA==", basic), ("Bearer s3cret", Credentials::Bearer("s3cret".to_owned()))]
    {
        there.0.lock().wanted = Some(wanted.to_owned());
        let config = RegistryConfig { credentials: right, ..config.clone() };
        let joined = SchemaRegistry::join(&config).await.unwrap();
        assert!(!format!("{config:?} {joined:?} {:?}", joined.registry()).contains("s3cret"));
        let other = Credentials::Bearer("an0ther".to_owned());
        for wrong in [Credentials::None, other] {
            let config = RegistryConfig { credentials: wrong, ..config.clone() };
            let error = SchemaRegistry::join(&config).await.unwrap_err();
            assert!(matches!(error, RegistryError::Unauthorized { status: 401, .. }), "{error:?}");
            assert!(!format!("{error:?} {}", error.hint()).contains("an0ther"));
        }
    }
}

#[tokio::test]
async fn given_a_registry_that_is_just_starting_when_it_is_joined_then_it_is_waited_for() {
    let there = There::new();
    {
        let mut state = there.0.lock();
        state.fill();
        state.away = 12;
    }
    let (_server, config) = there.serve().await;
    SchemaRegistry::join(&config).await.unwrap();
}

#[tokio::test]
async fn given_what_is_no_registry_when_it_is_joined_then_the_address_is_to_blame() {
    for answer in [
        ResponseTemplate::new(404).set_body_string("<html>no such page</html>"),
        ResponseTemplate::new(200).set_body_string("<html>welcome</html>"),
        ResponseTemplate::new(302).insert_header("location", "https://elsewhere.example/"),
    ] {
        let server = MockServer::start().await;
        Mock::given(any()).respond_with(answer).mount(&server).await;
        let config = RegistryConfig { url: server.uri(), credentials: Credentials::None, ca_pem: None };
        let error = SchemaRegistry::join(&config).await.unwrap_err();
        assert!(matches!(error, RegistryError::NotARegistry { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn given_a_registry_that_hangs_when_it_is_asked_then_it_counts_as_away() {
    let there = There::new();
    there.0.lock().delay = Duration::from_secs(60);
    let (_server, config) = there.serve().await;
    let registry = SchemaRegistry::open_with(&config, Duration::from_millis(50)).unwrap();
    let error = registry.schema(STRANGE).await.unwrap_err();
    assert!(matches!(error, RegistryError::Away { .. }), "{error:?}");
    assert!(error.retryable());
}

/// A command as a newer build would write it: under an id that this build does not have.
fn strange_record(id: u32) -> (Record, AgentCommand) {
    let command = AgentCommand::from(CancelRun { run_id: RunId::new(), reason: Some("enough".to_owned()), at: 7 });
    let framed = command.encode().unwrap();
    let (_, body) = framing::unframe(&framed).unwrap();
    let record = Record {
        topic: Topic::AgentCommands.name().into(),
        partition: 0,
        offset: 0,
        key: None,
        payload: Some(Bytes::from(framing::frame(id, body))),
        headers: Vec::new(),
        timestamp_ms: 0,
    };
    (record, command)
}

fn add_strange(there: &There) {
    let newest = registry::newest(Topic::AgentCommands, "riverrun.agent.CancelRun").unwrap();
    there.0.lock().versions.insert((newest.subject(), 99), (u64::from(STRANGE), newest.text.to_owned()));
}

#[tokio::test]
async fn given_a_record_of_a_newer_build_when_the_registry_knows_its_schema_then_it_is_read_after_one_question() {
    let there = There::new();
    add_strange(&there);
    let (_server, config) = there.serve().await;
    let schemas = Schemas::with_registry(SchemaRegistry::open(&config).unwrap());
    let (record, command) = strange_record(STRANGE);
    let unread = schemas.decode::<AgentCommand>(&record).unwrap_err();
    assert!(matches!(unread, DecodeError::UnknownSchema(STRANGE)), "{unread}");
    there.0.lock().away = 1;
    assert!(schemas.ask(&record).await.unwrap_err().retryable());
    tokio::join!(schemas.settle(&record), schemas.settle(&record));
    assert_eq!(schemas.decode::<AgentCommand>(&record).unwrap(), Decoded::Event(command));
    assert_eq!(there.0.lock().asked, 2, "once while it was away, once for both");
}

#[tokio::test]
async fn given_ids_of_the_committed_list_and_what_is_no_frame_when_the_registry_is_away_then_it_is_not_asked() {
    let there = There::new();
    there.0.lock().away = usize::MAX;
    let (_server, config) = there.serve().await;
    let schemas = Schemas::with_registry(SchemaRegistry::open(&config).unwrap());
    let newest = registry::newest(Topic::AgentCommands, "riverrun.agent.CancelRun").unwrap();
    let (known, command) = strange_record(newest.id);
    schemas.ask(&known).await.unwrap();
    assert_eq!(schemas.decode::<AgentCommand>(&known).unwrap(), Decoded::Event(command));
    for payload in
        [None, Some(Bytes::from_static(b"")), Some(Bytes::from_static(b"{}")), Some(Bytes::from_static(&[0, 1]))]
    {
        schemas.ask(&Record { payload, ..known.clone() }).await.unwrap();
    }
    assert_eq!(there.0.lock().asked, 0);
}

#[tokio::test]
async fn given_an_id_that_the_registry_does_not_know_when_it_is_asked_again_then_that_is_remembered_for_a_while() {
    let there = There::new();
    let (_server, config) = there.serve().await;
    let registry = SchemaRegistry::open(&config).unwrap();
    let (record, command) = strange_record(STRANGE);
    let patient = Schemas::with_registry(registry.clone());
    for _ in 0..3 {
        patient.ask(&record).await.unwrap();
    }
    assert_eq!(there.0.lock().asked, 1);
    let hasty = Schemas::remembering(registry, Duration::ZERO);
    hasty.ask(&record).await.unwrap();
    assert!(hasty.decode::<AgentCommand>(&record).is_err());
    add_strange(&there);
    hasty.ask(&record).await.unwrap();
    assert_eq!(hasty.decode::<AgentCommand>(&record).unwrap(), Decoded::Event(command));
}

#[test]
fn given_more_schemas_than_are_remembered_when_they_are_found_then_the_oldest_is_forgotten() {
    let schema = WriterSchema::parse(SHOP).unwrap();
    let mut known = Known::default();
    for id in 0..=REMEMBERED as u32 {
        known.remember(id, Some(schema.clone()));
        known.remember(id, Some(schema.clone()));
    }
    assert_eq!((known.found.len(), known.found_order.len()), (REMEMBERED, REMEMBERED));
    assert!(!known.found.contains_key(&0) && known.found.contains_key(&(REMEMBERED as u32)));
    for id in 0..=REMEMBERED as u32 {
        known.remember(id, None);
    }
    assert!(known.absent.len() <= REMEMBERED);
}
