//! SASL on the wire: handshake and tokens. These requests of a connection are worked on as they come, since each decides
//! whether the next is answered.

use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{
    ApiKey, SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};

use super::{Answer, RequestError, code, decode, encode, ready, text};
use crate::security::authentication::Authentication;

pub(super) fn handshake(
    authentication: &mut Authentication,
    version: i16,
    correlation: i32,
    body: Bytes,
) -> Result<Answer, RequestError> {
    let request = decode::<SaslHandshakeRequest>(body, version)?;
    // Since version 1 tokens come as `SaslAuthenticate` requests, before as they are.
    let chosen = authentication.choose(&request.mechanism, version == 0);
    let mechanisms = authentication.mechanisms().iter().map(|name| text(*name)).collect();
    let answer = SaslHandshakeResponse::default().with_error_code(code(&chosen)).with_mechanisms(mechanisms);
    Ok(ready(encode(ApiKey::SaslHandshake, version, correlation, &answer).map(Some)))
}

pub(super) async fn authenticate(
    authentication: &mut Authentication,
    version: i16,
    correlation: i32,
    body: Bytes,
) -> Result<Answer, RequestError> {
    let request = decode::<SaslAuthenticateRequest>(body, version)?;
    let answer = SaslAuthenticateResponse::default();
    let answer = match authentication.token(&request.auth_bytes).await {
        Ok(token) => answer.with_auth_bytes(token.into()),
        Err(error) => answer.with_error_code(error.code()).with_error_message(Some(text(error.to_string()))),
    };
    Ok(ready(encode(ApiKey::SaslAuthenticate, version, correlation, &answer).map(Some)))
}

/// A token by itself, answered by a token by itself; a failure has no form here but the end of the connection.
pub(super) async fn bare_token(authentication: &mut Authentication, token: &Bytes) -> Result<Answer, RequestError> {
    let unauthenticated = |_| RequestError::Unauthenticated { key: ApiKey::SaslHandshake as i16 };
    let answer = authentication.token(token).await.map_err(unauthenticated)?;
    let mut out = BytesMut::with_capacity(4 + answer.len());
    out.put_i32(answer.len() as i32);
    out.extend_from_slice(&answer);
    Ok(ready(Ok(Some(out.freeze()))))
}
