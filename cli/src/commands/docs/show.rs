//! `riverrun docs show`.

use riverrun_api::wire::DocumentDetail;

use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::Output;

pub async fn run(connection: &Connection, id: &str, namespace: Option<String>, output: Output) -> Result<(), CliError> {
    let path = with_query(&format!("/documents/{}", encode(id)), &[("namespace", namespace)]);
    let found: DocumentDetail = connection.client.get(&path).await?;
    output.show(&found, words)
}

fn words(found: &DocumentDetail) -> String {
    let document = &found.document;
    let mut lines = vec![
        format!("{}  {}", document.document_id, document.source),
        format!("{}/{} · {}", document.namespace, document.collection, document.status.as_str()),
    ];
    lines.extend(document.title.iter().map(|title| format!("title {title}")));
    lines.extend(document.error.iter().map(|error| format!("{}: {}", error.code, error.message)));
    for version in &found.versions {
        let found =
            if document.indexed_version.as_ref() == Some(&version.version) { " · found by searches" } else { "" };
        lines.push(format!(
            "version {:.12} · {} chunks · {} bytes of text · {}{found}",
            version.version, version.chunks, version.text_size_bytes, version.created_at
        ));
    }
    lines.join("\n")
}
