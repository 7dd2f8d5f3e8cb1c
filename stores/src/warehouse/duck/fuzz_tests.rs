//! Changed statements. `fuzz/README.md` says how to try more of them.

use super::DuckConfig;
use super::check::reading;
use super::database::Database;
use crate::fuzz::{Target, run};
use crate::warehouse::WarehouseError;

/// What is asked for, and what must not be.
const STATEMENTS: &[&str] = &[
    "SELECT a, count(*) FROM t WHERE a > 1 GROUP BY ALL HAVING count(*) > 1 ORDER BY 2 DESC LIMIT 3",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT * FROM r",
    "SELECT * FROM (VALUES (1, 'x'), (2, 'it''s')) AS v(a, \"b c\") JOIN range(3) ON true",
    "FROM t SELECT a::VARCHAR || '; DROP TABLE t --' /* ; */",
    "DESCRIBE t",
    "SHOW TABLES",
    "SUMMARIZE SELECT 1 AS a",
    "PIVOT t ON a USING count(*)",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM '/etc/passwd'",
    "SELECT (SELECT content FROM read_text('/etc/passwd'))",
    "SELECT * FROM duckdb_secrets()",
    "COPY (SELECT 1) TO '/tmp/riverrun-fuzz'",
    "ATTACH '/tmp/riverrun-fuzz.db'",
    "SELECT 1; DROP TABLE t",
    "SET lock_configuration = false",
];

const WORDS: &[&str] = &[
    "SELECT ",
    " FROM ",
    "read_csv('/etc/passwd')",
    "glob('*')",
    "(",
    ")",
    "'",
    "\"",
    "--",
    "/*",
    "*/",
    ";",
    "$$",
    "::",
    "UNION ALL ",
    "EXPLAIN ",
    "(SELECT 1)",
    "\u{0}",
    "\u{e9}",
    "LATERAL ",
    "CREATE TABLE x AS ",
    "INSERT INTO t VALUES (9)",
    "CALL ",
    "PRAGMA ",
    "query('SELECT 1')",
    "query_table('t')",
];

#[test]
fn sql_gate_lets_only_reading_through() {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckConfig { memory_mb: 200, threads: 1, ..DuckConfig::at(folder.path()) };
    let database = Database::open(folder.path().join("fuzz.duckdb"), &config).unwrap();
    let connection = database.connect().unwrap();
    connection.execute_batch("CREATE TABLE t AS SELECT range AS a FROM range(3)").unwrap();
    let corpus: Vec<Vec<u8>> = STATEMENTS.iter().map(|statement| statement.as_bytes().to_vec()).collect();
    run(&Target { name: "sql_gate", corpus: &corpus, words: WORDS, inputs: 3_000 }, |bytes| {
        let sql = String::from_utf8_lossy(bytes);
        // What is run is what the engine wrote down: the gate must find nothing in it either.
        if let Ok(passed) = reading(&connection, &sql)
            && let Some(select) = passed.select
            && let Err(WarehouseError::Refused { reason }) = reading(&connection, &select)
        {
            let forbidden = ["may be used", "tells of the engine", "at a time", "only reading"];
            assert!(!forbidden.iter().any(|words| reason.contains(words)), "{select}: {reason}");
        }
        // An engine that gave its database up answers nothing any more.
        let rows: i64 = connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 3);
    });
}
