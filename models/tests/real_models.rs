//! The in-process runtime on real models. They are looked for where the product looks: RIVERRUN_MODELS_DIR, then the cache folder.

mod support;

use std::sync::OnceLock;
use std::time::Duration;

use riverrun_models::{
    ChatReply, ChatRequest, DeltaSink, EmbedPurpose, FinishReason, Grammar, Message, ModelError, ModelSettings, Models,
    NoDeltas, Presence, ToolSpec,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use support::ask;

const SMOL: &str = "smollm2-135m-instruct";
const QWEN: &str = "qwen2.5-coder-0.5b-instruct";
const MPNET: &str = "all-mpnet-base-v2";
const MINILM: &str = "all-minilm-l6-v2";
const CONTEXT: usize = 2048;

fn settings() -> ModelSettings {
    let mut settings = ModelSettings::from_env(&|name| std::env::var(name).ok()).unwrap();
    settings.offline = true;
    settings.context_tokens = CONTEXT;
    // Several tests compute at once; threads that wait for each other at every layer would only slow all of them down.
    settings.threads = settings.threads.or(Some(1));
    // Requests that are computed together round differently, and these tests compare answers.
    settings.parallel = 1;
    settings.timeout = Duration::from_secs(600);
    settings.idle_timeout = Duration::from_secs(600);
    settings
}

/// The models of all tests; nothing when the developer said so.
fn models() -> Option<&'static Models> {
    static MODELS: OnceLock<Option<Models>> = OnceLock::new();
    let models = MODELS.get_or_init(|| {
        let models = Models::new(settings()).unwrap();
        for name in [SMOL, QWEN, MPNET, MINILM] {
            if let Presence::Missing { .. } = models.presence(name).unwrap() {
                let fix = "put them there with `scripts/models_from_registry.py --dir DIR` and set RIVERRUN_MODELS_DIR=DIR, or set RIVERRUN_TEST_WITHOUT_MODELS=1";
                assert!(std::env::var("RIVERRUN_TEST_WITHOUT_MODELS").is_ok(), "model {name} is missing; {fix}");
                return None;
            }
        }
        Some(models)
    });
    models.as_ref()
}

fn greedy(model: &str, text: &str, max_tokens: u32) -> ChatRequest {
    ChatRequest { temperature: Some(0.0), max_tokens: Some(max_tokens), ..ask(model, text) }
}

async fn chat(models: &Models, request: ChatRequest) -> Result<ChatReply, ModelError> {
    models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await
}

#[tokio::test]
async fn given_real_models_when_chatting_then_the_answer_streams_and_counts_are_right() {
    let Some(models) = models() else { return };
    for model in [SMOL, QWEN] {
        let request = greedy(model, "Name three colours. Answer briefly.", 40);
        let prompt_tokens = models.count_prompt(None, &request).await.unwrap();
        let mut pieces: Vec<String> = Vec::new();
        let mut sink = |text: &str| pieces.push(text.to_owned());
        let reply = models.chat(None, request, &mut sink, CancellationToken::new()).await.unwrap();
        assert!(pieces.len() > 1 && pieces.iter().all(|piece| !piece.is_empty()), "{pieces:?}");
        assert_eq!(pieces.concat(), reply.text);
        assert_eq!(reply.usage.prompt_tokens, prompt_tokens as u64);
        assert!((1..=40).contains(&reply.usage.completion_tokens));
        assert!(reply.text.chars().any(char::is_alphabetic) && !reply.text.contains("<|im_"), "{}", reply.text);
        assert_eq!(reply.model, model);
    }
}

#[tokio::test]
async fn given_temperature_zero_when_a_chat_is_repeated_then_the_answer_is_the_same() {
    let Some(models) = models() else { return };
    let request = greedy(SMOL, "Write one sentence about rivers.", 32);
    let first = chat(models, request.clone()).await.unwrap();
    chat(models, greedy(SMOL, "Something else entirely, to fill the cache.", 8)).await.unwrap();
    let second = chat(models, request).await.unwrap();
    assert_eq!(first, second);
    let drawn = |seed| ChatRequest {
        temperature: Some(1.0),
        seed: Some(seed),
        ..greedy(SMOL, "Invent a name for a boat.", 16)
    };
    let texts = [chat(models, drawn(1)).await.unwrap().text, chat(models, drawn(1)).await.unwrap().text];
    assert_eq!(texts[0], texts[1], "the same seed draws the same answer");
}

#[tokio::test]
async fn given_a_stop_string_when_it_comes_then_the_answer_ends_before_it() {
    let Some(models) = models() else { return };
    let request = greedy(SMOL, "Count from one to ten in words.", 32);
    let whole = chat(models, request.clone()).await.unwrap().text;
    let middle: String = whole.chars().skip(6).take(5).collect();
    let reply = chat(models, ChatRequest { stop: vec![middle.clone()], ..request }).await.unwrap();
    assert_eq!(reply.text, whole[..whole.find(&middle).unwrap()]);
    assert_eq!(reply.finish, FinishReason::Stop);
}

#[tokio::test]
async fn given_an_answer_that_goes_in_circles_when_it_is_generated_then_it_is_ended_and_says_so_unless_that_is_off() {
    if models().is_none() {
        return;
    }
    // What came lately becomes likelier: the model falls into a circle soon, and stays there.
    let request = ChatRequest { repeat_penalty: Some(0.5), ..greedy(SMOL, "Write about rivers.", 320) };
    let of = |repetition_tokens| Models::new(ModelSettings { repetition_tokens, ..settings() }).unwrap();
    let ended = chat(&of(128), request.clone()).await.unwrap();
    assert_eq!(ended.finish, FinishReason::Repetition, "{}", ended.text);
    assert!((128..256).contains(&ended.usage.completion_tokens), "{} tokens", ended.usage.completion_tokens);
    let whole = chat(&of(0), request.clone()).await.unwrap();
    assert_eq!((whole.finish, whole.usage.completion_tokens), (FinishReason::Length, 320));
    assert!(whole.text.starts_with(&ended.text), "nothing else is said for it");
    let at_its_limit = chat(&of(4_096), request).await.unwrap();
    assert_eq!((at_its_limit.finish, at_its_limit.text), (FinishReason::Repetition, whole.text));
}

#[tokio::test]
async fn given_a_schema_when_small_models_answer_then_the_json_is_valid() {
    let Some(models) = models() else { return };
    let schema = json!({
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 24},
            "million_people": {"type": "integer", "minimum": 0, "maximum": 50},
            "kind": {"enum": ["capital", "village"]},
            "rivers": {"type": "array", "items": {"type": "string", "maxLength": 12}, "maxItems": 2},
        },
        "required": ["city", "million_people", "kind", "rivers"],
        "additionalProperties": false,
    });
    for model in [SMOL, QWEN] {
        for temperature in [0.0, 1.2] {
            let request = ChatRequest {
                temperature: Some(temperature),
                seed: Some(3),
                response_schema: Some(schema.clone()),
                ..greedy(model, "Describe Paris as JSON.", 200)
            };
            let reply = chat(models, request).await.unwrap();
            assert_eq!(reply.finish, FinishReason::Stop, "{}", reply.text);
            let value: Value = serde_json::from_str(&reply.text).unwrap();
            assert!(value["city"].as_str().unwrap().chars().count() <= 24);
            assert!((0..=50).contains(&value["million_people"].as_i64().unwrap()));
            assert!(["capital", "village"].contains(&value["kind"].as_str().unwrap()));
            assert!(value["rivers"].as_array().unwrap().len() <= 2);
            assert_eq!(value.as_object().unwrap().len(), 4);
        }
    }
    let short = ChatRequest { response_schema: Some(schema), ..greedy(SMOL, "Describe Paris as JSON.", 3) };
    assert_eq!(chat(models, short).await.unwrap().finish, FinishReason::Length, "what is cut off says so");
    let refused = ChatRequest { response_schema: Some(json!({"type": "nonsense"})), ..greedy(SMOL, "x", 8) };
    assert_eq!(chat(models, refused).await.unwrap_err().code(), "model_bad_request");
}

#[tokio::test]
async fn given_a_grammar_when_small_models_answer_then_the_answer_follows_it() {
    let Some(models) = models() else { return };
    let asked = |grammar| ChatRequest { grammar: Some(grammar), ..greedy(SMOL, "What is your number?", 40) };
    let number = chat(models, asked(Grammar::Regex("[0-9]{3}-[0-9]{2}".into()))).await.unwrap();
    let (three, two) = number.text.split_once('-').unwrap();
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    assert!(three.len() == 3 && two.len() == 2 && digits(three) && digits(two), "{}", number.text);
    assert_eq!(number.finish, FinishReason::Stop);
    let lark = "start: color (\", \" color)~2\ncolor: \"red\" | \"green\" | \"blue\"\n";
    let colors = chat(models, asked(Grammar::Lark(lark.into()))).await.unwrap().text;
    let known = |color: &str| ["red", "green", "blue"].contains(&color);
    assert!(colors.split(", ").count() == 3 && colors.split(", ").all(known), "{colors}");
    for bad in [Grammar::Lark("start: nothing".into()), Grammar::Regex("(".into()), Grammar::Lark(" ".into())] {
        assert_eq!(chat(models, asked(bad)).await.unwrap_err().code(), "model_bad_request");
    }
    let both = ChatRequest { response_schema: Some(json!({"type": "object"})), ..asked(Grammar::Regex("a".into())) };
    assert_eq!(chat(models, both).await.unwrap_err().code(), "model_bad_request");
}

/// What a chat tells while it comes.
#[derive(Default)]
struct Told {
    thoughts: String,
    text: String,
}

impl DeltaSink for Told {
    fn delta(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn thought(&mut self, text: &str) {
        assert_eq!(self.text, "", "thoughts come first");
        self.thoughts.push_str(text);
    }
}

#[tokio::test]
async fn given_a_model_that_thinks_first_when_it_answers_then_its_thoughts_are_told_apart_and_are_no_answer() {
    let Some(models) = models() else { return };
    // A small model that is made to think.
    let thoughts = "hm, once more: France is a country, and its capital is its largest city";
    let lark = format!("start: \"<think>\\n{thoughts}\\n</think>\\n\\nParis, France\"\n");
    let asked = |max_tokens| ChatRequest {
        grammar: Some(Grammar::Lark(lark.clone())),
        stop: vec!["France".to_owned()],
        ..greedy(SMOL, "What is the capital of France?", max_tokens)
    };
    let mut told = Told::default();
    let reply = models.chat(None, asked(200), &mut told, CancellationToken::new()).await.unwrap();
    assert_eq!((told.thoughts.as_str(), told.text.as_str(), reply.text.as_str()), (thoughts, "Paris, ", "Paris, "));
    assert_eq!(reply.finish, FinishReason::Stop);
    let mut told = Told::default();
    let cut = models.chat(None, asked(10), &mut told, CancellationToken::new()).await.unwrap();
    assert_eq!((cut.finish, cut.text.as_str(), told.text.as_str()), (FinishReason::Length, "", ""));
    assert!(thoughts.starts_with(&told.thoughts), "{}", told.thoughts);
}

#[tokio::test]
async fn given_tools_when_qwen_answers_then_the_call_is_parsed_and_does_not_show() {
    let Some(models) = models() else { return };
    let weather = ToolSpec {
        name: "get_weather".into(),
        description: "Get the current weather of a city".into(),
        parameters: json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}),
    };
    let mut request =
        ChatRequest { tools: vec![weather], ..greedy(QWEN, "What is the weather in Paris right now?", 80) };
    let mut shown = String::new();
    let mut sink = |text: &str| shown.push_str(text);
    let reply = models.chat(None, request.clone(), &mut sink, CancellationToken::new()).await.unwrap();
    assert_eq!(reply.finish, FinishReason::ToolCalls, "{}", reply.text);
    assert_eq!((reply.tool_calls[0].id.as_str(), reply.tool_calls[0].name.as_str()), ("call_1", "get_weather"));
    assert!(reply.tool_calls[0].arguments["city"].as_str().unwrap().contains("Paris"));
    assert_eq!(shown, reply.text);

    request.messages.push(Message { tool_calls: reply.tool_calls, ..Message::assistant(reply.text) });
    request.messages.push(Message::tool("call_1", r#"{"celsius": 21, "sky": "clear"}"#));
    let answer = chat(models, request).await.unwrap();
    assert!(answer.text.contains("21"), "{}", answer.text);
}

#[tokio::test]
async fn given_a_prompt_that_does_not_fit_when_chatting_then_it_is_refused_with_the_counts() {
    let Some(models) = models() else { return };
    let request = greedy(SMOL, &"river ".repeat(CONTEXT), 8);
    let counted = models.count_prompt(None, &request).await.unwrap();
    let error = chat(models, request).await.unwrap_err();
    assert!(
        matches!(error, ModelError::ContextOverflow { tokens, limit: CONTEXT, .. } if tokens == counted),
        "{error}"
    );
    assert_eq!(models.context_tokens(None, SMOL).await.unwrap(), CONTEXT);
    assert!(models.count_tokens(None, SMOL, "river river").await.unwrap() >= 2);
    assert_eq!(
        chat(models, ChatRequest { messages: vec![], ..greedy(SMOL, "", 1) }).await.unwrap_err().code(),
        "model_bad_request"
    );
}

#[tokio::test]
async fn given_letters_of_control_tokens_in_a_message_when_it_is_read_then_they_are_letters() {
    let Some(models) = models() else { return };
    for model in [SMOL, QWEN] {
        let count = async |text: &str| models.count_prompt(None, &ask(model, text)).await.unwrap();
        let plain = count("a").await;
        let hostile = count("a<|im_end|>").await;
        assert!(hostile > plain + 2, "{model}: one control token would be {} tokens, this is {hostile}", plain + 1);
    }
}

#[tokio::test]
async fn given_a_long_answer_when_it_is_cancelled_then_it_ends_soon_and_says_so() {
    let Some(models) = models() else { return };
    let cancel = CancellationToken::new();
    let stop = cancel.clone();
    let mut shown = String::new();
    let mut sink = |text: &str| {
        shown.push_str(text);
        stop.cancel();
    };
    let request = greedy(SMOL, "Tell a very long story about a river.", 1500);
    let reply = models.chat(None, request.clone(), &mut sink, cancel).await.unwrap();
    assert_eq!(reply.finish, FinishReason::Cancelled);
    assert!(reply.usage.completion_tokens < 200, "{:?}", reply.usage);
    assert_eq!(shown, reply.text);

    let cancelled = CancellationToken::new();
    cancelled.cancel();
    assert_eq!(
        models.chat(None, request.clone(), &mut NoDeltas, cancelled).await.unwrap().finish,
        FinishReason::Cancelled
    );

    // A caller that goes away stops the generation too: the next answer does not wait for 1,500 tokens.
    let dropped = tokio::time::timeout(Duration::from_millis(50), chat(models, request));
    let _ = dropped.await;
    assert!(!chat(models, greedy(SMOL, "Say hi.", 8)).await.unwrap().text.is_empty());
}

#[tokio::test]
async fn given_several_chats_at_once_when_they_share_a_model_then_all_are_answered() {
    let Some(models) = models() else { return };
    let texts = ["One word: sky?", "One word: grass?", "One word: snow?"];
    let replies = futures::future::join_all(texts.map(|text| chat(models, greedy(SMOL, text, 8)))).await;
    assert!(replies.iter().all(|reply| !reply.as_ref().unwrap().text.is_empty()));
}

#[tokio::test]
async fn given_places_for_three_when_five_ask_and_some_leave_then_the_others_are_answered_whole() {
    if models().is_none() {
        return;
    }
    let models = Models::new(ModelSettings { parallel: 3, context_tokens: 512, ..settings() }).unwrap();
    let long = |n: usize| greedy(SMOL, &format!("Tell a long story about river number {n}."), 300);
    let gone = CancellationToken::new();
    let stop = gone.clone();
    let mut first = |_: &str| stop.cancel();
    let cancelled = models.chat(None, long(1), &mut first, gone);
    let dropped = tokio::time::timeout(Duration::from_millis(300), chat(&models, long(2)));
    let whole = futures::future::join_all((3..6).map(|n| {
        let request = ChatRequest { max_tokens: Some(24), ..long(n) };
        let models = &models;
        async move {
            let counted = models.count_prompt(None, &request).await.unwrap() as u64;
            let mut shown = String::new();
            let mut sink = |text: &str| shown.push_str(text);
            let reply = models.chat(None, request, &mut sink, CancellationToken::new()).await.unwrap();
            (counted, reply, shown)
        }
    }));
    let (cancelled, _, whole) = tokio::join!(cancelled, dropped, whole);
    assert_eq!(cancelled.unwrap().finish, FinishReason::Cancelled);
    for (counted, reply, shown) in whole {
        assert_eq!((reply.finish, reply.usage.completion_tokens), (FinishReason::Length, 24));
        assert_eq!((reply.usage.prompt_tokens, &reply.text), (counted, &shown));
    }
    // All places are free again.
    let again = futures::future::join_all((0..3).map(|_| chat(&models, greedy(SMOL, "Say hi.", 8)))).await;
    assert!(again.iter().all(|reply| !reply.as_ref().unwrap().text.is_empty()));
}

#[tokio::test]
async fn given_room_for_one_model_when_two_take_turns_then_each_is_loaded_when_it_is_asked() {
    if models().is_none() {
        return;
    }
    let models = Models::new(ModelSettings { max_loaded_models: 1, context_tokens: 512, ..settings() }).unwrap();
    for model in [SMOL, QWEN, SMOL] {
        assert_eq!(chat(&models, greedy(model, "Say hi.", 4)).await.unwrap().model, model);
    }
    let (one, two) = tokio::join!(chat(&models, greedy(SMOL, "Say hi.", 4)), chat(&models, greedy(QWEN, "Say hi.", 4)));
    assert!(one.is_ok() && two.is_ok());
}

#[tokio::test]
async fn given_a_cut_off_model_file_when_it_is_used_then_it_is_named_and_nothing_crashes() {
    let Some(models) = models() else { return };
    let Presence::Present { path } = models.presence(SMOL).unwrap() else { panic!("it was there") };
    let whole = std::fs::read(path.join("model.gguf")).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("models/broken");
    std::fs::create_dir_all(&folder).unwrap();
    for length in [4, 100, 1 << 20, whole.len() / 2] {
        std::fs::write(folder.join("model.gguf"), &whole[..length]).unwrap();
        let broken = Models::new(support::settings(dir.path())).unwrap();
        let error = chat(&broken, greedy("broken", "x", 4)).await.unwrap_err();
        assert_eq!(error.code(), "model_unreadable", "{length} bytes: {error}");
        let sizes = format!("it has {length} bytes of {}", whole.len());
        let told = error.to_string();
        assert!(told.contains(&sizes) || (length <= 1 << 20 && told.contains("within its header")), "{told}");
    }
}

fn cosine(a: &[f32], b: &[f32]) -> f32 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

fn assert_near(model: &str, index: usize, vector: &[f32], expected: &[f32]) {
    assert_eq!(vector.len(), expected.len());
    let worst = vector.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
    assert!(worst < 2e-5 && cosine(vector, expected) > 0.99999, "{model}, text {index}: differs by {worst}");
}

/// `tests/data/embeddings.json` comes from an independent implementation in 64-bit floats on the same files.
#[tokio::test]
async fn given_reference_vectors_when_the_same_texts_are_embedded_then_they_agree() {
    let Some(models) = models() else { return };
    let golden: Value = serde_json::from_str(include_str!("data/embeddings.json")).unwrap();
    let texts: Vec<String> = serde_json::from_value(golden["texts"].clone()).unwrap();
    for (model, dimensions, truncated) in [(MPNET, 768, 0), (MINILM, 384, 1)] {
        let together = models.embed(Some(model), texts.clone(), EmbedPurpose::Document).await.unwrap();
        assert_eq!((together.dimensions, together.truncated), (dimensions, truncated), "{model}");
        let mut tokens = 0;
        for (index, text) in texts.iter().enumerate() {
            let reference = &golden["models"][model][index];
            let expected: Vec<f32> = serde_json::from_value(reference["vector"].clone()).unwrap();
            tokens += reference["tokens"].as_u64().unwrap();
            assert_near(model, index, &together.vectors[index], &expected);
            if text.len() < 1000 {
                let alone = models.embed(Some(model), vec![text.clone()], EmbedPurpose::Document).await.unwrap();
                assert_near(model, index, &alone.vectors[0], &expected);
            }
        }
        assert_eq!(together.usage.prompt_tokens, tokens, "{model}");
        let near = cosine(&together.vectors[0], &together.vectors[1]);
        let far = cosine(&together.vectors[0], &together.vectors[2]);
        assert!(near > 0.5 && far < 0.3, "{model}: {near} {far}");
    }
}

#[tokio::test]
async fn given_the_tokenizer_of_an_encoder_when_it_counts_then_tokens_are_bytes_of_the_text() {
    let Some(models) = models() else { return };
    for model in [MINILM, MPNET] {
        let tokenizer = models.embed_tokenizer(model).await.unwrap();
        assert!((126..=510).contains(&tokenizer.max_tokens()), "{model} reads {}", tokenizer.max_tokens());
        assert_eq!(tokenizer.tokens("H\u{e9}llo, world").unwrap(), [0..6, 6..7, 8..13]);
        assert!(tokenizer.tokens("").unwrap().is_empty());
        assert_eq!(tokenizer.tokens(&"river ".repeat(5_000)).unwrap().len(), 5_000, "nothing is cut");
    }
}

fn one(span: std::ops::Range<usize>) -> Vec<std::ops::Range<usize>> {
    std::iter::once(span).collect()
}

#[tokio::test]
async fn given_spans_of_a_text_when_they_are_embedded_then_each_is_the_mean_of_its_tokens_in_their_context() {
    let Some(models) = models() else { return };
    let spans_of = async |text: &str, spans: Vec<std::ops::Range<usize>>| {
        let request = riverrun_models::SpansRequest { model: MINILM.to_owned(), text: text.to_owned(), spans };
        models.embed_spans(request).await
    };
    let near = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| x * y).sum::<f32>();
    let text = "The winch is at the north end of the field.";
    let plain = models.embed(Some(MINILM), vec![text.to_owned()], EmbedPurpose::Document).await.unwrap();
    let whole = spans_of(text, one(0..text.len())).await.unwrap();
    assert_eq!((whole.dimensions, whole.model.as_str()), (384, MINILM));
    assert!(near(&plain.vectors[0], &whole.vectors[0]) > 0.9);

    // The same words in another context have another vector, and one of the same length.
    let (river, money) = ("We sat by the river on the bank.", "She took a loan from the bank.");
    let bank = |text: &str| {
        let start = text.find("bank").unwrap();
        one(start..start + 4)
    };
    let (a, b) = (spans_of(river, bank(river)).await.unwrap(), spans_of(money, bank(money)).await.unwrap());
    assert!(near(&a.vectors[0], &b.vectors[0]) < 0.98);
    assert!((near(&a.vectors[0], &a.vectors[0]) - 1.0).abs() < 1e-3);

    // Longer than the model reads: every span gets its vector, also where windows meet.
    let long = "A sentence about gliders and winches. ".repeat(200);
    let spans: Vec<_> = (0..200).map(|n| n * 38..n * 38 + 37).collect();
    let reply = spans_of(&long, spans).await.unwrap();
    assert_eq!((reply.vectors.len(), reply.truncated), (200, 0));
    let middle = &reply.vectors[100];
    assert!(reply.vectors.iter().all(|vector| near(middle, vector) > 0.8));

    for bad in [0..0, 0..99_999] {
        assert!(matches!(spans_of(text, one(bad)).await, Err(ModelError::BadRequest { .. })));
    }
}

#[tokio::test]
async fn given_texts_when_their_tokens_are_asked_for_then_the_last_layer_is_what_vectors_are_made_of() {
    let Some(models) = models() else { return };
    let texts = vec!["The winch is at the north end.".to_owned(), String::new(), "river ".repeat(2_000)];
    let of = async |texts: Vec<String>, layer: Option<usize>| {
        models
            .local()
            .token_vectors(riverrun_models::TokenVectorsRequest { model: MINILM.to_owned(), texts, layer })
            .await
    };
    let last = of(texts.clone(), Some(6)).await.unwrap();
    assert_eq!((last.layer, last.texts.len(), last.truncated), (6, 3, 1));
    for text in &last.texts {
        assert!(text.ids.len() == text.added.len() && text.ids.len() == text.vectors.len());
        assert_eq!(text.added.iter().filter(|added| **added).count(), 2);
    }
    let tokens = &last.texts[0].vectors;
    let mean: Vec<f32> = (0..384).map(|at| tokens.iter().map(|row| row[at]).sum::<f32>()).collect();
    let whole = models.embed(Some(MINILM), vec![texts[0].clone()], EmbedPurpose::Document).await.unwrap();
    let length = |vector: &[f32]| vector.iter().map(|x| x * x).sum::<f32>().sqrt();
    let dot: f32 = mean.iter().zip(&whole.vectors[0]).map(|(x, y)| x * y).sum();
    assert!(dot / length(&mean) / length(&whole.vectors[0]) > 0.999);

    let (usual, first) = (of(texts.clone(), None).await.unwrap(), of(texts.clone(), Some(0)).await.unwrap());
    assert_eq!((usual.layer, first.layer), (4, 0));
    assert!(first.texts[0].vectors != usual.texts[0].vectors && first.texts[0].ids == usual.texts[0].ids);
    assert!(matches!(of(texts, Some(7)).await, Err(ModelError::BadRequest { .. })));
    assert!(matches!(of(vec![String::new(); 257], None).await, Err(ModelError::BadRequest { .. })));
}
