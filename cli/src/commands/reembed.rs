//! `riverrun collections reembed`.

use clap::Args;
use riverrun_api::wire::{ReembedBody, ReembeddingView};
use riverrun_schemas::{agreed, counted};

use crate::awaited;
use crate::client::encode;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

/// Options of `collections reembed`.
#[derive(Debug, Args)]
pub struct ReembedArgs {
    /// The collection
    pub name: String,
    /// The embedding model that it is to have; the default one when left out
    #[arg(long)]
    pub model: Option<String>,
    /// Its namespace
    #[arg(short, long)]
    pub namespace: Option<String>,
}

pub async fn run(connection: &Connection, args: ReembedArgs, output: Output) -> Result<(), CliError> {
    let path = format!("/collections/{}/reembed", encode(&args.name));
    let body = ReembedBody { model: args.model, namespace: args.namespace };
    let meanwhile = |view: &ReembeddingView| {
        let chunks = counted(view.chunks, "chunk");
        format!("embedding {chunks} with {}; searches go on with the model before", view.embed_model)
    };
    let view = awaited::ended(connection, &path, &body, meanwhile, output).await?;
    output.show(&view, |view| {
        format!(
            "{}/{}: {} of {} {} vectors of {} ({})",
            view.namespace,
            view.collection,
            counted(view.chunks, "chunk"),
            counted(view.documents, "document"),
            agreed(view.chunks, "has", "have"),
            view.embed_model,
            view.dimensions.unwrap_or_default()
        )
    })
}
