//! `riverrun docs ls`.

use riverrun_api::wire::{DocumentView, Page};

use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};
use crate::paging::PageArgs;

pub async fn run(
    connection: &Connection,
    collection: String,
    namespace: Option<String>,
    page: PageArgs,
    output: Output,
) -> Result<(), CliError> {
    let [limit, cursor] = page.query();
    let path = with_query("/documents", &[("collection", Some(collection)), ("namespace", namespace), limit, cursor]);
    let found: Page<DocumentView> = connection.client.get(&path).await?;
    output.show(&found, |found| {
        let row = |document: &DocumentView| {
            let error = document.error.as_ref().map(|error| error.message.clone()).unwrap_or_default();
            [
                document.document_id.to_string(),
                document.source.clone(),
                document.status.as_str().to_owned(),
                document.chunks.to_string(),
                document.updated_at.to_string(),
                error,
            ]
        };
        table(
            ["document", "source", "status", "chunks", "updated", "error"],
            found.items.iter().map(row).collect(),
            "there are no documents in this collection; add some: riverrun ingest <source> -c <collection>",
        )
    })?;
    output.tell_rest(found.next_cursor.as_deref());
    Ok(())
}
