//! The server's side of SCRAM (RFC 5802, RFC 7677), without channel binding, as Kafka's clients speak it.

use aws_lc_rs::constant_time;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::users::{Hash, ITERATIONS, Users, Verifier, random};

const MAX_MESSAGE: usize = 4096;

/// A conversation of which the first half is over.
pub(super) struct Conversation {
    hash: Hash,
    name: String,
    verifier: Verifier,
    /// The client's part of the nonce, with which the whole begins.
    client_nonce: String,
    nonce: String,
    /// `client-first-message-bare , server-first-message`.
    so_far: String,
}

/// Takes the client's first message; the answer is the server's first.
pub(super) fn first(users: &Users, hash: Hash, message: &[u8]) -> Option<(Conversation, String)> {
    let message = text(message)?;
    // `n` and `y` say that the client binds no channel; an authorisation identity must be the name itself.
    let rest = message.strip_prefix("n,").or_else(|| message.strip_prefix("y,"))?;
    let (authorisation, bare) = rest.split_once(',')?;
    let mut fields = bare.split(',');
    let name = unescape(fields.next()?.strip_prefix("n=")?)?;
    let client_nonce = fields.next()?.strip_prefix("r=")?;
    // Extensions (such as Kafka's delegation tokens) are not known here.
    let acts_for_itself = authorisation.is_empty()
        || authorisation.strip_prefix("a=").and_then(unescape).is_some_and(|other| other == name);
    if client_nonce.is_empty() || fields.next().is_some() || !acts_for_itself {
        return None;
    }
    let client_nonce = client_nonce.to_owned();
    let nonce = format!("{client_nonce}{}", STANDARD.encode(random::<18>()));
    let verifier = users.verifier(&name, hash);
    let server_first = format!("r={nonce},s={},i={ITERATIONS}", STANDARD.encode(&verifier.salt));
    let so_far = format!("{bare},{server_first}");
    Some((Conversation { hash, name, verifier, client_nonce, nonce, so_far }, server_first))
}

impl Conversation {
    /// Whether a client's last message has the nonce of this conversation. librdkafka before 2.6.1 (kcat of Debian 12 has it) puts its own
    /// part in front once more; Apache Kafka takes that, too. The proof is over the message as it was sent, so that nothing is proved less.
    fn is_ours(&self, nonce: &str) -> bool {
        nonce.strip_suffix(&self.nonce).is_some_and(|front| front.is_empty() || front == self.client_nonce)
    }

    /// Takes the client's proof; the answer is who it is, and the server's proof.
    pub(super) fn last(self, message: &[u8]) -> Option<(String, String)> {
        let message = text(message)?;
        let (without_proof, proof) = message.rsplit_once(",p=")?;
        let mut fields = without_proof.split(',');
        let binding = STANDARD.decode(fields.next()?.strip_prefix("c=")?).ok()?;
        let is_unbound = binding.starts_with(b"n,") || binding.starts_with(b"y,");
        if !is_unbound || !self.is_ours(fields.next()?.strip_prefix("r=")?) {
            return None;
        }
        let proof = STANDARD.decode(proof).ok()?;
        let conversation = format!("{},{without_proof}", self.so_far);
        let signature = self.hash.hmac(&self.verifier.stored_key, conversation.as_bytes());
        if proof.len() != signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&signature).map(|(proof, signature)| proof ^ signature).collect();
        let given = self.hash.digest(&client_key);
        constant_time::verify_slices_are_equal(&given, &self.verifier.stored_key).ok()?;
        let ours = self.hash.hmac(&self.verifier.server_key, conversation.as_bytes());
        Some((self.name, format!("v={}", STANDARD.encode(ours))))
    }
}

fn text(message: &[u8]) -> Option<&str> {
    if message.len() > MAX_MESSAGE { None } else { std::str::from_utf8(message).ok() }
}

/// A name with `=2C` for a comma and `=3D` for an equals sign.
fn unescape(name: &str) -> Option<String> {
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some((before, after)) = rest.split_once('=') {
        out.push_str(before);
        let (code, behind) = after.split_at_checked(2)?;
        out.push(match code {
            "2C" => ',',
            "3D" => '=',
            _ => return None,
        });
        rest = behind;
    }
    out.push_str(rest);
    (!out.is_empty()).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::super::users::for_tests;
    use super::*;

    /// The client's side, as far as it is needed to talk to ourselves.
    fn client_last(hash: Hash, password: &str, bare: &str, server_first: &str) -> (String, Vec<u8>) {
        client_last_behind("", hash, password, bare, server_first)
    }

    /// The same with something in front of the nonce.
    fn client_last_behind(
        front: &str,
        hash: Hash,
        password: &str,
        bare: &str,
        server_first: &str,
    ) -> (String, Vec<u8>) {
        let field = |name: &str| server_first.split(',').find_map(|field| field.strip_prefix(name)).unwrap();
        let salted = hash.salted(password.as_bytes(), &STANDARD.decode(field("s=")).unwrap());
        let client_key = hash.hmac(&salted, b"Client Key");
        let without_proof = format!("c={},r={front}{}", STANDARD.encode("n,,"), field("r="));
        let conversation = format!("{bare},{server_first},{without_proof}");
        let signature = hash.hmac(&hash.digest(&client_key), conversation.as_bytes());
        let proof: Vec<u8> = client_key.iter().zip(&signature).map(|(a, b)| a ^ b).collect();
        let ours = hash.hmac(&hash.hmac(&salted, b"Server Key"), conversation.as_bytes());
        (format!("{without_proof},p={}", STANDARD.encode(proof)), ours)
    }

    #[test]
    fn given_users_when_a_password_is_right_then_both_sides_are_proved_and_else_neither() {
        let users = for_tests(&[("ann", "secret"), ("a,b=c", "odd")]);
        for hash in [Hash::Sha256, Hash::Sha512] {
            for (escaped, name, password, right) in [
                ("ann", "ann", "secret", true),
                ("a=2Cb=3Dc", "a,b=c", "odd", true),
                ("ann", "ann", "wrong", false),
                ("eve", "eve", "secret", false),
            ] {
                let bare = format!("n={escaped},r=abc");
                let (conversation, server_first) = first(&users, hash, format!("n,,{bare}").as_bytes()).unwrap();
                let (message, expected) = client_last(hash, password, &bare, &server_first);
                let answer = conversation.last(message.as_bytes());
                let proof = format!("v={}", STANDARD.encode(expected));
                assert_eq!(answer, right.then(|| (name.to_owned(), proof)), "{escaped} {password}");
            }
        }
    }

    #[test]
    fn given_a_client_that_repeats_its_nonce_when_it_proves_itself_then_it_is_let_in_and_no_other_front_is() {
        let users = for_tests(&[("ann", "secret")]);
        for (front, password, right) in
            [("abc", "secret", true), ("abc", "wrong", false), ("abcabc", "secret", false), ("x", "secret", false)]
        {
            let (conversation, server_first) = first(&users, Hash::Sha256, b"n,,n=ann,r=abc").unwrap();
            let (message, expected) = client_last_behind(front, Hash::Sha256, password, "n=ann,r=abc", &server_first);
            let proof = format!("v={}", STANDARD.encode(expected));
            assert_eq!(
                conversation.last(message.as_bytes()),
                right.then(|| ("ann".to_owned(), proof)),
                "{front} {password}"
            );
        }
        let (conversation, _) = first(&users, Hash::Sha256, b"n,,n=ann,r=abc").unwrap();
        assert!(!conversation.is_ours("abc") && !conversation.is_ours(""), "the server's part is wanted");
    }

    #[test]
    fn given_malformed_messages_when_taken_then_nobody_is_let_in() {
        let users = for_tests(&[("ann", "secret")]);
        for bad in
            ["", "n", "n,,", "n,,n=ann", "n,,n=ann,r=", "p=tls-unique,,n=ann,r=x", "n,a=bob,n=ann,r=x", "n,,n==,r=x"]
        {
            assert!(first(&users, Hash::Sha256, bad.as_bytes()).is_none(), "{bad}");
        }
        for bad in ["", "c=biws", "c=biws,r=x,p=", "c=biws,r=other,p=AAAA", "c=!,r=x,p=AAAA"] {
            let (conversation, _) = first(&users, Hash::Sha256, b"n,,n=ann,r=x").unwrap();
            assert!(conversation.last(bad.as_bytes()).is_none(), "{bad}");
        }
    }
}
