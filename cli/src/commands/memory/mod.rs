//! `riverrun memory`.

mod add;
mod chat;
mod context;
mod forget;
mod turns;
mod why;

use clap::{Args, Subcommand};

use crate::args::finite;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;
use crate::paging::PageArgs;

/// What to do with conversations.
#[derive(Debug, Subcommand)]
pub enum MemoryCommand {
    /// Record something said
    Add {
        /// Who said it: user, assistant, system or tool
        role: String,
        /// The words
        text: String,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Say something to a chat model that remembers the conversation
    Chat(ChatArgs),
    /// Show what of a conversation a model is shown
    Context {
        /// Also recall what resembles this
        #[arg(long)]
        query: Option<String>,
        /// Most memories to recall
        #[arg(short, value_name = "N")]
        k: Option<usize>,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// List what was said, oldest first
    Turns {
        #[command(flatten)]
        page: PageArgs,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Show where a memory comes from
    Why {
        /// A turn, summary, episode or note
        id: String,
        #[command(flatten)]
        session: SessionArgs,
    },
    /// Forget a memory with everything that was made from it
    Forget {
        /// A turn, summary, episode or note
        #[arg(required_unless_present = "all")]
        id: Option<String>,
        /// Forget the whole conversation
        #[arg(long, conflicts_with = "id")]
        all: bool,
        #[command(flatten)]
        session: SessionArgs,
    },
}

/// A conversation.
#[derive(Debug, Args)]
pub struct SessionArgs {
    /// The namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// The conversation
    #[arg(short, long)]
    pub session: Option<String>,
}

/// Options of `memory chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// What to say
    pub text: String,
    #[command(flatten)]
    pub session: SessionArgs,
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    /// The chat model; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2
    #[arg(short, long, value_name = "0..2", value_parser = finite::<f32>)]
    pub temperature: Option<f32>,
    /// Print the answer when it is complete
    #[arg(long)]
    pub no_stream: bool,
}

/// Does it.
pub async fn run(connection: &Connection, command: MemoryCommand, output: Output) -> Result<(), CliError> {
    match command {
        MemoryCommand::Add { role, text, session } => add::run(connection, role, text, session, output).await,
        MemoryCommand::Chat(args) => chat::run(connection, args, output).await,
        MemoryCommand::Context { query, k, session } => context::run(connection, query, k, session, output).await,
        MemoryCommand::Turns { page, session } => turns::run(connection, page, session, output).await,
        MemoryCommand::Why { id, session } => why::run(connection, id, session, output).await,
        MemoryCommand::Forget { id, all: _, session } => forget::run(connection, id, session, output).await,
    }
}
