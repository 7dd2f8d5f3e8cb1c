//! The warehouse in this process: one DuckDB file a namespace, `<root>/<namespace>.duckdb`.
//!
//! Loads and queries share one database instance, so a query reads the last committed state while a load writes, and
//! nobody waits for a lock. The instance is opened with the file system, extensions and its own settings out of reach.

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use duckdb::InterruptHandle;
use parking_lot::Mutex;
use riverrun_schemas::{DocumentId, Namespace};
use tokio::sync::Semaphore;

use crate::warehouse::duck::database::Database;
use crate::warehouse::{QueryLimits, QueryResult, TableInfo, TableLoad, Warehouse, WarehouseError, WarehouseLoader};

mod check;
mod database;
#[cfg(test)]
mod fuzz_tests;
mod names;
mod query;
mod values;

pub use names::check_table;

/// How often a query that has to stop is told so: an interrupt that falls between two statements is forgotten.
const INTERRUPT_EVERY: Duration = Duration::from_millis(100);

/// Settings of [`DuckWarehouse`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuckConfig {
    /// Folder of all namespaces.
    pub root: PathBuf,
    /// Memory of a namespace's database; what needs more fails.
    pub memory_mb: usize,
    /// Threads of a namespace's database.
    pub threads: usize,
    /// Databases open at once; the least recently used that nobody uses are closed.
    pub max_open: usize,
    /// Queries that run at once; others are refused.
    pub max_queries: usize,
}

impl DuckConfig {
    /// The usual settings under that folder.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), memory_mb: 1_000, threads: 2, max_open: 16, max_queries: 8 }
    }
}

/// The warehouse in this process. Cheap to clone.
#[derive(Clone)]
pub struct DuckWarehouse {
    inner: Arc<Inner>,
}

struct Inner {
    config: DuckConfig,
    open: Mutex<OpenDatabases>,
    queries: Arc<Semaphore>,
}

#[derive(Default)]
struct OpenDatabases {
    by_namespace: HashMap<Namespace, (Arc<Database>, u64)>,
    clock: u64,
}

impl DuckWarehouse {
    /// Opens the folder, making it if need be. Databases are opened when first used.
    pub fn open(config: DuckConfig) -> Result<Self, WarehouseError> {
        fs::create_dir_all(&config.root)
            .map_err(|error| WarehouseError::Database { path: config.root.clone(), reason: error.to_string() })?;
        let queries = Arc::new(Semaphore::new(config.max_queries.max(1)));
        Ok(Self { inner: Arc::new(Inner { config, open: Mutex::default(), queries }) })
    }

    /// Runs on a thread that may block. A panic of the engine becomes an error, and the database is opened anew.
    async fn blocking<R: Send + 'static>(
        &self,
        namespace: &Namespace,
        work: impl FnOnce(&Database) -> Result<R, WarehouseError> + Send + 'static,
    ) -> Result<R, WarehouseError> {
        let (inner, owned) = (self.inner.clone(), namespace.clone());
        let done = tokio::task::spawn_blocking(move || {
            let database = inner.database(&owned)?;
            let result = work(&database);
            if database.is_broken() {
                inner.close(&owned);
            }
            result
        });
        match done.await {
            Ok(result) => result,
            Err(error) if error.is_panic() => {
                self.inner.close(namespace);
                let reason = crate::shelf::panic_message(error.into_panic());
                Err(WarehouseError::Database { path: self.inner.path(namespace), reason })
            }
            Err(_) => Err(WarehouseError::ShuttingDown),
        }
    }
}

impl Inner {
    fn path(&self, namespace: &Namespace) -> PathBuf {
        self.config.root.join(format!("{namespace}.duckdb"))
    }

    fn database(&self, namespace: &Namespace) -> Result<Arc<Database>, WarehouseError> {
        let mut open = self.open.lock();
        open.clock += 1;
        let now = open.clock;
        if let Some((database, used)) = open.by_namespace.get_mut(namespace) {
            *used = now;
            return Ok(database.clone());
        }
        // Opened under the lock: a file must never be open twice.
        let database = Arc::new(Database::open(self.path(namespace), &self.config)?);
        open.by_namespace.insert(namespace.clone(), (database.clone(), now));
        while open.by_namespace.len() > self.config.max_open {
            let idle = open.by_namespace.iter().filter(|(_, (database, _))| Arc::strong_count(database) == 1);
            let Some(oldest) = idle.min_by_key(|(_, (_, used))| *used).map(|(namespace, _)| namespace.clone()) else {
                break;
            };
            open.by_namespace.remove(&oldest);
        }
        Ok(database)
    }

    fn close(&self, namespace: &Namespace) {
        self.open.lock().by_namespace.remove(namespace);
    }
}

/// Stops a query when its time is over or when nobody waits for it any more.
struct Watch {
    done: Arc<AtomicBool>,
    handle: Arc<Mutex<Option<Arc<InterruptHandle>>>>,
}

impl Drop for Watch {
    fn drop(&mut self) {
        if self.done.load(Ordering::Acquire) {
            return;
        }
        let (done, handle) = (self.done.clone(), self.handle.clone());
        tokio::spawn(async move {
            while !done.load(Ordering::Acquire) {
                if let Some(handle) = handle.lock().clone() {
                    handle.interrupt();
                }
                tokio::time::sleep(INTERRUPT_EVERY).await;
            }
        });
    }
}

#[async_trait]
impl WarehouseLoader for DuckWarehouse {
    async fn load(&self, namespace: &Namespace, load: TableLoad) -> Result<TableInfo, WarehouseError> {
        self.blocking(namespace, move |database| database.load(load)).await
    }

    async fn holds(
        &self,
        namespace: &Namespace,
        table: &str,
        document: &DocumentId,
        version: &str,
    ) -> Result<bool, WarehouseError> {
        let (table, document, version) = (table.to_owned(), *document, version.to_owned());
        self.blocking(namespace, move |database| database.holds(&table, &document, &version)).await
    }

    async fn remove_document(
        &self,
        namespace: &Namespace,
        document: &DocumentId,
    ) -> Result<Vec<TableInfo>, WarehouseError> {
        if !self.inner.path(namespace).exists() {
            return Ok(Vec::new());
        }
        let document = *document;
        self.blocking(namespace, move |database| database.remove_document(&document)).await
    }

    async fn remove_outdated(
        &self,
        namespace: &Namespace,
        document: &DocumentId,
        version: &str,
    ) -> Result<Vec<TableInfo>, WarehouseError> {
        if !self.inner.path(namespace).exists() {
            return Ok(Vec::new());
        }
        let (document, version) = (*document, version.to_owned());
        self.blocking(namespace, move |database| database.remove_outdated(&document, &version)).await
    }
}

#[async_trait]
impl Warehouse for DuckWarehouse {
    async fn tables(&self, namespace: &Namespace) -> Result<Vec<TableInfo>, WarehouseError> {
        if !self.inner.path(namespace).exists() {
            return Ok(Vec::new());
        }
        self.blocking(namespace, |database| database.tables()).await
    }

    async fn query(
        &self,
        namespace: &Namespace,
        sql: &str,
        limits: QueryLimits,
    ) -> Result<QueryResult, WarehouseError> {
        let running = self.inner.config.max_queries;
        let permit = self.inner.queries.clone().try_acquire_owned().map_err(|_| WarehouseError::Busy { running })?;
        let watch = Watch { done: Arc::default(), handle: Arc::default() };
        let (done, handle, sql) = (watch.done.clone(), watch.handle.clone(), sql.to_owned());
        let memory_mb = self.inner.config.memory_mb;
        let work = self.blocking(namespace, move |database| {
            // Held until the engine has really stopped: one that can't be interrupted counts as running.
            let _permit = permit;
            let _done = SetOnDrop(done);
            let connection = database.connect()?;
            *handle.lock() = Some(connection.interrupt_handle());
            let result = query::run(&connection, &sql, limits, memory_mb);
            *handle.lock() = None;
            database.note(&result);
            result
        });
        let outcome = tokio::time::timeout(limits.time, work).await;
        drop(watch);
        outcome.unwrap_or(Err(WarehouseError::TimedOut { limit: limits.time }))
    }
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
