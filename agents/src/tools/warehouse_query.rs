//! SQL over the tables of the run's namespace. It only reads, whatever a model or a text in a table asks for.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_schemas::Namespace;
use riverrun_schemas::agent::ToolEffect;
use riverrun_stores::Warehouse;
use riverrun_stores::warehouse::QueryLimits;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Permission, Tool, ToolContext, ToolError, ToolManifest, parse, schema_of};

/// The tool's name.
pub const WAREHOUSE_QUERY: &str = "warehouse_query";

/// Rows of one answer: what a model can read.
const MAX_ROWS: usize = 50;
/// Tables that a failed query is told of, so that the model can name the right one.
const MAX_TABLES: usize = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    /// One SELECT statement; SHOW TABLES lists the tables, DESCRIBE "name" the columns of one
    #[schemars(length(max = 8000))]
    sql: String,
}

/// The tool over a warehouse.
pub fn tool(warehouse: Arc<dyn Warehouse>) -> Arc<dyn Tool> {
    Arc::new(WarehouseQuery { warehouse })
}

/// What the tool says of itself.
pub fn manifest() -> ToolManifest {
    ToolManifest::builtin(
        WAREHOUSE_QUERY,
        "Runs one reading SQL statement over the user's tables (rows of CSV files and spreadsheets). Use it to count, sum, filter or sort rows.",
        schema_of::<Arguments>(),
        ToolEffect::None,
    )
    .needing(&[Permission::Warehouse])
}

struct WarehouseQuery {
    warehouse: Arc<dyn Warehouse>,
}

impl WarehouseQuery {
    async fn tables(&self, namespace: &Namespace) -> String {
        let found = self.warehouse.tables(namespace).await.unwrap_or_default();
        let shown: Vec<String> = found
            .iter()
            .take(MAX_TABLES)
            .map(|table| {
                let columns: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
                format!("{:?} ({})", table.name, columns.join(", "))
            })
            .collect();
        if shown.is_empty() { "there are no tables".to_owned() } else { format!("the tables are {}", shown.join("; ")) }
    }
}

#[async_trait]
impl Tool for WarehouseQuery {
    fn manifest(&self) -> ToolManifest {
        manifest()
    }

    async fn call(&self, arguments: Value, context: &ToolContext) -> Result<Value, ToolError> {
        let Arguments { sql } = parse(arguments)?;
        match self.warehouse.query(&context.namespace, &sql, QueryLimits::rows(MAX_ROWS)).await {
            Ok(found) => Ok(json!(found)),
            Err(error) => Err(ToolError::Failed(format!("{error}; {}", self.tables(&context.namespace).await))),
        }
    }
}
