//! Blobs in a bucket of S3, or of what speaks its protocol: shared by every process of a cluster.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::{ClientOptions, RetryConfig};

use super::{BlobError, ObjectStoreBlobs};

/// A request may take so long: a blob of the largest size over a slow line.
const REQUEST: Duration = Duration::from_secs(300);
const CONNECT: Duration = Duration::from_secs(5);
/// Tries of a request that may pass; whoever asked then tries again by their own rules.
const RETRIES: usize = 3;
const RETRY_FOR: Duration = Duration::from_secs(30);

/// Which bucket, and the key to it.
#[derive(Clone)]
pub struct S3Config {
    /// The bucket; it must be there.
    pub bucket: String,
    /// `https://host:port` of a server other than Amazon's; its buckets are paths. Plain `http` is taken as it is said.
    pub endpoint: Option<String>,
    /// Its region.
    pub region: String,
    /// Id of the key; without one requests are not signed.
    pub access_key_id: Option<String>,
    /// The key.
    pub secret_access_key: Option<String>,
}

impl S3Config {
    /// Where it is, for people.
    pub fn address(&self) -> String {
        format!("{}/{}", self.endpoint.as_deref().unwrap_or("s3.amazonaws.com"), self.bucket)
    }
}

/// Without the key.
impl fmt::Debug for S3Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("S3Config")
            .field("address", &self.address())
            .field("region", &self.region)
            .finish_non_exhaustive()
    }
}

impl ObjectStoreBlobs {
    /// A bucket. Nothing is asked yet; see [`check`](Self::check).
    pub fn s3(config: &S3Config) -> Result<Self, BlobError> {
        let client = ClientOptions::new()
            .with_timeout(REQUEST)
            .with_connect_timeout(CONNECT)
            .with_allow_http(config.endpoint.as_deref().is_some_and(|endpoint| endpoint.starts_with("http://")));
        let retry = RetryConfig { max_retries: RETRIES, retry_timeout: RETRY_FOR, ..RetryConfig::default() };
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(&config.bucket)
            .with_region(&config.region)
            .with_client_options(client)
            .with_retry(retry);
        if let Some(endpoint) = &config.endpoint {
            builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(false);
        }
        builder = match (&config.access_key_id, &config.secret_access_key) {
            (Some(id), Some(key)) => builder.with_access_key_id(id).with_secret_access_key(key),
            _ => builder.with_skip_signature(true),
        };
        let store = builder.build().map_err(|source| BlobError::Store { doing: "open its bucket", source })?;
        Ok(Self::new(Arc::new(store)))
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::blobs::BlobStore;

    fn config(endpoint: &str, bucket: &str) -> S3Config {
        S3Config {
            bucket: bucket.to_owned(),
            endpoint: Some(endpoint.to_owned()),
            region: "us-east-1".to_owned(),
            access_key_id: Some("test".to_owned()),
            secret_access_key: Some("s3cret".to_owned()),
        }
    }

    #[test]
    fn given_a_bucket_when_it_is_shown_then_its_key_is_not() {
        let shown = format!("{:?}", config("http://127.0.0.1:1", "blobs"));
        assert!(shown.contains("127.0.0.1:1/blobs") && !shown.contains("s3cret"), "{shown}");
    }

    /// Against the server that is named, which has an empty bucket `riverrun-test` (`scripts/services.py s3`).
    #[tokio::test]
    async fn given_a_server_then_content_is_one_blob_there_and_a_bucket_that_is_not_there_is_told() {
        let Ok(endpoint) = std::env::var("RIVERRUN_TEST_S3_ENDPOINT") else { return };
        let blobs = ObjectStoreBlobs::s3(&config(&endpoint, "riverrun-test")).unwrap();
        blobs.check().await.unwrap();
        let first = blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap();
        assert_eq!(blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap(), first);
        assert_eq!(blobs.get(&first).await.unwrap(), "hello");
        assert!(blobs.exists(&first).await.unwrap());
        blobs.delete(&first).await.unwrap();
        blobs.delete(&first).await.unwrap();
        assert_eq!(blobs.get(&first).await.unwrap_err().code(), "blob_not_found");
        let none = ObjectStoreBlobs::s3(&config(&endpoint, "no-such-bucket")).unwrap();
        assert_eq!(none.check().await.unwrap_err().code(), "blob_store_unavailable");
    }
}
