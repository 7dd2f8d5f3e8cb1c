//! The stored documents, for the tool that reads them and for what stands around chunks.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_agents::tools::{Document, Documents, ReadFailure};
use riverrun_knowledge::retrieval::{StoredTexts, TextFailure};
use riverrun_log::BlobStore;
use riverrun_schemas::{Collection, CollectionName, DocumentId, Namespace};
use riverrun_stores::Sql;
use riverrun_stores::read_models::{Within, documents};

pub(crate) struct StoredDocuments {
    pub(crate) sql: Sql,
    pub(crate) blobs: Arc<dyn BlobStore>,
}

#[async_trait]
impl Documents for StoredDocuments {
    async fn read(
        &self,
        namespace: &Namespace,
        collections: Option<&[CollectionName]>,
        document: DocumentId,
    ) -> Result<Option<Document>, ReadFailure> {
        let names = match collections {
            Some(names) => names.to_vec(),
            None => {
                let found = documents::collections(&self.sql, Within::Namespace(namespace)).await.map_err(failure)?;
                found.into_iter().map(|collection| collection.name).collect()
            }
        };
        for name in names {
            let collection = Collection::new(namespace.clone(), name);
            let Some(view) = documents::document(&self.sql, &collection, document).await.map_err(failure)? else {
                continue;
            };
            // What a search finds, not what is just being read in.
            let Some(version) = view.indexed_version else { continue };
            let blob = documents::document_text(&self.sql, &collection, document, &version).await.map_err(failure)?;
            let Some(blob) = blob else { continue };
            let bytes = self.blobs.get(&blob).await.map_err(failure)?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            return Ok(Some(Document { source: view.source, title: view.title, text }));
        }
        Ok(None)
    }
}

#[async_trait]
impl StoredTexts for StoredDocuments {
    async fn text(
        &self,
        collection: &Collection,
        document: DocumentId,
        version: &str,
    ) -> Result<Option<String>, TextFailure> {
        let failure = |error: &dyn std::fmt::Display| TextFailure(error.to_string());
        let blob = documents::document_text(&self.sql, collection, document, version).await;
        let Some(blob) = blob.map_err(|error| failure(&error))? else { return Ok(None) };
        let bytes = self.blobs.get(&blob).await.map_err(|error| failure(&error))?;
        Ok(String::from_utf8(bytes.to_vec()).ok())
    }
}

fn failure(error: impl std::fmt::Display) -> ReadFailure {
    ReadFailure(error.to_string())
}
