//! Whose blobs are in a store. A log that uses it leaves its name there: what may go is known only where no other log names any.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path as ObjectPath;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload};

use super::{BlobError, ObjectStoreBlobs, if_there};

/// The folder of the names of logs.
const LOGS: &str = "logs";

impl ObjectStoreBlobs {
    /// Leaves the name of a log, and gives those of others.
    pub(super) async fn leave_name(&self, log: &str) -> Result<Vec<String>, BlobError> {
        let own = ObjectPath::from_iter([LOGS, log]);
        if if_there(self.store.head(&own).await)?.is_none() {
            let name = PutPayload::from_bytes(Bytes::copy_from_slice(log.as_bytes()));
            self.store.put(&own, name).await.map_err(|source| BlobError::Store { doing: "put", source })?;
        }
        let found: Result<Vec<ObjectMeta>, _> = self.store.list(Some(&ObjectPath::from(LOGS))).try_collect().await;
        let found = found.map_err(|source| BlobError::Store { doing: "list", source })?;
        let others = found.iter().filter(|object| object.location != own);
        Ok(others.filter_map(|object| object.location.filename().map(str::to_owned)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blobs::BlobStore;

    #[tokio::test]
    async fn given_a_store_when_a_second_log_uses_it_then_each_is_told_of_the_other_and_there_is_no_blob_more() {
        let folder = tempfile::tempdir().unwrap();
        let blobs = ObjectStoreBlobs::local(&folder.path().join("blobs")).unwrap();
        assert!(blobs.claim("MkU3OEVBNTcwNTJENDM2Qg").await.unwrap().is_empty());
        assert!(blobs.claim("MkU3OEVBNTcwNTJENDM2Qg").await.unwrap().is_empty());
        assert_eq!(blobs.claim("b").await.unwrap(), ["MkU3OEVBNTcwNTJENDM2Qg"]);
        assert_eq!(blobs.claim("MkU3OEVBNTcwNTJENDM2Qg").await.unwrap(), ["b"]);
        assert!(blobs.kept().await.unwrap().is_empty() && blobs.list().await.unwrap().is_empty());
    }
}
