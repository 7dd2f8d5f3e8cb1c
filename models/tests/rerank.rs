//! Cross-encoders on a small model that the test makes itself: no published weights are at hand, so what is checked is what holds for any.

mod support;

use std::path::Path;

use riverrun_models::{EmbedPurpose, Models, RerankRequest, Reranker};
use serde_json::json;
use support::tiny::{self, HIDDEN};
use wiremock::matchers::path;
use wiremock::{Mock, MockServer, ResponseTemplate};

fn write_model(folder: &Path, head: bool, identity: bool) {
    let mut tensors = tiny::bert();
    if head {
        tensors.rename(|name| format!("bert.{name}"));
        tensors.dense("bert.pooler.dense", HIDDEN, HIDDEN);
        tensors.dense("classifier", HIDDEN, 1);
    }
    let mut config = json!({
        "architectures": [if head { "BertForSequenceClassification" } else { "BertModel" }], "layer_norm_eps": 1e-12,
        "id2label": {"0": "LABEL_0"},
    });
    if identity {
        config["sentence_transformers"] = json!({"activation_fn": "torch.nn.modules.linear.Identity"});
    }
    tensors.write(folder, &tiny::bert_config(config));
}

fn documents() -> Vec<String> {
    let texts =
        ["a river", "kafka reads a log event", "", "the sea runs runs runs runs runs", "log", "event event event a a"];
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[tokio::test]
async fn given_a_cross_encoder_when_documents_are_scored_then_scores_do_not_depend_on_their_company() {
    let dir = tempfile::tempdir().unwrap();
    write_model(&dir.path().join("models/tiny"), true, true);
    write_model(&dir.path().join("models/tiny-sigmoid"), true, false);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let query = "river runs".to_owned();
    let together = models.rerank(Some("tiny"), query.clone(), documents()).await.unwrap();
    assert_eq!(together.len(), documents().len());
    let mut reversed = documents();
    reversed.reverse();
    let mut backwards = models.rerank(Some("tiny"), query.clone(), reversed).await.unwrap();
    backwards.reverse();
    let squashed = models.rerank(Some("tiny-sigmoid"), query.clone(), documents()).await.unwrap();
    for (index, document) in documents().into_iter().enumerate() {
        let alone = models.rerank(Some("tiny"), query.clone(), vec![document]).await.unwrap()[0];
        assert!(
            (alone - together[index]).abs() < 1e-5,
            "document {index}: {alone} alone, {} together",
            together[index]
        );
        assert!((backwards[index] - together[index]).abs() < 1e-5);
        assert!((squashed[index] - 1.0 / (1.0 + (-alone).exp())).abs() < 1e-5);
    }
    let distinct = together.iter().filter(|score| (**score - together[0]).abs() > 1e-4).count();
    assert!(distinct >= 4, "different documents score differently: {together:?}");
    let other = models.rerank(Some("tiny"), "kafka".to_owned(), documents()).await.unwrap();
    assert!(other.iter().zip(&together).any(|(a, b)| (a - b).abs() > 1e-4), "the query matters");
    assert_eq!(models.rerank(Some("tiny"), query, vec![]).await.unwrap(), Vec::<f32>::new());
}

#[tokio::test]
async fn given_a_cross_encoder_when_documents_are_scored_then_the_tokens_of_all_pairs_are_told() {
    let dir = tempfile::tempdir().unwrap();
    write_model(&dir.path().join("models/tiny"), true, true);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let local = models.provider(Some("local")).unwrap();
    let tokens = async |documents: &[&str]| {
        let documents = documents.iter().map(|text| (*text).to_owned()).collect();
        let request = RerankRequest { model: "tiny".to_owned(), query: "river runs".to_owned(), documents };
        local.rerank(request).await.unwrap().usage.prompt_tokens
    };
    let (short, long) = (tokens(&["log"]).await, tokens(&["log log"]).await);
    assert!(short > 0 && long == short + 1, "{short} {long}");
    assert_eq!(tokens(&["log", "log log"]).await, short + long);
}

#[tokio::test]
async fn given_a_plain_encoder_when_texts_are_embedded_then_defaults_hold_and_long_texts_are_counted() {
    let dir = tempfile::tempdir().unwrap();
    write_model(&dir.path().join("models/tiny"), false, false);
    let models = Models::new(support::settings(dir.path())).unwrap();
    let mut inputs = documents();
    inputs.push("log ".repeat(100));
    let reply = models.embed(Some("tiny"), inputs.clone(), EmbedPurpose::Document).await.unwrap();
    assert_eq!((reply.vectors.len(), reply.dimensions, reply.truncated), (inputs.len(), HIDDEN, 1));
    for (input, vector) in inputs.into_iter().zip(&reply.vectors) {
        let norm: f32 = vector.iter().map(|x| x * x).sum();
        assert!((norm - 1.0).abs() < 1e-4);
        let alone = models.embed(Some("tiny"), vec![input], EmbedPurpose::Document).await.unwrap();
        assert!(alone.vectors[0].iter().zip(vector).all(|(a, b)| (a - b).abs() < 1e-5));
    }
    let empty = models.embed(Some("tiny"), vec![], EmbedPurpose::Document).await.unwrap();
    assert_eq!((empty.vectors.len(), empty.dimensions), (0, 0));
}

/// A hub that has the cross-encoder `o/r`.
async fn hub(scratch: &Path) -> MockServer {
    let server = MockServer::start().await;
    write_model(scratch, true, true);
    let mut siblings = Vec::new();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        siblings.push(json!({ "rfilename": file }));
        let content = ResponseTemplate::new(200).set_body_bytes(std::fs::read(scratch.join(file)).unwrap());
        Mock::given(path(format!("/o/r/resolve/main/{file}"))).respond_with(content).mount(&server).await;
    }
    let listing = ResponseTemplate::new(200).set_body_json(json!({ "siblings": siblings }));
    Mock::given(path("/api/models/o/r")).respond_with(listing).mount(&server).await;
    server
}

fn models_of(server: &MockServer, dir: &Path) -> Models {
    let mut settings = support::settings(dir);
    settings.offline = false;
    settings.hub_base_url = server.uri();
    settings.default_rerank_model = Some("o/r".to_owned());
    Models::new(settings).unwrap()
}

#[tokio::test]
async fn given_a_hub_with_the_re_ranker_when_nobody_insists_then_it_is_fetched_once_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let server = hub(&dir.path().join("hub")).await;
    let models = models_of(&server, dir.path());
    for _ in 0..3 {
        assert_eq!(models.reranker(), Reranker::Fetching { model: "o/r".to_owned() });
    }
    models.reranker_fetched().await.unwrap();
    assert_eq!((models.reranker(), models.is_fetching_reranker()), (Reranker::Ready, false));
    let asked = server.received_requests().await.unwrap();
    assert_eq!(asked.iter().filter(|request| request.url.path() == "/api/models/o/r").count(), 1);
    assert_eq!(models.rerank(None, "river".to_owned(), documents()).await.unwrap().len(), documents().len());
    assert_eq!(server.received_requests().await.unwrap().len(), asked.len());
}

#[tokio::test]
async fn given_a_hub_with_the_re_ranker_when_somebody_insists_then_it_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let server = hub(&dir.path().join("hub")).await;
    let models = models_of(&server, dir.path());
    assert_eq!(models.rerank(None, "river".to_owned(), documents()).await.unwrap().len(), documents().len());
    assert_eq!(models.reranker(), Reranker::Ready);
}

#[tokio::test]
async fn given_a_hub_without_the_re_ranker_then_it_is_asked_once_and_every_error_has_the_fix() {
    let dir = tempfile::tempdir().unwrap();
    let server = MockServer::start().await;
    let models = models_of(&server, dir.path());
    assert_eq!(models.reranker(), Reranker::Fetching { model: "o/r".to_owned() });
    assert_eq!(models.reranker_fetched().await.unwrap_err().code(), "model_missing");
    for _ in 0..3 {
        let reranker = models.reranker();
        assert!(
            matches!(&reranker, Reranker::Missing { fix, .. } if fix.contains("check the name \"o/r\"")),
            "{reranker:?}"
        );
    }
    let error = models.rerank(None, "river".to_owned(), documents()).await.unwrap_err();
    assert_eq!(error.code(), "model_missing");
    assert!(error.to_string().contains("\"o/r\"") && error.to_string().contains(&server.uri()), "{error}");
    assert!(error.hint().unwrap().contains("RIVERRUN_MODELS_DIR"), "{error}");
    assert_eq!(server.received_requests().await.unwrap().len(), 1);
}
