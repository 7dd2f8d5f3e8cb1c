//! Making an outside registry know this build's schemas under the ids of the committed list.
//!
//! What is there already is compared and left alone. What is missing goes in by mode IMPORT of its subject, the only one in
//! which a registry takes ids and versions as they are said. Since IMPORT compares nothing, the registry's rule of
//! compatibility is asked before; and before anything is written, whether all ids are free.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use futures::future::join_all;
use reqwest::Method;
use riverrun_schemas::codec::WriterSchema;
use riverrun_schemas::registry::{self, RegisteredSchema};
use serde_json::json;

use super::client::Answer;
use super::{RegistryError, SchemaRegistry};

/// How long a registry that is just starting, or that another process just registers at, is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LAST_PAUSE: Duration = Duration::from_secs(2);
/// Questions at a time.
const AT_A_TIME: usize = 8;
/// "Operation not permitted": the subject is not in the mode for it.
const WRONG_MODE: u64 = 42205;

type Missing = Vec<&'static RegisteredSchema>;

/// Registers what is missing, and tries again what may pass.
pub(super) async fn patiently(there: &SchemaRegistry) -> Result<(), RegistryError> {
    let until = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match once(there).await {
            Err(error) if error.retryable() && Instant::now() + pause < until => {
                tracing::info!(error = %error, "the schema registry is not ready; trying again");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LAST_PAUSE);
            }
            ended => return ended,
        }
    }
}

async fn once(there: &SchemaRegistry) -> Result<(), RegistryError> {
    let missing = missing(there).await?;
    for some in missing.chunks(AT_A_TIME) {
        for free in join_all(some.iter().map(|schema| has_id(there, schema))).await {
            free?;
        }
    }
    let count = missing.len();
    for (subject, schemas) in by_subject(missing) {
        enrol(there, &subject, &schemas).await?;
    }
    if count > 0 {
        tracing::info!(registry = there.address(), count, "schemas registered");
    }
    Ok(())
}

async fn missing(there: &SchemaRegistry) -> Result<Missing, RegistryError> {
    let mut missing = Vec::new();
    for some in registry::all().chunks(AT_A_TIME) {
        let asked = join_all(some.iter().map(|schema| has_version(there, schema))).await;
        for (schema, has) in some.iter().zip(asked) {
            if !has? {
                missing.push(schema);
            }
        }
    }
    Ok(missing)
}

/// Oldest version first.
fn by_subject(missing: Missing) -> BTreeMap<String, Missing> {
    let mut subjects: BTreeMap<String, Missing> = BTreeMap::new();
    for schema in missing {
        subjects.entry(schema.subject()).or_default().push(schema);
    }
    subjects.values_mut().for_each(|schemas| schemas.sort_by_key(|schema| schema.version));
    subjects
}

/// Whether the version of the subject is there; something else in its place is an error.
async fn has_version(there: &SchemaRegistry, schema: &RegisteredSchema) -> Result<bool, RegistryError> {
    let (subject, version) = (schema.subject(), schema.version);
    let answer = there.get(&format!("/subjects/{subject}/versions/{version}")).await?;
    if answer.is_absent() {
        return Ok(false);
    }
    expect_ok(there, &answer, || format!("tell version {version} of subject {subject}"))?;
    let id = answer.body["id"].as_u64();
    let text = answer.body["schema"].as_str().unwrap_or_default();
    if id == Some(u64::from(schema.id)) && schema.is_same(text) {
        return Ok(true);
    }
    let theirs = match id {
        Some(id) if id != u64::from(schema.id) => format!("schema id {id}, {},", described(text)),
        _ => format!("another {}", described(text)),
    };
    Err(RegistryError::VersionTaken { subject, version, id: schema.id, theirs })
}

/// Whether the schema is there under its id; another one is an error.
async fn has_id(there: &SchemaRegistry, schema: &RegisteredSchema) -> Result<bool, RegistryError> {
    let id = schema.id;
    let answer = there.get(&format!("/schemas/ids/{id}")).await?;
    if answer.is_absent() {
        return Ok(false);
    }
    expect_ok(there, &answer, || format!("tell schema id {id}"))?;
    let text = answer.body["schema"].as_str().unwrap_or_default();
    if schema.is_same(text) {
        return Ok(true);
    }
    Err(RegistryError::IdTaken { id, ours: schema.record.clone(), theirs: described(text) })
}

/// Whether a schema that was registered is still there, and the registry answers.
pub(super) async fn check_id(there: &SchemaRegistry, schema: &RegisteredSchema) -> Result<(), RegistryError> {
    match has_id(there, schema).await? {
        true => Ok(()),
        false => Err(RegistryError::Missing { id: schema.id, record: schema.record.clone() }),
    }
}

fn expect_ok(there: &SchemaRegistry, answer: &Answer, doing: impl FnOnce() -> String) -> Result<(), RegistryError> {
    match answer.status {
        200..=299 => Ok(()),
        300..=399 | 404 => {
            Err(RegistryError::NotARegistry { address: there.address().to_owned(), reason: answer.reason() })
        }
        _ => Err(answer.refused(doing())),
    }
}

/// What a schema of somebody else is, for people.
fn described(text: &str) -> String {
    match WriterSchema::parse(text) {
        Ok(schema) if !schema.record().is_empty() => schema.record(),
        _ => "a schema that is no Avro record".to_owned(),
    }
}

/// What has to be done about a subject's mode around registering with ids.
#[derive(Debug, PartialEq, Eq)]
enum Switch {
    /// The whole registry is being filled: its mode is somebody else's.
    Leave,
    /// To IMPORT, and back.
    ToImport { had_own: bool },
}

fn switch(subject: &str, own: Option<&str>, effective: Option<&str>) -> Result<Switch, RegistryError> {
    match (own, effective) {
        (None, Some("IMPORT")) => Ok(Switch::Leave),
        // An own IMPORT was left by a process that was killed, or another is just registering: it ends either way.
        (_, Some("READWRITE" | "IMPORT")) => Ok(Switch::ToImport { had_own: own == Some("READWRITE") }),
        (_, Some(mode)) => Err(RegistryError::ReadOnly { subject: subject.to_owned(), mode: mode.to_owned() }),
        (_, None) => Err(no_import(subject, "it has no modes".to_owned())),
    }
}

fn no_import(subject: &str, reason: String) -> RegistryError {
    RegistryError::NoImport { subject: subject.to_owned(), reason }
}

async fn enrol(
    there: &SchemaRegistry,
    subject: &str,
    schemas: &[&'static RegisteredSchema],
) -> Result<(), RegistryError> {
    for schema in schemas {
        check_compatible(there, subject, schema).await?;
    }
    let own = mode(there, &format!("/mode/{subject}")).await?;
    let effective = effective_mode(there, subject, own.as_ref()).await?;
    match switch(subject, own.as_deref(), effective.as_deref())? {
        Switch::Leave => register(there, subject, schemas).await,
        Switch::ToImport { had_own } => {
            if own.as_deref() != Some("IMPORT") {
                begin_import(there, subject).await?;
            }
            let registered = register(there, subject, schemas).await;
            let ended = end_import(there, subject, had_own).await;
            registered.and(ended)
        }
    }
}

/// By the registry's own rule, against the newest version that it has.
async fn check_compatible(
    there: &SchemaRegistry,
    subject: &str,
    schema: &RegisteredSchema,
) -> Result<(), RegistryError> {
    let path = format!("/compatibility/subjects/{subject}/versions/latest?verbose=true");
    let answer = there.request(Method::POST, &path, Some(&json!({ "schema": schema.text }))).await?;
    match answer.body["is_compatible"].as_bool() {
        Some(true) => Ok(()),
        Some(false) => {
            let said = answer.body["messages"].as_array().map(Vec::as_slice).unwrap_or_default();
            let reasons: Vec<&str> = said.iter().filter_map(|reason| reason.as_str()).take(3).collect();
            Err(incompatible(subject, schema, reasons.join("; ")))
        }
        // No version yet, or a registry that can't be asked.
        None if matches!(answer.status, 404 | 405) => Ok(()),
        None => Err(answer.refused(format!("compare version {} of subject {subject}", schema.version))),
    }
}

fn incompatible(subject: &str, schema: &RegisteredSchema, reasons: String) -> RegistryError {
    let reasons = if reasons.is_empty() { "it says no more".to_owned() } else { reasons };
    RegistryError::Incompatible { subject: subject.to_owned(), version: schema.version, reasons }
}

/// The mode under a path; `None` where none is set or there are no modes.
async fn mode(there: &SchemaRegistry, path: &str) -> Result<Option<String>, RegistryError> {
    let answer = there.get(path).await?;
    match answer.body["mode"].as_str() {
        Some(mode) if answer.is_ok() => Ok(Some(mode.to_owned())),
        _ if matches!(answer.status, 404 | 405) => Ok(None),
        _ => Err(answer.refused("tell its mode")),
    }
}

/// The subject's own, else that of its context or of the registry, which not every registry tells by the subject.
async fn effective_mode(
    there: &SchemaRegistry,
    subject: &str,
    own: Option<&String>,
) -> Result<Option<String>, RegistryError> {
    if own.is_some() {
        return Ok(own.cloned());
    }
    match mode(there, &format!("/mode/{subject}?defaultToGlobal=true")).await? {
        Some(mode) => Ok(Some(mode)),
        None => mode(there, "/mode").await,
    }
}

async fn begin_import(there: &SchemaRegistry, subject: &str) -> Result<(), RegistryError> {
    // By force: without it only a subject without versions can be imported into.
    let path = format!("/mode/{subject}?force=true");
    let answer = there.request(Method::PUT, &path, Some(&json!({ "mode": "IMPORT" }))).await?;
    if answer.is_ok() { Ok(()) } else { Err(no_import(subject, answer.reason())) }
}

/// Back to the mode that the subject had.
async fn end_import(there: &SchemaRegistry, subject: &str, had_own: bool) -> Result<(), RegistryError> {
    let path = format!("/mode/{subject}");
    if !had_own {
        let answer = there.request(Method::DELETE, &path, None).await?;
        if answer.is_ok() || answer.is_absent() {
            return Ok(());
        }
        tracing::debug!(subject, reason = answer.reason(), "the registry does not take a subject's mode away");
    }
    let answer = there.request(Method::PUT, &path, Some(&json!({ "mode": "READWRITE" }))).await?;
    if answer.is_ok() { Ok(()) } else { Err(answer.refused(format!("set subject {subject} back to READWRITE"))) }
}

async fn register(
    there: &SchemaRegistry,
    subject: &str,
    schemas: &[&'static RegisteredSchema],
) -> Result<(), RegistryError> {
    for schema in schemas {
        let body = json!({ "schema": schema.text, "id": schema.id, "version": schema.version });
        let answer = there.request(Method::POST, &format!("/subjects/{subject}/versions"), Some(&body)).await?;
        match (answer.status, answer.code()) {
            (200..=299, _) => check_given(subject, schema, answer.body["id"].as_u64())?,
            (409, _) => return Err(incompatible(subject, schema, answer.reason())),
            (_, WRONG_MODE) => {
                return Err(RegistryError::Busy { subject: subject.to_owned(), reason: answer.reason() });
            }
            _ => return Err(answer.refused(format!("register version {} of subject {subject}", schema.version))),
        }
    }
    Ok(())
}

fn check_given(subject: &str, schema: &RegisteredSchema, given: Option<u64>) -> Result<(), RegistryError> {
    match given {
        Some(given) if given == u64::from(schema.id) => Ok(()),
        given => {
            Err(RegistryError::IdIgnored { subject: subject.to_owned(), wanted: schema.id, given: given.unwrap_or(0) })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_modes_when_a_subject_is_to_be_imported_then_only_writable_ones_are_switched() {
        for (own, effective, expected) in [
            (None, Some("READWRITE"), Switch::ToImport { had_own: false }),
            (Some("READWRITE"), Some("READWRITE"), Switch::ToImport { had_own: true }),
            (Some("IMPORT"), Some("IMPORT"), Switch::ToImport { had_own: false }),
            (None, Some("IMPORT"), Switch::Leave),
        ] {
            assert_eq!(switch("s", own, effective).unwrap(), expected, "{own:?} {effective:?}");
        }
        for (own, effective) in [(None, Some("READONLY")), (Some("READONLY_OVERRIDE"), Some("READONLY_OVERRIDE"))] {
            let refused = switch("s", own, effective).unwrap_err();
            assert!(matches!(refused, RegistryError::ReadOnly { .. }), "{refused:?}");
        }
        assert!(matches!(switch("s", None, None).unwrap_err(), RegistryError::NoImport { .. }));
    }
}
