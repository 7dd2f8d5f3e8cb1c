//! `riverrun embed`.

use riverrun_api::wire::{EmbedBody, EmbedDone};
use riverrun_schemas::counted;

use crate::args::EmbedArgs;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(connection: &Connection, args: EmbedArgs, output: Output) -> Result<(), CliError> {
    let body = EmbedBody { inputs: vec![args.text], provider: args.provider, model: args.model };
    let done: EmbedDone = connection.client.post("/embed", &body).await?;
    if !output.json {
        let (dimensions, tokens) = (counted(done.dimensions, "dimension"), counted(done.usage.total_tokens, "token"));
        tell(&format!("{} · {dimensions} · {tokens}", done.model));
        if done.truncated > 0 {
            tell("note: the text is longer than the model reads; only its beginning counts");
        }
    }
    output.show(&done, |done| {
        done.vectors
            .iter()
            .map(|vector| vector.iter().map(f32::to_string).collect::<Vec<_>>().join(" "))
            .collect::<Vec<_>>()
            .join("\n")
    })
}
