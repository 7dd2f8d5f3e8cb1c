//! `riverrun tokens`: makes, lists and revokes tokens of the API in the file that servers on this data folder look at. A
//! running server knows of a change within a second.

use clap::{Args, Subcommand};
use riverrun_api::access::scope::{Grant, Scope};
use riverrun_api::access::token_file::{TokenEntry, TokenFile, TokenFileError};
use riverrun_api::wire::Items;
use riverrun_schemas::{Namespace, now_ms};
use serde::Serialize;

use crate::error::{CliError, Exit};
use crate::output::{Output, print_json, print_line, table, tell};
use crate::settings::Settings;

const NO_TOKENS: &str = "there are no tokens; make one: riverrun tokens create <name> --scope <scope>";

/// The file is there and empty, and the setting names none. Where it does, its tokens are not of this file.
const NOBODY_LEFT: &str =
    "no token is left, and requests are refused without one; make one: riverrun tokens create <name> --scope <scope>";

const DAY_MS: i64 = 24 * 3_600 * 1_000;

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokensCommand {
    /// Make a token and print it, this once; only its hash is kept
    Create(CreateArgs),
    /// List tokens, with what they may do
    Ls,
    /// Refuse a token from now on
    Revoke {
        /// Its name
        name: String,
    },
}

/// Options of `tokens create`.
#[derive(Debug, Args)]
pub struct CreateArgs {
    /// A name for lists and records: a-z, 0-9, '-', '_', '.'
    pub name: String,
    /// What it may do: read, run, ingest, train or admin; may be repeated
    #[arg(long = "scope", value_name = "SCOPE", required = true)]
    pub scopes: Vec<Scope>,
    /// The namespace that it is bound to; may be repeated. Every one when left out
    #[arg(short, long = "namespace", value_name = "NAMESPACE")]
    pub namespaces: Vec<Namespace>,
    /// Most requests a minute, instead of RIVERRUN_RATE_PER_TOKEN
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..), value_name = "N")]
    pub per_minute: Option<u32>,
    /// It holds for so many days; for ever when left out
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=36_500), value_name = "N")]
    pub days: Option<u32>,
}

#[derive(Serialize)]
struct Created<'e> {
    #[serde(flatten)]
    entry: &'e TokenEntry,
    token: &'e str,
}

/// Works on the file itself: neither log nor stores are needed for it.
pub fn run(command: TokensCommand, settings: &Settings, output: Output) -> Result<(), CliError> {
    let path = settings
        .api
        .tokens_file
        .as_deref()
        .ok_or_else(|| CliError::new(Exit::Usage, "there is no file of tokens").hint("set RIVERRUN_TOKENS_FILE"))?;
    let mut file = TokenFile::read(path).map_err(failed)?;
    match command {
        TokensCommand::Create(args) => {
            let first = !settings.wants_tokens();
            let (entry, token) = file.create(grant(args)).map_err(failed)?;
            if first {
                tell(
                    "from now on every request needs a token; commands on this machine take it from RIVERRUN_API_TOKEN",
                );
            }
            tell(&format!("token {} is made; this is the only time that it is shown", entry.name));
            if output.json { print_json(&Created { entry: &entry, token: &token }) } else { print_line(&token) }
        }
        TokensCommand::Ls => {
            let items = Items { items: file.entries().cloned().collect::<Vec<_>>() };
            output.show(&items, |items| {
                table(
                    ["token", "scopes", "namespaces", "per minute", "created", "expires"],
                    items.items.iter().map(row).collect(),
                    if settings.wants_tokens() && settings.api.tokens.is_empty() { NOBODY_LEFT } else { NO_TOKENS },
                )
            })
        }
        TokensCommand::Revoke { name } => {
            let entry = file.revoke(&name).map_err(failed)?;
            tell(&format!("token {name} is refused from now on"));
            if settings.api.tokens.is_empty() && file.entries().next().is_none() {
                tell(NOBODY_LEFT);
            }
            if output.json { print_json(&entry) } else { Ok(()) }
        }
    }
}

fn grant(args: CreateArgs) -> Grant {
    Grant {
        scopes: args.scopes.into_iter().collect(),
        namespaces: args.namespaces,
        per_minute: args.per_minute,
        expires_at_ms: args.days.map(|days| now_ms() + i64::from(days) * DAY_MS),
        ..Grant::everything(args.name)
    }
}

fn row(entry: &TokenEntry) -> [String; 6] {
    let namespaces: Vec<&str> = entry.namespaces.iter().map(Namespace::as_str).collect();
    let scopes: Vec<&str> = entry.scopes.iter().map(|scope| scope.as_str()).collect();
    [
        entry.name.clone(),
        scopes.join(", "),
        if namespaces.is_empty() { "all".to_owned() } else { namespaces.join(", ") },
        entry.per_minute.map_or_else(|| "-".to_owned(), |limit| limit.to_string()),
        entry.created_at.to_string(),
        entry.expires_at.map_or_else(|| "never".to_owned(), |at| at.to_string()),
    ]
}

fn failed(error: TokenFileError) -> CliError {
    let (exit, hint) = match &error {
        TokenFileError::Io { .. } => (Exit::Failed, "check the folder, or set RIVERRUN_TOKENS_FILE"),
        TokenFileError::Unreadable { .. } => (Exit::Failed, "mend it, or move it away and make its tokens anew"),
        TokenFileError::BadName(_) => (Exit::Usage, "riverrun tokens create ci-reader --scope read"),
        TokenFileError::Taken(_) => (Exit::Refused, "choose another name, or riverrun tokens revoke it first"),
        TokenFileError::Unknown(_) => (Exit::Refused, "riverrun tokens ls shows which there are"),
        TokenFileError::Full => (Exit::Refused, "riverrun tokens revoke NAME makes room"),
    };
    CliError::new(exit, error.to_string()).hint(hint)
}
