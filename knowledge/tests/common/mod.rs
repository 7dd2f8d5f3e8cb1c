//! Real stores in a temporary folder, and models small enough to be read: words hashed into vectors, and scripted answers.
#![allow(dead_code)] // each test file uses its part
#![allow(clippy::disallowed_types, reason = "the crate under test needs no other lock than its own")]

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use riverrun_knowledge::chunking::{self, ChunkConfig};
use riverrun_knowledge::retrieval::{StoredTexts, TextFailure};
use riverrun_knowledge::{LanguageModels, Retriever, sources};
use riverrun_models::{
    ChatReply, ChatRequest, DeltaSink, EmbedPurpose, EmbedReply, FinishReason, ModelError, Reranker, Usage,
};
use riverrun_schemas::{Collection, DocumentId, Namespace, ingest};
use riverrun_stores::keywords::tantivy_index::{TantivyConfig, TantivyIndex};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use riverrun_stores::{KeywordIndex, StoredChunk, VectorPoint, VectorStore};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

pub(crate) const MODEL: &str = "words";
pub(crate) const DIMENSIONS: usize = 256;

type Script = Box<dyn Fn(&ChatRequest) -> Result<String, ModelError> + Send + Sync>;

/// Deterministic models.
pub(crate) struct TestModels {
    pub dimensions: usize,
    pub reranker: Reranker,
    /// What comes of re-ranking.
    pub reranks: Result<(), ModelError>,
    pub context: Option<usize>,
    /// Whether it can count a prompt.
    pub counts: bool,
    pub script: Script,
    pub asked: Mutex<Vec<ChatRequest>>,
}

impl Default for TestModels {
    fn default() -> Self {
        Self {
            dimensions: DIMENSIONS,
            reranker: Reranker::Off,
            reranks: Ok(()),
            context: Some(8192),
            counts: true,
            script: Box::new(|_| Ok("No script.".to_owned())),
            asked: Mutex::default(),
        }
    }
}

impl TestModels {
    pub(crate) fn saying(text: &str) -> Self {
        let text = text.to_owned();
        Self { script: Box::new(move |_| Ok(text.clone())), ..Self::default() }
    }

    /// The user message of the only chat.
    pub(crate) fn prompt(&self) -> String {
        let asked = self.asked.lock().unwrap();
        assert_eq!(asked.len(), 1, "chats");
        asked[0].messages.last().unwrap().content.clone()
    }
}

fn words(text: &str) -> BTreeSet<String> {
    text.to_lowercase().split(|c: char| !c.is_alphanumeric()).filter(|word| word.len() > 2).map(str::to_owned).collect()
}

pub(crate) fn vector(text: &str, dimensions: usize) -> Vec<f32> {
    let mut vector = vec![0.0; dimensions];
    for word in words(text) {
        let mut hasher = DefaultHasher::new();
        word.hash(&mut hasher);
        vector[hasher.finish() as usize % dimensions] += 1.0;
    }
    vector
}

#[async_trait]
impl LanguageModels for TestModels {
    async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        _purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        Ok(EmbedReply {
            model: model.unwrap_or(MODEL).to_owned(),
            vectors: inputs.iter().map(|text| vector(text, self.dimensions)).collect(),
            dimensions: self.dimensions,
            truncated: 0,
            usage: Usage::default(),
        })
    }

    fn reranker(&self) -> Reranker {
        self.reranker.clone()
    }

    /// Prefers short documents, which nothing else does.
    async fn rerank(&self, _query: String, documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        self.reranks.clone()?;
        Ok(documents.iter().map(|document| -(document.len() as f32)).collect())
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        request: ChatRequest,
        sink: &mut dyn DeltaSink,
        _cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        let text = (self.script)(&request);
        self.asked.lock().unwrap().push(request);
        let text = text?;
        let chars: Vec<char> = text.chars().collect();
        for piece in chars.chunks(3) {
            sink.delta(&piece.iter().collect::<String>());
        }
        let usage = Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() };
        Ok(ChatReply { text, tool_calls: Vec::new(), usage, finish: FinishReason::Stop, model: "scripted".to_owned() })
    }

    async fn count_prompt(&self, _provider: Option<&str>, request: &ChatRequest) -> Result<usize, ModelError> {
        match self.counts {
            true => Ok(request.messages.iter().map(|message| message.content.split_whitespace().count()).sum()),
            false => Err(unsupported("count the tokens of a whole prompt")),
        }
    }

    async fn context_tokens(&self, _provider: Option<&str>, _model: &str) -> Result<usize, ModelError> {
        self.context.ok_or_else(|| unsupported("tell the size of the context"))
    }
}

fn unsupported(what: &str) -> ModelError {
    ModelError::Unsupported { provider: "test".to_owned(), what: what.to_owned() }
}

/// Stored texts of documents, by their paths.
pub(crate) struct Originals(pub Vec<(DocumentId, String)>);

impl Originals {
    pub(crate) fn of(collection: &Collection, documents: &[(&str, &str)]) -> Self {
        let text = |(path, text): &(&str, &str)| (ingest::document_id(collection, path), (*text).to_owned());
        Self(documents.iter().map(text).collect())
    }
}

#[async_trait]
impl StoredTexts for Originals {
    async fn text(&self, _: &Collection, document: DocumentId, _: &str) -> Result<Option<String>, TextFailure> {
        let text = self.0.iter().find(|(id, _)| *id == document).map(|(_, text)| text.clone());
        text.map(Some).ok_or_else(|| TextFailure("the blob is damaged".to_owned()))
    }
}

/// Stores in a folder of their own.
pub(crate) struct Stores {
    pub vectors: Arc<EdgeVectors>,
    pub keywords: Arc<TantivyIndex>,
    _dir: TempDir,
}

pub(crate) fn collection(name: &str) -> Collection {
    Collection::new(Namespace::default(), name.parse().unwrap())
}

impl Stores {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let vectors = Arc::new(EdgeVectors::open(EdgeConfig::at(dir.path().join("vectors"))).unwrap());
        let keywords = Arc::new(TantivyIndex::open(TantivyConfig::at(dir.path().join("keywords"))).unwrap());
        Self { vectors, keywords, _dir: dir }
    }

    pub(crate) fn retriever(&self, models: &Arc<TestModels>) -> Retriever {
        Retriever::new(self.vectors.clone(), self.keywords.clone(), models.clone())
    }

    /// Splits, embeds and indexes documents as the workers do.
    pub(crate) async fn index(&self, collection: &Collection, documents: &[(&str, &str)]) {
        self.vectors.ensure(collection, DIMENSIONS, MODEL).await.unwrap();
        for (path, text) in documents {
            let source = sources::detect(path.as_ref(), text.as_bytes(), None).unwrap();
            let extracted = source.extract(path, text.as_bytes()).unwrap();
            let document = ingest::document_id(collection, path);
            let chunks = chunking::chunks(
                path,
                &extracted,
                source.chunker(),
                ChunkConfig::new(120, 0).unwrap(),
                &document,
                "v1",
            )
            .unwrap();
            let stored: Vec<StoredChunk> = chunks
                .iter()
                .map(|chunk| StoredChunk {
                    chunk_id: chunk.chunk_id,
                    document_id: document,
                    version: "v1".to_owned(),
                    source: (*path).to_owned(),
                    ordinal: chunk.ordinal,
                    start: chunk.start,
                    end: chunk.end,
                    text: chunk.text.clone(),
                    page: chunk.page,
                    tags: Vec::new(),
                    layer: 0,
                    leaves: Vec::new(),
                    heading: chunk.heading.clone(),
                })
                .collect();
            let points = chunks.iter().zip(&stored).map(|(chunk, stored)| VectorPoint {
                chunk: stored.clone(),
                vector: vector(&chunking::embedding_text(chunk), DIMENSIONS),
            });
            self.vectors.upsert(collection, points.collect()).await.unwrap();
            self.keywords.upsert(collection, stored).await.unwrap();
        }
        self.vectors.flush(collection).await.unwrap();
        self.keywords.commit(collection).await.unwrap();
    }
}

pub(crate) const RIVERS: &[(&str, &str)] = &[
    ("/docs/rhine.md", "# Rhine\n\nThe Rhine rises in the Swiss Alps. It flows 1,233 kilometres to the North Sea.\n"),
    ("/docs/elbe.md", "# Elbe\n\nThe Elbe rises in the Giant Mountains. It flows through Hamburg.\n"),
    ("/docs/bread.txt", "Bread needs flour, water, salt and yeast. Knead the dough for ten minutes.\n"),
];
