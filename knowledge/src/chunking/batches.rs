//! Chunks travel in batches, and a batch has to fit in one event twice: as chunks, and again with their vectors.

use riverrun_schemas::ingest::Chunk;

/// Most chunks of a batch.
pub const MAX_BATCH_CHUNKS: usize = 32;

/// Longest vector that a batch leaves room for.
pub const MAX_DIMENSIONS: usize = 4096;

/// Bytes of a batch with its vectors: below the 256 KiB of an event, with room for the fields around.
const MAX_BATCH_BYTES: usize = 224 << 10;

/// Id, numbers, lengths and tags of a chunk in the event.
const CHUNK_FIELDS_BYTES: usize = 128;

/// Numbers of a run of chunks below a summary: two small ones, and two places in a text.
const LEAF_RUN_BYTES: usize = 24;

/// Groups chunks in reading order. A chunk of [`super::MAX_SIZE`] characters fits with its vector alone.
pub fn batches(chunks: Vec<Chunk>) -> Vec<Vec<Chunk>> {
    let mut batches: Vec<Vec<Chunk>> = Vec::new();
    let mut bytes = 0;
    for chunk in chunks {
        let weight = weight(&chunk);
        match batches.last_mut().filter(|batch| batch.len() < MAX_BATCH_CHUNKS && bytes + weight <= MAX_BATCH_BYTES) {
            Some(batch) => {
                bytes += weight;
                batch.push(chunk);
            }
            None => {
                bytes = weight;
                batches.push(vec![chunk]);
            }
        }
    }
    batches
}

fn weight(chunk: &Chunk) -> usize {
    let vector = MAX_DIMENSIONS * size_of::<f32>();
    let leaves = chunk.leaves.len() * LEAF_RUN_BYTES;
    chunk.text.len() + chunk.heading.as_ref().map_or(0, String::len) + leaves + vector + CHUNK_FIELDS_BYTES
}
