//! Searches that were tuned to judgements: where the vector of a question is searched for instead.

use std::sync::Arc;

use async_trait::async_trait;
use riverrun_stores::CollectionInfo;

/// A square matrix `A`: instead of the vector `q` of a question, `q + qA` is searched for, in the length 1.
#[derive(Debug, Clone, PartialEq)]
pub struct QueryAdapter {
    dimensions: usize,
    /// Row by row.
    matrix: Vec<f32>,
}

/// A collection's adapter could not be had.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct AdapterFailure(pub String);

/// Which collections are tuned.
#[async_trait]
pub trait QueryAdapters: Send + Sync {
    /// The adapter for vectors of the collection's own model; `None` where it has none.
    async fn of(&self, info: &CollectionInfo) -> Result<Option<Arc<QueryAdapter>>, AdapterFailure>;
}

impl QueryAdapter {
    /// The media type of its bytes.
    pub const MEDIA_TYPE: &str = "application/vnd.riverrun.query-adapter";
    /// Longest vectors that are tuned: the matrix has the square of it.
    pub const MAX_DIMENSIONS: usize = 4_096;

    /// An adapter of a matrix, row by row; `None` when it is not square in `dimensions`, or a number is not finite.
    pub fn new(dimensions: usize, matrix: Vec<f32>) -> Option<Self> {
        let fits = dimensions.checked_mul(dimensions) == Some(matrix.len()) && dimensions <= Self::MAX_DIMENSIONS;
        (fits && matrix.iter().all(|number| number.is_finite())).then_some(Self { dimensions, matrix })
    }

    /// The matrix, row by row, in little-endian numbers of 32 bits.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.matrix.iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    /// What [`to_bytes`](Self::to_bytes) wrote for vectors of `dimensions` numbers; `None` when it is anything else.
    pub fn from_bytes(dimensions: usize, bytes: &[u8]) -> Option<Self> {
        let (numbers, rest) = bytes.as_chunks::<4>();
        let matrix = numbers.iter().map(|number| f32::from_le_bytes(*number)).collect();
        rest.is_empty().then(|| Self::new(dimensions, matrix)).flatten()
    }

    /// Bytes that it takes.
    pub fn size(&self) -> usize {
        size_of_val(self.matrix.as_slice())
    }

    /// Where a question is searched for. A vector of another length, or of no direction, stays as it is.
    pub fn apply(&self, vector: &[f32]) -> Vec<f32> {
        let asked = of_length_one(vector);
        if vector.len() != self.dimensions {
            return asked;
        }
        let mut moved = asked.clone();
        for (number, row) in asked.iter().zip(self.matrix.chunks_exact(self.dimensions)) {
            for (sum, weight) in moved.iter_mut().zip(row) {
                *sum += number * weight;
            }
        }
        of_length_one(&moved)
    }
}

/// Moves the vectors of questions by the adapter of the collection that they are for; false where it has none.
pub(super) async fn apply(
    adapters: Option<&dyn QueryAdapters>,
    info: &CollectionInfo,
    vectors: &mut [Vec<f32>],
) -> Result<bool, AdapterFailure> {
    let Some(adapters) = adapters else { return Ok(false) };
    let Some(adapter) = adapters.of(info).await? else { return Ok(false) };
    for vector in vectors {
        *vector = adapter.apply(vector);
    }
    Ok(true)
}

/// A vector that points there with the length 1; one of no direction stays as it is.
pub fn of_length_one(vector: &[f32]) -> Vec<f32> {
    let length = vector.iter().map(|number| number * number).sum::<f32>().sqrt();
    let scale = if length.is_normal() { length } else { 1.0 };
    vector.iter().map(|number| number / scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_an_adapter_when_it_is_applied_then_the_vector_is_moved_and_has_length_one() {
        // The second number is added to the first, twice.
        let adapter = QueryAdapter::new(2, vec![0.0, 0.0, 2.0, 0.0]).unwrap();
        let moved = adapter.apply(&[3.0, 4.0]);
        let expected = [11.0 / 137.0_f32.sqrt(), 4.0 / 137.0_f32.sqrt()];
        assert!(moved.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{moved:?}");
        let none = QueryAdapter::new(2, vec![0.0; 4]).unwrap();
        assert_eq!(none.apply(&[0.0, 2.0]), [0.0, 1.0]);
        assert_eq!(none.apply(&[0.0, 0.0]), [0.0, 0.0]);
        assert_eq!(none.apply(&[0.0, 0.0, 5.0]), [0.0, 0.0, 1.0]);
    }

    #[test]
    fn given_an_adapter_when_it_is_kept_then_it_is_read_back_and_what_is_none_is_not() {
        let adapter = QueryAdapter::new(2, vec![0.5, -1.5e-7, 3.0, 0.0]).unwrap();
        let bytes = adapter.to_bytes();
        assert_eq!(QueryAdapter::from_bytes(2, &bytes), Some(adapter));
        for (dimensions, bytes) in [(3, &bytes[..]), (2, &bytes[..15]), (2, &bytes[..12]), (usize::MAX, &bytes)] {
            assert_eq!(QueryAdapter::from_bytes(dimensions, bytes), None);
        }
        assert_eq!(QueryAdapter::new(1, vec![f32::NAN]), None);
        assert_eq!(QueryAdapter::new(5_000, vec![0.0; 25_000_000]), None);
    }
}
