//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use riverrun_api::wire::{ApprovalMode, SessionMode};

use crate::commands::canvas::CanvasCommand;
use crate::commands::chains::ChainsCommand;
use crate::commands::chaos::ChaosCommand;
use crate::commands::collections::CollectionsArgs;
use crate::commands::dlq::DlqCommand;
use crate::commands::docs::DocsCommand;
use crate::commands::finetune::FinetuneCommand;
use crate::commands::memory::MemoryCommand;
use crate::commands::models::ModelsCommand;
use crate::commands::project::ProjectCommand;
use crate::commands::rag::eval::EvalArgs;
use crate::commands::runs::RunsCommand;
use crate::commands::search::SearchArgs;
use crate::commands::stream::StreamCommand;
use crate::commands::warehouse::WarehouseCommand;

/// Heads the options that every command has, apart from its own.
const EVERYWHERE: &str = "Options of every command";

/// Runs language-model agents on an event log.
///
/// Without a running `riverrun serve`, a command hosts what it needs for its own duration; with one on the same data folder,
/// it uses that. Settings are RIVERRUN_* variables, from the environment or from .env in the working folder.
#[derive(Debug, Parser)]
#[command(name = "riverrun", version, max_term_width = 110, arg_required_else_help = true, subcommand_required = true)]
pub struct Cli {
    /// Print JSON in the shapes of the HTTP API
    #[arg(long, global = true, help_heading = EVERYWHERE)]
    pub json: bool,
    /// Log more to stderr: -v what happens, -vv everything
    #[arg(short, long, global = true, help_heading = EVERYWHERE, action = clap::ArgAction::Count)]
    pub verbose: u8,
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Start the HTTP and WebSocket API with everything behind it
    Serve(crate::serve::ServeArgs),
    /// Start one kind of worker as a process of its own, beside those of other processes on the same log
    Worker(crate::commands::worker::WorkerArgs),
    /// Show a row for each required and optional service: what is there, what is missing, and the fix
    Diagnose,
    /// List the model providers, and which of them have keys
    Providers,
    /// List the models of a provider; fetch, show, measure and remove them
    Models(ModelsArgs),
    /// Talk to a chat model
    Chat(ChatArgs),
    /// Print the vector of a text
    Embed(EmbedArgs),
    /// Read files, a site, a repository, a database or a topic into a collection
    Ingest(IngestArgs),
    /// Publish documents on a topic, and take documents from one into a collection
    #[command(subcommand)]
    Stream(StreamCommand),
    /// List collections, with how much is in them; check, rebuild, re-embed, tune and remove them
    Collections(CollectionsArgs),
    /// Find chunks in a collection
    Search(SearchArgs),
    /// Search a collection, or ask it a question
    #[command(subcommand)]
    Rag(RagCommand),
    /// List the agent types, with what they can do
    Agents,
    /// List the tools that agents can use, and check a tools file
    Tools(ToolsArgs),
    /// Speak the Model Context Protocol on standard input and output: agents, collections and tools for its clients
    Mcp(NamespaceArgs),
    /// Run an agent
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Canvases that were drawn on the web page: run, check, and keep on the server
    #[command(subcommand)]
    Canvas(CanvasCommand),
    /// Chains of runs that wait for each other: show, watch, cancel
    #[command(subcommand)]
    Chains(ChainsCommand),
    /// Runs: list, show, watch, answer, cancel, resume, fork, compare
    #[command(subcommand)]
    Runs(RunsCommand),
    /// Kill processes under load and check that no run is lost and nothing happens twice
    #[command(subcommand)]
    Chaos(ChaosCommand),
    /// Conversations: what was said, what a model is shown of it, and forgetting
    #[command(subcommand)]
    Memory(MemoryCommand),
    /// Train models on this machine: datasets, trainings, versions
    #[command(subcommand)]
    Finetune(FinetuneCommand),
    /// Documents of a collection: list, show, remove
    #[command(subcommand)]
    Docs(DocsCommand),
    /// Code in isolated copies: import, analyze, improve
    #[command(subcommand)]
    Project(ProjectCommand),
    /// Tables of rows: list, ask with SQL
    #[command(subcommand)]
    Warehouse(WarehouseCommand),
    /// Records that could not be handled: list, show, send again, drop
    #[command(subcommand)]
    Dlq(DlqCommand),
    /// The blob store: list, check, remove what nothing names any more
    #[command(subcommand)]
    Blobs(crate::commands::blobs::BlobsCommand),
    /// Sum the tokens and the cost of runs and of other model calls
    Usage(crate::commands::usage::UsageArgs),
    /// List the topics of the log
    Topics,
    /// Write log, blobs and files into a folder, to be carried to another broker or data folder
    Export(crate::commands::transfer::ArchiveArgs),
    /// Write what export made into an empty broker and data folder
    Import(crate::commands::transfer::ArchiveArgs),
    /// Tokens of the API: create, list, revoke
    #[command(subcommand)]
    Tokens(crate::commands::tokens::TokensCommand),
    /// Print the completion for a shell
    Completion {
        /// The shell
        shell: Shell,
    },
    /// Print the OpenAPI document of the API
    Openapi,
}

impl Command {
    /// What the owner of a data folder says that it does.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Serve(_) => "serve",
            Command::Worker(_) => "worker",
            Command::Diagnose => "diagnose",
            Command::Providers => "providers",
            Command::Models(_) => "models",
            Command::Chat(_) => "chat",
            Command::Embed(_) => "embed",
            Command::Ingest(_) => "ingest",
            Command::Stream(_) => "stream",
            Command::Collections(_) => "collections",
            Command::Search(_) => "search",
            Command::Rag(_) => "rag",
            Command::Agents => "agents",
            Command::Tools(_) => "tools",
            Command::Mcp(_) => "mcp",
            Command::Agent(_) => "agent",
            Command::Canvas(_) => "canvas",
            Command::Chains(_) => "chains",
            Command::Runs(_) => "runs",
            Command::Chaos(_) => "chaos",
            Command::Memory(_) => "memory",
            Command::Finetune(_) => "finetune",
            Command::Docs(_) => "docs",
            Command::Project(_) => "project",
            Command::Warehouse(_) => "warehouse",
            Command::Dlq(_) => "dlq",
            Command::Blobs(_) => "blobs",
            Command::Usage(_) => "usage",
            Command::Topics => "topics",
            Command::Export(_) => "export",
            Command::Import(_) => "import",
            Command::Tokens(_) => "tokens",
            Command::Completion { .. } => "completion",
            Command::Openapi => "openapi",
        }
    }
}

/// A number that JSON has a word for: NaN and infinity would arrive as if nothing had been said.
pub fn finite<T: FromStr + Copy + Into<f64>>(text: &str) -> Result<T, String> {
    let number = text.parse::<T>().ok().filter(|number| Into::<f64>::into(*number).is_finite());
    number.ok_or_else(|| format!("{text:?} is not a number"))
}

/// Options of `models`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ModelsArgs {
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    #[command(subcommand)]
    pub command: Option<ModelsCommand>,
}

/// Options of `chat`.
#[derive(Debug, Args)]
pub struct ChatArgs {
    /// What to say
    pub prompt: String,
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    /// The chat model; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
    /// A text file to put in front of what is said; may be repeated
    #[arg(short, long = "file", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Print the answer when it is complete
    #[arg(long)]
    pub no_stream: bool,
    /// Sampling temperature, 0 to 2
    #[arg(short, long, value_name = "0..2", value_parser = finite::<f32>)]
    pub temperature: Option<f32>,
    /// Most tokens to write
    #[arg(long, value_name = "N")]
    pub max_tokens: Option<u32>,
    /// Give up after so long
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub timeout: Option<u64>,
}

/// Options of `embed`.
#[derive(Debug, Args)]
pub struct EmbedArgs {
    /// The text
    pub text: String,
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    /// The embedding model; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
}

/// A namespace.
#[derive(Debug, Args)]
pub struct NamespaceArgs {
    /// The namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
}

/// Options of `tools`.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct ToolsArgs {
    #[command(flatten)]
    pub namespace: NamespaceArgs,
    #[command(subcommand)]
    pub command: Option<ToolsCommand>,
}

/// What to do with tools.
#[derive(Debug, Subcommand)]
pub enum ToolsCommand {
    /// List the tools that agents of a namespace can use
    Ls(NamespaceArgs),
    /// Read a tools file and say what is wrong with it; nothing is started
    Check {
        /// The file; left out, the one that riverrun uses
        file: Option<PathBuf>,
    },
}

/// Options of `ingest`.
#[derive(Debug, Args)]
pub struct IngestArgs {
    /// A file, folder or zip archive; https://…, https://….git, postgres://…, mysql://…, sqlite:FILE,
    /// mongodb://host/database/collection; with --type kafka the name of a topic
    pub source: String,
    /// The collection; made when it is not there
    #[arg(short, long, default_value = "default")]
    pub collection: String,
    /// The collection's namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Warehouse table for a tabular source or a query; below a folder or archive each file with rows gets its name behind it
    #[arg(long)]
    pub table: Option<String>,
    /// Force the type of the source, which is otherwise inferred
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub source_type: Option<String>,
    /// What to read of a database: one SELECT, or for mongo a filter as JSON
    #[arg(long)]
    pub query: Option<String>,
    /// Glob of what to read of a folder, archive, repository or site; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub include: Vec<String>,
    /// Glob of what to leave out; may be repeated
    #[arg(long, value_name = "GLOB")]
    pub exclude: Vec<String>,
    /// How many links away from the first page of a site is read, 0 to 5
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// The address is a sitemap: read the pages that it lists
    #[arg(long)]
    pub sitemap: bool,
    /// Go on with what comes later; for a topic
    #[arg(long)]
    pub follow: bool,
    /// Remove documents that the folder, archive, repository or site has no more
    #[arg(long)]
    pub prune: bool,
    /// Chunking strategy: recursive, markdown, late or raptor; left out, it goes by the type of the source
    #[arg(long)]
    pub strategy: Option<String>,
    /// How they are split and embedded.
    #[command(flatten)]
    pub chunks: ChunkArgs,
    /// A JSON object to keep with each document
    #[arg(long, value_name = "JSON")]
    pub metadata: Option<String>,
}

/// How documents are split and embedded: options of `ingest` and `stream consume`.
#[derive(Debug, Clone, Args)]
pub struct ChunkArgs {
    /// Where embeddings are made: hf runs a model of the hub in this process, whatever the default model is
    #[arg(long, value_name = "BACKEND")]
    pub embed_backend: Option<String>,
    /// Most characters, or tokens, of a chunk; RIVERRUN_CHUNK_SIZE when left out
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub chunk_size: Option<i64>,
    /// Characters, or tokens, that neighbouring chunks share at most
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub chunk_overlap: Option<i64>,
    /// What both count: characters, or tokens of the embedding model
    #[arg(long, value_name = "UNIT")]
    pub chunk_unit: Option<String>,
}

/// What to do with a collection.
#[derive(Debug, Subcommand)]
pub enum RagCommand {
    /// Find chunks by meaning and by words
    Search(SearchArgs),
    /// Answer a question from a collection, with citations
    Ask(AskArgs),
    /// Measure how good retrieval is, by judgements of people
    Eval(EvalArgs),
}

/// Options of `rag ask`.
#[derive(Debug, Args)]
pub struct AskArgs {
    #[command(flatten)]
    pub search: SearchArgs,
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    /// The chat model; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
    /// Print the answer when it is complete
    #[arg(long)]
    pub no_stream: bool,
}

/// What to do with agents.
#[derive(Debug, Subcommand)]
pub enum AgentCommand {
    /// Run an agent on a task and print its answer
    Run(Box<AgentRunArgs>),
}

/// Options of `agent run`.
#[derive(Debug, Args)]
pub struct AgentRunArgs {
    /// The task, in words
    pub task: String,
    /// The agent; left out, the supervisor chooses
    #[arg(long)]
    pub agent: Option<String>,
    /// Print the reasoning trace
    #[arg(long)]
    pub steps: bool,
    /// Namespace whose tools, memory and collections the run may use
    #[arg(short, long)]
    pub namespace: Option<String>,
    /// Conversation that the run belongs to; of its runs, one goes on at a time
    #[arg(short, long)]
    pub session: Option<String>,
    /// What happens when the session has a run that goes on; it is waited for when left out
    #[arg(long, value_enum, requires = "session", value_name = "POLICY")]
    pub session_policy: Option<SessionChoice>,
    /// The provider; the default one when left out
    #[arg(long)]
    pub provider: Option<String>,
    /// The chat model; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
    /// Sampling temperature, 0 to 2; RIVERRUN_AGENT_TEMPERATURE when left out
    #[arg(short, long, value_name = "0..2", value_parser = finite::<f64>)]
    pub temperature: Option<f64>,
    /// Most iterations of the agent's loop; RIVERRUN_AGENT_MAX_ITERS when left out
    #[arg(long, value_name = "N")]
    pub max_iters: Option<i32>,
    /// A tool that it may use; may be repeated. All when left out
    #[arg(long = "tool", value_name = "TOOL")]
    pub tools: Vec<String>,
    /// A collection that it may read; may be repeated. All of the namespace when left out
    #[arg(short, long = "collection", value_name = "COLLECTION")]
    pub collections: Vec<String>,
    /// Most tokens, read and written together
    #[arg(long, value_name = "N")]
    pub budget_tokens: Option<i64>,
    /// Most seconds from acceptance to end
    #[arg(long, value_name = "SECONDS")]
    pub budget_seconds: Option<i64>,
    /// Which tool calls wait for a person
    #[arg(long, value_enum)]
    pub approval: Option<Approval>,
    /// A JSON object that comes back with the result
    #[arg(long, value_name = "JSON")]
    pub metadata: Option<String>,
}

/// What happens to a run whose session has one that goes on.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum SessionChoice {
    /// It waits for its turn
    Enqueue,
    /// It is refused
    Reject,
    /// The others are cancelled
    Interrupt,
}

impl From<SessionChoice> for SessionMode {
    fn from(choice: SessionChoice) -> Self {
        match choice {
            SessionChoice::Enqueue => SessionMode::Enqueue,
            SessionChoice::Reject => SessionMode::Reject,
            SessionChoice::Interrupt => SessionMode::Interrupt,
        }
    }
}

/// Which tool calls wait for a person.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum Approval {
    /// None
    Never,
    /// Those that change something outside
    External,
    /// All
    Always,
}

impl From<Approval> for ApprovalMode {
    fn from(approval: Approval) -> Self {
        match approval {
            Approval::Never => ApprovalMode::Never,
            Approval::External => ApprovalMode::External,
            Approval::Always => ApprovalMode::Always,
        }
    }
}

#[cfg(test)]
#[path = "args_tests.rs"]
mod tests;
