//! `riverrun collections check`.

use riverrun_api::wire::{CheckedChunk, ChunkFault, CollectionCheck, IndexName};
use riverrun_schemas::{agreed, counted};

use super::rebuild;
use crate::client::{encode, with_query};
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, print_line, tell};

/// What is to be compared.
pub(super) struct Check {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
    /// Whether it is made whole where it is not.
    pub(super) repair: bool,
}

pub(super) async fn run(connection: &Connection, check: Check, output: Output) -> Result<(), CliError> {
    let mut found = compare(connection, &check).await?;
    if check.repair && !found.is_whole() {
        if !output.json {
            details(&found)?;
        }
        let args = rebuild::RebuildArgs { name: check.name.clone(), afresh: false, namespace: check.namespace.clone() };
        rebuild::make_whole(connection, args, output).await?;
        found = compare(connection, &check).await?;
    }
    show(&found, output)?;
    if found.is_whole() { Ok(()) } else { Err(not_whole(&found)) }
}

async fn compare(connection: &Connection, check: &Check) -> Result<CollectionCheck, CliError> {
    let path = format!("/collections/{}/check", encode(&check.name));
    connection.client.get(&with_query(&path, &[("namespace", check.namespace.clone())])).await
}

fn show(found: &CollectionCheck, output: Output) -> Result<(), CliError> {
    output.show(found, |found| {
        format!(
            "{}/{}: {} · {} · {} · {} · {} missing · {} too many",
            found.namespace,
            found.collection,
            counted(found.chunks, "chunk"),
            counted(found.vectors, "vector"),
            counted(found.keywords, "keyword"),
            counted(found.orphans.len(), "orphan"),
            found.missing,
            found.surplus
        )
    })?;
    if found.is_whole() || output.json {
        return Ok(());
    }
    details(found)?;
    tell("documents that are on their way differ for a moment; check again when nothing is ingested");
    Ok(())
}

/// Documents and chunks that differ, and what else is wrong.
fn details(found: &CollectionCheck) -> Result<(), CliError> {
    for orphan in &found.orphans {
        print_line(&format!(
            "{}  {} · {} · {}",
            orphan.document_id,
            counted(orphan.chunks, "chunk"),
            counted(orphan.vectors, "vector"),
            counted(orphan.keywords, "keyword")
        ))?;
    }
    for chunk in &found.differences {
        print_line(&line(chunk))?;
    }
    if found.truncated {
        tell("so many documents differ that the others were not looked at");
    }
    for problem in &found.problems {
        tell(&format!("{}: {}", problem.code, problem.message));
    }
    Ok(())
}

fn line(chunk: &CheckedChunk) -> String {
    let index = |index: &IndexName| match index {
        IndexName::Vectors => "vectors",
        IndexName::Keywords => "keywords",
    };
    let held_by = chunk.held_by.iter().map(index).collect::<Vec<_>>().join(" and ");
    let what = match chunk.fault {
        ChunkFault::Missing => format!("only in {held_by}"),
        ChunkFault::Surplus => format!("too many in {held_by}"),
    };
    format!("{}  of {}: {what}", chunk.chunk_id, chunk.document_id)
}

fn not_whole(found: &CollectionCheck) -> CliError {
    let what = match found.problems.first() {
        Some(problem) => format!("collection {:?} is not whole: {}", found.collection, problem.message),
        None => {
            let (documents, are) = (counted(found.orphans.len(), "document"), agreed(found.orphans.len(), "is", "are"));
            format!("{documents} {are} not everywhere alike")
        }
    };
    let known = found.problems.first().and_then(|problem| problem.hint.clone());
    let fix = format!("riverrun collections rebuild {} -n {}", found.collection, found.namespace);
    CliError::new(Exit::Failed, what).hint(known.unwrap_or(fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_chunk_that_differs_when_shown_then_it_says_where_it_is_and_what_is_wrong() {
        let mut chunk = CheckedChunk {
            chunk_id: "chk_1".to_owned(),
            document_id: "doc_1".to_owned(),
            version: "v1".to_owned(),
            held_by: vec![IndexName::Keywords],
            fault: ChunkFault::Missing,
        };
        assert_eq!(line(&chunk), "chk_1  of doc_1: only in keywords");
        chunk.held_by.insert(0, IndexName::Vectors);
        chunk.fault = ChunkFault::Surplus;
        assert_eq!(line(&chunk), "chk_1  of doc_1: too many in vectors and keywords");
    }
}
