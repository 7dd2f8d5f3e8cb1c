//! `riverrun warehouse`.

use clap::Subcommand;
use riverrun_api::wire::{Items, QueryBody, QueryResult, TableInfo};
use serde_json::Value;

use crate::client::with_query;
use crate::error::{CliError, Exit};
use crate::host::Connection;
use crate::output::{Output, grid, print_line, table, tell};

/// What to do with tables.
#[derive(Debug, Subcommand)]
pub enum WarehouseCommand {
    /// List the tables of a namespace
    Tables {
        /// The namespace
        #[arg(short, long)]
        namespace: Option<String>,
        /// Print CSV with a header
        #[arg(long)]
        csv: bool,
    },
    /// Run one reading SQL statement
    Query {
        /// SELECT, WITH, FROM, VALUES, TABLE, DESCRIBE, SHOW or SUMMARIZE
        sql: String,
        /// The namespace whose tables it sees
        #[arg(short, long)]
        namespace: Option<String>,
        /// Most rows, 1 to 10,000
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// Print CSV with a header
        #[arg(long)]
        csv: bool,
    },
}

impl WarehouseCommand {
    /// Refuses what can't be printed, before anything is started for it.
    pub fn check(&self, output: Output) -> Result<(), CliError> {
        let (Self::Tables { csv, .. } | Self::Query { csv, .. }) = self;
        if *csv && output.json {
            return Err(
                CliError::new(Exit::Usage, "--csv and --json are two forms of the same").hint("leave one of them out")
            );
        }
        Ok(())
    }
}

pub async fn run(connection: &Connection, command: WarehouseCommand, output: Output) -> Result<(), CliError> {
    match command {
        WarehouseCommand::Tables { namespace, csv } => tables(connection, namespace, csv, output).await,
        WarehouseCommand::Query { sql, namespace, limit, csv } => {
            let found: QueryResult =
                connection.client.post("/warehouse/query", &QueryBody { sql, namespace, limit }).await?;
            show(&found, csv, output)
        }
    }
}

async fn tables(connection: &Connection, namespace: Option<String>, csv: bool, output: Output) -> Result<(), CliError> {
    let found: Items<TableInfo> =
        connection.client.get(&with_query("/warehouse/tables", &[("namespace", namespace)])).await?;
    if csv {
        return table_lines(&found.items).iter().try_for_each(|line| print_line(line));
    }
    output.show(&found, |found| {
        let empty = "there are no tables; make one: riverrun ingest <file.csv> --table <name>";
        table(HEADS, found.items.iter().map(table_row).collect(), empty)
    })
}

/// What is told of a table.
const HEADS: [&str; 4] = ["table", "rows", "collection", "columns"];

fn table_row(table: &TableInfo) -> [String; 4] {
    let columns: Vec<String> =
        table.columns.iter().map(|column| format!("{} {}", column.name, column.sql_type)).collect();
    [table.name.clone(), table.rows.to_string(), table.collection.to_string(), columns.join(", ")]
}

fn table_lines(tables: &[TableInfo]) -> Vec<String> {
    let rows = tables.iter().map(|table| csv_line(&table_row(table)));
    std::iter::once(csv_line(&HEADS.map(str::to_owned))).chain(rows).collect()
}

fn show(found: &QueryResult, csv: bool, output: Output) -> Result<(), CliError> {
    let names: Vec<String> = found.columns.iter().map(|column| column.name.clone()).collect();
    if csv {
        print_line(&csv_line(&names))?;
        for row in &found.rows {
            print_line(&csv_line(&row.iter().map(shown).collect::<Vec<_>>()))?;
        }
    } else {
        output.show(found, |found| {
            grid(&names, found.rows.iter().map(|row| row.iter().map(shown).collect()).collect(), "no rows")
        })?;
    }
    if found.truncated && !output.json {
        tell("there are more rows: raise --limit, or ask for less");
    }
    Ok(())
}

/// A value without quotes; nothing for NULL.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// RFC 4180. A line without anything would be none: a single field that is empty stands in quotes.
fn csv_line(fields: &[String]) -> String {
    if let [only] = fields
        && only.is_empty()
    {
        return "\"\"".to_owned();
    }
    let field = |text: &String| {
        if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.clone() }
    };
    fields.iter().map(field).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_fields_with_commas_quotes_and_lines_then_a_csv_line_keeps_them() {
        let fields = ["a", "b, c", "say \"hi\"", "two\nlines", ""].map(str::to_owned);
        assert_eq!(csv_line(&fields), "a,\"b, c\",\"say \"\"hi\"\"\",\"two\nlines\",");
        assert_eq!([csv_line(&[String::new()]), csv_line(&[String::new(), String::new()])], ["\"\"", ","]);
    }

    #[test]
    fn given_tables_when_they_are_listed_as_csv_then_their_names_and_columns_are_fields() {
        let table: TableInfo = serde_json::from_value(serde_json::json!({
            "name": "prices, \"old\"", "rows": 2, "collection": "shop", "version": "v",
            "document_id": riverrun_schemas::DocumentId::derive(&["prices"]),
            "columns": [{"name": "region", "type": "VARCHAR"}, {"name": "amount", "type": "DECIMAL(5,2)"}],
        }))
        .unwrap();
        assert_eq!(
            table_lines(&[table]),
            ["table,rows,collection,columns", "\"prices, \"\"old\"\"\",2,shop,\"region VARCHAR, amount DECIMAL(5,2)\""]
        );
        assert_eq!(table_lines(&[]), ["table,rows,collection,columns"]);
    }
}
