//! The rows of a Parquet file, read by the engine in a database of its own that is gone afterwards.

use std::path::Path;

use duckdb::{Config, Connection};

use crate::warehouse::{Column, LoadRow};

/// Memory of the reader; a file that needs more is refused.
const MEMORY: &str = "1GB";

/// Values of these types are read back from JSON; all others read as SQL writes them.
const NESTED: [&str; 4] = ["STRUCT(", "MAP(", "UNION(", "["];

/// What a Parquet file holds.
#[derive(Debug)]
pub struct ParquetRows {
    /// The names of its columns.
    pub columns: Vec<String>,
    /// Their SQL types; those of lists, structs and maps are JSON.
    pub types: Vec<String>,
    /// Its rows as text; NULL is `None`, lists and structs are JSON.
    pub rows: Vec<LoadRow>,
}

/// Reads the file. `max_rows`: a file of more is refused. The error is for people.
pub fn read(path: &Path, max_rows: usize) -> Result<ParquetRows, String> {
    let readable = || -> duckdb::Result<ParquetRows> {
        let settings = Config::default()
            .enable_autoload_extension(false)?
            .with("autoinstall_known_extensions", "false")?
            .max_memory(MEMORY)?
            .threads(1)?;
        let connection = Connection::open_in_memory_with_flags(settings)?;
        // A view takes no parameter: the path is a literal, and quotes in it are doubled.
        let literal = path.to_string_lossy().replace('\'', "''");
        connection.execute_batch(&format!("CREATE TEMP VIEW file AS SELECT * FROM read_parquet('{literal}')"))?;
        let columns = described(&connection)?;
        let rows = rows(&connection, &columns, max_rows)?;
        let (columns, types) = columns.into_iter().map(|column| (column.name, type_of(column.sql_type))).unzip();
        Ok(ParquetRows { columns, types, rows })
    };
    let found = readable().map_err(|error| error.to_string())?;
    if found.rows.len() > max_rows {
        return Err(format!("it has more than {}", riverrun_schemas::counted(max_rows, "row")));
    }
    Ok(found)
}

fn described(connection: &Connection) -> duckdb::Result<Vec<Column>> {
    let mut statement = connection.prepare("DESCRIBE file")?;
    let columns = statement.query_map([], |row| Ok(Column { name: row.get(0)?, sql_type: row.get(1)? }))?;
    columns.collect()
}

fn is_nested(sql_type: &str) -> bool {
    NESTED.iter().any(|mark| sql_type.contains(mark))
}

/// What the values of a column are once they were text.
fn type_of(sql_type: String) -> String {
    if is_nested(&sql_type) { "JSON".to_owned() } else { sql_type }
}

fn rows(connection: &Connection, columns: &[Column], max_rows: usize) -> duckdb::Result<Vec<LoadRow>> {
    let selected: Vec<String> = columns
        .iter()
        .map(|column| {
            let name = column.name.replace('"', "\"\"");
            if is_nested(&column.sql_type) {
                format!("to_json(\"{name}\")::VARCHAR")
            } else {
                format!("\"{name}\"::VARCHAR")
            }
        })
        .collect();
    let mut statement = connection.prepare(&format!(
        "SELECT {} FROM file LIMIT {}",
        selected.join(", "),
        max_rows.saturating_add(1)
    ))?;
    let rows =
        statement.query_map([], |row| (0..columns.len()).map(|at| row.get::<_, Option<String>>(at)).collect())?;
    rows.collect()
}
