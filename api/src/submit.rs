//! From requests to commands on the log. Checking is pure; writing returns after the broker's acknowledgement. The
//! command line uses the same functions when it writes to the broker of a running server.

use std::path::{Component, Path, PathBuf};

use riverrun_agents::catalog;
use riverrun_knowledge::chunking::{ChunkConfig, ChunkError, ChunkUnit, strategy_names};
use riverrun_knowledge::sources::{Globs, MAX_DEPTH, source_names};
use riverrun_log::{LogError, Producer, partition_of};
use riverrun_schemas::agent::{AgentCommand, CancelRun, RunRequest, StartRun};
use riverrun_schemas::ingest::{IngestCommand, StartIngest};
use riverrun_schemas::{Collection, CollectionName, IngestId, Namespace, RunId, SessionName, Topic, now_ms};
use riverrun_stores::read_models::CollectionView;
use riverrun_stores::warehouse::check_table;
use serde_json::{Map, Value};

use crate::access::caller;
use crate::error::ApiError;
use crate::wire::{FieldError, IngestBody, RunBody};

/// Longest task, in bytes.
pub(crate) const MAX_TASK: usize = 64 << 10;
/// Longest metadata object as JSON, in bytes.
const MAX_METADATA: usize = 16 << 10;
/// Longest model or source type, in characters.
const MAX_LABEL: usize = 200;
/// Most names in a list.
const MAX_NAMES: usize = 100;
/// Most iterations that a run may ask for.
const MAX_ITERS: i32 = 100;
/// Longest reason of a cancellation, in characters.
const MAX_REASON: usize = 1_000;
/// How many ids are drawn before a session goes without a partition of its own.
const MAX_DRAWS: u32 = 1_000;
/// Longest path or address of a source, in bytes.
const MAX_SOURCE: usize = 4_096;
/// Longest query of a database, in bytes.
const MAX_QUERY: usize = 64 << 10;

/// Collects what is wrong with a body, so that a caller sees all of it at once.
#[derive(Default)]
pub struct Checks(Vec<FieldError>);

impl Checks {
    /// Notes a fault of a field.
    pub fn refuse(&mut self, field: &str, reason: impl Into<String>) {
        self.0.push(FieldError::new(field, reason));
    }

    /// Notes a fault unless `holds`.
    pub fn require(&mut self, holds: bool, field: &str, reason: impl Into<String>) {
        if !holds {
            self.refuse(field, reason);
        }
    }

    /// The value, or a fault of the field.
    pub fn take<T, E: std::fmt::Display>(&mut self, field: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    /// A namespace; when none is named, the first of the caller's token or the default one.
    pub fn namespace(&mut self, given: Option<&str>) -> Namespace {
        let namespace = match given {
            None => Some(caller::home()),
            Some(text) => self.take("namespace", text.parse::<Namespace>()),
        };
        let Some(namespace) = namespace else { return Namespace::default() };
        // A bound token reaches only its own; the answer is then 403 and not what is noted here.
        self.take("namespace", caller::admit(&namespace));
        namespace
    }

    /// Text that must say something and be no longer than `limit` bytes.
    pub fn text(&mut self, field: &str, text: &str, limit: usize) {
        self.require(!text.trim().is_empty(), field, "must not be empty");
        self.require(text.len() <= limit, field, format!("has {} bytes; at most {limit} are read", text.len()));
        self.require(!text.contains('\0'), field, "must not contain a NUL character");
    }

    pub(crate) fn label(&mut self, field: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(field, text, MAX_LABEL);
        }
    }

    /// Words of a person that others will read.
    pub(crate) fn reason(&mut self, field: &str, text: Option<&str>) {
        let fits = text.is_none_or(|text| text.chars().count() <= MAX_REASON);
        self.require(fits, field, format!("has more than {MAX_REASON} characters"));
    }

    /// An object of the caller's, as text.
    pub fn metadata(&mut self, given: Option<&Map<String, Value>>) -> Option<String> {
        let text = Value::Object(given?.clone()).to_string();
        self.require(
            text.len() <= MAX_METADATA,
            "metadata",
            format!("has {} bytes as JSON; at most {MAX_METADATA} are kept", text.len()),
        );
        Some(text)
    }

    /// Fails when something was noted.
    pub fn finish(self) -> Result<(), ApiError> {
        if self.0.is_empty() { Ok(()) } else { Err(ApiError::invalid(self.0)) }
    }

    /// The same, with a value that [`Checks::take`] gave.
    pub(crate) fn finish_with<T>(self, taken: Option<T>) -> Result<T, ApiError> {
        self.finish()?;
        taken.ok_or_else(|| ApiError::internal("a value passed its check and is not there"))
    }
}

/// The namespace that a request names, or the caller's own.
pub(crate) fn namespace(given: Option<&str>) -> Result<Namespace, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(given);
    checks.finish()?;
    Ok(namespace)
}

/// A collection that a request names.
pub(crate) fn collection(namespace: Option<&str>, name: &str) -> Result<Collection, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(namespace);
    let name = checks.take("collection", name.parse::<CollectionName>());
    Ok(Collection::new(namespace, checks.finish_with(name)?))
}

/// What there is to choose from.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// The tools.
    pub tools: Vec<KnownTool>,
    /// Names of the model providers.
    pub providers: Vec<String>,
}

/// A tool that a run may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownTool {
    /// Its name.
    pub name: String,
    /// The only namespace that has it; `None` is every one.
    pub namespace: Option<Namespace>,
    /// The name is only how the names of a server's tools begin, which are listed when the server runs.
    pub is_prefix: bool,
}

impl Known {
    /// The tools of a namespace.
    fn tools_of(&self, namespace: &Namespace) -> impl Iterator<Item = &KnownTool> + Clone {
        let namespace = namespace.clone();
        self.tools.iter().filter(move |tool| tool.namespace.as_ref().is_none_or(|own| *own == namespace))
    }

    /// 422 with the list of those that exist.
    pub fn provider(&self, checks: &mut Checks, given: Option<&str>) {
        one_of(checks, "provider", given, self.providers.iter().map(String::as_str));
    }
}

pub(crate) fn one_of<'k>(
    checks: &mut Checks,
    field: &str,
    given: Option<&str>,
    known: impl Iterator<Item = &'k str> + Clone,
) {
    if let Some(name) = given
        && !known.clone().any(|candidate| candidate == name)
    {
        let known = known.collect::<Vec<_>>().join(", ");
        checks.refuse(
            field,
            format!("{:?} is not there; choose one of: {known}", name.chars().take(80).collect::<String>()),
        );
    }
}

/// A run request that can be put on the log.
pub fn run_request(body: RunBody, known: &Known) -> Result<RunRequest, ApiError> {
    let mut checks = Checks::default();
    checks.text("task", &body.task, MAX_TASK);
    let agents = catalog();
    one_of(&mut checks, "agent", body.agent.as_deref(), agents.iter().map(|manifest| manifest.name));
    let unknown_agent = !checks.0.is_empty() && checks.0.iter().any(|error| error.field == "agent");
    let namespace = checks.namespace(body.namespace.as_deref());
    if let Some(session) = &body.session {
        checks.take("session", session.parse::<SessionName>());
    }
    checks.require(
        body.session.is_some() || body.session_policy.is_none(),
        "session_policy",
        "says what happens in a session, and the request names none",
    );
    checks.label("model", body.model.as_deref());
    known.provider(&mut checks, body.provider.as_deref());
    if let Some(temperature) = body.temperature {
        checks.require(
            (0.0..=2.0).contains(&temperature),
            "temperature",
            format!("is {temperature}, which is not between 0 and 2"),
        );
    }
    if let Some(iters) = body.max_iters {
        checks.require(
            (1..=MAX_ITERS).contains(&iters),
            "max_iters",
            format!("is {iters}, which is not between 1 and {MAX_ITERS}"),
        );
    }
    for (index, tool) in body.tools.iter().flatten().enumerate().take(MAX_NAMES + 1) {
        let of_a_server = known.tools_of(&namespace).any(|known| known.is_prefix && tool.starts_with(&known.name));
        if !of_a_server {
            let names = known.tools_of(&namespace).filter(|tool| !tool.is_prefix).map(|tool| tool.name.as_str());
            one_of(&mut checks, &format!("tools[{index}]"), Some(tool), names);
        }
    }
    let collections = collections(&mut checks, body.collections.as_deref());
    for (field, names) in [("tools", &body.tools), ("collections", &body.collections)] {
        let count = names.as_ref().map_or(0, Vec::len);
        checks.require(count <= MAX_NAMES, field, format!("names {count}; at most {MAX_NAMES} are read"));
    }
    let budget = body.budget.unwrap_or_default();
    for (field, value) in [("budget.tokens", budget.tokens), ("budget.seconds", budget.seconds)] {
        checks.require(value.is_none_or(|value| value > 0), field, "must be more than 0");
    }
    let metadata_json = checks.metadata(body.metadata.as_ref());
    checks.finish().map_err(|error| if unknown_agent { error.hint("riverrun agents") } else { error })?;
    Ok(RunRequest {
        task: body.task,
        agent: body.agent,
        namespace,
        session: body.session,
        provider: body.provider,
        model: body.model,
        temperature: body.temperature,
        max_iters: body.max_iters,
        tools: body.tools,
        collections,
        budget_tokens: budget.tokens,
        budget_seconds: budget.seconds,
        approval: body.approval.map(Into::into).unwrap_or_default(),
        metadata_json,
        session_policy: body.session_policy.map(Into::into).unwrap_or_default(),
    })
}

/// Draws the id of a run from `draw(0)`, `draw(1)`, …: the first, or in a session the first that Kafka's clients put into
/// the session's partition. So all runs of a session have one order, and whoever knows a run's id still finds its
/// partition from nothing else.
pub fn run_id_for(request: &RunRequest, draw: impl Fn(u32) -> RunId) -> RunId {
    match &request.session {
        None => draw(0),
        Some(session) => drawn_into(partition_for(&format!("{}\0{session}", request.namespace)), draw),
    }
}

/// One id for each partition that [`run_id_for`] might have chosen.
pub(crate) fn possible_run_ids(draw: impl Fn(u32) -> RunId) -> Vec<RunId> {
    (0..Topic::AgentCommands.spec().partitions).map(|partition| drawn_into(partition, &draw)).collect()
}

fn drawn_into(partition: i32, draw: impl Fn(u32) -> RunId) -> RunId {
    let fits = |run_id: &RunId| partition_for(&run_id.to_string()) == partition;
    // Each draw fits with a chance of one in the number of partitions.
    (0..MAX_DRAWS).map(&draw).find(fits).unwrap_or_else(|| draw(0))
}

fn partition_for(key: &str) -> i32 {
    partition_of(key.as_bytes(), Topic::AgentCommands.spec().partitions)
}

fn collections(checks: &mut Checks, given: Option<&[String]>) -> Option<Vec<String>> {
    for (index, name) in given?.iter().enumerate().take(MAX_NAMES + 1) {
        checks.take(&format!("collections[{index}]"), name.parse::<CollectionName>());
    }
    given.map(<[String]>::to_vec)
}

/// Whether a request asks for what an accepted one was; what the request leaves to defaults was filled in there.
pub fn same_request(asked: &RunRequest, accepted: &RunRequest) -> bool {
    fn fits<T: PartialEq>(asked: &Option<T>, accepted: &Option<T>) -> bool {
        asked.is_none() || asked == accepted
    }
    asked.task == accepted.task
        && asked.namespace == accepted.namespace
        && asked.approval == accepted.approval
        && asked.metadata_json == accepted.metadata_json
        && asked.session == accepted.session
        && asked.session_policy == accepted.session_policy
        && fits(&asked.agent, &accepted.agent)
        && fits(&asked.provider, &accepted.provider)
        && fits(&asked.model, &accepted.model)
        && fits(&asked.temperature, &accepted.temperature)
        && fits(&asked.max_iters, &accepted.max_iters)
        && fits(&asked.tools, &accepted.tools)
        && fits(&asked.collections, &accepted.collections)
        && fits(&asked.budget_tokens, &accepted.budget_tokens)
        && fits(&asked.budget_seconds, &accepted.budget_seconds)
}

/// Puts a run on the log.
pub async fn submit_run(
    producer: &Producer,
    run_id: RunId,
    request: RunRequest,
    component: &str,
) -> Result<StartRun, LogError> {
    let command = StartRun { run_id, request, at: now_ms() };
    producer.send(&AgentCommand::StartRun(command.clone()), component, None).await?;
    Ok(command)
}

/// Asks a run to stop.
pub async fn cancel_run(
    producer: &Producer,
    run_id: RunId,
    reason: Option<String>,
    component: &str,
) -> Result<(), ApiError> {
    let mut checks = Checks::default();
    checks.reason("reason", reason.as_deref());
    checks.finish()?;
    let command = CancelRun { run_id, reason, at: now_ms() };
    producer.send(&AgentCommand::CancelRun(command), component, None).await?;
    Ok(())
}

/// What an ingest takes from the settings.
#[derive(Debug, Clone)]
pub struct IngestDefaults {
    /// The embedding model of new collections.
    pub embed_model: String,
    /// The embedding model that runs in this process, from the hub: for `embed_backend: hf`.
    pub hub_embed_model: String,
    /// Most characters, or tokens, of a chunk.
    pub chunk_size: usize,
    /// Characters, or tokens, that neighbours share at most.
    pub chunk_overlap: usize,
    /// What both count.
    pub chunk_unit: ChunkUnit,
}

/// The parts of an ingest request that do not depend on where its content comes from.
#[derive(Debug, Clone)]
pub struct IngestTarget {
    /// Where the collection is.
    pub namespace: Namespace,
    /// The collection.
    pub collection: CollectionName,
    /// The forced type.
    pub source_type: Option<String>,
    /// What of the source is read.
    pub options: SourceOptions,
    /// The caller's object.
    pub metadata_json: Option<String>,
    /// Warehouse table of a tabular source.
    pub table: Option<String>,
    /// How texts are split.
    pub strategy: Option<String>,
    /// The embedding model.
    pub embed_model: String,
    /// Size and overlap of chunks, checked.
    pub chunking: ChunkConfig,
}

impl IngestTarget {
    /// Size, overlap and unit as commands carry them.
    pub fn chunk_sizes(&self) -> (i64, i64, Option<String>) {
        let unit = match self.chunking.unit() {
            // As records of older builds say it.
            ChunkUnit::Characters => None,
            unit @ ChunkUnit::Tokens => Some(unit.as_str().to_owned()),
        };
        (to_i64(self.chunking.size()), to_i64(self.chunking.overlap()), unit)
    }
}

/// What of a source is read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceOptions {
    /// SQL, or a filter as JSON.
    pub query: Option<String>,
    /// Globs of what to read.
    pub include: Vec<String>,
    /// Globs of what to leave out.
    pub exclude: Vec<String>,
    /// How many links away from the first page of a site is read.
    pub depth: Option<i32>,
    /// Whether the address is a sitemap.
    pub sitemap: bool,
}

/// Checks everything of a request but its source.
pub fn ingest_target(body: &IngestBody, defaults: &IngestDefaults) -> Result<IngestTarget, ApiError> {
    let mut checks = Checks::default();
    let namespace = checks.namespace(body.namespace.as_deref());
    let collection = checks.take("collection", body.collection.parse::<CollectionName>());
    let types = source_names();
    one_of(&mut checks, "type", body.source_type.as_deref(), types.iter().copied());
    if let Some(table) = &body.table {
        checks.take("table", check_table(table));
    }
    let options = source_options(&mut checks, body);
    one_of(&mut checks, "strategy", body.strategy.as_deref(), strategy_names().into_iter());
    one_of(&mut checks, "embed_backend", body.embed_backend.as_deref(), EMBED_BACKENDS.into_iter());
    let metadata_json = checks.metadata(body.metadata.as_ref());
    let chunking = checks.take("chunk_size", chunk_config(body, defaults));
    let (collection, chunking) = checks.finish_with(collection.zip(chunking))?;
    Ok(IngestTarget {
        namespace,
        collection,
        source_type: body.source_type.clone(),
        options,
        metadata_json,
        table: body.table.clone(),
        strategy: body.strategy.clone(),
        embed_model: match body.embed_backend.as_deref() {
            Some(HUB_BACKEND) => defaults.hub_embed_model.clone(),
            Some(_) | None => defaults.embed_model.clone(),
        },
        chunking,
    })
}

/// Embeddings come from a model of the hub that runs in this process, whatever the default is.
const HUB_BACKEND: &str = "hf";
const EMBED_BACKENDS: [&str; 2] = ["default", HUB_BACKEND];

/// What a request says of sizes, and the settings where it says nothing: those of its unit, when that is another one.
fn chunk_config(body: &IngestBody, defaults: &IngestDefaults) -> Result<ChunkConfig, ChunkError> {
    let unit = match &body.chunk_unit {
        Some(name) => ChunkUnit::named(Some(name))?,
        None => defaults.chunk_unit,
    };
    let (size, overlap) =
        if unit == defaults.chunk_unit { (defaults.chunk_size, defaults.chunk_overlap) } else { unit.defaults() };
    let size = body.chunk_size.unwrap_or(to_i64(size));
    // A size of one's own must not be refused for an overlap that nobody asked for.
    let fitting = if body.chunk_size.is_some() { to_i64(overlap).min((size / 8).max(0)) } else { to_i64(overlap) };
    ChunkConfig::in_unit(size, body.chunk_overlap.unwrap_or(fitting), unit)
}

fn source_options(checks: &mut Checks, body: &IngestBody) -> SourceOptions {
    if let Some(query) = &body.query {
        checks.text("query", query, MAX_QUERY);
    }
    for (field, globs) in [("include", &body.include), ("exclude", &body.exclude)] {
        checks.take(field, Globs::new(globs, &[]));
    }
    let depth = body.depth.unwrap_or(0);
    checks.require(depth <= MAX_DEPTH, "depth", format!("is {depth}, which is not between 0 and {MAX_DEPTH}"));
    SourceOptions {
        query: body.query.clone(),
        include: body.include.clone(),
        exclude: body.exclude.clone(),
        depth: body.depth.and_then(|depth| i32::try_from(depth).ok()),
        sitemap: body.sitemap,
    }
}

/// Refuses to add to a collection of another embedding model, before anything is written.
pub fn same_embed_model(known: Option<&CollectionView>, embed_model: &str) -> Result<(), ApiError> {
    let Some(collection) = known.filter(|known| known.embedding.model != embed_model) else {
        return Ok(());
    };
    let (name, stored) = (&collection.name, &collection.embedding.model);
    let what = format!(
        "collection {}/{name} holds vectors of {stored} ({} dimensions), and the embedding model is {embed_model}",
        collection.namespace, collection.embedding.dimensions
    );
    Err(ApiError::conflict("embedding_model_mismatch", what).hint(format!(
        "set RIVERRUN_DEFAULT_EMBED_MODEL={stored}, ingest into a collection of another name, or embed this one anew: riverrun collections reembed {name} --namespace {} --model {embed_model}",
        collection.namespace
    )))
}

/// An ingest that can be put on the log. `source` must be an absolute path that the caller may read.
pub fn ingest_command(source: &str, target: IngestTarget, ingest_id: IngestId) -> StartIngest {
    let (chunk_size, chunk_overlap, chunk_unit) = target.chunk_sizes();
    StartIngest {
        ingest_id,
        namespace: target.namespace,
        collection: target.collection,
        source: source.to_owned(),
        source_type: target.source_type,
        embed_model: target.embed_model,
        chunk_size,
        chunk_overlap,
        metadata_json: target.metadata_json,
        query: target.options.query,
        include: target.options.include,
        exclude: target.options.exclude,
        depth: target.options.depth,
        sitemap: target.options.sitemap,
        content: None,
        table: target.table,
        strategy: target.strategy,
        chunk_unit,
        at: now_ms(),
    }
}

/// A size that is far below the limit of the type.
pub(crate) fn to_i64(size: usize) -> i64 {
    i64::try_from(size).unwrap_or(i64::MAX)
}

/// Puts an ingest on the log.
pub async fn submit_ingest(producer: &Producer, command: StartIngest, component: &str) -> Result<(), LogError> {
    producer.send(&IngestCommand::StartIngest(command), component, None).await.map(drop)
}

/// The canonical path of a source that must lie under one of `roots`. Nothing is said about what lies elsewhere.
pub fn resolve_under(roots: &[PathBuf], source: &str) -> Result<String, ApiError> {
    let mut checks = Checks::default();
    checks.text("source", source, MAX_SOURCE);
    let given = Path::new(source);
    checks.require(given.is_absolute(), "source", "must be an absolute path on the server");
    checks.finish()?;
    let outside = || {
        ApiError::field("source", format!("{source} is not under a folder that this server may read"))
            .code_as("source_not_allowed")
            .hint("start the server with RIVERRUN_INGEST_ROOTS set to the folder, or upload the file by multipart")
    };
    let climbs = given.components().any(|part| part == Component::ParentDir);
    if climbs || !roots.iter().any(|root| given.starts_with(root)) {
        return Err(outside());
    }
    let path = existing(given)?;
    if !roots.iter().any(|root| path.starts_with(root)) {
        return Err(outside()); // a link that leads out
    }
    path.to_str().map(str::to_owned).ok_or_else(|| ApiError::field("source", "is not valid UTF-8 behind its links"))
}

/// The canonical path of something that is there.
pub fn existing(path: &Path) -> Result<PathBuf, ApiError> {
    std::fs::canonicalize(path).map_err(|error| {
        let shown = path.display();
        match error.kind() {
            std::io::ErrorKind::NotFound => ApiError::not_found("source_not_found", format!("{shown} does not exist"))
                .hint(format!("check the path: ls -l {}", parent(path))),
            _ => ApiError::field("source", format!("{shown} can't be read: {error}")).code_as("source_unreadable"),
        }
    })
}

fn parent(path: &Path) -> String {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new(".")).display().to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn known() -> Known {
        let tool = |name: &str, namespace: Option<&str>, is_prefix| KnownTool {
            name: name.into(),
            namespace: namespace.map(|name| name.parse().unwrap()),
            is_prefix,
        };
        let tools = vec![tool("clock", None, false), tool("orders", Some("team"), false), tool("time__", None, true)];
        Known { tools, providers: vec!["local".into()] }
    }

    fn request(body: Value) -> Result<RunRequest, ApiError> {
        run_request(serde_json::from_value(body).unwrap(), &known())
    }

    #[test]
    fn given_run_bodies_that_can_not_be_when_they_are_checked_then_every_fault_is_named() {
        let long = "x".repeat(MAX_TASK + 1);
        for (body, fields) in [
            (json!({"task": ""}), vec!["task"]),
            (json!({"task": " \n\t"}), vec!["task"]),
            (json!({"task": long}), vec!["task"]),
            (json!({"task": "a\u{0}b"}), vec!["task"]),
            (json!({"task": "x", "agent": "root"}), vec!["agent"]),
            (json!({"task": "x", "agent": ""}), vec!["agent"]),
            (json!({"task": "x", "namespace": "../x"}), vec!["namespace"]),
            (json!({"task": "x", "namespace": "a__b"}), vec!["namespace"]),
            (json!({"task": "x", "provider": "nobody"}), vec!["provider"]),
            (json!({"task": "x", "temperature": 9}), vec!["temperature"]),
            (json!({"task": "x", "max_iters": 0}), vec!["max_iters"]),
            (json!({"task": "x", "tools": ["clock", "rm"]}), vec!["tools[1]"]),
            (json!({"task": "x", "collections": ["a__b"]}), vec!["collections[0]"]),
            (json!({"task": "x", "budget": {"tokens": -1, "seconds": 0}}), vec!["budget.tokens", "budget.seconds"]),
            (json!({"task": "", "agent": "nobody", "namespace": "%"}), vec!["task", "agent", "namespace"]),
        ] {
            let problem = request(body.clone()).unwrap_err().problem();
            let named: Vec<_> = problem.errors.iter().map(|error| error.field.as_str()).collect();
            assert_eq!((problem.status, named), (422, fields), "{body:.200}");
        }
        let unknown = request(json!({"task": "x", "agent": "root"})).unwrap_err().problem();
        assert!(unknown.detail.contains("react") && unknown.hint.is_some(), "{unknown:?}");
    }

    #[test]
    fn given_tools_when_a_run_names_them_then_only_those_of_its_namespace_are_known() {
        let fits = |namespace: &str, tool: &str| {
            request(json!({"task": "x", "namespace": namespace, "tools": [tool]})).is_ok()
        };
        for (namespace, tool, expected) in [
            ("team", "clock", true),
            ("team", "orders", true),
            ("team-b", "orders", false),
            ("tea", "orders", false),
            ("team", "time__now", true),
            ("team", "time", false),
            ("team", "time__", true),
        ] {
            assert_eq!(fits(namespace, tool), expected, "{namespace} {tool}");
        }
        let told = request(json!({"task": "x", "tools": ["orders"]})).unwrap_err().problem();
        assert!(!told.errors[0].reason.contains("orders,"), "no tool of another namespace is listed: {told:?}");
    }

    #[test]
    fn given_a_whole_body_when_it_is_checked_then_all_of_it_is_in_the_request() {
        let request = request(json!({
            "task": "x", "agent": "react", "namespace": "team-1", "session": "s", "provider": "local", "model": "m", "temperature": 0,
            "max_iters": 3, "tools": ["clock"], "collections": ["docs"], "budget": {"tokens": 10, "seconds": 20}, "approval": "always", "metadata": {"a": 1}
        }))
        .unwrap();
        assert_eq!(request.namespace.as_str(), "team-1");
        assert_eq!((request.budget_tokens, request.budget_seconds), (Some(10), Some(20)));
        assert_eq!(request.metadata_json.as_deref(), Some("{\"a\":1}"));
        assert!(same_request(&request, &request));
        let filled = RunRequest { max_iters: Some(8), temperature: Some(0.2), ..request.clone() };
        let asked = RunRequest { max_iters: None, temperature: None, ..request.clone() };
        assert!(same_request(&asked, &filled));
        assert!(!same_request(&RunRequest { task: "y".into(), ..asked }, &filled));
    }

    #[test]
    fn given_a_session_when_ids_are_drawn_then_all_its_runs_have_one_partition_and_others_are_as_drawn() {
        let of_session = |session: Option<&str>| {
            request(match session {
                Some(session) => json!({"task": "x", "session": session}),
                None => json!({"task": "x"}),
            })
            .unwrap()
        };
        let derived = |key: usize| move |n: u32| RunId::derive(&[&key.to_string(), &n.to_string()]);
        for session in ["a", "b", "c"] {
            let request = of_session(Some(session));
            let partitions: Vec<i32> =
                (0..20).map(|key| partition_for(&run_id_for(&request, derived(key)).to_string())).collect();
            assert!(partitions.iter().all(|partition| *partition == partitions[0]), "{session}: {partitions:?}");
            assert!(possible_run_ids(derived(1)).contains(&run_id_for(&request, derived(1))));
        }
        assert_eq!(run_id_for(&of_session(None), derived(1)), derived(1)(0));
        assert_eq!(possible_run_ids(derived(1)).len(), 6);
        assert!(possible_run_ids(derived(1)).contains(&derived(1)(0)));
    }

    #[test]
    fn given_sources_when_they_are_resolved_then_only_what_lies_under_a_root_passes() {
        let folder = tempfile::tempdir().unwrap();
        let base = folder.path().canonicalize().unwrap();
        let (root, other) = (base.join("root"), base.join("root-other"));
        for path in [&root, &other] {
            std::fs::create_dir(path).unwrap();
            std::fs::write(path.join("a.txt"), "a").unwrap();
        }
        std::os::unix::fs::symlink(other.join("a.txt"), root.join("link.txt")).unwrap();
        let roots = vec![root.clone()];
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        assert_eq!(resolve_under(&roots, &text(root.join("a.txt"))).unwrap(), text(root.join("a.txt")));
        assert_eq!(resolve_under(&roots, &text(root.join("missing.txt"))).unwrap_err().code(), "source_not_found");
        for bad in [
            text(root.join("../root-other/a.txt")),
            text(other.join("a.txt")),
            text(root.join("link.txt")),
            "/etc/passwd".into(),
            text(root.join("../nowhere")),
        ] {
            assert_eq!(resolve_under(&roots, &bad).unwrap_err().code(), "source_not_allowed", "{bad}");
        }
        for bad in ["", "a.txt", "/a\0b", &format!("/{}", "x".repeat(5_000))] {
            assert_eq!(resolve_under(&roots, bad).unwrap_err().status().as_u16(), 422, "{bad:.20}");
        }
        assert_eq!(resolve_under(&[], &text(root.join("a.txt"))).unwrap_err().code(), "source_not_allowed");
    }
}
