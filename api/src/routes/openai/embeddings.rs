//! Vectors of texts.

use axum::Json as Reply;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use riverrun_models::{EmbedPurpose, EmbedRequest, Purpose};
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
    let purpose = purpose_of(body.input_type.as_deref())?;
    let mut checks = Checks::default();
    checks.texts("input", &inputs, MAX_INPUTS, MAX_TEXT);
    checks.require(body.dimensions != Some(0), "dimensions", "must be 1 or more");
    checks.finish()?;
    let model = super::model_name(&body.model);
    let models = state.core().models_for(None, Purpose::Embed);
    let reply = models.embed_as(EmbedRequest { model, inputs, purpose, dimensions: body.dimensions }).await?;
    // Of a model or a server that has no choice.
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

/// What texts are embedded for, as Voyage's, Cohere's and NVIDIA's APIs name it.
fn purpose_of(input_type: Option<&str>) -> Result<EmbedPurpose, ApiError> {
    match input_type {
        None | Some("document" | "search_document" | "passage") => Ok(EmbedPurpose::Document),
        Some("query" | "search_query") => Ok(EmbedPurpose::Query),
        Some(other) => {
            let other: String = other.chars().take(40).collect();
            Err(ApiError::field("input_type", format!("is {other:?}; must be document or query")))
        }
    }
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
    fn given_what_texts_are_for_when_it_is_read_then_other_apis_names_mean_the_same_and_others_are_refused() {
        for (input_type, purpose) in [
            (None, EmbedPurpose::Document),
            (Some("document"), EmbedPurpose::Document),
            (Some("search_document"), EmbedPurpose::Document),
            (Some("passage"), EmbedPurpose::Document),
            (Some("query"), EmbedPurpose::Query),
            (Some("search_query"), EmbedPurpose::Query),
        ] {
            assert_eq!(purpose_of(input_type).unwrap(), purpose, "{input_type:?}");
        }
        for wrong in ["", "Query", "classification"] {
            assert!(purpose_of(Some(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn given_a_vector_when_it_is_encoded_then_it_is_what_the_stock_clients_decode() {
        assert_eq!(encoded(&[1.0, -2.0]), "AACAPwAAAMA=");
    }
}
