//! What a token may do, and in which namespaces.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use riverrun_schemas::Namespace;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// One kind of doing. `admin` includes the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Looking: lists, results, streams, searches.
    Read,
    /// Making models and agents work: runs, chats, answers, conversations, tools, analyses of projects.
    Run,
    /// Putting documents and projects in, and removing them.
    Ingest,
    /// Training models.
    Train,
    /// What concerns everyone: dead letters and whatever no other scope has.
    Admin,
}

impl Scope {
    /// Each of them.
    pub const ALL: [Scope; 5] = [Scope::Read, Scope::Run, Scope::Ingest, Scope::Train, Scope::Admin];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Scope::Read => "read",
            Scope::Run => "run",
            Scope::Ingest => "ingest",
            Scope::Train => "train",
            Scope::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A text is no scope.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no scope; there are read, run, ingest, train and admin")]
pub struct ScopeError(String);

impl FromStr for Scope {
    type Err = ScopeError;

    fn from_str(text: &str) -> Result<Self, ScopeError> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| ScopeError(text.chars().take(40).collect()))
    }
}

/// What the bearer of a token may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The token's name, which is no secret.
    pub name: String,
    /// What it may do.
    pub scopes: BTreeSet<Scope>,
    /// Where; empty is everywhere. The first is that of requests which name none.
    pub namespaces: Vec<Namespace>,
    /// Requests a minute; `None` is what the settings say.
    pub per_minute: Option<u32>,
    /// From this time on it is none, in milliseconds since the epoch.
    pub expires_at_ms: Option<i64>,
}

impl Grant {
    /// Everything, everywhere, for ever.
    pub fn everything(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            scopes: Scope::ALL.into(),
            namespaces: Vec::new(),
            per_minute: None,
            expires_at_ms: None,
        }
    }

    /// Whether it may do that.
    pub fn allows(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope) || self.scopes.contains(&Scope::Admin)
    }

    /// Whether it is bound to namespaces.
    pub fn is_bound(&self) -> bool {
        !self.namespaces.is_empty()
    }

    /// Whether it may do anything in that namespace.
    pub fn reaches(&self, namespace: &Namespace) -> bool {
        !self.is_bound() || self.namespaces.contains(namespace)
    }

    /// The namespace of requests which name none.
    pub fn home(&self) -> Namespace {
        self.namespaces.first().cloned().unwrap_or_default()
    }

    /// Whether it still is one.
    pub fn is_valid_at(&self, now_ms: i64) -> bool {
        self.expires_at_ms.is_none_or(|end| now_ms < end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_scopes_when_they_are_written_and_read_then_they_are_the_same() {
        for scope in Scope::ALL {
            assert_eq!(scope.to_string().parse::<Scope>().unwrap(), scope);
            assert_eq!(serde_json::to_value(scope).unwrap(), scope.as_str());
        }
        for bad in ["", "Read", "write", "read ", "*"] {
            assert!(bad.parse::<Scope>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn given_grants_when_they_are_asked_then_admin_has_all_and_a_bound_one_only_its_namespaces() {
        let team: Namespace = "team".parse().unwrap();
        let teams: Namespace = "team-2".parse().unwrap();
        let reader = Grant {
            scopes: [Scope::Read].into(),
            namespaces: vec![team.clone()],
            expires_at_ms: Some(10),
            ..Grant::everything("reader")
        };
        assert!(reader.allows(Scope::Read));
        assert!([Scope::Run, Scope::Ingest, Scope::Train, Scope::Admin].iter().all(|scope| !reader.allows(*scope)));
        assert!(reader.reaches(&team) && !reader.reaches(&teams) && !reader.reaches(&Namespace::default()));
        assert_eq!(reader.home(), team);
        assert!(reader.is_valid_at(9) && !reader.is_valid_at(10));
        let admin = Grant { scopes: [Scope::Admin].into(), ..Grant::everything("admin") };
        assert!(Scope::ALL.iter().all(|scope| admin.allows(*scope)));
        assert!(admin.reaches(&teams) && admin.home() == Namespace::default());
    }
}
