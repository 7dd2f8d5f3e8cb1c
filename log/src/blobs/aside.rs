//! How a blob leaves the store: in two steps, with time between them. It is set aside under a name that says when, where whoever
//! still asks for it finds it and brings it back; what lies there for long and is named by nobody is forgotten. So a blob that is put
//! again or named while it is being removed is never missing, with any number of processes and after a crash in any place: putting
//! looks only for the blob in its place, and forgetting takes only what was set aside.

use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{Error, ObjectMeta, ObjectStore, ObjectStoreExt};

use super::{BlobError, ObjectStoreBlobs, path_of};

/// The folder of what was set aside: `aside/<hash>/<milliseconds since the epoch>`.
const ASIDE: &str = "aside";

/// A blob as it lies in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptBlob {
    /// Its hash, in lower-case hex.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// When it was written, or set aside, in milliseconds since the epoch.
    pub since_ms: i64,
    /// Whether it was set aside.
    pub aside: bool,
}

impl KeptBlob {
    /// What an object is; `None` for what is no blob.
    fn of(object: &ObjectMeta) -> Option<Self> {
        let name: &str = object.location.as_ref();
        let (folder, rest) = name.split_once('/')?;
        let (sha256, since_ms, aside) = if folder == ASIDE {
            let (sha256, since) = rest.split_once('/')?;
            (sha256.to_owned(), since.parse().ok()?, true)
        } else {
            (format!("{folder}{rest}"), object.last_modified.timestamp_millis(), false)
        };
        let kept = Self { sha256, size_bytes: object.size, since_ms, aside };
        let is_its_place = kept.place().is_ok_and(|place| place == object.location);
        is_its_place.then_some(kept)
    }

    /// Where it lies.
    pub(super) fn place(&self) -> Result<ObjectPath, BlobError> {
        if self.aside { aside_path(&self.sha256, self.since_ms) } else { path_of(&self.sha256) }
    }
}

fn aside_path(sha256: &str, since_ms: i64) -> Result<ObjectPath, BlobError> {
    path_of(sha256)?;
    Ok(ObjectPath::from_iter([ASIDE, sha256, since_ms.to_string().as_str()]))
}

fn failed(doing: &'static str) -> impl Fn(Error) -> BlobError {
    move |source| BlobError::Store { doing, source }
}

impl ObjectStoreBlobs {
    /// All that is there, in its place and aside.
    pub(super) async fn all(&self) -> Result<Vec<KeptBlob>, BlobError> {
        let objects: Vec<ObjectMeta> = self.store.list(None).try_collect().await.map_err(failed("list"))?;
        Ok(objects.iter().filter_map(KeptBlob::of).collect())
    }

    /// The times at which a blob was set aside.
    pub(super) async fn aside_of(&self, sha256: &str) -> Result<Vec<KeptBlob>, BlobError> {
        path_of(sha256)?;
        let folder = ObjectPath::from_iter([ASIDE, sha256]);
        let objects: Vec<ObjectMeta> = self.store.list(Some(&folder)).try_collect().await.map_err(failed("list"))?;
        Ok(objects.iter().filter_map(KeptBlob::of).collect())
    }

    /// Whether it was in its place.
    pub(super) async fn move_aside(&self, sha256: &str, now_ms: i64) -> Result<bool, BlobError> {
        self.moved(&path_of(sha256)?, &aside_path(sha256, now_ms)?).await
    }

    /// Whether it is in its place now. What others bring back at the same time is there, too.
    pub(super) async fn move_back(&self, sha256: &str) -> Result<bool, BlobError> {
        let place = path_of(sha256)?;
        for kept in self.aside_of(sha256).await? {
            if self.moved(&kept.place()?, &place).await? {
                return Ok(true);
            }
        }
        match self.store.head(&place).await {
            Ok(_) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(failed("look for a blob")(source)),
        }
    }

    /// Deletes what was set aside; what is in its place stays.
    pub(super) async fn delete_aside(&self, kept: &KeptBlob) -> Result<(), BlobError> {
        if !kept.aside {
            return Ok(());
        }
        match self.store.delete(&kept.place()?).await {
            Ok(()) | Err(Error::NotFound { .. }) => Ok(()),
            Err(source) => Err(failed("delete")(source)),
        }
    }

    async fn moved(&self, from: &ObjectPath, to: &ObjectPath) -> Result<bool, BlobError> {
        match self.store.rename(from, to).await {
            Ok(()) => Ok(true),
            Err(Error::NotFound { .. }) => Ok(false),
            Err(source) => Err(failed("move a blob")(source)),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use riverrun_schemas::BlobRef;

    use super::*;
    use crate::blobs::BlobStore;

    async fn store() -> (tempfile::TempDir, ObjectStoreBlobs, BlobRef) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        let blob = blobs.put_bytes(Bytes::from_static(b"{\"a\":1}"), "application/json").await.unwrap();
        (folder, blobs, blob)
    }

    fn places(kept: &[KeptBlob]) -> Vec<bool> {
        let mut places: Vec<bool> = kept.iter().map(|kept| kept.aside).collect();
        places.sort_unstable();
        places
    }

    #[tokio::test]
    async fn given_a_blob_that_was_set_aside_when_it_is_asked_for_then_it_is_there_and_back_in_its_place() {
        let (_folder, blobs, blob) = store().await;
        assert!(blobs.set_aside(&blob.sha256, 1_000).await.unwrap());
        assert!(!blobs.set_aside(&blob.sha256, 2_000).await.unwrap(), "it is not in its place any more");
        assert_eq!(places(&blobs.kept().await.unwrap()), [true]);
        assert!(blobs.exists(&blob).await.unwrap());
        assert_eq!(blobs.list().await.unwrap().len(), 1, "whoever carries the store carries it, too");
        assert_eq!(blobs.get(&blob).await.unwrap(), "{\"a\":1}");
        assert_eq!(places(&blobs.kept().await.unwrap()), [false]);
    }

    #[tokio::test]
    async fn given_a_blob_that_is_put_again_while_it_is_aside_when_what_is_aside_is_forgotten_then_it_stays() {
        let (_folder, blobs, blob) = store().await;
        blobs.set_aside(&blob.sha256, 1_000).await.unwrap();
        blobs.put_bytes(Bytes::from_static(b"{\"a\":1}"), "application/json").await.unwrap();
        let kept = blobs.kept().await.unwrap();
        assert_eq!(places(&kept), [false, true]);
        for aside in kept.iter().filter(|kept| kept.aside) {
            assert_eq!(aside.since_ms, 1_000);
            blobs.forget(aside).await.unwrap();
        }
        assert_eq!(blobs.get(&blob).await.unwrap(), "{\"a\":1}");
        assert_eq!(places(&blobs.kept().await.unwrap()), [false]);
    }

    #[tokio::test]
    async fn given_a_blob_that_is_aside_when_it_is_forgotten_or_deleted_then_nobody_finds_it() {
        for by_deletion in [false, true] {
            let (_folder, blobs, blob) = store().await;
            blobs.set_aside(&blob.sha256, 1_000).await.unwrap();
            if by_deletion {
                blobs.delete(&blob).await.unwrap();
            } else {
                blobs.forget(&blobs.kept().await.unwrap()[0]).await.unwrap();
            }
            assert!(!blobs.exists(&blob).await.unwrap());
            assert_eq!(blobs.get(&blob).await.unwrap_err().code(), "blob_not_found");
            assert!(!blobs.bring_back(&blob.sha256).await.unwrap());
        }
    }

    #[tokio::test]
    async fn given_a_blob_in_its_place_when_it_is_forgotten_then_it_stays() {
        let (_folder, blobs, blob) = store().await;
        let kept = blobs.kept().await.unwrap();
        blobs.forget(&kept[0]).await.unwrap();
        assert!(blobs.exists(&blob).await.unwrap());
    }

    #[tokio::test]
    async fn given_blobs_of_all_kinds_when_their_json_is_asked_for_then_only_json_is_read() {
        let (_folder, blobs, blob) = store().await;
        assert_eq!(blobs.json(&blob.sha256).await.unwrap().unwrap(), "{\"a\":1}");
        for other in ["", "text", "  {", "\u{feff}{"] {
            let other = blobs.put_bytes(Bytes::from_static(other.as_bytes()), "text/plain").await.unwrap();
            assert_eq!(blobs.json(&other.sha256).await.unwrap(), None);
        }
        assert_eq!(blobs.json(&"0".repeat(64)).await.unwrap(), None, "it is not there");
        blobs.set_aside(&blob.sha256, 1_000).await.unwrap();
        assert!(blobs.json(&blob.sha256).await.unwrap().is_some(), "what is aside is read, too");
    }
}
