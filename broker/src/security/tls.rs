//! TLS of a listener: rustls with the certificate and key of the configuration.

use std::path::Path;
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::{SecurityError, TlsFiles};

/// Reads certificate and key; TLS 1.2 and 1.3 are spoken. Blocks.
pub(crate) fn acceptor(files: &TlsFiles) -> Result<TlsAcceptor, SecurityError> {
    let unreadable = |path: &Path, reason: String| SecurityError::File { path: path.to_path_buf(), reason };
    let chain = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(|certificates| certificates.collect::<Result<Vec<CertificateDer<'static>>, _>>())
        .map_err(|error| unreadable(&files.certificate, error.to_string()))?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unreadable(&files.key, error.to_string()))?;
    let unusable = |reason: String| SecurityError::Certificate { path: files.certificate.clone(), reason };
    if chain.is_empty() {
        return Err(unusable("the file holds no certificate".into()));
    }
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|error| unusable(error.to_string()))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
