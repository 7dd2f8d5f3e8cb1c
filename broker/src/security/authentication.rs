//! How far a connection has got in saying who it is.

use std::sync::Arc;
use std::time::Duration;

use kafka_protocol::ResponseError;

use super::scram::{self, Conversation};
use super::users::{Hash, Users};

/// Pause before a failure is told, against guessing.
const FAILURE_DELAY: Duration = Duration::from_millis(200);
const PLAIN: &str = "PLAIN";
const SCRAM_SHA_256: &str = "SCRAM-SHA-256";
const SCRAM_SHA_512: &str = "SCRAM-SHA-512";

/// The authentication of one connection.
pub(crate) struct Authentication {
    users: Option<Arc<Users>>,
    /// Whether a password may travel as it is.
    plain: bool,
    state: State,
    /// Whether tokens come without a request around them (`SaslHandshake` 0).
    bare: bool,
}

enum State {
    Unnamed,
    Plain,
    ScramFirst(Hash),
    ScramLast(Box<Conversation>),
    Done,
    Failed,
}

impl Authentication {
    /// Of a listener without users, or with them; `plain` where nobody can listen in.
    pub(crate) fn new(users: Option<Arc<Users>>, plain: bool) -> Self {
        let state = if users.is_some() { State::Unnamed } else { State::Done };
        Self { users, plain, state, bare: false }
    }

    /// Whether every request may be answered.
    pub(crate) fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the next frame is a token without a request around it.
    pub(crate) fn takes_bare_token(&self) -> bool {
        self.bare && matches!(self.state, State::Plain | State::ScramFirst(_) | State::ScramLast(_))
    }

    /// The mechanisms on offer.
    pub(crate) fn mechanisms(&self) -> &'static [&'static str] {
        match (&self.users, self.plain) {
            (None, _) => &[],
            (Some(_), true) => &[PLAIN, SCRAM_SHA_256, SCRAM_SHA_512],
            (Some(_), false) => &[SCRAM_SHA_256, SCRAM_SHA_512],
        }
    }

    /// Chooses a mechanism. `bare` says that tokens follow without a request around them.
    pub(crate) fn choose(&mut self, mechanism: &str, bare: bool) -> Result<(), ResponseError> {
        if !matches!(self.state, State::Unnamed) {
            return Err(ResponseError::IllegalSaslState);
        }
        if !self.mechanisms().contains(&mechanism) {
            self.state = State::Failed;
            return Err(ResponseError::UnsupportedSaslMechanism);
        }
        self.bare = bare;
        self.state = match mechanism {
            SCRAM_SHA_256 => State::ScramFirst(Hash::Sha256),
            SCRAM_SHA_512 => State::ScramFirst(Hash::Sha512),
            _ => State::Plain,
        };
        Ok(())
    }

    /// Takes a token; the answer is the token for the client. After a failure the connection is of no use any more.
    pub(crate) async fn token(&mut self, token: &[u8]) -> Result<Vec<u8>, ResponseError> {
        let state = std::mem::replace(&mut self.state, State::Failed);
        let Some(users) = self.users.clone().filter(|_| !matches!(state, State::Unnamed | State::Done)) else {
            self.state = state;
            return Err(ResponseError::IllegalSaslState);
        };
        let answer = match state {
            State::Plain => is_plain_password(users, token).await.then(|| (State::Done, String::new())),
            State::ScramFirst(hash) => scram::first(&users, hash, token)
                .map(|(conversation, answer)| (State::ScramLast(Box::new(conversation)), answer)),
            State::ScramLast(conversation) => conversation.last(token).map(|(name, answer)| {
                tracing::debug!(user = %name, "client authenticated");
                (State::Done, answer)
            }),
            State::Unnamed | State::Done | State::Failed => None,
        };
        match answer {
            Some((next, answer)) => {
                self.state = next;
                Ok(answer.into_bytes())
            }
            None => {
                tokio::time::sleep(FAILURE_DELAY).await;
                Err(ResponseError::SaslAuthenticationFailed)
            }
        }
    }
}

/// RFC 4616: authorisation identity, name and password with zero bytes between them.
async fn is_plain_password(users: Arc<Users>, token: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(token) else { return false };
    let fields: Vec<String> = text.split('\0').map(str::to_owned).collect();
    let [authorisation, name, password] = fields.as_slice() else { return false };
    if !authorisation.is_empty() && authorisation != name {
        return false;
    }
    let (name, password) = (name.clone(), password.clone());
    tokio::task::spawn_blocking(move || users.is_password(&name, &password)).await.unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::super::users::for_tests;
    use super::*;

    #[tokio::test]
    async fn given_a_listener_with_users_when_a_token_is_right_then_the_connection_is_open_and_else_never() {
        let users = Arc::new(for_tests(&[("ann", "secret")]));
        let cases: [(&[u8], bool); 6] = [
            (b"\0ann\0secret", true),
            (b"ann\0ann\0secret", true),
            (b"bob\0ann\0secret", false),
            (b"\0ann\0wrong", false),
            (b"\0ann", false),
            (b"\xff\xfe", false),
        ];
        for (token, right) in cases {
            let mut connection = Authentication::new(Some(users.clone()), true);
            assert!(!connection.is_done());
            assert_eq!(connection.token(token).await, Err(ResponseError::IllegalSaslState), "no mechanism yet");
            connection.choose("PLAIN", false).unwrap();
            assert_eq!(connection.token(token).await.is_ok(), right);
            assert_eq!(connection.is_done(), right);
            assert!(connection.choose("PLAIN", false).is_err(), "once");
        }
    }

    #[test]
    fn given_a_listener_without_tls_when_asked_then_no_password_may_travel_plainly() {
        let users = Arc::new(for_tests(&[("ann", "secret")]));
        let mut connection = Authentication::new(Some(users), false);
        assert_eq!(connection.choose("PLAIN", false), Err(ResponseError::UnsupportedSaslMechanism));
        assert!(Authentication::new(None, false).is_done());
    }
}
