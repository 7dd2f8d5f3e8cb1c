//! Plain text.

use super::{ExtractedText, Source, SourceError, decode};
use crate::chunking::{self, Chunker};

/// Plain text in UTF-8, UTF-16 with a byte order mark, or windows-1252.
pub(super) struct Text;

impl Source for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn extensions(&self) -> &'static [&'static str] {
        &["txt", "text", "log", "rst", "adoc", "org"]
    }

    fn media_type(&self) -> &'static str {
        "text/plain"
    }

    fn chunker(&self) -> &'static dyn Chunker {
        &chunking::Recursive
    }

    fn extract(&self, name: &str, bytes: &[u8]) -> Result<ExtractedText, SourceError> {
        Ok(ExtractedText::plain(decode::decode(name, bytes)?).decoded_from(decode::encoding_of(bytes)))
    }
}
