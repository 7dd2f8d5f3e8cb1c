//! `riverrun chains cancel`.

use riverrun_api::wire::{CancelBody, ChainView};
use riverrun_schemas::{agreed, counted};

use super::OneChain;
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(
    connection: &Connection,
    chain: &OneChain,
    reason: Option<String>,
    output: Output,
) -> Result<(), CliError> {
    let chain_id = &chain.chain_id;
    let chain: ChainView = connection.client.post(&chain.path("/cancel"), &CancelBody { reason }).await?;
    if !output.json {
        let open = chain.runs.iter().filter(|run| !run.status.ended()).count();
        let (runs, were) = (counted(open, "run"), agreed(open, "was", "were"));
        tell(&format!(
            "{runs} of chain {chain_id} {were} asked to stop; riverrun chains watch {chain_id} shows when that is done"
        ));
    }
    output.show(&chain, |chain| chain.chain_id.to_string())
}
