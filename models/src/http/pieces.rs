//! Answers that come bit by bit: a splitter finds the pieces in what arrives, and one loop hands them out and holds the limit.

use std::ops::ControlFlow;

use futures::StreamExt;
use reqwest::Response;
use tokio::task::coop::consume_budget;

use super::Server;
use crate::error::ModelError;

/// A piece that is longer is refused.
pub(super) const MAX_PIECE_BYTES: usize = 4 << 20;
/// A stream longer than this is refused: a server that streams for ever must not fill the memory.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// Finds the pieces of a stream, wherever its blocks end.
pub(crate) trait Splitter {
    /// Takes a block; answers the pieces that it completes, or what the server does that it must not.
    fn push(&mut self, block: &[u8]) -> Result<Vec<Vec<u8>>, String>;

    /// The piece that the stream ended in.
    fn finish(&mut self) -> Option<Vec<u8>>;
}

/// Calls `each` with every piece of a response until it breaks or the stream ends. Answers whether it broke. It pauses now and then also
/// where a server always has more, so that who waits beside it, as a time-out or a cancellation, has a turn.
pub(crate) async fn for_each_piece(
    server: &Server,
    response: Response,
    mut splitter: impl Splitter,
    mut each: impl FnMut(&[u8]) -> Result<ControlFlow<()>, ModelError>,
) -> Result<bool, ModelError> {
    let mut stream = response.bytes_stream();
    let mut seen = 0;
    while let Some(block) = stream.next().await {
        consume_budget().await;
        let block = block.map_err(|error| server.failed(&error))?;
        seen += block.len();
        if seen > MAX_STREAM_BYTES {
            return Err(server.bad_response(None, format!("it streams more than {MAX_STREAM_BYTES} bytes")));
        }
        for piece in splitter.push(&block).map_err(|reason| server.bad_response(None, reason))? {
            if each(&piece)?.is_break() {
                return Ok(true);
            }
        }
    }
    match splitter.finish() {
        Some(piece) => Ok(each(&piece)?.is_break()),
        None => Ok(false),
    }
}
