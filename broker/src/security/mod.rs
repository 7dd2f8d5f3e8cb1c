//! Who may speak on a listener: TLS below, SASL above.
//!
//! The loopback listener knows neither. A secure listener has a certificate, a list of users, or both; until a client has
//! named itself there, nothing but `ApiVersions`, `SaslHandshake` and `SaslAuthenticate` is answered (`AUTH-1`).

pub(crate) mod authentication;
mod scram;
pub(crate) mod tls;
pub(crate) mod users;

use std::net::SocketAddr;
use std::path::PathBuf;

/// A further listener, for clients beyond this machine. It must have a certificate, users, or both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecureListener {
    /// Address to listen on; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Host and port told to clients of this listener; none tells each client the address that it has connected to.
    pub advertised: Option<(String, u16)>,
    /// Certificate and key; none speaks plain TCP.
    pub tls: Option<TlsFiles>,
    /// A file with one `name=password` a line; none lets everyone in who can connect.
    pub users_file: Option<PathBuf>,
}

/// A certificate chain and its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate, then those of its issuers.
    pub certificate: PathBuf,
    /// PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
}

/// Why a secure listener cannot be.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// Neither certificate nor users.
    #[error("the listener {address} would let everyone in: give it a certificate, a file of users, or both")]
    Open {
        /// Where.
        address: SocketAddr,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}: {reason}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
    /// A line that is no user.
    #[error("{path} line {line}: expected name=password with a name of 1 to 255 bytes, each name once")]
    User {
        /// Which file.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
    },
    /// More users than are kept.
    #[error("{path} has more than {max} users")]
    TooManyUsers {
        /// Which file.
        path: PathBuf,
        /// The limit.
        max: usize,
    },
    /// Certificate and key do not go together, or are not usable.
    #[error("the certificate {path} cannot be used: {reason}")]
    Certificate {
        /// Which.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}
