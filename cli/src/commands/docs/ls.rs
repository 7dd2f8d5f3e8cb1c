//! `riverrun docs ls`.

use riverrun_api::wire::{DocumentView, Page as Found};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table, tell};

/// Which documents.
pub struct Page {
    /// The collection.
    pub collection: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// Most documents.
    pub limit: Option<u32>,
    /// Where the list goes on.
    pub cursor: Option<String>,
}

pub async fn run(connection: &Connection, page: Page, output: Output) -> Result<(), CliError> {
    let Page { collection, namespace, limit, cursor } = page;
    let limit = limit.map(|limit| limit.to_string());
    let path = with_query(
        "/documents",
        &[("collection", Some(collection)), ("namespace", namespace), ("limit", limit), ("cursor", cursor)],
    );
    let found: Found<DocumentView> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let row = |document: &DocumentView| {
            let trouble = document.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
            [
                document.document_id.to_string(),
                document.source.clone(),
                document.status.as_str().to_owned(),
                document.chunks.to_string(),
                document.updated_at.to_string(),
                trouble,
            ]
        };
        table(
            ["id", "source", "status", "chunks", "updated", "trouble"],
            found.items.iter().map(row).collect(),
            "the collection has no documents",
        )
    })?;
    if let (Some(cursor), false) = (&found.next_cursor, output.json) {
        tell(&format!("there are more: --cursor {cursor}"));
    }
    Ok(())
}
