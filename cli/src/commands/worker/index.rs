//! The indexer as a process of its own: vectors and keywords on Qdrant, the locks of collections in PostgreSQL.

use std::sync::Arc;

use riverrun_api::stack::DOCUMENTS;
use riverrun_stores::keywords::qdrant_index::QdrantKeywords;
use riverrun_stores::vectors::qdrant::QdrantVectors;
use riverrun_stores::{Sql, VectorStore};
use riverrun_workers::indexer::Indexer;
use riverrun_workers::turns::Turns;

use super::store_down;
use crate::error::{CliError, Exit};
use crate::settings::Settings;

/// One that takes turns with those of every other process.
pub(super) async fn indexer(settings: &Settings) -> Result<Indexer, CliError> {
    let (Some(server), Some(url)) = (&settings.qdrant, &settings.database_url) else {
        return Err(CliError::new(Exit::Usage, "worker indexer needs Qdrant and PostgreSQL")
            .hint("set RIVERRUN_QDRANT_URL and RIVERRUN_DATABASE_URL"));
    };
    let vectors = QdrantVectors::open(server.clone(), DOCUMENTS).map_err(|error| store_down(&error))?;
    vectors.server_version().await.map_err(|error| store_down(&error))?;
    let keywords = QdrantKeywords::open(server).map_err(|error| store_down(&error))?;
    let sql = Sql::connect(url).await.map_err(|error| store_down(&error))?;
    Ok(Indexer::new(Arc::new(vectors), Arc::new(keywords)).with_turns(Turns::across(sql)))
}
