use std::path::PathBuf;
use std::time::Duration;

use riverrun_schemas::{CollectionName, DocumentId};

/// The warehouse could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum WarehouseError {
    /// Not one reading statement.
    #[error("the statement is refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// A reading statement that the engine can't run, such as one that names no table of the namespace.
    #[error("the query failed: {reason}")]
    Query {
        /// What the engine said.
        reason: String,
    },
    /// It took too long.
    #[error("the query was stopped after {seconds} s", seconds = limit.as_secs_f64())]
    TimedOut {
        /// How long it was allowed to run.
        limit: Duration,
    },
    /// It wanted too much memory.
    #[error("the query needs more memory than the {limit_mb} MB that queries of a namespace have")]
    OutOfMemory {
        /// The limit.
        limit_mb: usize,
    },
    /// Others are asking.
    #[error("{} at work, which is as many as may be", riverrun_schemas::counted(.running, "query"))]
    Busy {
        /// How many.
        running: usize,
    },
    /// The name of a table can't be used.
    #[error("table name {name:?} can't be used: {reason}")]
    TableName {
        /// Its beginning.
        name: String,
        /// Why.
        reason: &'static str,
    },
    /// The rows are not those of a table.
    #[error("table {table:?} can't be loaded: {reason}")]
    Rows {
        /// The table.
        table: String,
        /// What is wrong.
        reason: String,
    },
    /// Another document has its rows under the name.
    #[error("table {table:?} holds the rows of document {document_id} in collection {collection:?}, which would be lost", collection = collection.as_str())]
    Taken {
        /// The table.
        table: String,
        /// The document whose rows they are.
        document_id: DocumentId,
        /// That document's collection.
        collection: CollectionName,
    },
    /// The database of a namespace failed.
    #[error("warehouse {path} failed: {reason}", path = path.display())]
    Database {
        /// Its file.
        path: PathBuf,
        /// What the engine said.
        reason: String,
    },
    /// Tables lie in another process.
    #[error("tables are in the process that has the ingester, and this process has no workers")]
    Elsewhere,
    /// The process that has the tables can't be asked.
    #[error("the process at {address}, which has the tables, can't be asked: {reason}")]
    Away {
        /// Its address.
        address: String,
        /// Why.
        reason: String,
    },
    /// What the process that has the tables answered.
    #[error("{message}")]
    Told {
        /// Its code.
        code: &'static str,
        /// Its words.
        message: String,
        /// Its fix.
        hint: Option<String>,
    },
    /// The process is ending.
    #[error("the warehouse is shutting down")]
    ShuttingDown,
}

impl WarehouseError {
    /// Stable code for answers and events.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "statement_refused",
            Self::Query { .. } => "query_failed",
            Self::TimedOut { .. } => "query_timed_out",
            Self::OutOfMemory { .. } => "query_out_of_memory",
            Self::Busy { .. } => "warehouse_busy",
            Self::TableName { .. } => "bad_table_name",
            Self::Rows { .. } => "bad_table",
            Self::Taken { .. } => "table_taken",
            Self::Database { .. } => "warehouse_failed",
            Self::Elsewhere => "warehouse_elsewhere",
            Self::Away { .. } => "warehouse_unreachable",
            Self::Told { code, .. } => code,
            Self::ShuttingDown => "shutting_down",
        }
    }

    /// Whether the same call may succeed later without anybody doing anything.
    pub fn retryable(&self) -> bool {
        match self {
            Self::Busy { .. } | Self::Database { .. } | Self::Away { .. } | Self::ShuttingDown => true,
            Self::Told { code, .. } => matches!(*code, "warehouse_busy" | "warehouse_failed" | "shutting_down"),
            Self::Refused { .. }
            | Self::Query { .. }
            | Self::TimedOut { .. }
            | Self::OutOfMemory { .. }
            | Self::TableName { .. }
            | Self::Elsewhere
            | Self::Rows { .. }
            | Self::Taken { .. } => false,
        }
    }

    /// The fix, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Refused { .. } => {
                Some(
                    "send one SELECT, WITH, FROM, VALUES, TABLE, DESCRIBE, SHOW or SUMMARIZE statement about tables"
                        .to_owned(),
                )
            }
            Self::Query { .. } => Some("riverrun warehouse tables lists tables and their columns".to_owned()),
            Self::TimedOut { .. } | Self::OutOfMemory { .. } => {
                Some("ask for less: filter rows before joining and sorting them".to_owned())
            }
            Self::Busy { .. } => Some("ask again in a moment".to_owned()),
            Self::TableName { .. } => Some("name the table with --table, for example sales_2024".to_owned()),
            Self::Database { path, .. } => Some(format!(
                "if it goes on, stop riverrun, delete {} and ingest the tables' sources again",
                path.display()
            )),
            Self::Elsewhere => Some(
                "set RIVERRUN_WAREHOUSE_URL to the API of that process, the `riverrun serve` without --no-workers, or ask it itself"
                    .to_owned(),
            ),
            Self::Away { .. } => Some(
                "start that `riverrun serve`, or check RIVERRUN_WAREHOUSE_URL, its RIVERRUN_API_ALLOWED_HOSTS and RIVERRUN_WAREHOUSE_TOKEN"
                    .to_owned(),
            ),
            Self::Told { hint, .. } => hint.clone(),
            Self::Taken { document_id, .. } => {
                Some(format!("give another name with --table, or remove that document first: riverrun docs rm {document_id}"))
            }
            Self::Rows { .. } | Self::ShuttingDown => None,
        }
    }
}
