use std::sync::atomic::{AtomicUsize, Ordering};

use riverrun_log::ObjectStoreBlobs;
use riverrun_models::{ChatReply, ChatRequest, DeltaSink, Reranker, Usage};
use riverrun_schemas::ingest::Chunk;
use riverrun_schemas::{ChunkId, Collection, Decoded, Failure, Namespace};
use riverrun_stores::vectors::edge::{EdgeConfig, EdgeVectors};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::indexer::points;
use crate::runtime::testkit;

/// Length and first byte of a text as its vector; what comes out can be bent.
#[derive(Default)]
struct TinyModels {
    calls: AtomicUsize,
    texts: AtomicUsize,
    bend: Option<fn(&mut EmbedReply)>,
    error: Option<ModelError>,
}

fn tiny(text: &str) -> Vec<f32> {
    vec![text.len() as f32, f32::from(text.as_bytes()[0])]
}

#[async_trait]
impl LanguageModels for TinyModels {
    async fn embed(
        &self,
        model: Option<&str>,
        inputs: Vec<String>,
        purpose: EmbedPurpose,
    ) -> Result<EmbedReply, ModelError> {
        assert_eq!(purpose, EmbedPurpose::Document);
        self.calls.fetch_add(1, Ordering::Relaxed);
        self.texts.fetch_add(inputs.len(), Ordering::Relaxed);
        if let Some(error) = &self.error {
            return Err(error.clone());
        }
        let vectors = inputs.iter().map(|text| tiny(text)).collect();
        let mut reply = EmbedReply {
            model: model.unwrap().to_owned(),
            vectors,
            dimensions: 2,
            truncated: 0,
            usage: Usage::default(),
        };
        if let Some(bend) = self.bend {
            bend(&mut reply);
        }
        Ok(reply)
    }

    /// Length of the text and first byte of the span.
    async fn embed_spans(&self, request: SpansRequest) -> Result<EmbedReply, ModelError> {
        let vector = |span: &std::ops::Range<usize>| {
            vec![request.text.len() as f32, f32::from(request.text.as_bytes()[span.start])]
        };
        Ok(EmbedReply {
            vectors: request.spans.iter().map(vector).collect(),
            model: request.model,
            dimensions: 2,
            truncated: 0,
            usage: Usage::default(),
        })
    }

    fn reranker(&self) -> Reranker {
        Reranker::Off
    }

    async fn rerank(&self, _query: String, _documents: Vec<String>) -> Result<Vec<f32>, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn chat(
        &self,
        _provider: Option<&str>,
        _request: ChatRequest,
        _sink: &mut dyn DeltaSink,
        _cancel: CancellationToken,
    ) -> Result<ChatReply, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn count_prompt(&self, _provider: Option<&str>, _request: &ChatRequest) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }

    async fn context_tokens(&self, _provider: Option<&str>, _model: &str) -> Result<usize, ModelError> {
        Err(ModelError::Cancelled)
    }
}

fn embedder(models: TinyModels) -> (Embedder, Arc<TinyModels>) {
    let models = Arc::new(models);
    (Embedder::new(models.clone()), models)
}

fn batch(document: &str, batch: i32, batches: i32, texts: &[&str]) -> ChunksReady {
    let chunk = |(ordinal, text): (i32, &&str)| Chunk {
        chunk_id: ChunkId::derive(&[document, &ordinal.to_string()]),
        ordinal,
        start: 0,
        end: text.len() as i64,
        text: (*text).to_owned(),
        page: None,
        heading: None,
        layer: 0,
        leaves: Vec::new(),
    };
    ChunksReady {
        document_id: DocumentId::derive(&[document]),
        ingest_id: IngestId::derive(&["i"]),
        namespace: Namespace::default(),
        collection: "docs".parse().unwrap(),
        source: format!("/{document}"),
        version: "v".to_owned(),
        embed_model: "m".to_owned(),
        batch,
        batches,
        metadata_json: None,
        at: 0,
        chunks: (batch * 10..).zip(texts).map(chunk).collect(),
        context: None,
    }
}

#[derive(Debug, Default)]
struct Said {
    embedded: Vec<ChunksEmbedded>,
    events: Vec<IngestEvent>,
}

fn said(outputs: &[Outgoing]) -> Said {
    let mut said = Said::default();
    for output in outputs {
        let bytes = output.payload.as_deref().unwrap();
        if *output.topic == *IngestEvent::TOPIC.name() {
            said.events.push(known(IngestEvent::decode(bytes).unwrap()));
        } else {
            let EmbeddingEvent::ChunksEmbedded(embedded) = known(EmbeddingEvent::decode(bytes).unwrap()) else {
                panic!("nothing was withdrawn")
            };
            said.embedded.push(embedded);
        }
    }
    said
}

fn known<T: std::fmt::Debug>(decoded: Decoded<T>) -> T {
    match decoded {
        Decoded::Event(event) => event,
        Decoded::UnknownType { record } => panic!("{record} is not known"),
    }
}

async fn error_of(models: TinyModels) -> WorkError {
    let (embedder, _) = embedder(models);
    let deliveries = testkit::deliveries([ChunkEvent::from(batch("a", 0, 1, &["one"]))]);
    embedder.handle(&deliveries, &testkit::context(NAME)).await.unwrap_err()
}

#[tokio::test]
async fn given_batches_of_several_documents_when_handled_then_the_model_is_asked_once_and_the_last_batch_ends_its_document()
 {
    let (embedder, models) = embedder(TinyModels::default());
    let batches = [batch("a", 0, 2, &["one", "three"]), batch("b", 0, 1, &["x"]), batch("a", 1, 2, &["four"])];
    let said = said(&testkit::twice(&embedder, batches.clone().map(ChunkEvent::from)).await);
    assert_eq!(models.calls.load(Ordering::Relaxed), 2, "once each time");
    assert_eq!(said.embedded.len(), 3);
    for (ready, embedded) in batches.iter().zip(&said.embedded) {
        assert_eq!(
            (embedded.batch, embedded.batches, embedded.dimensions, embedded.document_id),
            (ready.batch, ready.batches, 2, ready.document_id)
        );
        for (chunk, embedded) in ready.chunks.iter().zip(&embedded.chunks) {
            assert_eq!((embedded.chunk_id, &embedded.text), (chunk.chunk_id, &chunk.text));
            assert_eq!(embedded.floats(), Some(tiny(&chunk.text)));
        }
    }
    let done: Vec<_> = said
        .events
        .iter()
        .map(|event| {
            if let IngestEvent::DocumentEmbedded(e) = event {
                (e.source.as_str(), e.chunks, e.dimensions)
            } else {
                panic!("{event:?}")
            }
        })
        .collect();
    assert_eq!(done, [("/b", 1, 2), ("/a", 11, 2)]);
}

#[tokio::test]
async fn given_batches_of_two_models_when_handled_then_each_goes_to_its_own() {
    let (embedder, models) = embedder(TinyModels::default());
    let other = ChunksReady { embed_model: "n".to_owned(), ..batch("b", 0, 1, &["two"]) };
    let deliveries = testkit::deliveries([batch("a", 0, 1, &["one"]), other].map(ChunkEvent::from));
    let said = said(&embedder.handle(&deliveries, &testkit::context(NAME)).await.unwrap());
    assert_eq!(models.calls.load(Ordering::Relaxed), 2);
    assert_eq!(said.embedded.iter().map(|e| e.embed_model.as_str()).collect::<Vec<_>>(), ["m", "n"]);
}

#[tokio::test]
async fn given_a_model_that_is_away_when_handled_then_it_is_tried_again_and_given_up_with_its_own_fix() {
    let down = ModelError::RuntimeDown {
        provider: "ollama".into(),
        address: "http://127.0.0.1:1".into(),
        reason: "refused".into(),
        fix: "start it".into(),
    };
    let error = error_of(TinyModels { error: Some(down.clone()), ..TinyModels::default() }).await;
    let WorkError::Retry { code, reason } = error else { panic!("{error:?}") };
    let (embedder, _) = embedder(TinyModels::default());
    let delivery = testkit::deliveries([ChunkEvent::from(batch("a", 0, 2, &["one"]))]).remove(0);
    let dead = said(&embedder.dead(&delivery, &code, &reason));
    let [IngestEvent::DocumentFailed(failed)] = dead.events.as_slice() else { panic!("{dead:?}") };
    assert_eq!(failed.stage, "embed");
    assert_eq!(
        failed.error,
        Failure { code: "model_runtime_down".into(), message: down.to_string(), hint: down.hint() }
    );
    let last = said(&testkit::twice(&embedder, [ChunkEvent::from(batch("a", 1, 2, &["two"]))]).await);
    assert_eq!((last.embedded.len(), last.events.len()), (1, 0), "a failed document is not said to be embedded");
}

#[tokio::test]
async fn given_errors_and_answers_that_are_no_use_when_handled_then_waiting_or_giving_up_is_chosen_rightly() {
    let missing = ModelError::ModelMissing { model: "m".into(), reason: "nowhere".into(), fix: "pull it".into() };
    assert!(matches!(
        error_of(TinyModels { error: Some(missing), ..TinyModels::default() }).await,
        WorkError::Retry { .. }
    ));
    let refused = ModelError::BadRequest { provider: "p".into(), reason: "no".into() };
    assert!(
        matches!(error_of(TinyModels { error: Some(refused), ..TinyModels::default() }).await, WorkError::Poison { code, .. } if code == "model_bad_request")
    );
    let bends: [fn(&mut EmbedReply); 4] = [
        |reply| reply.vectors.clear(),
        |reply| reply.vectors[0].push(1.0),
        |reply| reply.vectors[0][0] = f32::NAN,
        |reply| reply.dimensions = 5000,
    ];
    for bend in bends {
        let error = error_of(TinyModels { bend: Some(bend), ..TinyModels::default() }).await;
        assert!(matches!(&error, WorkError::Poison { code, .. } if code == "model_bad_response"), "{error:?}");
    }
}

#[tokio::test]
async fn given_batches_within_a_text_when_embedded_then_they_are_read_with_it_in_their_places_among_others() {
    let folder = tempfile::tempdir().unwrap();
    let blobs = Arc::new(ObjectStoreBlobs::local(folder.path()).unwrap());
    let text = "zero alpha beta";
    let stored = blobs.put_bytes(bytes::Bytes::from(text), "text/plain").await.unwrap();
    let within = |start: usize, word: &str| {
        let mut ready = ChunksReady { context: Some(stored.clone()), ..batch("late", 0, 1, &[word]) };
        (ready.chunks[0].start, ready.chunks[0].end) = (start as i64, (start + word.len()) as i64);
        ready
    };
    let events = || {
        [batch("a", 0, 1, &["one"]), within(5, "alpha"), within(11, "beta"), batch("b", 0, 1, &["two"])]
            .map(ChunkEvent::from)
    };
    let models = Arc::new(TinyModels::default());
    let embedder = Embedder::new(models.clone()).with_texts(blobs);
    let said = said(&testkit::twice(&embedder, events()).await);
    let vectors: Vec<Vec<f32>> =
        said.embedded.iter().flat_map(|batch| &batch.chunks).map(|chunk| chunk.floats().unwrap()).collect();
    let whole = text.len() as f32;
    assert_eq!(vectors, [tiny("one"), vec![whole, 97.0], vec![whole, 98.0], tiny("two")]);

    // Without the text, or with another one, the document fails and says so.
    let context = testkit::context(NAME);
    let alone = testkit::deliveries([ChunkEvent::from(within(5, "alpha"))]);
    let error = Embedder::new(models).handle(&alone, &context).await.unwrap_err();
    let WorkError::Poison { code, reason } = &error else { panic!("{error}") };
    assert!(code == "text_missing" && reason.contains("RIVERRUN_S3_BUCKET"), "{error}");
    let moved = testkit::deliveries([ChunkEvent::from(within(6, "alpha"))]);
    let error = embedder.handle(&moved, &context).await.unwrap_err();
    assert!(matches!(&error, WorkError::Poison { code, .. } if code == "text_damaged"), "{error}");
}

/// A store in which document `a` has chunks of these texts, as model `m` embeds them.
async fn store_with(texts: &[&str]) -> (TempDir, Arc<EdgeVectors>) {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(EdgeVectors::open(EdgeConfig::at(folder.path())).unwrap());
    let docs = Collection::new(Namespace::default(), "docs".parse().unwrap());
    store.ensure(&docs, 2, "m").await.unwrap();
    let (embedder, _) = embedder(TinyModels::default());
    let before = ChunksReady { version: "old".to_owned(), ..batch("a", 0, 1, texts) };
    let deliveries = testkit::deliveries([ChunkEvent::from(before)]);
    let before = said(&embedder.handle(&deliveries, &testkit::context(NAME)).await.unwrap());
    store.upsert(&docs, points(&before.embedded[0]).unwrap()).await.unwrap();
    (folder, store)
}

/// The vectors of the chunks of these batches, and how many texts the model was asked for.
async fn embed_after(texts: &[&str], models: TinyModels, batches: Vec<ChunksReady>) -> (Vec<Vec<f32>>, usize) {
    let (_folder, store) = store_with(texts).await;
    let (embedder, models) = embedder(models);
    let embedder = embedder.with_vectors(store);
    let deliveries = testkit::deliveries(batches.into_iter().map(ChunkEvent::from));
    let said = said(&embedder.handle(&deliveries, &testkit::context(NAME)).await.unwrap());
    let chunks = said.embedded.iter().flat_map(|batch| &batch.chunks);
    (chunks.map(|chunk| chunk.floats().unwrap()).collect(), models.texts.load(Ordering::Relaxed))
}

fn points_alike(a: &[f32], b: &[f32]) -> bool {
    let length = |v: &[f32]| v.iter().map(|x| x * x).sum::<f32>().sqrt();
    a.iter().zip(b).all(|(x, y)| (x / length(a) - y / length(b)).abs() < 1e-4)
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_changed_document_when_embedded_then_only_what_is_new_is_and_one_chunk_that_stayed() {
    let words = ["one", "three", "five", "seven"];
    let batches = vec![batch("a", 0, 2, &["one", "changed", "three"]), batch("a", 1, 2, &["five", "seven"])];
    let (vectors, asked) = embed_after(&words, TinyModels::default(), batches).await;
    assert_eq!(asked, 2, "the new one and one that stayed");
    for (vector, text) in vectors.iter().zip(["one", "changed", "three", "five", "seven"]) {
        assert!(points_alike(vector, &tiny(text)), "{text}: {vector:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_a_model_that_is_another_one_by_now_when_embedded_then_nothing_old_is_taken_over() {
    let bends: [fn(&mut EmbedReply); 2] = [
        |reply| reply.vectors.iter_mut().for_each(|vector| vector[0] = -1000.0),
        |reply| {
            reply.vectors.iter_mut().for_each(|vector| vector.push(1.0));
            reply.dimensions = 3;
        },
    ];
    for bend in bends {
        let models = TinyModels { bend: Some(bend), ..TinyModels::default() };
        let batches = vec![batch("a", 0, 1, &["one", "three", "changed"])];
        let (vectors, _) = embed_after(&["one", "three"], models, batches).await;
        let is_new = |vector: &Vec<f32>| vector[0] == -1000.0 || vector.len() == 3;
        assert!(vectors.len() == 3 && vectors.iter().all(is_new), "{vectors:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn given_another_document_or_another_model_when_embedded_then_all_of_it_is() {
    let other = ChunksReady { embed_model: "n".to_owned(), ..batch("a", 0, 1, &["one", "three"]) };
    for ready in [batch("b", 0, 1, &["one", "three"]), other] {
        let (vectors, asked) = embed_after(&["one", "three"], TinyModels::default(), vec![ready]).await;
        assert_eq!((vectors, asked), (vec![tiny("one"), tiny("three")], 2));
    }
}
