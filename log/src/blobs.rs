//! Content that is too large for the log, kept by its hash: the claim check pattern. An event carries a
//! [`BlobRef`]; whoever holds one can fetch the content and prove that it is the right one.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use object_store::local::LocalFileSystem;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use riverrun_schemas::BlobRef;
use sha2::{Digest, Sha256};

mod aside;
mod owners;
mod s3;

pub use aside::KeptBlob;
pub use s3::S3Config;

/// No blob is larger than this: 512 MiB. It is held in memory when it is put and got.
pub const MAX_BLOB_BYTES: usize = 512 << 20;

/// Why the blob store could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    /// No content has that hash.
    #[error("blob {0} is not in the blob store; ingest its document again")]
    NotFound(String),
    /// What lies under the hash is something else.
    #[error("blob {sha256} is damaged: its content has the hash {found}; delete it and ingest its document again")]
    Damaged {
        /// The hash that was asked for.
        sha256: String,
        /// The hash of what was found.
        found: String,
    },
    /// The reference can't be right.
    #[error("{0:?} is no SHA-256 in lower-case hex")]
    BadReference(String),
    /// Larger than blobs may be.
    #[error("content of {bytes} bytes is over the limit of {limit}; split it")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        limit: usize,
    },
    /// The store failed.
    #[error("blob store failed to {doing}: {source}")]
    Store {
        /// What was being done.
        doing: &'static str,
        /// What the store says.
        source: object_store::Error,
    },
}

impl BlobError {
    /// Stable code.
    pub fn code(&self) -> &'static str {
        match self {
            BlobError::NotFound(_) => "blob_not_found",
            BlobError::Damaged { .. } => "blob_damaged",
            BlobError::BadReference(_) => "bad_blob_reference",
            BlobError::TooLarge { .. } => "blob_too_large",
            BlobError::Store { .. } => "blob_store_unavailable",
        }
    }

    /// Whether the same call may succeed later.
    pub fn retryable(&self) -> bool {
        matches!(self, BlobError::Store { .. })
    }
}

/// Keeps content by its hash. The same content is kept once, however often it is put.
#[async_trait]
pub trait BlobStore: Send + Sync + std::fmt::Debug + 'static {
    /// Keeps `content`; it is durable when this returns.
    async fn put_bytes(&self, content: Bytes, media_type: &str) -> Result<BlobRef, BlobError>;

    /// The content, checked against its hash.
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError>;

    /// Whether the content is there. Does not read it.
    async fn exists(&self, blob: &BlobRef) -> Result<bool, BlobError>;

    /// Deletes the content wherever it lies; no error when it is not there.
    async fn delete(&self, blob: &BlobRef) -> Result<(), BlobError>;

    /// Tells that a log names blobs of this store, and gives the names of other logs that do.
    async fn claim(&self, log: &str) -> Result<Vec<String>, BlobError>;

    /// All that is there, in its place and set aside, in no order.
    async fn kept(&self) -> Result<Vec<KeptBlob>, BlobError>;

    /// Takes a blob out of its place; who asks for it still finds it. False when it was not there.
    async fn set_aside(&self, sha256: &str, now_ms: i64) -> Result<bool, BlobError>;

    /// Puts a blob that was set aside into its place. False when it is nowhere.
    async fn bring_back(&self, sha256: &str) -> Result<bool, BlobError>;

    /// Deletes what was set aside; what is in its place stays.
    async fn forget(&self, kept: &KeptBlob) -> Result<(), BlobError>;

    /// The content where it is a JSON list or object: such content may name other blobs. `None` for any other content, and where
    /// it is not there. Of other content one byte is read.
    async fn json(&self, sha256: &str) -> Result<Option<Bytes>, BlobError>;
}

/// Blobs in an object store, under `ab/cdef…`.
#[derive(Debug, Clone)]
pub struct ObjectStoreBlobs {
    store: Arc<dyn ObjectStore>,
}

impl ObjectStoreBlobs {
    /// Any object store.
    pub fn new(store: Arc<dyn ObjectStore>) -> Self {
        Self { store }
    }

    /// A local folder, made when it is missing. Files and folders are synced before a put returns.
    pub fn local(folder: &Path) -> Result<Self, BlobError> {
        let doing = "open its folder";
        std::fs::create_dir_all(folder).map_err(|error| BlobError::Store {
            doing,
            source: object_store::Error::Generic { store: "local", source: Box::new(error) },
        })?;
        let store = LocalFileSystem::new_with_prefix(folder)
            .map_err(|source| BlobError::Store { doing, source })?
            .with_fsync(true)
            .with_automatic_cleanup(false);
        Ok(Self::new(Arc::new(store)))
    }

    /// Asks for what nobody has, so that a server which is not there, or a bucket, is told at start.
    pub async fn check(&self) -> Result<(), BlobError> {
        let nothing = ObjectPath::from("none");
        let found = self.store.list_with_delimiter(Some(&nothing)).await;
        found.map(drop).map_err(|source| BlobError::Store { doing: "answer", source })
    }
}

impl ObjectStoreBlobs {
    /// What is kept, also aside, by name. Media types are not: whoever refers to a blob knows its own.
    pub async fn list(&self) -> Result<Vec<BlobRef>, BlobError> {
        let mut blobs: Vec<BlobRef> =
            self.all().await?.into_iter().map(|kept| bytes_named(&kept.sha256, kept.size_bytes)).collect();
        blobs.sort_by(|a, b| a.sha256.cmp(&b.sha256));
        blobs.dedup_by(|a, b| a.sha256 == b.sha256);
        Ok(blobs)
    }

    /// What lies at a place, checked against its hash.
    async fn read(&self, path: &ObjectPath, sha256: &str) -> Result<Bytes, BlobError> {
        let failed = |source| match source {
            object_store::Error::NotFound { .. } => BlobError::NotFound(sha256.to_owned()),
            source => BlobError::Store { doing: "get", source },
        };
        let found = self.store.get(path).await.map_err(failed)?;
        let size = usize::try_from(found.meta.size).unwrap_or(usize::MAX);
        if size > MAX_BLOB_BYTES {
            return Err(BlobError::TooLarge { bytes: size, limit: MAX_BLOB_BYTES });
        }
        let content = found.bytes().await.map_err(failed)?;
        let hash = sha256_hex(&content);
        if hash == sha256 { Ok(content) } else { Err(BlobError::Damaged { sha256: sha256.to_owned(), found: hash }) }
    }
}

/// A reference by someone who knows no media type.
fn bytes_named(sha256: &str, size_bytes: u64) -> BlobRef {
    BlobRef {
        sha256: sha256.to_owned(),
        size_bytes: i64::try_from(size_bytes).unwrap_or(i64::MAX),
        media_type: "application/octet-stream".to_owned(),
    }
}

/// `None` for what is not there.
fn if_there<T>(found: object_store::Result<T>) -> Result<Option<T>, BlobError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(object_store::Error::NotFound { .. }) => Ok(None),
        Err(source) => Err(BlobError::Store { doing: "look into a blob", source }),
    }
}

/// SHA-256 in lower-case hex.
pub fn sha256_hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A reference comes from the log, which others can write to: it never names anything but a blob.
fn path_of(sha256: &str) -> Result<ObjectPath, BlobError> {
    let hex = sha256.len() == 64 && sha256.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !hex {
        return Err(BlobError::BadReference(sha256.chars().take(80).collect()));
    }
    let (folder, file) = sha256.split_at(2);
    Ok(ObjectPath::from_iter([folder, file]))
}

#[async_trait]
impl BlobStore for ObjectStoreBlobs {
    async fn put_bytes(&self, content: Bytes, media_type: &str) -> Result<BlobRef, BlobError> {
        if content.len() > MAX_BLOB_BYTES {
            return Err(BlobError::TooLarge { bytes: content.len(), limit: MAX_BLOB_BYTES });
        }
        let size_bytes = content.len() as i64; // at most 512 MiB
        let hashed = content.clone();
        let sha256 =
            tokio::task::spawn_blocking(move || sha256_hex(&hashed)).await.unwrap_or_else(|_| sha256_hex(&content));
        let blob = BlobRef { sha256, size_bytes, media_type: media_type.to_owned() };
        let path = path_of(&blob.sha256)?;
        let there = self.store.head(&path).await.is_ok_and(|meta| meta.size == content.len() as u64);
        if !there {
            self.store
                .put(&path, PutPayload::from_bytes(content))
                .await
                .map_err(|source| BlobError::Store { doing: "put", source })?;
        }
        Ok(blob)
    }

    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        let path = path_of(&blob.sha256)?;
        match self.read(&path, &blob.sha256).await {
            Err(BlobError::NotFound(_)) => {}
            read => return read,
        }
        if self.move_back(&blob.sha256).await? {
            self.read(&path, &blob.sha256).await
        } else {
            Err(BlobError::NotFound(blob.sha256.clone()))
        }
    }

    async fn exists(&self, blob: &BlobRef) -> Result<bool, BlobError> {
        match self.store.head(&path_of(&blob.sha256)?).await {
            Ok(_) => Ok(true),
            Err(object_store::Error::NotFound { .. }) => Ok(!self.aside_of(&blob.sha256).await?.is_empty()),
            Err(source) => Err(BlobError::Store { doing: "look for a blob", source }),
        }
    }

    async fn delete(&self, blob: &BlobRef) -> Result<(), BlobError> {
        match self.store.delete(&path_of(&blob.sha256)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
            Err(source) => return Err(BlobError::Store { doing: "delete", source }),
        }
        for aside in self.aside_of(&blob.sha256).await? {
            self.delete_aside(&aside).await?;
        }
        Ok(())
    }

    async fn claim(&self, log: &str) -> Result<Vec<String>, BlobError> {
        self.leave_name(log).await
    }

    async fn kept(&self) -> Result<Vec<KeptBlob>, BlobError> {
        self.all().await
    }

    async fn set_aside(&self, sha256: &str, now_ms: i64) -> Result<bool, BlobError> {
        self.move_aside(sha256, now_ms).await
    }

    async fn bring_back(&self, sha256: &str) -> Result<bool, BlobError> {
        self.move_back(sha256).await
    }

    async fn forget(&self, kept: &KeptBlob) -> Result<(), BlobError> {
        self.delete_aside(kept).await
    }

    async fn json(&self, sha256: &str) -> Result<Option<Bytes>, BlobError> {
        let mut path = path_of(sha256)?;
        let mut found = if_there(self.store.head(&path).await)?;
        if found.is_none()
            && let Some(aside) = self.aside_of(sha256).await?.first()
        {
            path = aside.place()?;
            found = if_there(self.store.head(&path).await)?;
        }
        if found.is_none_or(|meta| meta.size == 0) {
            return Ok(None);
        }
        let first = if_there(self.store.get_range(&path, 0..1).await)?;
        if !first.is_some_and(|first| matches!(first.first(), Some(b'{' | b'['))) {
            return Ok(None);
        }
        self.read(&path, sha256).await.map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ObjectStoreBlobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        (folder, blobs)
    }

    #[tokio::test]
    async fn given_content_put_twice_then_it_is_one_blob_that_can_be_got_and_deleted() {
        let (folder, blobs) = store();
        let first = blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap();
        let again = blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap();
        assert_eq!(first, again);
        assert_eq!(first.sha256, "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
        assert!(
            folder.path().join("blobs/2c/f24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824").is_file()
        );
        assert_eq!(blobs.get(&first).await.unwrap(), "hello");
        assert!(blobs.exists(&first).await.unwrap());
        blobs.delete(&first).await.unwrap();
        blobs.delete(&first).await.unwrap();
        assert!(!blobs.exists(&first).await.unwrap());
        assert_eq!(blobs.get(&first).await.unwrap_err().code(), "blob_not_found");
    }

    #[tokio::test]
    async fn given_a_blob_that_was_changed_or_cut_on_disk_then_get_says_damaged() {
        let (folder, blobs) = store();
        let blob = blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap();
        let file = folder.path().join("blobs").join(&blob.sha256[..2]).join(&blob.sha256[2..]);
        for damage in [&b"hellO"[..], b"hell", b""] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(blobs.get(&blob).await.unwrap_err().code(), "blob_damaged");
        }
        let mended = blobs.put_bytes(Bytes::from_static(b"hello"), "text/plain").await.unwrap();
        assert_eq!(blobs.get(&mended).await.unwrap(), "hello");
    }

    #[tokio::test]
    async fn given_a_reference_that_is_no_hash_then_nothing_is_looked_for() {
        let (_folder, blobs) = store();
        for bad in ["", "..", "../../etc/passwd", &"A".repeat(64), &"g".repeat(64), &"a".repeat(63)] {
            let blob = BlobRef { sha256: bad.to_owned(), size_bytes: 1, media_type: "text/plain".into() };
            assert_eq!(blobs.get(&blob).await.unwrap_err().code(), "bad_blob_reference", "{bad:?}");
            assert!(blobs.exists(&blob).await.is_err());
            assert!(blobs.delete(&blob).await.is_err());
        }
    }
}
