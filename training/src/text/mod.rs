//! From examples to tokens, as the local runtime would read them: the model's own tokenizer and its own chat template.

mod codec;
mod lengths;
mod listed;
mod template;
mod vocabulary;

pub use codec::{Encoded, EncodedPair, TextCodec};
pub use lengths::{CountedWidths, Lengths, Widths};
pub(crate) use listed::{Listed, TokenizerFiles};
pub(crate) use vocabulary::GgufVocabulary;
