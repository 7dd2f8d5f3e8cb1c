//! `riverrun docs rm`.

use riverrun_api::wire::DeletionView;
use riverrun_schemas::counted;

use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::{Output, tell};

pub async fn run(connection: &Connection, id: &str, namespace: Option<String>, output: Output) -> Result<(), CliError> {
    let path = with_query(&format!("/documents/{}", encode(id)), &[("namespace", namespace)]);
    let receipt: DeletionView = connection.client.delete(&path).await?;
    show(&receipt, output)
}

/// What went, and where to ask again when not all of it has.
pub(crate) fn show(receipt: &DeletionView, output: Output) -> Result<(), CliError> {
    if !output.json && !receipt.is_done() {
        tell(&format!(
            "{} is not done yet: GET /deletions/{} tells when it is",
            receipt.deletion_id, receipt.deletion_id
        ));
    }
    output.show(receipt, |receipt| {
        format!(
            "removed {} · {} from vectors · {} from keywords · {} with {}",
            counted(receipt.documents, "document"),
            counted(receipt.vectors, "chunk"),
            receipt.keywords,
            counted(receipt.tables, "table"),
            counted(receipt.rows, "row")
        )
    })
}
