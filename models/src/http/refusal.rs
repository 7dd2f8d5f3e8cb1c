//! What the error bodies of model servers mean.

use std::time::Duration;

use serde_json::Value;

use crate::error::ModelError;

/// What servers say of a prompt that is too long, with the places of the prompt's tokens and of the limit among the numbers behind.
const TOO_LONG: [(&str, usize, usize); 6] = [
    ("Too many input tokens", 1, 0),
    ("prompt is too long", 0, 1),
    ("input token count", 0, 1),
    ("Prompt contains", 0, 2),
    ("maximum context length is", 1, 0),
    ("number of tokens in the prompt cannot exceed", 1, 0),
];

/// What they say who tell no numbers.
const UNNUMBERED: [&str; 2] = ["exceeds the context length", "Input is too long for requested model"];

/// The message in the shapes that servers use: `{"error": "…"}`, `{"error": {"message": "…"}}`, `{"message": "…"}` (`Message` in front of
/// AWS's services), `{"detail": "…"}`, a list of one of these, text.
pub(crate) fn message_of(body: &[u8]) -> String {
    let Ok(json) = serde_json::from_slice::<Value>(body) else {
        return String::from_utf8_lossy(body).trim().chars().take(300).collect();
    };
    let json = json.get(0).unwrap_or(&json);
    let candidates = [&json["error"], &json["error"]["message"], &json["message"], &json["Message"], &json["detail"]];
    match candidates.iter().find_map(|value| value.as_str()) {
        Some(message) => message.to_owned(),
        None => json.to_string(),
    }
}

/// Recognizes a prompt that does not fit: OpenAI and vLLM by code, llama.cpp's server by type, the others by what they say.
pub(crate) fn overflow_of(body: &[u8]) -> Option<ModelError> {
    // What is no JSON, or only its beginning, may still say it in words.
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = &json["error"];
    let overflow = |tokens, limit| ModelError::ContextOverflow { model: String::new(), tokens, limit };
    if error["type"] == "exceed_context_size_error" {
        let number = |name: &str| error[name].as_u64().and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
        return Some(overflow(number("n_prompt_tokens"), number("n_ctx")));
    }
    let message = message_of(body);
    let said = TOO_LONG.iter().find_map(|(words, tokens, limit)| {
        let numbers = numbers(&message[message.find(words)?..]);
        let at = |index: &usize| numbers.get(*index).copied().unwrap_or(0);
        Some((at(tokens), at(limit)))
    });
    let coded = error["code"] == "context_length_exceeded" || UNNUMBERED.iter().any(|words| message.contains(words));
    said.or(coded.then_some((0, 0))).map(|(tokens, limit)| overflow(tokens, limit))
}

/// Whether a body says that the key is wrong, which one service does with the status of a bad request.
pub(crate) fn is_bad_key(body: &[u8]) -> bool {
    String::from_utf8_lossy(body).contains("API_KEY_INVALID")
}

/// Whether a body says that the model is not there, which some services do with the status of a bad request.
pub(crate) fn is_missing_model(body: &[u8]) -> bool {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let code = [&json["error"]["code"], &json["code"], &json["error"]["type"]];
    code.iter().any(|code| *code == "model_not_found" || *code == "invalid_model")
        || ["Invalid model", "The provided model identifier is invalid"]
            .iter()
            .any(|said| message_of(body).starts_with(said))
}

/// Whether a body says that nothing is left to pay with, which one service says as if it were for now.
pub(crate) fn is_out_of_quota(body: &[u8]) -> bool {
    let json: Value = serde_json::from_slice(body).unwrap_or_default();
    let error = json.get(0).unwrap_or(&json);
    [&error["error"]["code"], &error["error"]["type"]].iter().any(|code| **code == "insufficient_quota")
}

/// The wait that Gemini asks for within a body, as in `"retryDelay": "37s"`.
pub(crate) fn retry_delay_of(body: &[u8]) -> Option<Duration> {
    let json: Value = serde_json::from_slice(body).ok()?;
    let details = json.get(0).unwrap_or(&json)["error"]["details"].as_array()?;
    let seconds = details.iter().find_map(|detail| detail["retryDelay"].as_str()?.strip_suffix('s')?.parse().ok())?;
    Duration::try_from_secs_f64(seconds).ok()
}

fn numbers(text: &str) -> Vec<usize> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_error_bodies_when_they_are_read_then_the_message_is_found() {
        for (body, message) in [
            (r#"{"error":"model 'x' not found"}"#, "model 'x' not found"),
            (r#"{"error":{"message":"bad key","code":"invalid_api_key"}}"#, "bad key"),
            (r#"[{"error":{"message":"listed"}}]"#, "listed"),
            (r#"{"detail":"no"}"#, "no"),
            (r#"{"Message":"User: arn is not authorized"}"#, "User: arn is not authorized"),
            ("upstream gone\n", "upstream gone"),
            ("", ""),
        ] {
            assert_eq!(message_of(body.as_bytes()), message);
        }
    }

    #[test]
    fn given_overflow_errors_when_they_are_read_then_they_are_recognized_with_their_numbers() {
        for (body, numbers) in [
            (
                r#"{"error":{"code":400,"type":"exceed_context_size_error","n_prompt_tokens":9000,"n_ctx":4096}}"#,
                (9000, 4096),
            ),
            (r#"{"error":{"code":"context_length_exceeded"}}"#, (0, 0)),
            (
                r#"{"error":{"message":"This model's maximum context length is 4096 tokens. However, you requested 5000 tokens"}}"#,
                (5000, 4096),
            ),
            (
                r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 210000 tokens > 200000 maximum"}}"#,
                (210_000, 200_000),
            ),
            (
                r#"{"error":{"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."}}"#,
                (1_200_000, 1_048_576),
            ),
            (
                r#"{"message":"Prompt contains 65673 tokens and 0 draft tokens, too large for model with 32768 maximum context length"}"#,
                (65_673, 32_768),
            ),
            (
                r#"{"message":"too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 8000."}"#,
                (8000, 4081),
            ),
            (r#"{"error":"the input length exceeds the context length"}"#, (0, 0)),
            (r#"{"message":"Input is too long for requested model."}"#, (0, 0)),
            (
                r#"{"message":"400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 11004 "}"#,
                (11_004, 8192),
            ),
        ] {
            match overflow_of(body.as_bytes()) {
                Some(ModelError::ContextOverflow { tokens, limit, .. }) => {
                    assert_eq!((tokens, limit), numbers, "{body}")
                }
                other => panic!("{body}: {other:?}"),
            }
        }
        assert!(overflow_of(br#"{"error":{"code":"other"}}"#).is_none());
    }

    #[test]
    fn given_bodies_when_they_are_read_then_asked_waits_and_empty_accounts_are_recognized() {
        let wait = br#"[{"error":{"code":429,"details":[{"@type":"x"},{"@type":"RetryInfo","retryDelay":"37.5s"}]}}]"#;
        assert_eq!(retry_delay_of(wait), Some(Duration::from_millis(37_500)));
        for body in [&br#"{"error":{"details":[{"retryDelay":"soon"}]}}"#[..], br#"{"error":{}}"#, b"x"] {
            assert_eq!(retry_delay_of(body), None);
        }
        assert!(is_out_of_quota(br#"{"error":{"message":"check your plan","code":"insufficient_quota"}}"#));
        assert!(!is_out_of_quota(br#"{"error":{"code":"rate_limit_exceeded"}}"#) && !is_out_of_quota(b""));
    }

    #[test]
    fn given_refusals_when_they_are_read_then_bad_keys_and_missing_models_are_recognized() {
        assert!(is_bad_key(br#"{"error":{"code":400,"details":[{"reason":"API_KEY_INVALID"}]}}"#));
        assert!(is_missing_model(br#"{"error":{"code":"model_not_found"}}"#));
        assert!(is_missing_model(br#"{"object":"error","message":"Invalid model: x","code":"1500"}"#));
        assert!(is_missing_model(br#"{"message":"The provided model identifier is invalid."}"#));
        assert!(!is_missing_model(br#"{"error":{"message":"Invalid temperature"}}"#) && !is_bad_key(b"x"));
    }
}
