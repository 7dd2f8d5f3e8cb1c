use async_trait::async_trait;
use riverrun_schemas::{DocumentId, Namespace};

use super::{QueryLimits, QueryResult, TableInfo, TableLoad, Warehouse, WarehouseError};

/// The warehouse of a process that has none: whatever is asked, the answer says where tables are. An empty one would say that
/// there are no tables.
#[derive(Debug, Clone, Copy)]
pub struct ElsewhereWarehouse;

#[async_trait]
impl Warehouse for ElsewhereWarehouse {
    async fn load(&self, _: &Namespace, _: TableLoad) -> Result<TableInfo, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn holds(&self, _: &Namespace, _: &str, _: &DocumentId, _: &str) -> Result<bool, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn remove_document(&self, _: &Namespace, _: &DocumentId) -> Result<Vec<TableInfo>, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn remove_outdated(
        &self,
        _: &Namespace,
        _: &DocumentId,
        _: &str,
        _: &str,
    ) -> Result<Vec<TableInfo>, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn tables(&self, _: &Namespace) -> Result<Vec<TableInfo>, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }

    async fn query(&self, _: &Namespace, _: &str, _: QueryLimits) -> Result<QueryResult, WarehouseError> {
        Err(WarehouseError::Elsewhere)
    }
}
