//! Tables as another process asks for them: over a socket of the API, by the client that an API without workers has.

use riverrun_schemas::Namespace;
use riverrun_stores::warehouse::{QueryLimits, RemoteConfig, RemoteWarehouse};
use riverrun_stores::{Warehouse, WarehouseError};
use serde_json::json;

use crate::harness::test;

fn at(address: &str) -> RemoteWarehouse {
    RemoteWarehouse::open(&RemoteConfig { url: format!("http://{address}/"), token: None }).unwrap()
}

async fn fails(warehouse: &RemoteWarehouse, sql: &str) -> WarehouseError {
    warehouse.query(&Namespace::default(), sql, QueryLimits::default()).await.unwrap_err()
}

#[test]
fn given_the_tables_of_another_process_when_they_are_asked_then_rows_and_refusals_are_those_of_that_process() {
    test(async |api| {
        let warehouse = at(&api.address);
        let found = warehouse.query(&Namespace::default(), "SELECT 1 AS one, 'x' AS two", QueryLimits::rows(5)).await;
        let found = found.unwrap();
        assert_eq!((found.rows, found.truncated), (vec![vec![json!(1), json!("x")]], false));
        assert_eq!(found.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>(), ["one", "two"]);
        assert!(warehouse.tables(&"nobody".parse().unwrap()).await.unwrap().is_empty());
        for (sql, code) in [("DROP TABLE people", "statement_refused"), ("SELECT * FROM nothing", "query_failed")] {
            let error = fails(&warehouse, sql).await;
            let here = api.post("/warehouse/query", json!({ "sql": sql })).await.body;
            assert_eq!((error.code(), here["code"].as_str()), (code, Some(code)), "{error:?} {here}");
            assert_eq!(error.hint().as_deref(), here["hint"].as_str());
            assert!(here["detail"].as_str().unwrap().ends_with(&error.to_string()), "{error} {here}");
            assert!(!error.retryable(), "the same statement fails the same way");
        }
    });
}

#[test]
fn given_nobody_at_the_address_of_the_tables_when_they_are_asked_then_the_address_and_the_fix_are_named() {
    test(async |_| {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = fails(&at(&address), "SELECT 1").await;
        assert!(matches!(&error, WarehouseError::Away { .. }) && error.retryable(), "{error:?}");
        assert_eq!(error.code(), "warehouse_unreachable");
        assert!(
            error.to_string().contains(&address) && error.hint().unwrap().contains("RIVERRUN_WAREHOUSE_URL"),
            "{error}"
        );
    });
}
