//! The warehouse on a real DuckDB.

use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use riverrun_schemas::{DocumentId, Namespace};
use riverrun_stores::warehouse::{DuckConfig, DuckWarehouse, LoadRow, QueryLimits, QueryResult, TableLoad, parquet};
use riverrun_stores::{Warehouse, WarehouseError, WarehouseLoader};
use serde_json::{Value, json};
use tempfile::TempDir;

fn open() -> (TempDir, DuckWarehouse) {
    let folder = tempfile::tempdir().unwrap();
    let config = DuckConfig { memory_mb: 200, ..DuckConfig::at(folder.path().join("warehouse")) };
    (folder, DuckWarehouse::open(config).unwrap())
}

fn namespace(name: &str) -> Namespace {
    name.parse().unwrap()
}

fn load(table: &str, version: &str, columns: &[&str], rows: &[&[&str]]) -> TableLoad {
    let rows: Vec<Result<LoadRow, String>> =
        rows.iter().map(|row| Ok(row.iter().map(|cell| Some((*cell).to_owned())).collect())).collect();
    TableLoad {
        table: table.to_owned(),
        document_id: DocumentId::derive(&[table]),
        collection: "docs".parse().unwrap(),
        version: version.to_owned(),
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        types: Vec::new(),
        rows: Box::new(rows.into_iter()),
    }
}

async fn with_people() -> (TempDir, DuckWarehouse) {
    let (folder, warehouse) = open();
    let rows: &[&[&str]] = &[
        &["Doe, Jane", "30", "2020-01-31", "1.50"],
        &["O'Hara \"Al\"", "", "", "20"],
        &["", "7", "2021-02-28", "0.25"],
    ];
    let load = load("people", "v1", &["last, first", "age", "since", "fee"], rows);
    warehouse.load(&Namespace::default(), load).await.unwrap();
    (folder, warehouse)
}

async fn ask(warehouse: &DuckWarehouse, sql: &str) -> Result<QueryResult, WarehouseError> {
    warehouse.query(&Namespace::default(), sql, QueryLimits::default()).await
}

async fn rows(warehouse: &DuckWarehouse, sql: &str) -> Vec<Vec<Value>> {
    ask(warehouse, sql).await.unwrap_or_else(|error| panic!("{sql}: {error}")).rows
}

#[tokio::test]
async fn given_types_when_loaded_then_known_ones_are_kept_and_others_inferred() {
    let (_folder, warehouse) = open();
    let cells: &[&[&str]] = &[&["7", "{\"a\":[1,2]}", "1.5", "3"], &["-1", "[]", "2", "4"]];
    let types = ["SMALLINT", "JSON", "FLOAT", "BIGINT) AS x; --"];
    let given = TableLoad {
        types: types.iter().map(|name| (*name).to_owned()).collect(),
        ..load("typed", "v1", &["n", "deep", "real", "odd"], cells)
    };
    let info = warehouse.load(&Namespace::default(), given).await.unwrap();
    let found: Vec<&str> = info.columns.iter().map(|column| column.sql_type.as_str()).collect();
    assert_eq!(found, ["SMALLINT", "JSON", "FLOAT", "BIGINT"]);
    assert_eq!(
        rows(&warehouse, "SELECT n, deep->>'a' AS a, odd FROM typed ORDER BY n DESC").await,
        [vec![json!(7), json!("[1,2]"), json!(3)], vec![json!(-1), Value::Null, json!(4)]]
    );
    // A value that is none of its column's type refuses the load, whoever said so.
    let wrong = TableLoad { types: vec!["BIGINT".to_owned()], ..load("wrong", "v1", &["n"], &[&["many"]]) };
    assert!(warehouse.load(&Namespace::default(), wrong).await.is_err());
}

#[tokio::test]
async fn given_rows_when_loaded_then_types_are_inferred_and_every_row_is_there() {
    let (_folder, warehouse) = with_people().await;
    let tables = warehouse.tables(&Namespace::default()).await.unwrap();
    let columns: Vec<(&str, &str)> =
        tables[0].columns.iter().map(|column| (column.name.as_str(), column.sql_type.as_str())).collect();
    assert_eq!(columns, [("last, first", "VARCHAR"), ("age", "BIGINT"), ("since", "DATE"), ("fee", "DECIMAL(4,2)")]);
    assert_eq!((tables[0].name.as_str(), tables[0].rows), ("people", 3));
    let found = rows(&warehouse, "SELECT \"last, first\", age, since, fee FROM people ORDER BY age NULLS FIRST").await;
    assert_eq!(
        found,
        [
            vec![json!("O'Hara \"Al\""), Value::Null, Value::Null, json!("20.00")],
            vec![Value::Null, json!(7), json!("2021-02-28"), json!("0.25")],
            vec![json!("Doe, Jane"), json!(30), json!("2020-01-31"), json!("1.50")],
        ]
    );
}

#[tokio::test]
async fn given_every_kind_of_reading_statement_then_it_is_answered() {
    let (_folder, warehouse) = with_people().await;
    for (sql, expected) in [
        ("SELECT count(*) FROM people;", 1),
        ("  select 1 -- what", 1),
        ("WITH old AS (SELECT * FROM people WHERE age > 10) SELECT * FROM old", 1),
        ("FROM people", 3),
        ("VALUES (1), (2)", 2),
        ("TABLE people", 3),
        ("SHOW TABLES", 1),
        ("DESCRIBE people", 4),
        ("SUMMARIZE people", 4),
        ("SELECT * FROM range(5)", 5),
        ("SELECT unnest([1, 2, 3])", 3),
        ("SELECT a.age FROM people a JOIN people b USING (age) UNION ALL SELECT 1", 3),
        ("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10) SELECT * FROM n", 10),
        ("SELECT table_name FROM information_schema.tables WHERE table_schema = 'main'", 1),
    ] {
        assert_eq!(rows(&warehouse, sql).await.len(), expected, "{sql}");
    }
}

/// Everything that ATTACKS knows, and its kin: refused, or stopped by its limits, and nothing is changed.
#[tokio::test]
async fn given_anything_but_one_reading_statement_then_it_is_refused_with_the_reason() {
    let (folder, warehouse) = with_people().await;
    let file = folder.path().join("out");
    let path = file.display();
    for sql in [
        String::new(),
        "-- nothing".to_owned(),
        ";".to_owned(),
        "no sql".to_owned(),
        "DROP TABLE people".to_owned(),
        "SELECT 1; DROP TABLE people".to_owned(),
        "SELECT 1; SELECT 2".to_owned(),
        "DELETE FROM people".to_owned(),
        "UPDATE people SET age = 1".to_owned(),
        "INSERT INTO people SELECT * FROM people".to_owned(),
        "WITH x AS (DELETE FROM people RETURNING *) SELECT * FROM x".to_owned(),
        "CREATE TABLE y AS SELECT 1".to_owned(),
        "CREATE TEMP TABLE y AS SELECT 1".to_owned(),
        "CREATE OR REPLACE VIEW y AS SELECT 1".to_owned(),
        "ALTER TABLE people ADD COLUMN z INTEGER".to_owned(),
        format!("COPY people TO '{path}'"),
        format!("COPY (SELECT 1) TO '{path}'"),
        format!("ATTACH '{path}' AS other"),
        format!("EXPORT DATABASE '{path}'"),
        "IMPORT DATABASE '/tmp'".to_owned(),
        "INSTALL httpfs".to_owned(),
        "LOAD httpfs".to_owned(),
        "SET enable_external_access = true".to_owned(),
        "RESET lock_configuration".to_owned(),
        "PRAGMA version".to_owned(),
        "PRAGMA enable_external_access".to_owned(),
        "CALL pragma_version()".to_owned(),
        "EXPLAIN ANALYZE SELECT 1".to_owned(),
        "BEGIN".to_owned(),
        "COMMIT".to_owned(),
        "CHECKPOINT".to_owned(),
        "VACUUM".to_owned(),
        "USE memory".to_owned(),
        "PREPARE p AS SELECT 1".to_owned(),
        "CREATE SECRET (TYPE s3)".to_owned(),
        "SELECT * FROM read_csv('/etc/passwd')".to_owned(),
        "SELECT * FROM READ_TEXT('/etc/passwd')".to_owned(),
        "SELECT (SELECT content FROM read_blob('/etc/passwd'))".to_owned(),
        "SELECT * FROM people WHERE age IN (SELECT 1 FROM glob('/etc/*'))".to_owned(),
        "SELECT * FROM sniff_csv('/etc/passwd')".to_owned(),
        "SELECT * FROM '/etc/passwd'".to_owned(),
        "SELECT * FROM 'https://example.com/x.parquet'".to_owned(),
        "SELECT * FROM duckdb_secrets()".to_owned(),
        "SELECT * FROM duckdb_settings()".to_owned(),
        "SELECT * FROM duckdb_databases".to_owned(),
        "SELECT * FROM query('DROP TABLE people')".to_owned(),
        "SELECT * FROM pragma_database_list()".to_owned(),
        "SELECT getenv('HOME')".to_owned(),
        "SELECT ?".to_owned(),
        "SELECT * FROM nothing".to_owned(),
        format!("SELECT {}1", "- ".repeat(20_000)),
        format!("SELECT {}1{}", "[".repeat(900), "]".repeat(900)),
    ] {
        let error = ask(&warehouse, &sql).await.expect_err(&sql);
        assert!(matches!(error.code(), "statement_refused" | "query_failed"), "{sql}: {error}");
        assert!(error.hint().is_some() && !error.to_string().contains("root:"), "{error}");
    }
    assert!(!file.exists());
    assert_eq!(rows(&warehouse, "SELECT count(*) FROM people").await, [[json!(3)]]);
    assert_eq!(warehouse.tables(&Namespace::default()).await.unwrap().len(), 1);
}

#[tokio::test]
async fn given_a_query_without_end_then_its_time_or_memory_ends_it_and_others_are_answered() {
    let (_folder, warehouse) = with_people().await;
    let limits = QueryLimits { time: Duration::from_millis(300), ..QueryLimits::default() };
    for sql in [
        "SELECT count(*) FROM range(1000000000000)",
        "SELECT count(*) FROM range(1000000) a, range(1000000) b",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT max(i) FROM n",
    ] {
        let since = Instant::now();
        let error = warehouse.query(&Namespace::default(), sql, limits).await.unwrap_err();
        assert!(matches!(error.code(), "query_timed_out" | "query_out_of_memory"), "{sql}: {error}");
        assert!(since.elapsed() < Duration::from_secs(30));
        assert_eq!(rows(&warehouse, "SELECT 1").await, [[json!(1)]]);
    }
    let greedy = ask(&warehouse, "SELECT list(i) FROM range(200000000) t(i)").await.unwrap_err();
    assert!(matches!(greedy.code(), "query_timed_out" | "query_out_of_memory"), "{greedy}");
    assert_eq!(rows(&warehouse, "SELECT count(*) FROM people").await, [[json!(3)]]);
}

#[tokio::test]
async fn given_more_rows_or_bytes_than_an_answer_holds_then_it_is_cut_and_says_so() {
    let (_folder, warehouse) = open();
    warehouse.load(&Namespace::default(), load("t", "v", &["a"], &[&["1"]])).await.unwrap();
    let found = warehouse.query(&Namespace::default(), "FROM range(100)", QueryLimits::rows(10)).await.unwrap();
    assert_eq!((found.rows.len(), found.truncated), (10, true));
    let whole = warehouse.query(&Namespace::default(), "FROM range(10)", QueryLimits::rows(10)).await.unwrap();
    assert_eq!((whole.rows.len(), whole.truncated), (10, false));
    let wide = ask(&warehouse, "SELECT repeat('x', 1000000) FROM range(20)").await.unwrap();
    assert!(wide.truncated && wide.rows.len() < 10, "{}", wide.rows.len());
    let ordered = ask(&warehouse, "SELECT range AS n FROM range(5) ORDER BY n DESC LIMIT 3").await.unwrap();
    assert_eq!(ordered.rows, [[json!(4)], [json!(3)], [json!(2)]]);
}

#[tokio::test]
async fn given_values_of_every_type_then_json_loses_nothing() {
    let (_folder, warehouse) = with_people().await;
    for (sql, sql_type, expected) in [
        ("NULL::INTEGER", "INTEGER", Value::Null),
        ("9223372036854775807", "BIGINT", json!(9_223_372_036_854_775_807_i64)),
        ("18446744073709551615::UBIGINT", "UBIGINT", json!(u64::MAX)),
        ("170141183460469231731687303715884105727", "HUGEINT", json!("170141183460469231731687303715884105727")),
        ("sum(range) FROM range(3)", "HUGEINT", json!(3)),
        ("12345678901234567890.123456789::DECIMAL(38,9)", "DECIMAL(38,9)", json!("12345678901234567890.123456789")),
        ("0.1::FLOAT", "FLOAT", json!(0.1)),
        ("'nan'::DOUBLE", "DOUBLE", json!("NaN")),
        ("TRUE", "BOOLEAN", json!(true)),
        ("'ü🦆'", "VARCHAR", json!("ü🦆")),
        ("'\\x00\\xFF'::BLOB", "BLOB", json!("00ff")),
        ("'10101'::BIT", "BIT", json!("10101")),
        ("bitstring('0101', 8)", "BIT", json!("00000101")),
        ("['101'::BIT, NULL]", "BIT[]", json!(["101", null])),
        ("MAP {'k': '101'::BIT}", "MAP(VARCHAR, BIT)", json!([{"key": "k", "value": "101"}])),
        ("DATE '0001-02-03'", "DATE", json!("0001-02-03")),
        ("'262143-12-31'::DATE", "DATE", json!("+262143-12-31")),
        ("'290309-12-22'::DATE", "DATE", json!("+290309-12-22")),
        ("'5877642-06-25 (BC)'::DATE", "DATE", json!("-5877641-06-25")),
        ("'infinity'::DATE", "DATE", json!("infinity")),
        ("'-infinity'::TIMESTAMP", "TIMESTAMP", json!("-infinity")),
        ("'290300-01-01 00:00:01.5'::TIMESTAMP", "TIMESTAMP", json!("+290300-01-01T00:00:01.500")),
        ("TIME '23:59:59.5'", "TIME", json!("23:59:59.500")),
        ("TIMESTAMP '2024-02-29 12:00:00.000001'", "TIMESTAMP", json!("2024-02-29T12:00:00.000001")),
        ("TIMESTAMPTZ '2024-02-29 12:00:00+02:00'", "TIMESTAMP WITH TIME ZONE", json!("2024-02-29T10:00:00Z")),
        (
            "{'seen': TIMESTAMPTZ '2024-02-29 12:00:00+02:00'}",
            "STRUCT(seen TIMESTAMP WITH TIME ZONE)",
            json!({"seen": "2024-02-29T10:00:00Z"}),
        ),
        ("INTERVAL '1 year 2 days 3.5 seconds'", "INTERVAL", json!("P12M2DT3.5S")),
        ("[1, NULL, 3]", "INTEGER[]", json!([1, null, 3])),
        ("{'a': 1, 'b': ['x']}", "STRUCT(a INTEGER, b VARCHAR[])", json!({"a": 1, "b": ["x"]})),
        ("MAP {'k': 1}", "MAP(VARCHAR, INTEGER)", json!([{"key": "k", "value": 1}])),
        ("'11111111-1111-1111-1111-111111111111'::UUID", "UUID", json!("11111111-1111-1111-1111-111111111111")),
    ] {
        let found = ask(&warehouse, &format!("SELECT {sql}")).await.unwrap_or_else(|error| panic!("{sql}: {error}"));
        assert_eq!((found.columns[0].sql_type.as_str(), &found.rows[0][0]), (sql_type, &expected), "{sql}");
    }
}

#[tokio::test]
async fn given_a_machine_in_another_zone_when_times_are_asked_for_then_they_are_in_utc() {
    const OWN: &str = "given_a_machine_in_another_zone_when_times_are_asked_for_then_they_are_in_utc";
    const ZONE: &str = "Asia/Kathmandu";
    // The engine asks for the zone of its process once: this test has a process of its own.
    if std::env::var("TZ").as_deref() != Ok(ZONE) {
        let mut own = std::process::Command::new(std::env::current_exe().unwrap());
        let ended = own.args([OWN, "--exact"]).env("TZ", ZONE).output().unwrap();
        let said = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let (_folder, warehouse) = with_people().await;
    let asked = "SELECT current_setting('TimeZone'), TIMESTAMPTZ '2026-01-01 00:00:00', TIMESTAMPTZ '2026-01-01 00:00:00+05:45',
        TIMESTAMP '2026-01-01 00:00:00'::TIMESTAMPTZ::VARCHAR, current_date = (now() AT TIME ZONE 'UTC')::DATE";
    let expected = json!(["UTC", "2026-01-01T00:00:00Z", "2025-12-31T18:15:00Z", "2026-01-01 00:00:00+00", true]);
    // Each query has a connection of its own.
    for _ in 0..2 {
        assert_eq!(json!(rows(&warehouse, asked).await[0]), expected);
    }
}

#[tokio::test]
async fn given_statements_that_can_not_be_looked_at_then_the_reason_is_the_true_one() {
    let (_folder, warehouse) = open();
    for sql in ["SELECT 1e400::DOUBLE", "SELECT -1e400", "SELECT 1 WHERE 2 < 1e999"] {
        let error = ask(&warehouse, sql).await.expect_err(sql);
        assert!(
            error.code() == "statement_refused" && error.to_string().contains("'infinity'::DOUBLE"),
            "{sql}: {error}"
        );
    }
    assert_eq!(
        rows(&warehouse, "SELECT 'infinity'::DOUBLE, ':Infinity'").await,
        [[json!("Infinity"), json!(":Infinity")]]
    );
    let sums = format!("SELECT 1{}", " + 1".repeat(300));
    let error = ask(&warehouse, &sums).await.unwrap_err();
    assert!(error.code() == "statement_refused" && error.to_string().contains("nested too deeply"), "{error}");
}

#[tokio::test]
async fn given_names_that_look_like_sql_then_they_are_names() {
    let (_folder, warehouse) = open();
    for name in ["select", "a\"; DROP TABLE x;--", "🦆", "Umsatz 2024 (€)", "main.x", "../../etc"] {
        let column = format!("{name} \" c");
        warehouse.load(&Namespace::default(), load(name, "v", &[&column, "select"], &[&["1", "2"]])).await.unwrap();
        let quoted = name.replace('"', "\"\"");
        let found = ask(&warehouse, &format!("SELECT * FROM \"{quoted}\"")).await.unwrap();
        assert_eq!(found.columns[0].name, column);
    }
    for name in ["", "x\0y", "duckdb_x", &"x".repeat(10_000)] {
        let error = warehouse.load(&Namespace::default(), load(name, "v", &["a"], &[])).await.unwrap_err();
        assert_eq!(error.code(), "bad_table_name");
    }
    assert_eq!(warehouse.tables(&Namespace::default()).await.unwrap().len(), 6);
}

#[tokio::test]
async fn given_two_namespaces_then_neither_sees_the_others_tables() {
    let (folder, warehouse) = open();
    let (a, b) = (namespace("team-a"), namespace("team-b"));
    warehouse.load(&a, load("t", "v", &["x"], &[&["1"]])).await.unwrap();
    warehouse.load(&b, load("t", "v", &["x"], &[&["2"], &["3"]])).await.unwrap();
    let count = async |of: &Namespace| {
        warehouse.query(of, "SELECT count(*) FROM t", QueryLimits::default()).await.unwrap().rows[0][0].clone()
    };
    assert_eq!((count(&a).await, count(&b).await), (json!(1), json!(2)));
    for sql in ["SELECT * FROM \"team-b\".main.t", "SELECT * FROM \"team-b\".t"] {
        assert!(warehouse.query(&a, sql, QueryLimits::default()).await.is_err(), "{sql}");
    }
    assert!(warehouse.tables(&Namespace::default()).await.unwrap().is_empty());
    assert!(!folder.path().join("warehouse/default.duckdb").exists(), "asking makes nothing");
}

#[tokio::test]
async fn given_a_load_that_comes_twice_or_fails_then_the_table_is_wholly_one_version() {
    let (folder, warehouse) = open();
    let default = Namespace::default();
    warehouse.load(&default, load("t", "v1", &["a"], &[&["1"], &["2"]])).await.unwrap();
    warehouse.load(&default, load("t", "v1", &["a"], &[])).await.unwrap();
    let mut broken = load("t", "v2", &["a"], &[&["1"]]);
    broken.rows = Box::new([Ok(vec![Some("1".into())]), Err("line 2 is cut off".into())].into_iter());
    let error = warehouse.load(&default, broken).await.unwrap_err();
    assert!(error.code() == "bad_table" && error.to_string().contains("line 2"), "{error}");
    let ragged = load("t", "v3", &["a", "b"], &[&["1"]]);
    assert!(warehouse.load(&default, ragged).await.unwrap_err().to_string().contains("row 1"));
    assert_eq!(rows(&warehouse, "SELECT a FROM t ORDER BY a").await, [[json!(1)], [json!(2)]]);
    drop(warehouse);
    let reopened = DuckWarehouse::open(DuckConfig::at(folder.path().join("warehouse"))).unwrap();
    let document = DocumentId::derive(&["t"]);
    assert!(reopened.holds(&default, "t", &document, "v1").await.unwrap());
    assert_eq!(reopened.remove_document(&default, &document).await.unwrap()[0].rows, 2);
    assert!(reopened.remove_document(&default, &document).await.unwrap().is_empty());
    assert!(ask(&reopened, "SELECT * FROM t").await.is_err());
}

#[tokio::test]
async fn given_a_name_that_another_document_has_when_loaded_then_it_is_refused_until_that_document_lets_go_of_it() {
    let (_folder, warehouse) = open();
    let default = Namespace::default();
    let of = |document: &str, table: &str, version: &str, cell: &str| TableLoad {
        document_id: DocumentId::derive(&[document]),
        ..load(table, version, &["a"], &[&[cell]])
    };
    warehouse.load(&default, of("first", "Sales", "v1", "1")).await.unwrap();
    for name in ["Sales", "sales", "SALES"] {
        let error = warehouse.load(&default, of("second", name, "v1", "2")).await.unwrap_err();
        let owner = DocumentId::derive(&["first"]);
        assert_eq!((error.code(), error.retryable()), ("table_taken", false), "{name}");
        assert!(error.hint().unwrap().contains(&owner.to_string()), "{:?}", error.hint());
        assert_eq!(rows(&warehouse, "SELECT a FROM sales").await, [[json!(1)]], "{name}");
    }
    // Its own document may write it in other letters, and make another one instead.
    warehouse.load(&default, of("first", "SALES", "v2", "3")).await.unwrap();
    warehouse.load(&default, of("first", "sales_2023", "v3", "3")).await.unwrap();
    let gone = warehouse.remove_outdated(&default, &DocumentId::derive(&["first"]), "v3").await.unwrap();
    assert_eq!(gone.iter().map(|table| table.name.as_str()).collect::<Vec<_>>(), ["SALES"]);
    warehouse.load(&default, of("second", "sales", "v1", "2")).await.unwrap();
    assert_eq!(rows(&warehouse, "SELECT a FROM sales").await, [[json!(2)]]);
    assert!(warehouse.remove_outdated(&default, &DocumentId::derive(&["third"]), "v1").await.unwrap().is_empty());
}

/// `TABLE-1`: no reader ever sees half a table, is told of a lock, or waits for the load.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn given_loads_that_go_on_when_many_read_then_each_sees_one_whole_version() {
    let (_folder, warehouse) = open();
    let warehouse = Arc::new(warehouse);
    let whole = |version: i64| {
        let rows = (0..2_000).map(move |_| Ok(vec![Some(version.to_string())]));
        TableLoad { rows: Box::new(rows), ..load("t", &version.to_string(), &["version"], &[]) }
    };
    warehouse.load(&Namespace::default(), whole(0)).await.unwrap();
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let warehouse = warehouse.clone();
            tokio::spawn(async move {
                for _ in 0..30 {
                    let found = ask(&warehouse, "SELECT min(version), max(version), count(*) FROM t").await.unwrap();
                    assert_eq!(found.rows[0][0], found.rows[0][1]);
                    assert_eq!(found.rows[0][2], json!(2_000));
                    assert_eq!(warehouse.tables(&Namespace::default()).await.unwrap()[0].rows, 2_000);
                }
            })
        })
        .collect();
    let writers = (1..=2).map(|writer| {
        let warehouse = warehouse.clone();
        async move {
            for at in 0..5 {
                warehouse.load(&Namespace::default(), whole(writer * 100 + at)).await.unwrap();
            }
        }
    });
    futures::future::join_all(writers).await;
    for reader in readers {
        reader.await.unwrap();
    }
}

#[test]
fn given_a_parquet_file_then_its_rows_are_read_and_one_that_is_none_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("it's.parquet");
    let writer = duckdb_file(&path);
    writer.unwrap();
    let found = parquet::read(&path, 10).unwrap();
    assert_eq!(found.columns, ["n", "day", "tags"]);
    assert_eq!(found.types, ["DECIMAL(3,2)", "DATE", "JSON"]);
    assert_eq!(found.rows[0], [Some("1.50".into()), Some("2024-02-29".into()), Some("[\"a\",\"b\"]".into())]);
    assert_eq!(found.rows[1], [None, None, None]);
    assert!(parquet::read(&path, 1).unwrap_err().ends_with("more than 1 row"));
    std::fs::write(&path, b"PAR1 but not really").unwrap();
    assert!(parquet::read(&path, 10).is_err());
}

fn duckdb_file(path: &std::path::Path) -> duckdb::Result<()> {
    let literal = path.display().to_string().replace('\'', "''");
    duckdb::Connection::open_in_memory()?.execute_batch(&format!(
        "COPY (SELECT 1.50 AS n, DATE '2024-02-29' AS day, ['a', 'b'] AS tags UNION ALL SELECT NULL, NULL, NULL) TO '{literal}' (FORMAT parquet)"
    ))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// `TABLE-2`, and that no text of a cell becomes another.
    #[test]
    fn any_cells_come_back_as_they_were(cells in proptest::collection::vec(".{0,20}", 1..20)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_folder, warehouse) = open();
            let rows: Vec<LoadRow> = cells.iter().map(|cell| vec![Some(cell.clone()), Some("x".to_owned())]).collect();
            let load = TableLoad { rows: Box::new(rows.into_iter().map(Ok)), ..load("t", "v", &["cell", "word"], &[]) };
            prop_assert_eq!(warehouse.load(&Namespace::default(), load).await.unwrap().rows, cells.len() as i64);
            let back = rows_of(&warehouse).await;
            let expected: Vec<Value> =
                cells.iter().map(|cell| if cell.is_empty() { Value::Null } else { json!(cell) }).collect();
            // A column of numbers is one of numbers: those are compared as text.
            if back.iter().all(|value| value.is_string() || value.is_null()) {
                prop_assert_eq!(back, expected);
            }
            Ok(())
        })?;
    }

    /// No text is anything but refused, failed or read; the table is as before.
    #[test]
    fn any_text_as_a_query_changes_nothing(sql in "(SELECT|DROP|;|'|\"|\\(|\\)|--|/\\*|t|\\*|FROM| |\\PC){0,30}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (_folder, warehouse) = open();
            warehouse.load(&Namespace::default(), load("t", "v", &["a"], &[&["1"]])).await.unwrap();
            let _ = ask(&warehouse, &sql).await;
            prop_assert_eq!(rows(&warehouse, "SELECT count(*) FROM t").await, vec![vec![json!(1)]]);
            Ok(())
        })?;
    }
}

async fn rows_of(warehouse: &DuckWarehouse) -> Vec<Value> {
    let mut found = rows(warehouse, "SELECT cell FROM t").await;
    found.iter_mut().map(|row| row.remove(0)).collect()
}
