use riverrun_schemas::Namespace;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::access::scope::Scope;

/// A login.
#[derive(Clone, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LoginBody {
    /// A token of `RIVERRUN_API_TOKENS` or of `riverrun tokens create`.
    pub token: String,
}

/// Whether tokens are asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum AuthMode {
    /// Everyone who reaches the port may do everything.
    Off,
    /// A token is wanted.
    Required,
}

/// Who the caller is for the API, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Whether tokens are asked for.
    pub auth: AuthMode,
    /// Name of the caller's token; null without one.
    pub name: Option<String>,
    /// What the caller may do; empty when a token is wanted and none that holds was given.
    pub scopes: Vec<Scope>,
    /// The namespace of requests which name none; null when the caller may do nothing.
    #[schema(value_type = Option<String>)]
    pub namespace: Option<Namespace>,
    /// The namespaces that the caller is bound to; empty is every one.
    #[schema(value_type = Vec<String>)]
    pub namespaces: Vec<Namespace>,
}
