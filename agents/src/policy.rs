//! Which tool calls may be made, which wait for a person, and which are refused.

use riverrun_schemas::agent::{ApprovalPolicy, RunRequest, ToolEffect};

use crate::tools::ToolManifest;

/// What is to become of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is made.
    Allow,
    /// A person is asked.
    Ask {
        /// Why.
        reason: String,
    },
    /// It is not made; the model is told.
    Deny {
        /// Why.
        reason: String,
    },
}

/// The rules.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Policy;

impl Policy {
    /// Judges a call before its intent is written down. `untrusted_context` says that the model has read words from
    /// outside: those can never bring about an effect outside without a person, whatever the request says.
    pub fn judge(&self, request: &RunRequest, tool: &ToolManifest, untrusted_context: bool) -> Verdict {
        let external = match tool.effect {
            ToolEffect::None | ToolEffect::Idempotent => false,
            ToolEffect::External | ToolEffect::Unknown => true,
        };
        let ask = |reason: String| Verdict::Ask { reason };
        match request.approval {
            ApprovalPolicy::Always => ask("the request wants every call approved".to_owned()),
            ApprovalPolicy::Unknown => ask("the request's approval policy is not known to this version".to_owned()),
            ApprovalPolicy::External if external => ask(format!("{} changes something outside", tool.name)),
            ApprovalPolicy::Never if external && untrusted_context => {
                ask(format!("{} changes something outside, and the run has read text from outside", tool.name))
            }
            ApprovalPolicy::External | ApprovalPolicy::Never => Verdict::Allow,
        }
    }
}
