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

#[cfg(test)]
pub(crate) mod testing {
    use std::fmt::Display;

    use riverrun_schemas::{CollectionName, DocumentId, IngestId, Namespace};

    /// What an event is about.
    pub(crate) struct Of {
        pub(crate) document_id: DocumentId,
        pub(crate) ingest_id: IngestId,
        pub(crate) namespace: Namespace,
        pub(crate) collection: CollectionName,
        pub(crate) source: String,
    }

    /// A document of the collection `notes`, and a request; the same for the same names.
    pub(crate) fn of(document: impl Display, ingest: impl Display) -> Of {
        Of {
            document_id: DocumentId::derive(&[&document.to_string()]),
            ingest_id: IngestId::derive(&[&ingest.to_string()]),
            namespace: Namespace::default(),
            collection: "notes".parse().unwrap(),
            source: format!("/{document}"),
        }
    }
}
