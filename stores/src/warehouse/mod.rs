//! Tables: rows of tabular documents, asked with SQL.
//!
//! Like vectors and keywords the warehouse is a projection: a table holds the rows of one document and goes with it. Who
//! asks may only read, see [`Warehouse::query`].

use std::time::Duration;

use async_trait::async_trait;
use riverrun_schemas::{CollectionName, DocumentId, Namespace};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

pub mod duck;
pub mod parquet;

mod declared;
mod elsewhere;
mod error;
mod infer;
mod remote;

pub use duck::check_table;
pub use duck::{DuckConfig, DuckWarehouse};
pub use elsewhere::ElsewhereWarehouse;
pub use error::WarehouseError;
pub use remote::{RemoteConfig, RemoteWarehouse};

/// Longest name of a table in bytes.
pub const MAX_TABLE_NAME_BYTES: usize = 255;
/// Longest part of a table's name that comes from a file's or sheet's, in characters.
const MAX_NAME_PART: usize = 60;
/// Most columns of a table.
pub const MAX_COLUMNS: usize = 2_000;

/// One cell a column; `None` and the empty text are NULL.
pub type LoadRow = Vec<Option<String>>;

/// The rows of a document, on their way into a table.
pub struct TableLoad {
    /// The table's name: any text of 1 to [`MAX_TABLE_NAME_BYTES`] bytes. As in SQL, case does not tell tables apart.
    pub table: String,
    /// The document whose rows these are.
    pub document_id: DocumentId,
    /// The document's collection.
    pub collection: CollectionName,
    /// The document's version: the same version is not loaded twice.
    pub version: String,
    /// The names of the columns: any text; an empty or repeated one is given another. Types follow from the cells.
    pub columns: Vec<String>,
    /// The SQL types of the first columns, where the source knows them; a name that is none of a type that text is read back as counts
    /// as not known, and so does one that is missing.
    pub types: Vec<String>,
    /// The rows; an error ends the load and leaves the table as it was.
    pub rows: Box<dyn Iterator<Item = Result<LoadRow, String>> + Send>,
}

/// A column of a table or of a result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its SQL type.
    #[serde(rename = "type")]
    pub sql_type: String,
}

/// What is known of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TableInfo {
    /// Its name.
    pub name: String,
    /// Its columns, in order.
    pub columns: Vec<Column>,
    /// How many rows it has.
    pub rows: i64,
    /// The document whose rows they are.
    #[schema(value_type = String)]
    pub document_id: DocumentId,
    /// The document's collection.
    #[schema(value_type = String)]
    pub collection: CollectionName,
    /// The document's version.
    pub version: String,
}

/// The name of a file, folder or sheet as part of one that needs no quotes.
pub fn name_part(name: &str) -> String {
    let part: String = name.chars().take(MAX_NAME_PART).map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    part.to_lowercase()
}

/// How much a query may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueryLimits {
    /// Rows that are answered with; more are cut off, and the answer says so.
    pub rows: usize,
    /// How long it may run.
    pub time: Duration,
}

impl QueryLimits {
    /// Most rows of any answer.
    pub const MAX_ROWS: usize = 10_000;
    /// Longest run of a query.
    pub const MAX_TIME: Duration = Duration::from_secs(10);
    /// Rows when nothing is said.
    pub const DEFAULT_ROWS: usize = 1_000;

    /// So many rows, and the usual time.
    pub fn rows(rows: usize) -> Self {
        Self { rows: rows.clamp(1, Self::MAX_ROWS), time: Self::MAX_TIME }
    }
}

impl Default for QueryLimits {
    fn default() -> Self {
        Self::rows(Self::DEFAULT_ROWS)
    }
}

/// What a query found. Values are JSON without loss: a whole number that needs more than 64 bits, a DECIMAL and a number
/// that JSON has no word for are texts; dates, times and intervals are ISO 8601; bytes are hexadecimal; lists are arrays,
/// structs objects, maps arrays of `{key, value}`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct QueryResult {
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows, a value a column.
    pub rows: Vec<Vec<Value>>,
    /// There were more rows, or more bytes of them, than an answer holds.
    pub truncated: bool,
}

/// Tables by namespace. What lies in one namespace can't be named in another.
///
/// `TABLE-1` a table that is replaced is wholly the old or wholly the new one for every query, and after a crash.
///
/// `TABLE-2` a table has as many rows as its source, or the load fails.
#[async_trait]
pub trait Warehouse: Send + Sync + 'static {
    /// Every table of the namespace, by name.
    async fn tables(&self, namespace: &Namespace) -> Result<Vec<TableInfo>, WarehouseError>;

    /// Runs one reading statement (SELECT, WITH, FROM, VALUES, TABLE, DESCRIBE, SHOW, SUMMARIZE) and refuses everything else.
    async fn query(&self, namespace: &Namespace, sql: &str, limits: QueryLimits)
    -> Result<QueryResult, WarehouseError>;
}

/// Makes and removes the tables of a [`Warehouse`]: only the process that has them can.
#[async_trait]
pub trait WarehouseLoader: Send + Sync + 'static {
    /// Makes the table of these rows, in place of one of the same name and document. Loading what is there already does nothing; a
    /// name under which another document has its rows is [`WarehouseError::Taken`].
    async fn load(&self, namespace: &Namespace, load: TableLoad) -> Result<TableInfo, WarehouseError>;

    /// Whether the table holds that version of the document.
    async fn holds(
        &self,
        namespace: &Namespace,
        table: &str,
        document: &DocumentId,
        version: &str,
    ) -> Result<bool, WarehouseError>;

    /// Removes the tables that hold rows of the document; returns what they were.
    async fn remove_document(
        &self,
        namespace: &Namespace,
        document: &DocumentId,
    ) -> Result<Vec<TableInfo>, WarehouseError>;

    /// Removes the tables with rows of other versions of the document; returns what they were.
    async fn remove_outdated(
        &self,
        namespace: &Namespace,
        document: &DocumentId,
        version: &str,
    ) -> Result<Vec<TableInfo>, WarehouseError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_name_when_it_is_part_of_a_tables_then_that_needs_no_quotes_and_has_an_end() {
        assert_eq!(name_part("North-West 1"), "north_west_1");
        assert_eq!(name_part(&"Ü".repeat(1_000)), "ü".repeat(MAX_NAME_PART));
    }
}
