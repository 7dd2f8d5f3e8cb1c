//! What a run may do without asking. Pure: the same request, tool and context give the same verdict.
//!
//! - `POLICY-1` text that was retrieved, fetched or returned by a tool, errors included, never enables a tool with an effect outside: with
//!   such text in the context, a person decides, whatever the request or the file allow.
//!   Nor does it make the model name an address that the built-in client then fetches, or put down a note for later runs,
//!   unless a rule of the file allows that.
//! - `POLICY-2` the stricter of request and file counts; a `deny` counts always.

use std::path::Path;

use riverrun_schemas::agent::{ApprovalPolicy, RunRequest, ToolEffect};
use serde::Deserialize;

use crate::state::Reading;
use crate::toml_file::{self, FileError};
use crate::tools::{Permission, ToolManifest, ToolSource};

/// Most rules of a file.
const MAX_RULES: usize = 1_000;

/// What is to be done with a tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Make it.
    Allow,
    /// Wait for a person.
    Ask {
        /// Why, for that person.
        reason: String,
    },
    /// Do not make it; the model is told.
    Deny {
        /// Why.
        reason: String,
    },
}

/// Rules about tools. The default has none: the request's approval mode decides.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy {
    rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    decision: Decision,
    #[serde(default = "any")]
    tool: String,
    #[serde(default = "any")]
    namespace: String,
    #[serde(default = "any")]
    agent: String,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Decision {
    Allow,
    Ask,
    Deny,
}

fn any() -> String {
    "*".to_owned()
}

/// A policy file can't be used. Nothing runs without the policy that it should have.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// It can't be read.
    #[error("the policy file {path} can't be read: {reason}")]
    Unreadable {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// It is not what a policy file is.
    #[error("policy file, {0}")]
    Broken(#[from] FileError),
}

impl Policy {
    /// Reads a policy file: `[[rule]]` with `decision` (`allow`, `ask`, `deny`) and, each a pattern with `*` and `?` and
    /// `*` when left out, `tool`, `namespace` and `agent`; a `reason` is shown with the decision.
    ///
    /// # Errors
    /// With the line, for an unknown key or value.
    pub fn parse(text: &str) -> Result<Self, FileError> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct File {
            #[serde(default)]
            rule: Vec<Rule>,
        }
        let file: File = toml_file::parse(text)?;
        if file.rule.len() > MAX_RULES {
            let reason = format!("{} rules, at most {MAX_RULES} are read", file.rule.len());
            return Err(FileError { line: 1, reason });
        }
        Ok(Self { rules: file.rule })
    }

    /// The same from a path.
    ///
    /// # Errors
    /// When it can't be read or is none.
    pub fn load(path: &Path) -> Result<Self, PolicyError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| PolicyError::Unreadable { path: path.display().to_string(), reason: error.to_string() })?;
        Ok(Self::parse(&text)?)
    }

    /// What is to be done with a call of `tool` in a run that has read so much ([`RunState::reading`](crate::RunState::reading)).
    ///
    /// Of the file's rules that match, any `deny` counts; else the first one.
    pub fn judge(&self, request: &RunRequest, tool: &ToolManifest, reading: Reading) -> Verdict {
        self.judge_as(request.agent.as_deref(), request, tool, reading)
    }

    /// The same for the agent that wants the call, which the supervisor may have chosen: rules hold for it whoever named it.
    pub fn judge_as(
        &self,
        agent: Option<&str>,
        request: &RunRequest,
        tool: &ToolManifest,
        reading: Reading,
    ) -> Verdict {
        if !tool.is_in(&request.namespace) {
            return Verdict::Deny { reason: format!("{} is not a tool of namespace {}", tool.name, request.namespace) };
        }
        if let Some(reason) = self.denial(agent, request, &tool.name) {
            return Verdict::Deny { reason };
        }
        let first = self.matching(agent, request, &tool.name).next();
        if let Some(rule) = first.filter(|rule| rule.decision == Decision::Ask) {
            return Verdict::Ask { reason: rule.says(&tool.name, "needs approval by the policy") };
        }
        let allowed_by_file = first.is_some();
        match request.approval {
            ApprovalPolicy::Always | ApprovalPolicy::Unknown => {
                Verdict::Ask { reason: "the request wants approval of every tool call".to_owned() }
            }
            _ if reading != Reading::Request && changes_outside(tool) => Verdict::Ask {
                reason: format!(
                    "{} changes something outside, and the context holds text from documents, the web or tools",
                    tool.name
                ),
            },
            _ if reading == Reading::Outside && is_remembered(tool) && !allowed_by_file => Verdict::Ask {
                reason: format!(
                    "what {} keeps is recalled by later runs, and the context holds text from documents, the web or tools",
                    tool.name
                ),
            },
            _ if reading != Reading::Request && reaches_any_host(tool) && !allowed_by_file => Verdict::Ask {
                reason: format!(
                    "{} can carry words to any address, and the context holds text from documents, the web or tools",
                    tool.name
                ),
            },
            ApprovalPolicy::External if is_external(tool) && !allowed_by_file => {
                Verdict::Ask { reason: format!("{} changes something outside", tool.name) }
            }
            ApprovalPolicy::External | ApprovalPolicy::Never => Verdict::Allow,
        }
    }

    /// Why the file denies calls of the tool of that name, if it does.
    pub fn denial(&self, agent: Option<&str>, request: &RunRequest, tool: &str) -> Option<String> {
        let denies = self.matching(agent, request, tool).find(|rule| rule.decision == Decision::Deny);
        denies.map(|rule| rule.says(tool, "is denied by the policy"))
    }

    fn matching<'p>(
        &'p self,
        agent: Option<&'p str>,
        request: &'p RunRequest,
        tool: &'p str,
    ) -> impl Iterator<Item = &'p Rule> {
        self.rules.iter().filter(move |rule| rule.matches(agent, request, tool))
    }
}

impl Rule {
    fn matches(&self, agent: Option<&str>, request: &RunRequest, tool: &str) -> bool {
        glob(&self.tool, tool)
            && glob(&self.namespace, request.namespace.as_str())
            && glob(&self.agent, agent.unwrap_or_default())
    }

    fn says(&self, tool: &str, otherwise: &str) -> String {
        self.reason.clone().unwrap_or_else(|| format!("{tool} {otherwise}"))
    }
}

/// Whether a call counts for approval mode `external`.
fn is_external(tool: &ToolManifest) -> bool {
    match tool.effect {
        ToolEffect::None | ToolEffect::Idempotent => false,
        ToolEffect::External | ToolEffect::Unknown => true,
    }
}

/// Whether a call changes anything outside riverrun, be it only once.
fn changes_outside(tool: &ToolManifest) -> bool {
    is_external(tool) || (tool.effect == ToolEffect::Idempotent && tool.source != ToolSource::Builtin)
}

/// Whether a call leaves words that later runs take for what the user wanted to be remembered.
fn is_remembered(tool: &ToolManifest) -> bool {
    tool.effect != ToolEffect::None && tool.permissions.contains(&Permission::Memory)
}

/// Whether the call itself names the address: whoever makes the model name one reads what stands in it.
fn reaches_any_host(tool: &ToolManifest) -> bool {
    tool.source == ToolSource::Builtin && tool.permissions.contains(&Permission::Network)
}

/// Whether a text fits a pattern in which `*` stands for any text and `?` for one character. Linear in both.
fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match star {
                Some((at, from)) => {
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
