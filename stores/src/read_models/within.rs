//! Where a question looks: in one namespace, or, said in so many words, in all.

use riverrun_schemas::Namespace;

/// The namespaces that an answer may come from. There is no value that means all of them by being left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within<'n> {
    /// Only this one.
    Namespace(&'n Namespace),
    /// Every one: for operators, for upkeep, and behind a check that what an id stands for may be shown.
    EveryNamespace,
}

impl<'n> Within<'n> {
    /// For a condition that holds for everything when it is NULL.
    pub(crate) fn as_sql(&self) -> Option<&'n str> {
        match self {
            Within::Namespace(namespace) => Some(namespace.as_str()),
            Within::EveryNamespace => None,
        }
    }
}
