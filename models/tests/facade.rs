//! The facade: which provider and model a request reaches.

mod support;

use std::sync::Arc;

use parking_lot::Mutex;
use riverrun_models::{
    Account, ChatRequest, Cost, EmbedPurpose, Message, Meter, MeteredCall, ModelKind, Models, NoDeltas, Presence,
    ProviderKind, Purpose, Reranker, Secret, Usage,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use wiremock::matchers::{body_partial_json, path};
use wiremock::{Mock, MockServer, ResponseTemplate};

use support::{RawServer, Script};

fn hello() -> ChatRequest {
    ChatRequest { messages: vec![Message::user("x")], ..ChatRequest::default() }
}

#[tokio::test]
async fn given_no_settings_when_providers_are_listed_then_local_is_the_default() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.keys.extend(Secret::new("sk-canary").map(|key| ("openai".to_owned(), key)));
    let models = Models::new(settings).unwrap();
    let providers = models.providers();
    let names: Vec<&str> = providers.iter().map(|provider| provider.name.as_str()).collect();
    assert_eq!(names[..4], ["local", "ollama", "openai", "anthropic"]);
    assert_eq!(names.len(), 18);
    assert_eq!((providers[0].kind, providers[0].default), (ProviderKind::Local, true));
    assert_eq!((providers[1].kind, providers[1].has_key), (ProviderKind::Server, None));
    assert_eq!((providers[2].kind, providers[2].has_key), (ProviderKind::Hosted, Some(true)));
    assert_eq!((providers[3].kind, providers[3].has_key), (ProviderKind::Hosted, Some(false)));
    assert!(!serde_json::to_string(&providers).unwrap().contains("canary"));
    assert_eq!(models.default_chat_model(), "qwen2.5-0.5b-instruct");
    assert_eq!(models.default_embed_model(), "all-mpnet-base-v2");
    assert_eq!(models.reranker(), Reranker::Off, "nobody wants one, and no hub may be asked");
    let mut settings = support::settings(dir.path());
    settings.keys.extend(Secret::new("k").map(|key| ("voyage".to_owned(), key)));
    assert_eq!(Models::new(settings).unwrap().reranker(), Reranker::Ready, "a key switches a hosted re-ranker on");
    for (name, wanted) in [("o/r", "riverrun models pull o/r"), ("voyage/rerank-2", "RIVERRUN_VOYAGE_API_KEY")] {
        let mut settings = support::settings(dir.path());
        settings.default_rerank_model = Some(name.to_owned());
        let reranker = Models::new(settings).unwrap().reranker();
        assert!(
            matches!(&reranker, Reranker::Missing { model, fix } if model == name && fix.contains(wanted)),
            "{reranker:?}"
        );
    }
    let error = models.provider(Some("olama")).err().unwrap();
    assert_eq!(error.code(), "unknown_provider");
    assert!(error.to_string().contains("local, ollama, openai, anthropic"), "{error}");
}

#[tokio::test]
async fn given_a_call_that_fails_behind_its_prompt_when_it_is_charged_then_what_the_service_told_until_then_counts() {
    let server = MockServer::start().await;
    let began = r#"{"type":"message_start","message":{"usage":{"input_tokens":70,"output_tokens":1}}}"#;
    let broke = r#"{"type":"error","error":{"type":"api_error","message":"it broke"}}"#;
    let stream = format!("data: {began}\n\ndata: {broke}\n\n");
    Mock::given(path("/v1/messages"))
        .respond_with(ResponseTemplate::new(200).set_body_raw(stream, "text/event-stream"))
        .mount(&server)
        .await;
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.addresses.insert("anthropic".to_owned(), server.uri());
    let kept = Arc::new(Kept::default());
    let account = Account::of("team", Purpose::Chat);
    let models = Models::new(settings).unwrap().metered(kept.clone()).charged_to(account.clone());
    for model in ["anthropic/m", "vllm/m"] {
        let request = ChatRequest { model: model.to_owned(), ..hello() };
        models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
    }
    let usage = Usage { prompt_tokens: 70, completion_tokens: 0, ..Usage::default() };
    let cost = Cost { usd: None, unpriced_tokens: 70 };
    let call = MeteredCall { provider: "anthropic".into(), model: "m".into(), usage, cost, estimated: false };
    assert_eq!(*kept.0.lock(), [(account, call)], "a server that was not reached used nothing");
}

#[tokio::test]
async fn given_a_chat_that_is_cut_off_before_a_count_when_it_is_charged_then_its_tokens_are_estimated_and_marked() {
    let piece = |text: &str| json!({"choices": [{"index": 0, "delta": {"content": text}}]});
    let block = format!("data: {}\n\n", piece("twenty bytes of text"));
    let account = Account::of("team", Purpose::Chat);
    for (what, script) in [
        ("broken", Script::ThenCut(block.clone().into_bytes())),
        ("cancelled", Script::ThenHang(block.clone().into_bytes())),
        ("dropped", Script::ThenHang(block.into_bytes())),
    ] {
        let server = RawServer::start(script).await;
        let dir = tempfile::tempdir().unwrap();
        let mut settings = support::settings(dir.path());
        support::without_time_outs(&mut settings);
        settings.addresses.insert("openai".to_owned(), server.address.clone());
        let kept = Arc::new(Kept::default());
        let models = Models::new(settings).unwrap().metered(kept.clone()).charged_to(account.clone());
        let (cancel, gone) = (CancellationToken::new(), CancellationToken::new());
        let stop = if what == "cancelled" { cancel.clone() } else { gone.clone() };
        let mut sink = move |_: &str| stop.cancel();
        let messages = vec![Message::user("forty bytes of a question, or about that")];
        let request = ChatRequest { model: "openai/gpt-4o-mini".to_owned(), messages, ..ChatRequest::default() };
        let chat = models.chat(None, request, &mut sink, cancel);
        match what {
            "broken" => assert_eq!(chat.await.unwrap_err().code(), "model_bad_response"),
            "cancelled" => assert_eq!(
                chat.await.unwrap().usage,
                Usage { prompt_tokens: 14, completion_tokens: 5, ..Usage::default() }
            ),
            _ => tokio::select! {
                reply = chat => panic!("it ended: {reply:?}"),
                () = gone.cancelled() => {}
            },
        }
        let kept = kept.0.lock();
        let [(charged, call)] = kept.as_slice() else { panic!("{what}: {kept:?}") };
        assert_eq!((charged, call.estimated), (&account, true), "{what}");
        assert_eq!(call.usage, Usage { prompt_tokens: 14, completion_tokens: 5, ..Usage::default() }, "{what}");
        assert!(call.cost.usd.is_some_and(|cost| cost > 0.0), "{what}: {call:?}");
    }
}

/// Keeps what it is told.
#[derive(Default)]
struct Kept(Mutex<Vec<(Account, MeteredCall)>>);

impl Meter for Kept {
    fn record(&self, account: &Account, call: MeteredCall) {
        self.0.lock().push((account.clone(), call));
    }
}

#[tokio::test]
async fn given_a_meter_when_models_are_called_then_it_is_told_of_calls_that_are_charged_and_of_no_others() {
    let server = MockServer::start().await;
    let answer = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"delta":{"content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1000000,"completion_tokens":0}}"#;
    Mock::given(path("/v1/chat/completions"))
        .respond_with(
            ResponseTemplate::new(200).set_body_raw(format!("data: {answer}\n\ndata: [DONE]\n\n"), "text/event-stream"),
        )
        .mount(&server)
        .await;
    let vectors = json!({"data": [{"index": 0, "embedding": [1.0]}], "usage": {"prompt_tokens": 3, "total_tokens": 3}});
    Mock::given(path("/v1/embeddings"))
        .respond_with(ResponseTemplate::new(200).set_body_json(vectors))
        .mount(&server)
        .await;
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.addresses.insert("openai".to_owned(), server.uri());
    let kept = Arc::new(Kept::default());
    let models = Models::new(settings).unwrap().metered(kept.clone());
    let request = || ChatRequest { model: "openai/gpt-4o-mini".to_owned(), ..hello() };
    models.chat(None, request(), &mut NoDeltas, CancellationToken::new()).await.unwrap();
    assert!(kept.0.lock().is_empty(), "a run's calls are charged to nobody");

    let account = Account::of("team", Purpose::Memory).in_session("talk");
    let charged = models.charged_to(account.clone());
    charged.chat(None, request(), &mut NoDeltas, CancellationToken::new()).await.unwrap();
    charged.embed(Some("openai/e"), vec!["x".into()], EmbedPurpose::Query).await.unwrap();
    charged.embed(Some("vllm/e"), vec!["x".into()], EmbedPurpose::Query).await.unwrap_err();
    let kept = kept.0.lock();
    let call = |model: &str, prompt_tokens: u64, cost_usd: Option<f64>| {
        let usage = Usage { prompt_tokens, completion_tokens: 0, ..Usage::default() };
        let (provider, model) = ("openai".into(), model.into());
        let cost = Cost { usd: cost_usd, unpriced_tokens: if cost_usd.is_none() { usage.total() } else { 0 } };
        (account.clone(), MeteredCall { provider, model, usage, cost, estimated: false })
    };
    assert_eq!(*kept, [call("gpt-4o-mini", 1_000_000, Some(0.15)), call("e", 3, None)]);
}

#[test]
fn given_any_way_to_name_a_model_when_its_cost_is_asked_for_then_only_services_lack_a_price() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    // A gateway may stand in a service's place, and charge.
    settings.addresses.insert("mistral".to_owned(), "http://127.0.0.1:1".to_owned());
    let models = Models::new(settings).unwrap();
    let usage = Usage { prompt_tokens: 100_000, completion_tokens: 1, ..Usage::default() };
    for (provider, model, usd, unpriced_tokens) in [
        (Some("openai"), "gpt-4o", Some(0.250_01), 0),
        (None, "openai/gpt-4o", Some(0.250_01), 0),
        (None, "mistral/mistral-large", None, 100_001),
        (Some("mistral"), "mistral-large", None, 100_001),
        (Some("ollama"), "m", None, 0),
        (None, "vllm/m", None, 0),
        (None, "", None, 0),
        (Some("nobody"), "m", None, 0),
    ] {
        let cost = models.cost(provider, model, usage);
        assert_eq!(
            (cost.usd.map(|usd| (usd * 1e6).round()), cost.unpriced_tokens),
            (usd.map(|usd: f64| (usd * 1e6).round()), unpriced_tokens),
            "{provider:?} {model}"
        );
    }
    let embedded = |model: &str| models.embed_cost(model, usage);
    assert_eq!(embedded("cohere/embed-v4.0"), Cost { usd: None, unpriced_tokens: 100_001 });
    assert_eq!((embedded("all-mpnet-base-v2"), embedded("ollama/e")), (Cost::default(), Cost::default()));
}

#[test]
fn given_any_way_to_name_a_model_when_it_is_asked_who_answers_then_provider_and_model_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.default_chat_model = Some("small".to_owned());
    let models = Models::new(settings).unwrap();
    for (provider, model, expected) in [
        (None, None, ("local", "small")),
        (None, Some("large"), ("local", "large")),
        (None, Some("owner/large"), ("local", "owner/large")),
        (None, Some("openai/gpt-4o"), ("openai", "gpt-4o")),
        (Some("openrouter"), Some("openai/gpt-4o"), ("openrouter", "openai/gpt-4o")),
    ] {
        let (server, name) = models.who_chats(provider, model).unwrap();
        assert_eq!((server.as_str(), name.as_str()), expected, "{provider:?} {model:?}");
        assert_eq!(models.who_chats(Some(&server), Some(&name)).unwrap(), (server, name), "told again it is the same");
    }
    assert_eq!(models.who_chats(Some("openai"), None).unwrap_err().code(), "model_bad_request");
}

#[test]
fn given_choices_that_a_service_has_not_when_a_request_names_one_then_it_is_told_before_anything_is_sent() {
    let dir = tempfile::tempdir().unwrap();
    let models = Models::new(support::settings(dir.path())).unwrap();
    let top_k = ChatRequest { top_k: Some(3), ..hello() };
    let penalty = ChatRequest { repeat_penalty: Some(1.1), ..hello() };
    let frequent = ChatRequest { frequency_penalty: Some(0.5), ..hello() };
    let present = ChatRequest { presence_penalty: Some(-0.5), ..hello() };
    let nothing = ChatRequest {
        min_p: Some(0.0),
        repeat_penalty: Some(1.0),
        frequency_penalty: Some(0.0),
        presence_penalty: Some(0.0),
        ..hello()
    };
    let seed = ChatRequest { seed: Some(7), temperature: None, ..hello() };
    let cold = ChatRequest { temperature: Some(0.0), ..hello() };
    let narrow = ChatRequest { temperature: None, top_p: Some(0.5), ..hello() };
    let usual = ChatRequest { temperature: Some(1.0), top_p: Some(1.0), ..hello() };
    for (model, request, field) in [
        ("groq/m", &top_k, Some("top_k")),
        ("anthropic/m", &top_k, None),
        ("anthropic/m", &penalty, Some("repeat_penalty")),
        ("gemini/m", &penalty, Some("repeat_penalty")),
        ("cohere/m", &top_k, None),
        ("vllm/m", &penalty, None),
        ("ollama/m", &penalty, None),
        ("local/m", &penalty, None),
        ("anthropic/m", &frequent, Some("frequency_penalty")),
        ("groq/m", &present, Some("presence_penalty")),
        ("openai/gpt-5-mini", &frequent, Some("frequency_penalty")),
        ("deepseek/deepseek-reasoner", &present, Some("presence_penalty")),
        ("deepseek/deepseek-chat", &present, None),
        ("openai/gpt-4o", &frequent, None),
        ("mistral/m", &present, None),
        ("gemini/m", &frequent, None),
        ("cohere/m", &frequent, None),
        ("cohere/m", &present, Some("presence_penalty")),
        ("bedrock/eu.anthropic.claude-sonnet-4-5-20250929-v1:0", &top_k, None),
        ("bedrock/us.amazon.nova-lite-v1:0", &top_k, None),
        ("bedrock/meta.llama3-8b-instruct-v1:0", &top_k, Some("top_k")),
        ("bedrock/m", &frequent, Some("frequency_penalty")),
        ("bedrock/m", &seed, Some("seed")),
        ("bedrock/m", &nothing, None),
        ("ollama/m", &present, None),
        ("vllm/m", &frequent, None),
        ("local/m", &present, None),
        ("anthropic/m", &nothing, None),
        ("openai/gpt-5-mini", &nothing, None),
        ("groq/m", &nothing, None),
        ("gemini/m", &nothing, None),
        ("cohere/m", &nothing, None),
        ("anthropic/m", &seed, Some("seed")),
        ("deepseek/m", &seed, Some("seed")),
        ("openai/gpt-4o", &seed, None),
        ("mistral/m", &seed, None),
        ("openai/gpt-5-mini", &cold, Some("temperature")),
        ("openai/gpt-5-mini", &narrow, Some("top_p")),
        ("openai/gpt-5-mini", &usual, None),
        ("openai/gpt-4o", &cold, None),
        ("openai/gpt-5-chat-latest", &cold, None),
    ] {
        let request = ChatRequest { model: model.to_owned(), ..request.clone() };
        assert_eq!(models.leaves_out(None, &request).unwrap(), field, "{model}");
    }
}

#[tokio::test]
async fn given_a_model_server_when_nothing_is_named_then_chats_go_there_and_embeddings_stay_here() {
    let server = MockServer::start().await;
    let answer = r#"{"message":{"content":"hi"},"done":true}"#;
    Mock::given(path("/api/chat"))
        .and(body_partial_json(json!({"model": "qwen2.5:0.5b"})))
        .respond_with(ResponseTemplate::new(200).set_body_string(answer))
        .mount(&server)
        .await;
    Mock::given(path("/api/embed"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"embeddings": [[1.0]]})))
        .mount(&server)
        .await;
    Mock::given(path("/api/tags"))
        .respond_with(ResponseTemplate::new(200).set_body_json(json!({"models": []})))
        .mount(&server)
        .await;
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.runtime_base_url = Some(server.uri());
    let models = Models::new(settings).unwrap();
    let reply = models.chat(None, hello(), &mut NoDeltas, CancellationToken::new()).await.unwrap();
    assert_eq!((reply.text.as_str(), reply.model.as_str()), ("hi", "qwen2.5:0.5b"));
    let error = models.embed(None, vec!["x".into()], EmbedPurpose::Query).await.unwrap_err();
    assert_eq!(error.code(), "model_missing");
    let reply = models.embed(Some("ollama/e"), vec!["x".into()], EmbedPurpose::Query).await.unwrap();
    assert_eq!((reply.model.as_str(), reply.dimensions), ("ollama/e", 1));
    let [chat, embed] = models.default_models();
    assert_eq!((chat, embed), (("ollama", "qwen2.5:0.5b"), ("local", "all-mpnet-base-v2")));
    for ((provider, model), wanted) in [(chat, "ollama pull"), (embed, "riverrun models pull")] {
        let presence = models.presence_at(provider, model).await.unwrap();
        assert!(matches!(&presence, Presence::Missing { fix } if fix.contains(wanted)), "{model}: {presence:?}");
    }
    let error = models.chat(Some("openai"), hello(), &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
    assert!(error.to_string().contains("no default model"), "{error}");
}

#[tokio::test]
async fn given_defaults_of_two_runtimes_when_one_is_down_then_the_other_ones_model_is_told_by_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut settings = support::settings(dir.path());
    settings.default_embed_model = "ollama/e".to_owned();
    settings.addresses.insert("ollama".to_owned(), "http://127.0.0.1:1".to_owned());
    let models = Models::new(settings.clone()).unwrap();
    let [chat, embed] = models.default_models();
    assert_eq!((chat, embed), (("local", "qwen2.5-0.5b-instruct"), ("ollama", "e")));
    assert!(matches!(models.presence_at(chat.0, chat.1).await, Ok(Presence::Missing { .. })));
    assert_eq!(models.presence_at(embed.0, embed.1).await.unwrap_err().code(), "model_runtime_down");
    // The other way round: the chats' server is down, the embedding model is one of this machine.
    settings.runtime_base_url = Some("http://127.0.0.1:1".to_owned());
    settings.default_embed_model = "local/e".to_owned();
    let models = Models::new(settings).unwrap();
    let [chat, embed] = models.default_models();
    assert_eq!((chat.0, embed), ("ollama", ("local", "e")));
    assert_eq!(models.presence_at(chat.0, chat.1).await.unwrap_err().code(), "model_runtime_down");
    assert!(matches!(models.presence_at(embed.0, embed.1).await, Ok(Presence::Missing { .. })));
}

#[tokio::test]
async fn given_folders_of_models_when_they_are_listed_then_the_first_wins_and_kinds_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |root: &str, name: &str, files: &[(&str, &str)]| {
        let folder = dir.path().join(root).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, content) in files {
            std::fs::write(folder.join(file), content).unwrap();
        }
    };
    folder("models", "mine", &[("model.gguf", "GGUF")]);
    folder("cache", "mine", &[("model.gguf", "other")]);
    folder("cache", "half", &[("config.json", "{}")]);
    folder("cache", ".x.partial", &[("model.gguf", "GGUF")]);
    let encoder = |architecture: &'static str| {
        [("config.json", architecture), ("tokenizer.json", "{}"), ("model.safetensors", "")]
    };
    folder("cache", "e", &encoder(r#"{"architectures":["BertModel"]}"#));
    folder("cache", "r", &encoder(r#"{"architectures":["BertForSequenceClassification"]}"#));
    folder("cache", "old", &[("model.gguf", "GGUF")]);
    let models = Models::new(support::settings(dir.path())).unwrap();
    assert_eq!(models.remove("old").unwrap(), 4);
    for (name, text) in [("old", "is not in"), ("../old", "no model name")] {
        assert!(models.remove(name).unwrap_err().to_string().contains(text), "{name}");
    }
    let listed = models.list_models(Some("local")).await.unwrap();
    let present: Vec<(&str, ModelKind)> =
        listed.iter().filter(|info| info.present).map(|info| (info.name.as_str(), info.kind)).collect();
    assert_eq!(present, [("mine", ModelKind::Chat), ("e", ModelKind::Embed), ("r", ModelKind::Rerank)]);
    assert!(listed[0].source.as_deref().unwrap().contains("models/mine"));
    assert!(listed.iter().any(|info| info.name == "all-mpnet-base-v2" && !info.present));

    let error = models.embed(Some("mine"), vec!["x".into()], EmbedPurpose::Query).await.unwrap_err();
    assert!(error.to_string().contains("is for chat, not for embedding"), "{error}");
    for (name, text) in
        [("mine", "cut off"), ("../etc/passwd", "no model name"), ("unknown", "riverrun models pull unknown")]
    {
        let request = ChatRequest { model: name.into(), ..hello() };
        let error = models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        let shown = format!("{error} {:?}", error.hint());
        assert!(shown.contains(text), "{name}: {shown}");
    }
    let error = models.embed(Some("e"), vec!["x".into()], EmbedPurpose::Query).await.unwrap_err();
    assert_eq!(error.code(), "model_unreadable");
}

#[tokio::test]
async fn given_files_that_are_cut_off_when_they_are_used_or_only_looked_at_then_it_is_said_and_the_fix_is_that_of_their_folder()
 {
    let dir = tempfile::tempdir().unwrap();
    for (root, name, bytes) in
        [("models", "mine", "GGUF\x03"), ("cache", "acme--tiny--q4.gguf", "GGUF\x03"), ("cache", "none", "")]
    {
        let folder = dir.path().join(root).join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("model.gguf"), bytes).unwrap();
    }
    let models = Models::new(support::settings(dir.path())).unwrap();
    for (name, reason, fix) in [
        ("mine", "its 5 bytes end within its header", "put a sound copy into"),
        (
            "acme/tiny:q4.gguf",
            "its 5 bytes end within its header",
            "`riverrun models rm acme--tiny--q4.gguf` and fetch it again with `riverrun models pull acme/tiny:q4.gguf`",
        ),
        ("none", "it is empty", "`riverrun models pull none`"),
    ] {
        let request = ChatRequest { model: name.into(), ..hello() };
        let used = models.chat(Some("local"), request, &mut NoDeltas, CancellationToken::new()).await.unwrap_err();
        let looked_at = models.presence_at("local", name).await.unwrap_err();
        for error in [used, looked_at] {
            assert_eq!(error.code(), "model_unreadable", "{name}");
            let (told, hint) = (error.to_string(), error.hint().unwrap());
            assert!(told.contains(reason) && hint.contains(fix), "{name}: {told} {hint}");
        }
    }
}
