//! The settings of the embedded broker's second listener, `RIVERRUN_BROKER_SECURE_*`.

use std::net::SocketAddr;
use std::path::Path;

use riverrun_log::broker::{SecureListener, TlsFiles};

use crate::error::{CliError, Exit};

const LISTEN: &str = "RIVERRUN_BROKER_SECURE_LISTEN";
const ADVERTISED: &str = "RIVERRUN_BROKER_SECURE_ADVERTISED";
const CERTIFICATE: &str = "RIVERRUN_BROKER_SECURE_CERTIFICATE";
const KEY: &str = "RIVERRUN_BROKER_SECURE_KEY";
const USERS: &str = "RIVERRUN_BROKER_SECURE_USERS";

/// Reads the listener; none without an address. Files are relative to `folder`.
pub(crate) fn secure_listener(
    text: &dyn Fn(&str) -> Option<String>,
    folder: &Path,
) -> Result<Option<SecureListener>, CliError> {
    let [listen, advertised, certificate, key, users] = [LISTEN, ADVERTISED, CERTIFICATE, KEY, USERS].map(text);
    let Some(listen) = listen else { return Ok(None) };
    let listen: SocketAddr =
        listen.parse().map_err(|_| wrong(LISTEN, &listen, "an address and port such as 0.0.0.0:9093"))?;
    let advertised = match advertised {
        Some(advertised) => {
            let split =
                advertised.rsplit_once(':').and_then(|(host, port)| Some((host.to_owned(), port.parse().ok()?)));
            let named = split.filter(|(host, _): &(String, u16)| !host.is_empty());
            Some(named.ok_or_else(|| wrong(ADVERTISED, &advertised, "host:port under which clients find it"))?)
        }
        None if listen.ip().is_unspecified() => {
            return Err(wrong(
                LISTEN,
                &listen.to_string(),
                "used together with RIVERRUN_BROKER_SECURE_ADVERTISED, since clients can't connect to every address",
            ));
        }
        None => None,
    };
    let file = |named: Option<String>| named.map(|file| folder.join(file));
    let tls = match (file(certificate), file(key)) {
        (Some(certificate), Some(key)) => Some(TlsFiles { certificate, key }),
        (None, None) => None,
        (Some(given), None) => {
            return Err(wrong(
                CERTIFICATE,
                &given.display().to_string(),
                "used together with RIVERRUN_BROKER_SECURE_KEY",
            ));
        }
        (None, Some(given)) => {
            return Err(wrong(
                KEY,
                &given.display().to_string(),
                "used together with RIVERRUN_BROKER_SECURE_CERTIFICATE",
            ));
        }
    };
    let users_file = file(users);
    if tls.is_none() && users_file.is_none() {
        return Err(wrong(
            LISTEN,
            &listen.to_string(),
            "used together with a certificate and key, or users, or both: it would let everyone in",
        ));
    }
    Ok(Some(SecureListener { listen, advertised, tls, users_file }))
}

fn wrong(name: &str, value: &str, expected: &str) -> CliError {
    CliError::new(Exit::Usage, format!("setting {name}: {value} must be {expected}"))
        .hint("docs/broker.md describes the settings of the secure listener")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Option<SecureListener>, CliError> {
        let text = |name: &str| pairs.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned());
        secure_listener(&text, Path::new("/etc/riverrun"))
    }

    #[test]
    fn given_settings_when_read_then_only_a_listener_that_asks_for_something_is_made() {
        assert_eq!(read(&[]).unwrap(), None);
        let made = read(&[
            (LISTEN, "0.0.0.0:9093"),
            (ADVERTISED, "kafka.example:9093"),
            (CERTIFICATE, "c.pem"),
            (KEY, "k.pem"),
            (USERS, "users"),
        ])
        .unwrap()
        .unwrap();
        assert_eq!(made.advertised, Some(("kafka.example".to_owned(), 9093)));
        assert_eq!(made.users_file.as_deref(), Some(Path::new("/etc/riverrun/users")));
        for bad in [
            &[(LISTEN, "9093"), (USERS, "users")][..],
            &[(LISTEN, "127.0.0.1:9093")],
            &[(LISTEN, "0.0.0.0:9093"), (USERS, "users")],
            &[(LISTEN, "127.0.0.1:9093"), (CERTIFICATE, "c.pem")],
            &[(LISTEN, "127.0.0.1:9093"), (KEY, "k.pem"), (USERS, "users")],
            &[(LISTEN, "127.0.0.1:9093"), (ADVERTISED, "x"), (USERS, "users")],
        ] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
