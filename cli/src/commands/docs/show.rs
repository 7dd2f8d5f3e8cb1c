//! `riverrun docs show`.

use riverrun_api::wire::{DocumentDetail, SourceVersion};
use riverrun_schemas::counted;

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
            "version {:.12} · {} · {} of text · {}{found}",
            version.version,
            counted(version.chunks, "chunk"),
            counted(version.text_size_bytes, "byte"),
            version.created_at
        ));
    }
    for source in &found.source_versions {
        lines.push(source_line(source));
        lines.extend(source.notes.iter().map(|note| format!("note: {note}")));
    }
    lines.join("\n")
}

/// What is known of the bytes behind a version; what is not known is left out.
fn source_line(source: &SourceVersion) -> String {
    let parts = [
        source.media_type.clone(),
        source.size_bytes.map(|size| counted(size, "byte")),
        source.sha256.as_ref().map(|sha256| format!("sha256 {sha256:.12}")),
        source.encoding.clone(),
        source.author.as_ref().map(|author| format!("by {author}")),
        source.pages.map(|pages| counted(pages, "page")),
        Some(format!("fetched {}", source.fetched_at)),
        (source.seen_at > source.fetched_at).then(|| format!("found the same {}", source.seen_at)),
    ];
    let known: Vec<String> = parts.into_iter().flatten().collect();
    format!("source of {:.12}: {}", source.version, known.join(" · "))
}
