//! Vectors of queries, kept for a while: the same question in other words is rare, the same question again is not.

use std::time::Duration;

use riverrun_models::{EmbedPurpose, ModelError};
use riverrun_schemas::counted;
use riverrun_stores::{Cache, CollectionInfo};
use sha2::{Digest, Sha256};

use crate::models::LanguageModels;

/// How long a vector is kept.
const KEEP: Duration = Duration::from_secs(24 * 3_600);

/// A vector for each query.
pub(super) struct QueryVectors {
    /// The model that made those which were not kept.
    pub(super) model: String,
    pub(super) vectors: Vec<Vec<f32>>,
}

/// The vectors of `queries`, as a collection has them. Only vectors of the collection's own length are kept.
pub(super) async fn embed(
    models: &dyn LanguageModels,
    cache: Option<&dyn Cache>,
    info: &CollectionInfo,
    queries: &[String],
) -> Result<QueryVectors, ModelError> {
    let Some(cache) = cache else {
        let (model, vectors) = ask(models, info, queries.to_vec()).await?;
        return Ok(QueryVectors { model, vectors });
    };
    let keys: Vec<String> = queries.iter().map(|query| key(info, query)).collect();
    let mut found: Vec<Option<Vec<f32>>> = Vec::with_capacity(queries.len());
    for key in &keys {
        found.push(cache.get(key).await.and_then(|bytes| read(&bytes, info.dimensions)));
    }
    let missing: Vec<String> =
        queries.iter().zip(&found).filter(|(_, kept)| kept.is_none()).map(|(query, _)| query.clone()).collect();
    let mut model = info.model.clone();
    if !missing.is_empty() {
        let (asked, vectors) = ask(models, info, missing).await?;
        model = asked;
        let mut made = vectors.into_iter();
        for (place, key) in found.iter_mut().zip(&keys) {
            if place.is_some() {
                continue;
            }
            let Some(vector) = made.next() else { break };
            if vector.len() == info.dimensions {
                cache.put(key, written(&vector), KEEP).await;
            }
            *place = Some(vector);
        }
    }
    Ok(QueryVectors { model, vectors: found.into_iter().flatten().collect() })
}

async fn ask(
    models: &dyn LanguageModels,
    info: &CollectionInfo,
    queries: Vec<String>,
) -> Result<(String, Vec<Vec<f32>>), ModelError> {
    let wanted = queries.len();
    let reply = models.embed(Some(&info.model), queries, EmbedPurpose::Query).await?;
    if reply.vectors.len() != wanted {
        let reason = format!("{} came for {}", counted(reply.vectors.len(), "vector"), counted(wanted, "query"));
        return Err(ModelError::Internal { reason });
    }
    Ok((reply.model, reply.vectors))
}

/// The query itself is not in it.
fn key(info: &CollectionInfo, query: &str) -> String {
    let hash = Sha256::digest(format!("{}\n{}\n{query}", info.model, info.dimensions));
    format!("query-vector:{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn written(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn read(bytes: &[u8], dimensions: usize) -> Option<Vec<f32>> {
    let (numbers, rest) = bytes.as_chunks::<4>();
    let vector: Vec<f32> = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
    (rest.is_empty() && vector.len() == dimensions && vector.iter().all(|number| number.is_finite())).then_some(vector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_a_vector_when_it_is_kept_then_it_is_read_back_and_what_is_none_is_not() {
        let vector = vec![0.25, -1.5e-7, 3.0];
        let bytes = written(&vector);
        assert_eq!(read(&bytes, 3), Some(vector));
        assert_eq!(read(&bytes, 4), None);
        assert_eq!(read(&bytes[..11], 3), None);
        assert_eq!(read(&written(&[f32::NAN]), 1), None);
        assert_eq!(read(b"text", 2), None);
    }
}
