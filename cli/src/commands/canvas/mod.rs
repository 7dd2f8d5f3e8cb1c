//! `riverrun canvas`: what was drawn on the canvas page, run from a terminal.

mod check;
mod document;
mod plan;
mod run;

use clap::Subcommand;

pub use check::check;
pub use run::{CanvasRunArgs, prepare, run};

/// What to do with a canvas.
#[derive(Debug, Subcommand)]
pub enum CanvasCommand {
    /// Run the agents of an exported canvas, each with what is connected to it
    Run(CanvasRunArgs),
    /// Read an exported canvas and say what is wrong with it; nothing is started
    Check {
        /// The file
        file: std::path::PathBuf,
    },
}
