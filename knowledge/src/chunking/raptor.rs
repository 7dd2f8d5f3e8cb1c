use super::{Chunker, Late, Sizing};
use crate::sources::ExtractedText;

/// The name of the strategy.
pub const RAPTOR: &str = "raptor";

/// Splits by structure; above the chunks come summaries of them, see [`crate::tree`].
pub struct Raptor;

impl Chunker for Raptor {
    fn name(&self) -> &'static str {
        RAPTOR
    }

    fn split<'t>(&self, text: &'t ExtractedText, sizing: &Sizing) -> Vec<(usize, &'t str)> {
        Late.split(text, sizing)
    }
}
