//! Rows of tabular documents, on their way into the warehouse.
//!
//! A table is loaded before its document is said to be split, and again when it is not there although the document is:
//! so a warehouse that was lost comes back with the next ingest of its sources.

use std::sync::Arc;

use bytes::Bytes;
use riverrun_knowledge::sources::{self, Cell, Source, Table};
use riverrun_schemas::Failure;
use riverrun_schemas::ingest::{DeleteDocument, SubmitDocument};
use riverrun_stores::warehouse::{TableInfo, TableLoad, name_part};
use riverrun_stores::{Warehouse, WarehouseError};

use super::stopping;
use crate::runtime::WorkError;

/// The warehouse, in a process that has one.
#[derive(Default)]
pub(super) struct Tables(Option<Arc<dyn Warehouse>>);

impl std::fmt::Debug for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Tables").field(&self.0.is_some()).finish()
    }
}

impl Tables {
    pub(super) fn of(warehouse: Arc<dyn Warehouse>) -> Self {
        Self(Some(warehouse))
    }

    /// Loads the document's rows where its request names a table; the inner error is what the document fails with.
    pub(super) async fn load(
        &self,
        submit: &SubmitDocument,
        version: &str,
        source: &'static dyn Source,
        bytes: Bytes,
    ) -> Result<Result<(), Failure>, WorkError> {
        let Some(name) = &submit.table else { return Ok(Ok(())) };
        let Some(warehouse) = &self.0 else {
            let failure =
                Failure::new("warehouse_missing", format!("table {name} can't be made: this process has no warehouse"))
                    .with_hint("let the ingester of a `riverrun serve` with workers do it, with no `riverrun worker ingester` beside it, or leave --table out");
            return Ok(Err(failure));
        };
        let held = warehouse.holds(&submit.namespace, name, &submit.document_id, version).await;
        if held.map_err(|error| retry(&error))? {
            return Ok(Ok(()));
        }
        let document = submit.source.clone();
        let tables = match tokio::task::spawn_blocking(move || sources::tables(source, &document, &bytes)).await {
            Ok(Ok(tables)) => tables,
            Ok(Err(error)) => return Ok(Err(error.failure())),
            Err(join) if join.is_panic() => return Ok(Err(super::extraction_panicked(&submit.source))),
            Err(_) => return Err(stopping()),
        };
        for (at, table) in tables.into_iter().enumerate() {
            let name = if at == 0 { name.clone() } else { format!("{name}_{}", name_part(&table.name)) };
            if let Err(error) = warehouse.load(&submit.namespace, load_of(submit, version, name, table)).await {
                if error.retryable() {
                    return Err(retry(&error));
                }
                return Ok(Err(failure(&error)));
            }
        }
        Ok(Ok(()))
    }

    /// Removes the tables that hold the document's rows.
    pub(super) async fn remove(&self, delete: &DeleteDocument) -> Result<Vec<TableInfo>, WorkError> {
        let Some(warehouse) = &self.0 else { return Ok(Vec::new()) };
        warehouse.remove_document(&delete.namespace, &delete.document_id).await.map_err(|error| retry(&error))
    }
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

fn text(cell: &Cell) -> Option<String> {
    match cell {
        Cell::Null => None,
        Cell::Bool(_) | Cell::Int(_) | Cell::Float(_) | Cell::Text(_) => Some(cell.text().into_owned()),
    }
}

fn failure(error: &WarehouseError) -> Failure {
    Failure { code: error.code().to_owned(), message: error.to_string(), hint: error.hint() }
}

fn retry(error: &WarehouseError) -> WorkError {
    WorkError::retry(error.code(), error)
}
