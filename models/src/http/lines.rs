//! Splits streams into lines, and lines into server-sent events. Both work on bytes, so that a character split over two blocks stays whole.

use std::ops::ControlFlow;

use reqwest::Response;

use super::Server;
use super::pieces::{MAX_PIECE_BYTES as MAX_LINE_BYTES, Splitter, for_each_piece};
use crate::error::ModelError;

/// Collects blocks and hands out complete lines without their ends (`\n` or `\r\n`).
#[derive(Debug, Default)]
pub(crate) struct LineSplitter {
    rest: Vec<u8>,
}

impl Splitter for LineSplitter {
    fn push(&mut self, block: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut lines = Vec::new();
        let mut rest = block;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            self.rest.extend_from_slice(&rest[..end]);
            lines.push(self.take_line());
            rest = &rest[end + 1..];
        }
        self.rest.extend_from_slice(rest);
        if self.rest.len() > MAX_LINE_BYTES || lines.iter().any(|line| line.len() > MAX_LINE_BYTES) {
            return Err(format!("it sends a line of more than {MAX_LINE_BYTES} bytes"));
        }
        Ok(lines)
    }

    /// What came after the last line end.
    fn finish(&mut self) -> Option<Vec<u8>> {
        Some(self.take_line()).filter(|line| !line.is_empty())
    }
}

impl LineSplitter {
    fn take_line(&mut self) -> Vec<u8> {
        let mut line = std::mem::take(&mut self.rest);
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        line
    }
}

/// Puts server-sent events together from lines. Only `data` matters here; comments, names and ids are skipped.
#[derive(Debug, Default)]
pub(crate) struct SseParser {
    data: Vec<u8>,
    pending: bool,
}

impl SseParser {
    /// Takes a line; an empty one ends an event and answers its data.
    pub(crate) fn push(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        if line.is_empty() {
            return std::mem::take(&mut self.pending).then(|| std::mem::take(&mut self.data));
        }
        if let Some(data) = line.strip_prefix(b"data:") {
            if self.pending {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data.strip_prefix(b" ").unwrap_or(data));
            self.pending = true;
        }
        None
    }

    /// The event that the stream ended in without an empty line.
    pub(crate) fn finish(&mut self) -> Option<Vec<u8>> {
        self.push(b"")
    }
}

/// [`for_each_piece`] with every server-sent event. Where a stream is asked for, some servers answer with one object all the same, most often an
/// error: it counts as an event.
pub(crate) async fn for_each_event(
    server: &Server,
    response: Response,
    mut each: impl FnMut(&[u8]) -> Result<ControlFlow<()>, ModelError>,
) -> Result<bool, ModelError> {
    let mut events = SseParser::default();
    let ended = for_each_piece(server, response, LineSplitter::default(), |line| {
        let event = if line.starts_with(b"{") { Some(line.to_vec()) } else { events.push(line) };
        match event.filter(|event| !event.is_empty()) {
            Some(event) => each(&event),
            None => Ok(ControlFlow::Continue(())),
        }
    })
    .await?;
    match events.finish().filter(|event| !ended && !event.is_empty()) {
        Some(event) => Ok(each(&event)?.is_break()),
        None => Ok(ended),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_any_blocks_when_they_are_split_then_the_lines_are_the_same() {
        let text = "eins\r\nzwei – größer\n\n日本\nlast".as_bytes();
        for size in 1..text.len() {
            let mut splitter = LineSplitter::default();
            let mut lines: Vec<Vec<u8>> = text.chunks(size).flat_map(|block| splitter.push(block).unwrap()).collect();
            lines.extend(splitter.finish());
            let lines: Vec<String> = lines.into_iter().map(|line| String::from_utf8(line).unwrap()).collect();
            assert_eq!(lines, ["eins", "zwei – größer", "", "日本", "last"]);
        }
    }

    #[test]
    fn given_an_endless_line_when_it_is_split_then_it_is_refused() {
        let mut splitter = LineSplitter::default();
        let block = vec![b'x'; MAX_LINE_BYTES / 2 + 1];
        assert!(splitter.push(&block).is_ok());
        assert!(splitter.push(&block).unwrap_err().contains("4194304"));
    }

    #[test]
    fn given_server_sent_events_when_they_are_parsed_then_data_is_put_together() {
        let mut parser = SseParser::default();
        let lines = [": hi", "", "event: x", "data: a", "data:b", "id: 3", "", "", "data: [DONE]", ""];
        let events: Vec<Vec<u8>> = lines.iter().filter_map(|line| parser.push(line.as_bytes())).collect();
        assert_eq!(events, [b"a\nb".to_vec(), b"[DONE]".to_vec()]);
        assert_eq!((parser.push(b"data: last"), parser.finish()), (None, Some(b"last".to_vec())));
        assert_eq!(parser.finish(), None);
    }
}
