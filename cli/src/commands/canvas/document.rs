//! Canvases in files.

use std::fs;
use std::path::Path;

use riverrun_api::canvas_document::MAX_BYTES;
pub(super) use riverrun_api::canvas_document::{AgentData, Canvas, Content, Node, read};

use crate::error::{CliError, Exit};
use crate::input;

/// Reads an exported canvas.
pub(super) fn read_file(path: &Path) -> Result<Canvas, CliError> {
    Ok(read(&bytes_of(path)?)?)
}

/// The bytes of one, when they are not too many.
pub(super) fn bytes_of(path: &Path) -> Result<Vec<u8>, CliError> {
    let size = fs::metadata(path).map_err(|error| unreadable(path, &error.to_string()))?.len();
    if size > MAX_BYTES as u64 {
        let detail = format!("the file: has {size} bytes; at most {MAX_BYTES} are read");
        return Err(CliError::new(Exit::Refused, detail).hint("draw several smaller canvases"));
    }
    input::read_now(path, MAX_BYTES as u64).map_err(|reason| unreadable(path, &reason))
}

fn unreadable(path: &Path, reason: &str) -> CliError {
    CliError::new(Exit::Usage, format!("{} can't be read: {reason}", path.display())).hint(
        "give the file that the export button of the canvas page wrote, or a canvas of the server: riverrun canvas ls",
    )
}
