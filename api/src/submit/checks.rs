//! Checks of bodies and queries.

use std::fmt::Display;
use std::ops::RangeInclusive;

use riverrun_schemas::{Collection, CollectionName, Namespace, not_there};
use riverrun_stores::read_models::PageRequest;
use riverrun_stores::read_models::page::MAX_PAGE;
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
    pub fn take<T, E: Display>(&mut self, field: &str, result: Result<T, E>) -> Option<T> {
        result.map_err(|error| self.refuse(field, error.to_string())).ok()
    }

    /// A number that is given must lie within its bounds. One beyond them is refused and not cut to them: who asked for more than
    /// there can be would take the part for the whole.
    pub(crate) fn between<T: PartialOrd + Display>(
        &mut self,
        field: &str,
        given: Option<T>,
        bounds: RangeInclusive<T>,
    ) {
        if let Some(given) = given.filter(|given| !bounds.contains(given)) {
            self.refuse(field, format!("is {given}, which is not between {} and {}", bounds.start(), bounds.end()));
        }
    }

    /// A number that is given must be more than 0; what is most goes by what it counts.
    pub(crate) fn above_zero<T: PartialOrd + Default + Display>(&mut self, field: &str, given: Option<T>) {
        if let Some(given) = given.filter(|given| *given <= T::default()) {
            self.refuse(field, format!("is {given}, which is not above 0"));
        }
    }

    /// A sampling temperature.
    pub(crate) fn temperature<T: PartialOrd + Display + From<u8>>(&mut self, given: Option<T>) {
        self.between("temperature", given, T::from(0)..=T::from(2));
    }

    /// The page of a list that is asked for.
    pub(crate) fn page(&mut self, limit: Option<u32>, cursor: Option<String>) -> PageRequest {
        self.between("limit", limit, 1..=MAX_PAGE);
        PageRequest { limit, cursor }
    }

    /// The place of a step that a list or a stream goes on behind; 0 is the start.
    pub(crate) fn behind(&mut self, field: &str, seq: i64) -> i64 {
        self.require(seq >= 0, field, format!("is {seq}, which is below 0"));
        seq
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

    /// At least one text and at most `most`, each of at most `limit` bytes.
    pub(crate) fn texts(&mut self, field: &str, texts: &[String], most: usize, limit: usize) {
        self.require(!texts.is_empty(), field, "must not be empty");
        self.require(texts.len() <= most, field, format!("has {}; at most {most} are read", texts.len()));
        for (index, text) in texts.iter().enumerate().take(most) {
            self.text(&format!("{field}[{index}]"), text, limit);
        }
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

/// The page that a request asks for.
pub(crate) fn page(limit: Option<u32>, cursor: Option<String>) -> Result<PageRequest, ApiError> {
    let mut checks = Checks::default();
    let page = checks.page(limit, cursor);
    checks.finish()?;
    Ok(page)
}

/// The step that a request follows from.
pub(crate) fn after(seq: i64) -> Result<i64, ApiError> {
    let mut checks = Checks::default();
    let after = checks.behind("after", seq);
    checks.finish()?;
    Ok(after)
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
        checks.refuse(field, not_there(name, known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(check: impl FnOnce(&mut Checks)) -> Vec<(String, String)> {
        let mut checks = Checks::default();
        check(&mut checks);
        checks.0.into_iter().map(|fault| (fault.field, fault.reason)).collect()
    }

    #[test]
    fn given_numbers_within_their_bounds_and_beyond_when_they_are_checked_then_the_others_are_refused_with_the_bounds()
    {
        for fits in [None, Some(1), Some(500)] {
            assert!(told(|checks| checks.between("limit", fits, 1..=500)).is_empty(), "{fits:?}");
        }
        for wrong in [0, 501, u32::MAX] {
            let reason = format!("is {wrong}, which is not between 1 and 500");
            assert_eq!(told(|checks| drop(checks.page(Some(wrong), None))), [("limit".to_owned(), reason)]);
        }
        for fits in [0.0, 0.2, 2.0] {
            assert!(told(|checks| checks.temperature(Some(fits))).is_empty(), "{fits}");
        }
        for wrong in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
            let reason = format!("is {wrong}, which is not between 0 and 2");
            assert_eq!(told(|checks| checks.temperature(Some(wrong))), [("temperature".to_owned(), reason)]);
        }
    }

    #[test]
    fn given_counts_of_nothing_when_they_are_checked_then_they_are_refused_and_others_are_not() {
        for fits in [None, Some(1), Some(u32::MAX)] {
            assert!(told(|checks| checks.above_zero("max_tokens", fits)).is_empty(), "{fits:?}");
        }
        for wrong in [0, -1] {
            let reason = format!("is {wrong}, which is not above 0");
            assert_eq!(
                told(|checks| checks.above_zero("max_tokens", Some(wrong))),
                [("max_tokens".to_owned(), reason)]
            );
        }
        let behind = |seq: i64| {
            told(|checks| {
                checks.behind("after", seq);
            })
        };
        assert!(behind(0).is_empty());
        assert_eq!(behind(-1), [("after".to_owned(), "is -1, which is below 0".to_owned())]);
    }
}
