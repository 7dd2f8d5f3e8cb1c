//! `riverrun collections`.

use riverrun_api::wire::{CollectionView, Items};

use crate::args::NamespaceArgs;
use crate::client::with_query;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, table};

pub async fn run(connection: &Connection, args: NamespaceArgs, output: Output) -> Result<(), CliError> {
    let found: Items<CollectionView> =
        connection.client.get(&with_query("/collections", &[("namespace", args.namespace)])).await?;
    output.show(&found, |found| {
        let row = |c: &CollectionView| {
            let embedding = format!("{} ({})", c.embedding.model, c.embedding.dimensions);
            [
                c.name.to_string(),
                c.namespace.to_string(),
                c.documents.to_string(),
                c.chunks.to_string(),
                embedding,
                c.updated_at.to_string(),
            ]
        };
        let empty = "there are no collections yet; make one: riverrun ingest <source> -c <collection>";
        table(
            ["collection", "namespace", "documents", "chunks", "embedding", "updated"],
            found.items.iter().map(row).collect(),
            empty,
        )
    })
}
