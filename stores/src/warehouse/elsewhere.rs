use async_trait::async_trait;
use riverrun_schemas::Namespace;

use super::{QueryLimits, QueryResult, TableInfo, Warehouse, WarehouseError};

/// The warehouse of a process that has none: whatever is asked, the answer says where tables are. An empty one would say that
/// there are no tables.
#[derive(Debug, Clone, Copy)]
pub struct ElsewhereWarehouse;

#[async_trait]
impl Warehouse for ElsewhereWarehouse {
    async fn tables(&self, _: &Namespace) -> Result<Vec<TableInfo>, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn query(&self, _: &Namespace, _: &str, _: QueryLimits) -> Result<QueryResult, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }
}
