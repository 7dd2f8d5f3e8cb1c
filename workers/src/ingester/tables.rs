//! Rows of tabular documents, on their way into the warehouse.
//!
//! A table is loaded before its document is said to be split, and again when it is not there although the document is:
//! so a warehouse that was lost comes back with the next ingest of its sources. Tables that a document's last request does not name go:
//! their rows would be those of an older version for ever. The table of a query is made when its source is read ([`super::query`]).

use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use riverrun_knowledge::sources::{self, Cell, Source, Table};
use riverrun_schemas::ingest::{DeleteDocument, StartIngest, SubmitDocument};
use riverrun_schemas::{DocumentId, Failure, Namespace};
use riverrun_stores::warehouse::{TableInfo, TableLoad, name_part};
use riverrun_stores::{WarehouseError, WarehouseLoader};

use super::reading::{Origin, Read, Reading};
use super::stopping;
use crate::runtime::WorkError;

/// The warehouse, in a process that has one.
#[derive(Default)]
pub(super) struct Tables(Option<Arc<dyn WarehouseLoader>>);

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tables").field(&self.0.is_some()).finish()
    }
}

impl Tables {
    pub(super) fn of(warehouse: Arc<dyn WarehouseLoader>) -> Self {
        Self(Some(warehouse))
    }

    /// Loads the document's rows where its request names a table, and removes its tables that the request does not name; the inner
    /// error is what the document fails with, and then its tables stay as they were.
    pub(super) async fn load(
        &self,
        submit: &SubmitDocument,
        version: &str,
        source: &'static dyn Source,
        bytes: Bytes,
    ) -> Result<Result<(), Failure>, WorkError> {
        let Some(name) = &submit.table else { return self.unnamed(submit).await.map(Ok) };
        let Some(warehouse) = &self.0 else { return Ok(Err(missing(name))) };
        let held = warehouse.holds(&submit.namespace, name, &submit.document_id, version).await;
        if held.map_err(|error| retry(&error))? {
            // A process that ended between the last load and this is the reason to look once more.
            let outdated = warehouse.remove_outdated(&submit.namespace, &submit.document_id, version).await;
            return outdated.map(|_| Ok(())).map_err(|error| retry(&error));
        }
        let document = submit.source.clone();
        let tables = match tokio::task::spawn_blocking(move || sources::tables(source, &document, &bytes)).await {
            Ok(Ok(tables)) => tables,
            Ok(Err(error)) => return Ok(Err(error.failure())),
            Err(join) if join.is_panic() => return Ok(Err(super::extraction_panicked(&submit.source))),
            Err(_) => return Err(stopping()),
        };
        match loaded(warehouse.as_ref(), submit, version, name, tables).await {
            Ok(()) => Ok(Ok(())),
            Err(error) if error.retryable() => Err(retry(&error)),
            Err(error) => Ok(Err(failure(&error))),
        }
    }

    /// The request names no table: those of the document go.
    async fn unnamed(&self, submit: &SubmitDocument) -> Result<(), WorkError> {
        if sources::batch_of(&submit.source).is_some_and(|(_, number)| number == 1) {
            return Ok(()); // its table is of all rows of its query, and was seen to before it was handed in
        }
        self.forget(&submit.namespace, &submit.document_id).await
    }

    /// Removes the tables of a document that stays.
    pub(super) async fn forget(&self, namespace: &Namespace, document: &DocumentId) -> Result<(), WorkError> {
        let Some(warehouse) = &self.0 else { return Ok(()) };
        warehouse.remove_document(namespace, document).await.map(drop).map_err(|error| retry(&error))
    }

    /// The warehouse, where this process has one.
    pub(super) fn warehouse(&self) -> Option<&dyn WarehouseLoader> {
        self.0.as_deref()
    }

    /// Removes the tables that hold the document's rows.
    pub(super) async fn remove(&self, delete: &DeleteDocument) -> Result<Vec<TableInfo>, WorkError> {
        let Some(warehouse) = &self.0 else { return Ok(Vec::new()) };
        warehouse.remove_document(&delete.namespace, &delete.document_id).await.map_err(|error| retry(&error))
    }
}

/// The table of each document that was read: that of the request for one alone, else a name of its own for each that has rows. Those
/// of a query's rows have none, since its table is made of all of them.
pub(super) fn of_documents(start: &StartIngest, reading: &Reading) -> Vec<Option<String>> {
    let none = || vec![None; reading.documents.len()];
    match (&start.table, &reading.origin) {
        (None, _) | (Some(_), Origin::Query) => none(),
        (Some(table), Origin::Alone) => vec![Some(table.clone()); reading.documents.len()],
        (Some(table), Origin::Members(root)) => {
            let documents = reading.documents.iter().map(|read| match read {
                Read::Stored { source, has_rows, .. } => (source.as_str(), *has_rows),
                Read::Refused { source, .. } => (source.as_str(), false),
                Read::Skipped => ("", false),
            });
            sources::member_tables(table, root, documents)
        }
    }
}

/// Loads the tables of a document, the first one last: that it is there says that all of them are. Behind it, those go that are not of
/// this version: their sheets are gone, or the request names the document's tables otherwise.
async fn loaded(
    warehouse: &dyn WarehouseLoader,
    submit: &SubmitDocument,
    version: &str,
    name: &str,
    tables: Vec<Table>,
) -> Result<(), WarehouseError> {
    let mut tables = named(name, tables).into_iter();
    let first = tables.next();
    for (name, table) in tables {
        warehouse.load(&submit.namespace, load_of(submit, version, name, table)).await?;
    }
    if let Some((name, table)) = first {
        warehouse.load(&submit.namespace, load_of(submit, version, name, table)).await?;
    }
    warehouse.remove_outdated(&submit.namespace, &submit.document_id, version).await?;
    Ok(())
}

/// The tables of a document with their names: the first has the given one, others their sheet's behind it, and a number where two
/// sheets would have the same.
fn named(name: &str, tables: Vec<Table>) -> Vec<(String, Table)> {
    let mut taken = HashSet::new();
    let mut free = |wanted: String| {
        let numbered = (2..u32::MAX).map(|number| format!("{wanted}_{number}"));
        let mut names = std::iter::once(wanted.clone()).chain(numbered);
        names.find(|name| taken.insert(name.to_lowercase())).unwrap_or_default()
    };
    let own = |(at, table): (usize, Table)| {
        let wanted = if at == 0 { name.to_owned() } else { format!("{name}_{}", name_part(&table.name)) };
        (free(wanted), table)
    };
    tables.into_iter().enumerate().map(own).collect()
}

fn load_of(submit: &SubmitDocument, version: &str, name: String, table: Table) -> TableLoad {
    let rows = table.rows.map(|row| match row {
        Ok(row) => Ok(row.iter().map(text).collect()),
        Err(error) => Err(error.to_string()),
    });
    TableLoad {
        table: name,
        document_id: submit.document_id,
        collection: submit.collection.clone(),
        version: version.to_owned(),
        columns: table.columns,
        types: table.types,
        rows: Box::new(rows),
    }
}

pub(super) fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Bool(_) | Cell::Int(_) | Cell::Float(_) | Cell::Text(_) => Some(cell.text().into_owned()),
    }
}

pub(super) fn missing(table: &str) -> Failure {
    Failure::new("warehouse_missing", format!("table {table} can't be made: this process has no warehouse"))
        .with_hint("let the ingester of a `riverrun serve` with workers do it, with no `riverrun worker ingester` beside it, or leave --table out")
}

pub(super) fn failure(error: &WarehouseError) -> Failure {
    Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
}

pub(super) fn retry(error: &WarehouseError) -> WorkError {
    WorkError::retry(error.code(), error)
}

#[cfg(test)]
mod tests {
    use riverrun_schemas::{BlobRef, IngestId};
    use riverrun_stores::Warehouse;
    use riverrun_stores::warehouse::{DuckConfig, DuckWarehouse};

    use super::*;

    fn sheet(name: &str) -> Table {
        Table {
            name: name.to_owned(),
            columns: vec!["a".to_owned()],
            types: Vec::new(),
            rows: Box::new(std::iter::once(Ok(vec![Cell::Text(name.to_owned())]))),
        }
    }

    fn sheets(names: &[&str]) -> Vec<Table> {
        names.iter().map(|name| sheet(name)).collect()
    }

    fn submission() -> SubmitDocument {
        SubmitDocument {
            document_id: DocumentId::derive(&["book"]),
            ingest_id: IngestId::derive(&["book"]),
            namespace: Namespace::default(),
            collection: "docs".parse().unwrap(),
            source: "/docs/book.xlsx".to_owned(),
            source_type: None,
            content: BlobRef { sha256: String::new(), size_bytes: 0, media_type: String::new() },
            embed_model: "m".to_owned(),
            chunk_size: 800,
            chunk_overlap: 100,
            metadata_json: None,
            table: Some("t".to_owned()),
            strategy: None,
            chunk_unit: None,
            again: false,
            at: 0,
        }
    }

    #[test]
    fn given_sheets_with_names_alike_when_named_then_each_has_its_own_table() {
        let names = |sheet_names: &[&str]| -> Vec<String> {
            named("t", sheets(sheet_names)).into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&["Prices"]), ["t"]);
        assert_eq!(
            names(&["Prices", "May 1", "may-1", "May_1", "B"]),
            ["t", "t_may_1", "t_may_1_2", "t_may_1_3", "t_b"]
        );
        assert_eq!(names(&[]), Vec::<String>::new());
    }

    #[tokio::test]
    async fn given_a_workbook_that_lost_a_sheet_or_was_cut_short_when_loaded_then_its_tables_are_those_of_its_sheets() {
        let dir = tempfile::tempdir().unwrap();
        let warehouse = DuckWarehouse::open(DuckConfig::at(dir.path())).unwrap();
        let submit = submission();
        let there = async || -> Vec<(String, String)> {
            let tables = warehouse.tables(&submit.namespace).await.unwrap();
            tables.into_iter().map(|table| (table.name, table.version)).collect()
        };
        let all = |version: &str, names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ((*name).to_owned(), version.to_owned())).collect()
        };
        loaded(&warehouse, &submit, "v1", "t", sheets(&["A", "B", "C"])).await.unwrap();
        assert_eq!(there().await, all("v1", &["t", "t_b", "t_c"]));
        loaded(&warehouse, &submit, "v2", "t", sheets(&["A", "C"])).await.unwrap();
        assert_eq!(there().await, all("v2", &["t", "t_c"]));
        // A sheet that can't be loaded: the table that stands for the document is not of the new version, so it is loaded again.
        let mut broken = sheets(&["A", "C"]);
        broken[1].rows = Box::new(std::iter::once(Ok(Vec::new())));
        loaded(&warehouse, &submit, "v3", "t", broken).await.unwrap_err();
        assert!(!warehouse.holds(&submit.namespace, "t", &submit.document_id, "v3").await.unwrap());
        assert_eq!(there().await, all("v2", &["t", "t_c"]));
    }
}
