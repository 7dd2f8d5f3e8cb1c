//! `riverrun canvas`: what was drawn on the canvas page, run from a terminal.

mod check;
mod document;
mod plan;
mod run;
mod saved;

use clap::Subcommand;

pub use check::check;
pub use run::{CanvasRunArgs, fetch, prepare, run};
pub use saved::{SavedCommand, run as run_saved};

/// What to do with a canvas.
#[derive(Debug, Subcommand)]
pub enum CanvasCommand {
    /// Run the agents of a canvas, exported or kept on the server, each with what is connected to it
    Run(CanvasRunArgs),
    /// Read an exported canvas and say what is wrong with it; nothing is started
    Check {
        /// The file
        file: std::path::PathBuf,
    },
    #[command(flatten)]
    Saved(SavedCommand),
}
