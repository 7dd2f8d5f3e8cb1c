//! One tantivy index.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use riverrun_schemas::DocumentId;
use serde::de::DeserializeOwned;
use tantivy::collector::{Count, TopDocs};
use tantivy::directory::MmapDirectory;
use tantivy::indexer::UserOperation;
use tantivy::query::{BooleanQuery, ConstScoreQuery, Occur, Query, TermQuery};
use tantivy::schema::{Field, IndexRecordOption, STORED, STRING, Schema, TextFieldIndexing, TextOptions, Value};
use tantivy::{
    DocAddress, Index, IndexReader, IndexWriter, ReloadPolicy, Searcher, TantivyDocument, TantivyError, Term,
};

use crate::chunk::{ChunkFilter, StoredChunk, TIE_SLACK, Versions, contenders};
use crate::error::StoreError;
use crate::keywords::KeywordHit;
use crate::keywords::tantivy_index::index::pending::Pending;
use crate::keywords::words::{ANALYZER, analyzer, query_words};
use crate::open_set::Closable;

mod keys;
mod pending;

const META_FILE: &str = "meta.json";

#[derive(Clone, Copy)]
struct Fields {
    chunk_id: Field,
    document_id: Field,
    version: Field,
    tags: Field,
    text: Field,
    /// The whole chunk as JSON: the only stored field.
    chunk: Field,
}

/// An open index; its writer is opened when first needed.
pub(super) struct OpenIndex {
    path: PathBuf,
    index: Index,
    reader: IndexReader,
    fields: Fields,
    writer: Option<IndexWriter>,
    writer_memory_bytes: usize,
    /// Written to since the last commit.
    dirty: bool,
    /// What the reader does not see yet.
    pending: Pending,
}

impl OpenIndex {
    pub(super) fn is_at(path: &Path) -> bool {
        path.join(META_FILE).exists()
    }

    pub(super) fn open(path: &Path, writer_memory_bytes: usize) -> Result<Self, StoreError> {
        fs::create_dir_all(path).map_err(StoreError::io("creating", path))?;
        let failed = |error: TantivyError| failed(path, error);
        let (schema, fields) = schema();
        let directory = MmapDirectory::open(path).map_err(|error| failed(error.into()))?;
        let index = Index::open_or_create(directory, schema).map_err(|error| match error {
            TantivyError::SchemaError(_) => other_words(path),
            other => failed(other),
        })?;
        index.tokenizers().register(ANALYZER, analyzer());
        let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into().map_err(failed)?;
        Ok(Self {
            path: path.to_path_buf(),
            index,
            reader,
            fields,
            writer: None,
            writer_memory_bytes,
            dirty: false,
            pending: Pending::default(),
        })
    }

    fn writer(&mut self) -> Result<&mut IndexWriter, StoreError> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            empty => {
                let writer = self
                    .index
                    .writer_with_num_threads(1, self.writer_memory_bytes)
                    .map_err(|error| failed(&self.path, error))?;
                Ok(empty.insert(writer))
            }
        }
    }

    /// All of them are handed to the writer at once: each time it is handed something its thread is woken.
    pub(super) fn upsert(&mut self, chunks: &[StoredChunk]) -> Result<(), StoreError> {
        let (fields, path) = (self.fields, self.path.clone());
        let mut operations = Vec::with_capacity(chunks.len());
        for chunk in chunks {
            if self.may_hold(chunk)? {
                operations.push(UserOperation::Delete(term(fields.chunk_id, &chunk.chunk_id.to_string())));
            }
            operations.push(UserOperation::Add(document(&fields, chunk)));
            self.pending.add(chunk);
        }
        self.dirty = true;
        self.writer()?.run(operations).map(drop).map_err(|error| failed(&path, error))
    }

    /// Whether the chunk may be there already. A deletion is looked for in every segment when it is committed, so that those that would
    /// find nothing cost more than all that is added.
    fn may_hold(&self, chunk: &StoredChunk) -> Result<bool, StoreError> {
        let fields = self.fields;
        Ok(self.pending.has_chunk(chunk)
            || self.is_committed(fields.document_id, &chunk.document_id.to_string())?
                && self.is_committed(fields.chunk_id, &chunk.chunk_id.to_string())?)
    }

    /// Whether anything committed has that text, what was deleted and not merged away yet included.
    fn is_committed(&self, field: Field, text: &str) -> Result<bool, StoreError> {
        let found = self.reader.searcher().doc_freq(&term(field, text)).map_err(|error| failed(&self.path, error))?;
        Ok(found > 0)
    }

    /// The chunks of the document's versions.
    fn of_document(&self, document: &DocumentId, versions: &Versions) -> BooleanQuery {
        let mut clauses = vec![(Occur::Must, exactly(self.fields.document_id, &document.to_string()))];
        match versions {
            Versions::All => {}
            Versions::Only(version) => clauses.push((Occur::Must, exactly(self.fields.version, version))),
            Versions::Except(version) => clauses.push((Occur::MustNot, exactly(self.fields.version, version))),
        }
        BooleanQuery::new(clauses)
    }

    pub(super) fn count_document(&self, document: &DocumentId, versions: &Versions) -> Result<usize, StoreError> {
        let query = self.of_document(document, versions);
        self.reader.searcher().search(&query, &Count).map_err(|error| failed(&self.path, error))
    }

    /// Compares every file with its checksum, and reads the list of documents.
    pub(super) fn verify(&self) -> Result<(), StoreError> {
        let damaged = self.index.validate_checksum().map_err(|error| failed(&self.path, error))?;
        if let Some(file) = damaged.iter().min() {
            let reason = format!(
                "{} of its files are not what they were when they were written, such as {}",
                damaged.len(),
                file.display()
            );
            return Err(failed(&self.path, reason));
        }
        self.documents().map(drop)
    }

    pub(super) fn delete_document(&mut self, document: &DocumentId, versions: &Versions) -> Result<usize, StoreError> {
        let doomed = self.of_document(document, versions);
        let path = self.path.clone();
        let count = self.reader.searcher().search(&doomed, &Count).map_err(|error| failed(&path, error))?;
        if count == 0 && !self.pending.has_document(document, versions) {
            return Ok(0);
        }
        self.dirty = true;
        self.writer()?.delete_query(Box::new(doomed)).map_err(|error| failed(&path, error))?;
        Ok(count)
    }

    /// The best `k` hits, and those whose scores are no less.
    pub(super) fn search(&self, query: &str, k: usize, filter: &ChunkFilter) -> Result<Vec<KeywordHit>, StoreError> {
        let Some(query) = self.query(query, filter) else { return Ok(Vec::new()) };
        let searcher = self.reader.searcher();
        let found = searcher
            .search(&query, &TopDocs::with_limit(k + TIE_SLACK).order_by_score())
            .map_err(|error| failed(&self.path, error))?;
        contenders(found, k, |(score, _)| *score)
            .into_iter()
            .map(|(score, address)| Ok(KeywordHit { chunk: self.stored(&searcher, address)?, score }))
            .collect()
    }

    /// What is kept of a chunk.
    fn stored<T: DeserializeOwned>(&self, searcher: &Searcher, address: DocAddress) -> Result<T, StoreError> {
        let document: TantivyDocument = searcher.doc(address).map_err(|error| failed(&self.path, error))?;
        let chunk = document
            .get_first(self.fields.chunk)
            .and_then(|value| value.as_str().map(str::to_owned))
            .unwrap_or_default();
        serde_json::from_str(&chunk).map_err(|error| failed(&self.path, format!("a stored chunk is damaged: {error}")))
    }

    /// Any of the words, and only in what the filter allows; `None` when the query has no word.
    fn query(&self, query: &str, filter: &ChunkFilter) -> Option<BooleanQuery> {
        let words: Vec<(Occur, Box<dyn Query>)> = query_words(query)
            .iter()
            .map(|word| {
                (
                    Occur::Should,
                    Box::new(TermQuery::new(term(self.fields.text, word), IndexRecordOption::WithFreqs))
                        as Box<dyn Query>,
                )
            })
            .collect();
        if words.is_empty() {
            return None;
        }
        let words = BooleanQuery::new(words);
        let documents: Vec<String> = filter.documents.iter().map(ToString::to_string).collect();
        let mut clauses: Vec<(Occur, Box<dyn Query>)> =
            filter.tags.iter().map(|tags| (Occur::Must, any_of(self.fields.tags, tags))).collect();
        if !documents.is_empty() {
            clauses.push((Occur::Must, any_of(self.fields.document_id, &documents)));
        }
        if clauses.is_empty() {
            return Some(words);
        }
        clauses.push((Occur::Must, Box::new(words)));
        Some(BooleanQuery::new(clauses))
    }

    pub(super) fn count(&self) -> usize {
        usize::try_from(self.reader.searcher().num_docs()).unwrap_or(usize::MAX)
    }

    /// How many chunks each document has.
    pub(super) fn documents(&self) -> Result<BTreeMap<DocumentId, usize>, StoreError> {
        let searcher = self.reader.searcher();
        let mut names = BTreeSet::new();
        for segment in searcher.segment_readers() {
            let inverted =
                segment.inverted_index(self.fields.document_id).map_err(|error| failed(&self.path, error))?;
            let mut terms = inverted.terms().stream().map_err(|error| failed(&self.path, error))?;
            while terms.advance() {
                names.extend(std::str::from_utf8(terms.key()).map(str::to_owned));
            }
        }
        let mut found = BTreeMap::new();
        for name in names {
            // A term outlives the chunks that had it until its segment is merged.
            let chunks = searcher
                .search(&exactly(self.fields.document_id, &name), &Count)
                .map_err(|error| failed(&self.path, error))?;
            if chunks > 0 {
                let document =
                    name.parse::<DocumentId>().map_err(|error| failed(&self.path, format!("{name}: {error}")))?;
                found.insert(document, chunks);
            }
        }
        Ok(found)
    }

    pub(super) fn commit(&mut self) -> Result<(), StoreError> {
        if !self.dirty {
            return Ok(());
        }
        let path = self.path.clone();
        if let Err(error) = self.writer()?.commit() {
            // A writer that failed takes nothing any more; the next call opens a new one at the last commit.
            self.writer = None;
            return Err(failed(&path, error));
        }
        self.reader.reload().map_err(|error| failed(&path, error))?;
        self.dirty = false;
        self.pending.clear();
        Ok(())
    }
}

impl Closable for OpenIndex {
    fn may_close(&self) -> bool {
        !self.dirty
    }
}

fn schema() -> (Schema, Fields) {
    let mut builder = Schema::builder();
    let words = TextFieldIndexing::default().set_tokenizer(ANALYZER).set_index_option(IndexRecordOption::WithFreqs);
    let fields = Fields {
        chunk_id: builder.add_text_field("chunk_id", STRING),
        document_id: builder.add_text_field("document_id", STRING),
        version: builder.add_text_field("version", STRING),
        tags: builder.add_text_field("tags", STRING),
        text: builder.add_text_field("text", TextOptions::default().set_indexing_options(words)),
        chunk: builder.add_text_field("chunk", STORED),
    };
    (builder.build(), fields)
}

/// The heading is searched with the text: it often names what the text is about.
fn document(fields: &Fields, chunk: &StoredChunk) -> TantivyDocument {
    let mut document = TantivyDocument::default();
    document.add_text(fields.chunk_id, chunk.chunk_id.to_string());
    document.add_text(fields.document_id, chunk.document_id.to_string());
    document.add_text(fields.version, &chunk.version);
    chunk.tags.iter().for_each(|tag| document.add_text(fields.tags, tag));
    document.add_text(fields.text, &chunk.text);
    if let Some(heading) = &chunk.heading {
        document.add_text(fields.text, heading);
    }
    document.add_text(
        fields.chunk,
        serde_json::to_string(chunk).unwrap_or_else(|error| unreachable!("a chunk is always JSON: {error}")),
    );
    document
}

fn term(field: Field, text: &str) -> Term {
    Term::from_field_text(field, text)
}

/// One of these values, whichever: it says nothing about how well a chunk fits.
fn any_of(field: Field, values: &[String]) -> Box<dyn Query> {
    let values = values.iter().map(|value| (Occur::Should, exactly(field, value))).collect();
    Box::new(ConstScoreQuery::new(Box::new(BooleanQuery::new(values)), 0.0))
}

fn exactly(field: Field, text: &str) -> Box<dyn Query> {
    Box::new(TermQuery::new(term(field, text), IndexRecordOption::Basic))
}

/// An index whose chunks were cut into words in another way does not find what today's queries look for.
fn other_words(path: &Path) -> StoreError {
    failed(path, format!("it was made by another version, which cut text into words otherwise than {ANALYZER}"))
}

fn failed(path: &Path, error: impl std::fmt::Display) -> StoreError {
    StoreError::Index { kind: "keyword", path: path.to_path_buf(), reason: error.to_string() }
}
