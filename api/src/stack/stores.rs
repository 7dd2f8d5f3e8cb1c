//! What a stack keeps things in: in its data folder, or on servers where some are set.

use std::path::Path;
use std::sync::Arc;

use riverrun_log::{BlobError, BlobStore, ObjectStoreBlobs, S3Config};
use riverrun_stores::keywords::qdrant_index::QdrantKeywords;
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::vectors::qdrant::{QdrantConfig, QdrantVectors};
use riverrun_stores::warehouse::{DuckConfig, DuckWarehouse, ElsewhereWarehouse, RemoteWarehouse};
use riverrun_stores::{
    DocumentStore, Episodes, Gaps, KeywordIndex, MongoDocuments, Sql, SqlDocuments, StoreError, VectorStore, Warehouse,
    WarehouseError, WarehouseLoader,
};

use super::{DOCUMENTS, StackConfig, StackError};

/// Every store but that of documents.
pub(super) struct Stores {
    pub(super) sql: Sql,
    pub(super) vectors: Arc<dyn VectorStore>,
    /// Vectors of conversations: apart, so that no name of a collection leads to them.
    pub(super) episodes: Episodes,
    pub(super) keywords: Arc<dyn KeywordIndex>,
    pub(super) gaps: Gaps,
    pub(super) warehouse: Arc<dyn Warehouse>,
    /// The same to load, where they are in this process.
    pub(super) loader: Option<Arc<dyn WarehouseLoader>>,
    pub(super) blobs: Arc<dyn BlobStore>,
}

/// Opens them.
pub(super) async fn open_stores(config: &StackConfig) -> Result<Stores, StackError> {
    let (Index { sql, vectors, keywords, gaps }, memories) = open_index(config).await?;
    let (warehouse, loader) = open_warehouse(config)?;
    let blobs = open_blobs(config).await?;
    Ok(Stores { sql, vectors, episodes: Episodes::new(memories), keywords, gaps, warehouse, loader, blobs })
}

/// Who answers for tables, and who loads them here.
type Tables = (Arc<dyn Warehouse>, Option<Arc<dyn WarehouseLoader>>);

/// Who has the ingester has the tables, whatever address the others have for them.
fn open_warehouse(config: &StackConfig) -> Result<Tables, WarehouseError> {
    if config.workers {
        let tables = Arc::new(DuckWarehouse::open(DuckConfig::at(config.data_dir.join("warehouse")))?);
        return Ok((tables.clone(), Some(tables)));
    }
    let elsewhere: Arc<dyn Warehouse> = match &config.warehouse {
        Some(place) => Arc::new(RemoteWarehouse::open(place)?),
        None => Arc::new(ElsewhereWarehouse),
    };
    Ok((elsewhere, None))
}

/// What is searched, and the database whose locks its writers take turns by.
pub(crate) struct Index {
    pub(crate) sql: Sql,
    pub(crate) vectors: Arc<dyn VectorStore>,
    pub(crate) keywords: Arc<dyn KeywordIndex>,
    pub(crate) gaps: Gaps,
}

/// Opens the index, and with it the vectors of conversations.
pub(crate) async fn open_index(config: &StackConfig) -> Result<(Index, Arc<dyn VectorStore>), StackError> {
    let part = |part: &'static str| move |source| StackError::Store { part, source };
    let sql = open_sql(config).await?;
    let gaps = Gaps::default();
    let (vectors, memories) = vectors(config, &gaps).await.map_err(part("vectors"))?;
    let keywords = keywords(config, &gaps).await.map_err(part("keywords"))?;
    Ok((Index { sql, vectors, keywords, gaps }, memories))
}

/// Opens the read models.
pub(crate) async fn open_sql(config: &StackConfig) -> Result<Sql, StackError> {
    let sql = match &config.database_url {
        Some(url) => Sql::connect(url).await,
        None => Sql::open(config.data_dir.join("read.db")).await,
    };
    sql.map_err(|source| StackError::Store { part: "sql", source })
}

/// Opens the documents, which are in the database of the read models where no other place is set; a server has to answer. Runs do
/// without them, so whoever only drives runs does not open them.
pub(crate) async fn open_documents(config: &StackConfig, sql: &Sql) -> Result<Arc<dyn DocumentStore>, StackError> {
    let part = |source| StackError::Store { part: "documents", source };
    let Some(url) = &config.mongodb_url else { return Ok(Arc::new(SqlDocuments::new(sql.clone()))) };
    let documents = MongoDocuments::open(url).await.map_err(part)?;
    documents.version().await.map_err(part)?;
    Ok(Arc::new(documents))
}

/// Opens the blobs; a bucket has to answer.
pub(crate) async fn open_blobs(config: &StackConfig) -> Result<Arc<dyn BlobStore>, StackError> {
    let blobs = blobs(&config.data_dir, config.s3.as_ref())?;
    if config.s3.is_some() {
        blobs.check().await?;
    }
    Ok(Arc::new(blobs))
}

/// The vectors of documents, and those of conversations.
async fn vectors(
    config: &StackConfig,
    gaps: &Gaps,
) -> Result<(Arc<dyn VectorStore>, Arc<dyn VectorStore>), StoreError> {
    let Some(server) = &config.qdrant else {
        let at = |folder: &str| EdgeConfig::at(config.data_dir.join(folder));
        let documents = EdgeVectors::open_telling(at("vectors"), gaps.clone())?;
        let (documents, memories): (Arc<dyn VectorStore>, Arc<dyn VectorStore>) =
            (Arc::new(documents), Arc::new(EdgeVectors::open(at("memory"))?));
        return Ok((documents, memories));
    };
    let documents: Arc<dyn VectorStore> = Arc::new(QdrantVectors::open(server.clone(), DOCUMENTS)?);
    let memories: Arc<dyn VectorStore> = Arc::new(QdrantVectors::open(server.clone(), "memory")?);
    documents.server_version().await?;
    Ok((documents, memories))
}

/// The words of documents.
async fn keywords(config: &StackConfig, gaps: &Gaps) -> Result<Arc<dyn KeywordIndex>, StoreError> {
    let Some(server) = keyword_server(config) else {
        let at = TantivyConfig::at(config.data_dir.join("keywords"));
        return Ok(Arc::new(TantivyIndex::open_telling(at, gaps.clone())?));
    };
    let keywords = QdrantKeywords::open(server)?;
    keywords.server_version().await?;
    Ok(Arc::new(keywords))
}

/// The server that has the keywords too.
pub(super) fn keyword_server(config: &StackConfig) -> Option<&QdrantConfig> {
    config.qdrant.as_ref().filter(|server| server.keywords)
}

/// The blob store of a data folder, or the bucket that stands for it. Content is found by its hash, so several processes
/// may write to it.
pub fn blobs(data_dir: &Path, s3: Option<&S3Config>) -> Result<ObjectStoreBlobs, BlobError> {
    match s3 {
        Some(config) => ObjectStoreBlobs::s3(config),
        None => ObjectStoreBlobs::local(&data_dir.join("blobs")),
    }
}
