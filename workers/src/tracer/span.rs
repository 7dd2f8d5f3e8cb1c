//! A span before it is written in anybody's format.

use riverrun_schemas::{SpanId, TraceId, Traceparent};

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Float(f64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Value::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Value::Int(number)
    }
}

impl From<f64> for Value {
    fn from(number: f64) -> Self {
        Value::Float(number)
    }
}

/// Names and values, in the order they were added.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Attributes(pub(crate) Vec<(String, Value)>);

impl Attributes {
    /// Adds one.
    pub(crate) fn set(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.0.push((name.into(), value.into()));
        self
    }

    /// Adds one where there is a value.
    pub(crate) fn set_some(&mut self, name: &str, value: Option<impl Into<Value>>) -> &mut Self {
        if let Some(value) = value {
            self.set(name, value);
        }
        self
    }

    /// The value of that name.
    #[cfg(test)]
    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }
}

/// Something that happened within a span.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Mark {
    pub(crate) name: &'static str,
    /// Milliseconds since the epoch.
    pub(crate) at: i64,
    pub(crate) attributes: Attributes,
}

/// How what a span stands for ended.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// Nobody judged it.
    Unset,
    /// Well.
    Ok,
    /// With an error: its kind, and its words where they may leave.
    Error(String),
}

/// Whether a span stands for a call of something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Work of our own.
    Internal,
    /// A call of another service, such as a model.
    Client,
}

/// A span.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(crate) trace: TraceId,
    pub(crate) id: SpanId,
    /// `None` for the root.
    pub(crate) parent: Option<SpanId>,
    pub(crate) name: String,
    pub(crate) side: Side,
    /// Milliseconds since the epoch.
    pub(crate) start: i64,
    /// Milliseconds since the epoch; never before `start`.
    pub(crate) end: i64,
    pub(crate) attributes: Attributes,
    pub(crate) marks: Vec<Mark>,
    /// Places in other traces.
    pub(crate) links: Vec<Traceparent>,
    pub(crate) outcome: Outcome,
}
