/// The chunks of the document that `$of` is about as the batches that are embedded.
macro_rules! ready_batches {
    ($of:expr, $version:expr, $chunks:expr, $context:expr) => {{
        let batches = riverrun_knowledge::chunking::batches($chunks);
        // The number of chunks of a document is limited far below the range of the type.
        let count = batches.len() as i32;
        let ready = |(batch, chunks): (i32, Vec<Chunk>)| {
            crate::about::about!(
                $of,
                ChunksReady {
                    version: $version.clone(),
                    embed_model: $of.embed_model.clone(),
                    batch,
                    batches: count,
                    metadata_json: $of.metadata_json.clone(),
                    chunks,
                    context: $context.clone(),
                }
            )
        };
        (0..).zip(batches).map(ready).collect::<Vec<ChunksReady>>()
    }};
}
pub(super) use ready_batches;
