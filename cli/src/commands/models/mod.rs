//! `riverrun models`.

pub mod ls;
pub mod probe;
pub mod pull;
pub mod rm;
pub mod show;

use clap::Subcommand;

/// What to do with models.
#[derive(Debug, Subcommand)]
pub enum ModelsCommand {
    /// List the models of a provider
    Ls {
        /// The provider; the default one when left out
        #[arg(long)]
        provider: Option<String>,
    },
    /// Fetch a model of the in-process runtime from the hub
    Pull {
        /// A name of `riverrun models`, or owner/repo[:FILE or :QUANTIZATION] of the hub
        model: String,
    },
    /// Remove a fetched model
    Rm {
        /// Its name
        model: String,
    },
    /// Show what is known of a model, and its cards
    Show {
        /// Its name, also as provider/model
        model: String,
        /// The provider; that of the name, or `local`, when left out
        #[arg(long)]
        provider: Option<String>,
    },
    /// Measure a chat model: context, JSON, tool calls, tokens a second
    Probe {
        /// Its name
        model: String,
        /// The provider; the default one when left out
        #[arg(long)]
        provider: Option<String>,
    },
}
