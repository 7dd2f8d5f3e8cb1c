//! The tokens of texts as a layer sees them.

use tokio_util::sync::CancellationToken;

use super::batching;
use super::sentence::SentenceEncoder;
use super::text::{self, EncodeError};
use crate::token_vectors::{TextTokens, TokenVectors};

/// Texts of a request: a token's vector takes some kilobytes.
pub(super) const MAX_TEXTS: usize = 256;

/// The layer that is meant when none is named.
pub(super) fn usual_layer(layers: usize) -> usize {
    (layers * 2).div_ceil(3)
}

/// Sends texts through the first `layer` layers.
pub(super) fn embed(
    encoder: &SentenceEncoder,
    texts: Vec<String>,
    layer: usize,
    caller: &CancellationToken,
) -> Result<TokenVectors, EncodeError> {
    let Some(layers) = encoder.encoder.layered() else {
        return Err(EncodeError("the layers of this architecture can't be looked into".to_owned()));
    };
    let encodings = encoder.reader.encode(texts)?;
    let truncated = encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count();
    let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
    let mut found = Vec::with_capacity(encodings.len());
    for batch in batching::plan(&lengths) {
        text::check_waited_for(caller)?;
        let (ids, types) = text::joined(&encodings[batch.clone()]);
        let hidden = layers.forward_to(&ids, &types, &lengths[batch.clone()], layer)?;
        let mut rows = hidden.rows().map(<[f32]>::to_vec);
        for encoding in &encodings[batch] {
            found.push(TextTokens {
                ids: encoding.get_ids().to_vec(),
                added: encoding.get_special_tokens_mask().iter().map(|added| *added == 1).collect(),
                vectors: rows.by_ref().take(encoding.len()).collect(),
            });
        }
    }
    Ok(TokenVectors { layer, texts: found, truncated })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_models_of_any_depth_when_no_layer_is_named_then_two_thirds_are_meant() {
        for (layers, usual) in [(1, 1), (2, 2), (3, 2), (6, 4), (12, 8), (24, 16)] {
            assert_eq!(usual_layer(layers), usual);
        }
    }
}
