//! The document stores: both pass the same. MongoDB takes part where `RIVERRUN_TEST_MONGODB_URL` names a server.

use std::sync::Arc;

use riverrun_schemas::{BlobRef, Namespace};
use riverrun_stores::documents::{DocumentEvent, DocumentKind};
use riverrun_stores::read_models::PageRequest;
use riverrun_stores::{DocumentStore, MongoDocuments, Sql, SqlDocuments};

mod canvases;
mod reports;
mod sources;

type Log = Vec<(i64, Option<DocumentEvent>)>;

struct Stores {
    all: Vec<Arc<dyn DocumentStore>>,
    _folder: tempfile::TempDir,
}

/// Fresh ones.
async fn stores(test: &str) -> Stores {
    let folder = tempfile::tempdir().unwrap();
    let sql = Sql::open(folder.path().join("read.db")).await.unwrap();
    let mut all: Vec<Arc<dyn DocumentStore>> = vec![Arc::new(SqlDocuments::new(sql))];
    if let Some(url) = std::env::var("RIVERRUN_TEST_MONGODB_URL").ok().filter(|url| !url.is_empty()) {
        let name = format!("test-{test}-{}", std::process::id());
        let mongo = MongoDocuments::open(&url.replacen("/?", &format!("/{name}?"), 1)).await.unwrap();
        assert!(!mongo.version().await.unwrap().is_empty());
        mongo.clear().await.unwrap();
        all.push(Arc::new(mongo));
    }
    Stores { all, _folder: folder }
}

fn namespace() -> Namespace {
    "team-a".parse().unwrap()
}

fn blob(text: &str) -> BlobRef {
    BlobRef {
        sha256: text.to_owned(),
        size_bytes: i64::try_from(text.len()).unwrap(),
        media_type: "application/pdf".to_owned(),
    }
}

/// Events from offset 0 on.
fn log_of<E: Into<DocumentEvent>>(events: Vec<E>) -> Log {
    events.into_iter().enumerate().map(|(offset, event)| (i64::try_from(offset).unwrap(), Some(event.into()))).collect()
}

/// Ids of a kind in a namespace, page by page of two.
async fn ids(store: &dyn DocumentStore, kind: DocumentKind, namespace: &Namespace) -> Vec<String> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(kind, namespace, &PageRequest { limit: Some(2), cursor }).await.unwrap();
        assert!(page.items.len() <= 2);
        found.extend(page.items.into_iter().map(|entry| entry.id));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return found;
        }
    }
}
