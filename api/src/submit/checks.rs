//! Checks of bodies.

use riverrun_schemas::{Collection, CollectionName, Namespace};
use serde_json::{Map, Value};

use crate::access::caller;
use crate::error::ApiError;
use crate::wire::FieldError;

/// Longest metadata object as JSON, in bytes.
const MAX_METADATA: usize = 16 << 10;
/// Longest model or source type, in characters.
const MAX_LABEL: usize = 200;
/// Longest reason of a cancellation, in characters.
const MAX_REASON: usize = 1_000;

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

    /// Whether a fault of the field was noted.
    pub(super) fn has(&self, field: &str) -> bool {
        self.0.iter().any(|error| error.field == field)
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
