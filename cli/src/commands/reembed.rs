//! `riverrun collections reembed`.

use std::time::Duration;

use clap::Args;
use riverrun_api::wire::{ReembedBody, ReembeddingView};
use riverrun_schemas::{agreed, counted};

use crate::client::encode;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, tell};

const POLL: Duration = Duration::from_millis(500);

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
    let mut view: ReembeddingView = connection.client.post(&path, &body).await?;
    if !view.ended() && !output.json {
        tell(&format!(
            "embedding {} with {}; searches go on with the model before",
            counted(view.chunks, "chunk"),
            view.embed_model
        ));
    }
    while !view.ended() {
        tokio::time::sleep(POLL).await;
        view = connection.client.get(&format!("/reembeddings/{}", view.reembedding_id)).await?;
    }
    if let Some(error) = &view.error {
        return Err(CliError::new(Exit::Failed, error.message.clone()).maybe_hint(error.hint.clone()));
    }
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
