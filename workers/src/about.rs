/// An event about the document that `$of` is about: the fields that all such events share, then its own, and the time.
macro_rules! about {
    ($of:expr, $event:ident { $($field:ident $(: $value:expr)?),* $(,)? }) => {
        $event {
            document_id: $of.document_id,
            ingest_id: $of.ingest_id,
            namespace: $of.namespace.clone(),
            collection: $of.collection.clone(),
            source: $of.source.clone(),
            $($field $(: $value)?,)*
            at: riverrun_schemas::now_ms(),
        }
    };
}
pub(crate) use about;
