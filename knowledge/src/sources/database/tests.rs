use serde_json::json;

use super::*;
use crate::sources::place::{Place, place};

async fn read(source: &str, query: Option<&str>) -> (Result<(), SourceError>, Vec<(String, String)>) {
    let Place::Database(address) = place(source, None).unwrap() else { panic!("{source}") };
    let (sender, mut receiver) = mpsc::channel(10_000);
    let result = read_rows(&address, source, query, &sender).await;
    drop(sender);
    let mut documents = Vec::new();
    while let Some(item) = receiver.recv().await {
        let Item::Document(found) = item else { panic!("{item:?}") };
        documents.push((found.source, String::from_utf8(found.bytes).unwrap()));
    }
    (result, documents)
}

async fn sqlite_file(dir: &tempfile::TempDir) -> String {
    let file = dir.path().join("data.db");
    let options = SqliteConnectOptions::new().filename(&file).create_if_missing(true);
    let mut connection = SqliteConnection::connect_with(&options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE t (id INTEGER, name TEXT, price REAL, raw BLOB); INSERT INTO t VALUES (1, 'Ada; or not', 1.5, x'00ff'), (2, NULL, 2, x'6869')")
        .execute(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    format!("sqlite:{}", file.display())
}

#[tokio::test]
async fn given_a_database_when_asked_then_its_rows_are_lines_of_documents() {
    let dir = tempfile::tempdir().unwrap();
    let source = sqlite_file(&dir).await;
    let (result, documents) = read(&source, Some("SELECT * FROM t ORDER BY id;")).await;
    result.unwrap();
    let [(name, lines)] = documents.as_slice() else { panic!("{documents:?}") };
    assert!(name.starts_with(&format!("{source}#")) && name.ends_with("/1"), "{name}");
    assert_eq!(
        lines,
        "{\"id\":1,\"name\":\"Ada; or not\",\"price\":1.5,\"raw\":\"(2 bytes)\"}\n{\"id\":2,\"name\":null,\"price\":2.0,\"raw\":\"hi\"}\n"
    );
    let (result, documents) = read(
        &source,
        Some("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 250) SELECT i FROM n"),
    )
    .await;
    result.unwrap();
    assert_eq!(documents.iter().map(|(_, lines)| lines.lines().count()).collect::<Vec<_>>(), [100, 100, 50]);
}

#[tokio::test]
async fn given_rows_in_another_order_when_a_query_names_none_then_its_documents_are_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let source = sqlite_file(&dir).await;
    let rows = |order: &str| {
        format!(
            "SELECT * FROM (WITH RECURSIVE n(i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 349) SELECT i FROM n) AS q{order}"
        )
    };
    let lines = |documents: Vec<(String, String)>| documents.into_iter().map(|(_, lines)| lines).collect::<Vec<_>>();
    let (result, up) = read(&source, Some(&rows(" WHERE 1"))).await;
    result.unwrap();
    // The other way round, without a word that says so.
    let down = "WITH RECURSIVE n(i) AS (SELECT 349 UNION ALL SELECT i - 1 FROM n WHERE i > 100) SELECT i FROM n";
    let (result, down) = read(&source, Some(down)).await;
    result.unwrap();
    assert_eq!(lines(up.clone()), lines(down));
    assert_eq!(up.len(), 3);
    let (result, ordered) = read(&source, Some(&rows("\nORDER\n BY i DESC"))).await;
    result.unwrap();
    assert!(ordered[0].1.starts_with("{\"i\":349}\n{\"i\":348}\n"), "{ordered:?}");
}

#[tokio::test]
async fn given_columns_of_one_name_when_asked_then_no_value_is_lost_or_the_query_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = sqlite_file(&dir).await;
    let query = "SELECT a.id, b.id, b.price FROM t AS a JOIN t AS b ON b.id > a.id";
    let (result, documents) = read(&source, Some(query)).await;
    result.unwrap();
    assert_eq!(documents[0].1, "{\"id\":1,\"id_2\":2,\"price\":2.0}\n");
    // As PostgreSQL writes such a row.
    let (sender, mut receiver) = mpsc::channel(1);
    let mut batches = Batches::named("postgres://h/d", query, &sender);
    let error = batches.take(20, r#"{"id":1,"x":{"id":3},"id":2}"#).await.unwrap_err();
    assert_eq!(error.code(), "query_refused");
    assert!(error.to_string().contains("two columns with the name \"id\""), "{error}");
    assert!(receiver.try_recv().is_err());
    Batches::named("postgres://h/d", query, &sender).take(20, r#"{"id":1,"x":{"id":3}}"#).await.unwrap();
}

#[tokio::test]
async fn given_queries_that_do_more_than_read_or_do_not_end_when_asked_then_they_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let source = sqlite_file(&dir).await;
    for query in [
        "DROP TABLE t",
        "DELETE FROM t",
        "INSERT INTO t VALUES (3)",
        "ATTACH '/tmp/x.db' AS x",
        "PRAGMA query_only = 0",
        "SELECT 1; DROP TABLE t",
        "VACUUM INTO '/tmp/x'",
        "",
        " ; ",
        "COPY (SELECT 1) TO PROGRAM 'id'",
        "/* x */ DROP TABLE t",
        "SELECT 1 INTO OUTFILE '/tmp/x'",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT pg_read_file('/etc/passwd')",
        "SELECT /*!50000 1 */",
        "SELECT lo_export(1, '/tmp/x')",
        "SELECT * FROM dblink('host=x', 'y')",
        "SELECT U&\"\\0070g_read_file\"('x')",
        "CALL x()",
        "SELECT readfile('/etc/passwd')",
        "EXPLAIN ANALYZE DELETE FROM t",
    ] {
        let (result, documents) = read(&source, Some(query)).await;
        assert_eq!((result.unwrap_err().code(), documents.len()), ("query_refused", 0), "{query}");
    }
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    assert_eq!(read(&source, Some(endless)).await.0.unwrap_err().code(), "limit_exceeded");
    assert_eq!(read(&source, None).await.0.unwrap_err().code(), "bad_option");
    assert_eq!(read(&source, Some("SELECT * FROM t WHERE 1 = 0")).await.0.unwrap_err().code(), "no_text");
    assert_eq!(read(&source, Some("SELECT nothing FROM nowhere")).await.0.unwrap_err().code(), "source_failed");
    assert_eq!(read("sqlite:/nowhere/x.db", Some("SELECT 1")).await.0.unwrap_err().code(), "not_found");
    assert_eq!(read("sqlite:x.db", Some("SELECT 1")).await.0.unwrap_err().code(), "path_not_absolute");
    assert!(!Path::new("/nowhere").exists());
}

#[tokio::test]
async fn given_a_server_that_is_not_there_when_asked_then_the_error_has_no_password() {
    for scheme in ["postgres", "mysql"] {
        let (result, _) = read(&format!("{scheme}://user:hunter2@127.0.0.1:1/db?x=hunter2"), Some("SELECT 1")).await;
        let error = result.unwrap_err();
        assert_eq!(error.code(), "source_failed");
        assert!(!format!("{error} {error:?} {:?}", error.hint()).contains("hunter2"), "{error}");
    }
}

/// Where RIVERRUN_TEST_DATABASE_URL names a server.
#[tokio::test]
async fn given_a_postgresql_server_when_asked_then_its_rows_are_lines_and_no_query_changes_anything() {
    let Some(url) = std::env::var("RIVERRUN_TEST_DATABASE_URL").ok().filter(|url| !url.is_empty()) else { return };
    let table = format!("source_{}", std::process::id());
    let made = format!(
        "CREATE TABLE {table} (id SERIAL, name TEXT, price NUMERIC); \
         INSERT INTO {table} (name, price) VALUES ('Ada; or not', 1.5), (NULL, 2)"
    );
    let mut connection = PgConnection::connect(&url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(made)).execute(&mut connection).await.unwrap();
    let all = format!("SELECT * FROM {table} ORDER BY id;");
    let rows = async || {
        let (result, documents) = read(&url, Some(all.as_str())).await;
        result.unwrap();
        let [(name, lines)] = documents.as_slice() else { panic!("{documents:?}") };
        assert!(name.starts_with("postgres") && name.ends_with("/1"), "{name}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let expected = [json!({"id": 1, "name": "Ada; or not", "price": 1.5}), json!({"id": 2, "name": null, "price": 2})];
    assert_eq!(rows().await, expected);
    for query in [
        format!("WITH gone AS (DELETE FROM {table} RETURNING *) SELECT * FROM gone"),
        format!("SELECT nextval('{table}_id_seq')"),
        "SELECT set_config('transaction_read_only', 'off', true)".to_owned(),
        format!("SELECT * FROM {table}) AS x, (DELETE FROM {table}"),
        format!("SELECT * FROM {table} FOR UPDATE"),
    ] {
        let (result, documents) = read(&url, Some(query.as_str())).await;
        assert!(result.is_err() && documents.is_empty(), "{query}: {documents:?}");
    }
    assert_eq!(rows().await, expected);
    sqlx::raw_sql(AssertSqlSafe(format!("DROP TABLE {table}"))).execute(&mut connection).await.unwrap();
}

/// Where RIVERRUN_TEST_MYSQL_URL names a server of MySQL or MariaDB.
#[tokio::test]
async fn given_a_mysql_server_when_asked_then_its_rows_are_lines_and_no_query_changes_anything() {
    let Some(url) = std::env::var("RIVERRUN_TEST_MYSQL_URL").ok().filter(|url| !url.is_empty()) else { return };
    let table = format!("source_{}", std::process::id());
    let mut connection = MySqlConnection::connect(&url).await.unwrap();
    for statement in [
        format!("CREATE TABLE {table} (id BIGINT UNSIGNED, name TEXT, price DOUBLE, raw BLOB)"),
        format!(
            "INSERT INTO {table} VALUES (1, 'Ada; or not', 1.5, x'00ff'), (18446744073709551615, NULL, 2, x'6869')"
        ),
        format!(
            "CREATE FUNCTION writes_{table}() RETURNS INT MODIFIES SQL DATA BEGIN INSERT INTO {table} (id) VALUES (3); RETURN 1; END"
        ),
    ] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
    let all = format!("SELECT * FROM {table} ORDER BY id;");
    let rows = async || {
        let (result, documents) = read(&url, Some(all.as_str())).await;
        result.unwrap();
        let [(name, lines)] = documents.as_slice() else { panic!("{documents:?}") };
        assert!(name.starts_with("mysql") && name.ends_with("/1"), "{name}");
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect::<Vec<Value>>()
    };
    let expected = [
        json!({"id": 1, "name": "Ada; or not", "price": 1.5, "raw": "(2 bytes)"}),
        json!({"id": u64::MAX, "name": null, "price": 2.0, "raw": "hi"}),
    ];
    assert_eq!(rows().await, expected);
    for query in [
        format!("WITH gone AS (DELETE FROM {table}) SELECT * FROM gone"),
        format!("SELECT writes_{table}() AS written"),
        "SELECT * FROM nowhere".to_owned(),
    ] {
        let (result, documents) = read(&url, Some(query.as_str())).await;
        assert!(result.is_err() && documents.is_empty(), "{query}: {documents:?}");
    }
    assert_eq!(rows().await, expected);
    for statement in [format!("DROP FUNCTION writes_{table}"), format!("DROP TABLE {table}")] {
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.unwrap();
    }
}
