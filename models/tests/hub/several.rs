//! Models in several files.

use riverrun_models::{EmbedPurpose, Presence};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{method, path};
use wiremock::{Mock, ResponseTemplate};

use super::{Seen, asked, models, pull, repository, sha256, support};
use support::tiny;

/// A model in two files, with names as hubs have them.
const SHARDS: [(&str, &[u8]); 2] =
    [("m-q4_k_m-00001-of-00002.gguf", b"GGUF567890"), ("m-q4_k_m-00002-of-00002.gguf", b"shard two")];

#[tokio::test]
async fn given_a_model_in_several_files_when_one_of_them_is_pulled_then_all_are_one_model_by_any_of_its_names() {
    let server = repository(&SHARDS).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let seen = Seen::default();
    let info = models.pull("o/r:m-q4_k_m-00002-of-00002.gguf", &seen, &CancellationToken::new()).await.unwrap();
    assert_eq!((info.name.as_str(), info.size_bytes, info.present), ("o--r--m-q4_k_m.gguf", Some(19), true));
    assert_eq!(*seen.0.lock().unwrap(), (19, 19, 1), "one progress over both");
    for (name, content) in SHARDS {
        assert_eq!(std::fs::read(dir.path().join("cache/o--r--m-q4_k_m.gguf").join(name)).unwrap(), content);
    }
    let before = server.received_requests().await.unwrap().len();
    let names = [
        "o/r:m-q4_k_m-00001-of-00002.gguf",
        "o/r:m-q4_k_m-00002-of-00002.gguf",
        "o/r:m-q4_k_m.gguf",
        "o/r:m-q4_k_m",
        "o--r--m-q4_k_m.gguf",
    ];
    for name in names {
        assert!(matches!(models.presence(name).unwrap(), Presence::Present { .. }), "{name}");
        assert_eq!(pull(&models, name).await.unwrap(), "o--r--m-q4_k_m.gguf", "{name}");
    }
    assert_eq!(server.received_requests().await.unwrap().len(), before, "what is there is not fetched again");
    let listed = models.list_models(Some("local")).await.unwrap();
    let present = listed.iter().filter(|info| info.present).map(|info| (info.name.as_str(), info.size_bytes));
    assert_eq!(present.collect::<Vec<_>>(), [("o--r--m-q4_k_m.gguf", Some(19))]);
    assert_eq!(models.remove("o/r:m-q4_k_m-00001-of-00002.gguf").unwrap(), 19);
    assert!(std::fs::read_dir(dir.path().join("cache")).unwrap().next().is_none(), "nothing is left");
}

#[tokio::test]
async fn given_a_model_in_several_files_when_it_is_pulled_by_its_name_or_quantization_or_by_none_then_all_are_fetched()
{
    let server = repository(&[SHARDS[0], SHARDS[1], ("m-q8_0.gguf", b"GGUF-8"), ("README.md", b"about")]).await;
    for (name, folder) in [
        ("o/r:m-q4_k_m.gguf", "o--r--m-q4_k_m.gguf"),
        ("o/r:m-q4_k_m", "o--r--m-q4_k_m.gguf"),
        ("o/r:q4_k_m", "o--r--Q4_K_M"),
        ("o/r:Q4_K_M", "o--r--Q4_K_M"),
        ("o/r", "o--r"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let models = models(dir.path(), &server.uri());
        assert_eq!(pull(&models, name).await.unwrap(), folder, "{name}");
        for (shard, content) in SHARDS {
            let file = dir.path().join("cache").join(folder).join(shard);
            assert_eq!(std::fs::read(file).unwrap(), content, "{name}");
        }
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(pull(&models(dir.path(), &server.uri()), "o/r:Q8_0").await.unwrap(), "o--r--Q8_0");
    assert_eq!(std::fs::read(dir.path().join("cache/o--r--Q8_0/model.gguf")).unwrap(), b"GGUF-8");
}

#[tokio::test]
async fn given_a_model_in_several_files_that_came_halfway_when_it_is_pulled_again_then_only_the_rest_is_fetched() {
    let server = repository(&SHARDS).await;
    let dir = tempfile::tempdir().unwrap();
    let partial = dir.path().join("cache/.o--r--m-q4_k_m.gguf.partial");
    std::fs::create_dir_all(&partial).unwrap();
    std::fs::write(partial.join(SHARDS[0].0), SHARDS[0].1).unwrap();
    std::fs::write(partial.join(format!("{}.part", SHARDS[1].0)), &SHARDS[1].1[..4]).unwrap();
    let models = models(dir.path(), &server.uri());
    let seen = Seen::default();
    models.pull("o/r:m-q4_k_m-00001-of-00002.gguf", &seen, &CancellationToken::new()).await.unwrap();
    assert_eq!(*seen.0.lock().unwrap(), (19, 19, 1), "what was there counts");
    assert_eq!(asked(&server, "GET", "00001-of-00002").await, 0);
    let folder = dir.path().join("cache/o--r--m-q4_k_m.gguf");
    assert_eq!(std::fs::read(folder.join(SHARDS[1].0)).unwrap(), SHARDS[1].1);
    assert!(!partial.exists());
}

#[tokio::test]
async fn given_a_model_in_several_files_when_one_is_gone_then_it_is_not_there_and_a_pull_fetches_that_one() {
    let server = repository(&SHARDS).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    for (times, name) in ["o/r:Q4_K_M", "o/r:m-q4_k_m.gguf"].into_iter().enumerate() {
        let folder = dir.path().join("cache").join(pull(&models, name).await.unwrap());
        std::fs::remove_file(folder.join(SHARDS[1].0)).unwrap();
        assert!(matches!(models.presence(name).unwrap(), Presence::Missing { .. }), "{name}");
        assert!(!models.list_models(Some("local")).await.unwrap().iter().any(|info| info.present));
        pull(&models, name).await.unwrap();
        assert_eq!(std::fs::read(folder.join(SHARDS[1].0)).unwrap(), SHARDS[1].1, "{name}");
        let fetched = (
            asked(&server, "GET", "/store/m-q4_k_m-00001").await,
            asked(&server, "GET", "/store/m-q4_k_m-00002").await,
        );
        assert_eq!(fetched, (times + 1, 2 * (times + 1)), "{name}");
        models.remove(name).unwrap();
    }
}

#[tokio::test]
async fn given_one_of_several_files_with_another_hash_when_it_is_pulled_then_the_model_is_refused() {
    let server = repository(&SHARDS).await;
    let other = ResponseTemplate::new(302).insert_header("x-linked-etag", sha256(b"something else"));
    let at = format!("/o/r/resolve/main/{}", SHARDS[1].0);
    Mock::given(method("HEAD")).and(path(at)).respond_with(other).with_priority(1).mount(&server).await;
    let dir = tempfile::tempdir().unwrap();
    let models = models(dir.path(), &server.uri());
    let error = pull(&models, "o/r:q4_k_m").await.unwrap_err();
    assert!(error.to_string().contains("sha256"), "{error}");
    assert!(matches!(models.presence("o/r:q4_k_m").unwrap(), Presence::Missing { .. }));
    let partial = dir.path().join("cache/.o--r--Q4_K_M.partial");
    assert!(partial.join(SHARDS[0].0).is_file(), "the other one is kept");
    assert!(!partial.join(format!("{}.part", SHARDS[1].0)).exists());
}

#[tokio::test]
async fn given_a_model_in_several_files_when_it_is_used_then_it_computes_what_the_same_in_one_file_does() {
    let dir = tempfile::tempdir().unwrap();
    let (own, config) = (dir.path().join("models"), tiny::bert_config(json!({})));
    tiny::bert().write_gguf(&own.join("whole"), &config);
    let names = SHARDS.map(|(name, _)| name);
    tiny::bert().write_gguf_files(&own.join("split"), &config, &names);
    let contents = names.map(|name| std::fs::read(own.join("split").join(name)).unwrap());
    let server = repository(&[(names[0], contents[0].as_slice()), (names[1], contents[1].as_slice())]).await;
    let models = models(dir.path(), &server.uri());
    pull(&models, "o/r:Q4_K_M").await.unwrap();
    let mut vectors = Vec::new();
    for name in ["whole", "split", "o/r:Q4_K_M"] {
        let inputs = vec!["river runs".to_owned(), "kafka reads event log".to_owned()];
        let reply = models.embed(Some(name), inputs, EmbedPurpose::Document).await.unwrap();
        vectors.push(reply.vectors.concat());
    }
    for split in &vectors[1..] {
        let near = vectors[0].iter().zip(split).all(|(one, other)| (one - other).abs() < 1e-5);
        assert!(near && split.len() == vectors[0].len(), "{vectors:?}");
    }
}
