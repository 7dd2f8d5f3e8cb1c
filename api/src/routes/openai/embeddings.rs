//! Vectors of texts.

use axum::Json as Reply;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use riverrun_models::{EmbedPurpose, Purpose};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::Json;
use crate::state::AppState;
use crate::submit::Checks;
use crate::wire::openai::{EmbeddingsBody, OneOrMany};

/// Most texts of a request.
const MAX_INPUTS: usize = 2048;
/// Longest text, in bytes.
const MAX_TEXT: usize = 256 << 10;

/// Vectors of texts, in their order, in the shape of OpenAI's API.
#[utoipa::path(post, path = "/v1/embeddings", tag = "openai", request_body = EmbeddingsBody,
    responses((status = 200, description = "a `list` of `embedding`s")))]
pub(super) async fn embeddings(
    State(state): State<AppState>,
    Json(body): Json<EmbeddingsBody>,
) -> Result<Reply<Value>, ApiError> {
    let inputs = OneOrMany::into_vec(body.input);
    let as_text = match body.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(ApiError::field("encoding_format", "must be float or base64")),
    };
    let mut checks = Checks::default();
    checks.texts("input", &inputs, MAX_INPUTS, MAX_TEXT);
    checks.finish()?;
    let model = super::model_name(&body.model);
    let models = state.core().models_for(None, Purpose::Embed);
    let reply = models.embed(Some(&model), inputs, EmbedPurpose::Document).await?;
    if let Some(asked) = body.dimensions.filter(|asked| *asked != reply.dimensions) {
        let reason = format!("is {asked}; vectors of {} have {}", reply.model, reply.dimensions);
        return Err(ApiError::field("dimensions", reason));
    }
    let data: Vec<Value> = reply
        .vectors
        .iter()
        .enumerate()
        .map(|(index, vector)| {
            let embedding = if as_text { json!(encoded(vector)) } else { json!(vector) };
            json!({"object": "embedding", "index": index, "embedding": embedding})
        })
        .collect();
    let tokens = reply.usage.prompt_tokens;
    let usage = json!({"prompt_tokens": tokens, "total_tokens": tokens});
    let mut list = json!({"object": "list", "data": data, "model": reply.model, "usage": usage});
    // Beside OpenAI's fields, which have no place for it: no vector is silently that of a beginning.
    if reply.truncated > 0 {
        list["truncated"] = json!(reply.truncated);
    }
    Ok(Reply(list))
}

/// Little-endian 32-bit floats in base 64, which the stock clients ask for.
fn encoded(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    STANDARD.encode(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_vector_when_it_is_encoded_then_it_is_what_the_stock_clients_decode() {
        assert_eq!(encoded(&[1.0, -2.0]), "AACAPwAAAMA=");
    }
}
