//! `riverrun ingest FOLDER --prune`: documents of the folder whose files are gone are removed.

use std::io::ErrorKind;
use std::path::Path;

use riverrun_api::wire::{DeletionView, DocumentView, IngestView, Page};

use crate::client::{encode, with_query};
use crate::error::CliError;
use crate::host::Connection;
use crate::output::tell;

/// Documents that are asked for together.
const PAGE: u32 = 200;
/// What parts a document's source from the archive or repository that it came from.
const WITHIN: [&str; 2] = ["!/", "#"];

/// Removes what of the folder is in the collection of `view` and not on the disk, and says so.
pub(super) async fn run(connection: &Connection, folder: &str, view: &IngestView) -> Result<(), CliError> {
    // All of them first: a page that is looked at while documents go is another page.
    for document in gone(connection, folder, view).await? {
        let path = format!("/documents/{}", encode(&document.document_id.to_string()));
        let receipt: DeletionView =
            connection.client.delete(&with_query(&path, &[("namespace", Some(view.namespace.clone()))])).await?;
        let rest = if receipt.is_done() { "" } else { "; its chunks are being removed" };
        tell(&format!("removed {}: its file is gone{rest}", document.source));
    }
    Ok(())
}

async fn gone(connection: &Connection, folder: &str, view: &IngestView) -> Result<Vec<DocumentView>, CliError> {
    let (mut found, mut cursor) = (Vec::new(), None);
    loop {
        let asked = [
            ("collection", Some(view.collection.clone())),
            ("namespace", Some(view.namespace.clone())),
            ("limit", Some(PAGE.to_string())),
            ("cursor", cursor),
        ];
        let page: Page<DocumentView> = connection.client.get(&with_query("/documents", &asked)).await?;
        found.extend(page.items.into_iter().filter(|document| is_gone(folder, &document.source, is_there)));
        cursor = page.next_cursor;
        if cursor.is_none() {
            return Ok(found);
        }
    }
}

/// Whether the source is a file below the folder that is not there any more. What came from an archive or a repository is there for as
/// long as that is.
fn is_gone(folder: &str, source: &str, is_there: impl Fn(&str) -> bool) -> bool {
    let is_below = source != folder && Path::new(source).starts_with(folder);
    let mut holders = WITHIN.into_iter().flat_map(|part| source.match_indices(part)).map(|(at, _)| &source[..at]);
    is_below && !is_there(source) && !holders.any(is_there)
}

/// What can't be told is there.
fn is_there(path: &str) -> bool {
    match std::fs::symlink_metadata(path) {
        Ok(_) => true,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_sources_then_only_files_below_the_folder_that_are_not_there_are_gone() {
        let there = ["/docs", "/docs/a.txt", "/docs/old.zip", "/docs/repo", "/docs-2"];
        let table = [
            ("/docs/a.txt", false),
            ("/docs/b.txt", true),
            ("/docs/sub/c.txt", true),
            ("/docs", false),
            ("/docs-2/b.txt", false),
            ("/elsewhere/b.txt", false),
            ("b.txt", false),
            ("https://example.org/docs/b.txt", false),
            ("/docs/old.zip!/member.txt", false),
            ("/docs/gone.zip!/member.txt", true),
            ("/docs/repo#src/main.rs", false),
            ("/docs/a#1.txt", true),
        ];
        for (source, gone) in table {
            assert_eq!(is_gone("/docs", source, |path| there.contains(&path)), gone, "{source}");
        }
    }

    #[test]
    fn given_a_file_when_it_goes_then_it_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.txt").display().to_string();
        assert!(!is_there(&file) && !is_there(&format!("{file}/below")));
        std::fs::write(&file, "a").unwrap();
        assert!(is_there(&file) && !is_there(&format!("{file}/below")));
    }
}
