//! Greedy answers beside those of llama.cpp as it is linked, driven in the plainest way: its own template, one context of one sequence, a
//! prompt at once, then one token after the other, always the likeliest. Weights of four bits have activations rounded to eight, so that a
//! sum in another order shows in the first digits of a logarithm: the same tokens come only from the same computations.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use llama_cpp_2::context::LlamaContext;
use llama_cpp_2::context::params::LlamaContextParams;
use llama_cpp_2::llama_batch::LlamaBatch;
use llama_cpp_2::model::{LlamaChatMessage, LlamaModel};
use llama_cpp_2::token::LlamaToken;
use tokio_util::sync::CancellationToken;

use super::super::llama::{backend, load_model};
use crate::models::Models;
use crate::provider::{ChatRequest, Message, NoDeltas};
use crate::settings::ModelSettings;

const MODEL: &str = "smollm2-135m-instruct";
const TOKENS: usize = 64;
const CONTEXT: usize = 1024;
const SYSTEM: &str = "You answer in a few sentences.";
const TOPICS: [&str; 20] = [
    "rivers",
    "glaciers",
    "bread",
    "clocks",
    "bees",
    "bridges",
    "salt",
    "owls",
    "sails",
    "comets",
    "paper",
    "violins",
    "moss",
    "harbours",
    "maps",
    "kites",
    "iron",
    "tea",
    "snow",
    "lighthouses",
];

/// llama.cpp with what it has computed.
struct Plain<'model> {
    model: &'model LlamaModel,
    context: LlamaContext<'model>,
    computed: Vec<LlamaToken>,
}

impl<'model> Plain<'model> {
    fn new(model: &'model LlamaModel) -> Self {
        let threads = LlamaContextParams::default().with_n_threads(1).with_n_threads_batch(1);
        let context =
            model.new_context(backend().unwrap(), threads.with_n_ctx(NonZeroU32::new(CONTEXT as u32))).unwrap();
        Plain { model, context, computed: Vec::new() }
    }

    /// The answer to messages, in turns of the user and the model. What the prompt shares with what was computed is not computed again.
    fn answer(&mut self, turns: &[&str]) -> String {
        let vocab = self.model.vocab();
        let mut tokens = vocab.tokenize(self.prompt(turns).as_bytes(), true, true);
        let kept = self.computed.iter().zip(&tokens).take_while(|(old, new)| old == new).count();
        assert!(kept < tokens.len());
        self.context.clear_kv_cache_seq(Some(0), Some(kept as u32), None).unwrap();
        self.computed.truncate(kept);
        let (prompt, mut bytes) = (tokens.len(), Vec::new());
        while tokens.len() < prompt + TOKENS {
            let token = self.next(&tokens);
            if vocab.is_eog(token) {
                break;
            }
            bytes.extend(vocab.token_to_piece(token, false, None));
            tokens.push(token);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn prompt(&self, turns: &[&str]) -> String {
        let said = std::iter::once(("system", SYSTEM))
            .chain(["user", "assistant"].into_iter().cycle().zip(turns.iter().copied()));
        let said: Vec<_> = said.map(|(role, text)| LlamaChatMessage::new(role.into(), text.into()).unwrap()).collect();
        self.model.apply_chat_template(&self.model.chat_template(None).unwrap(), &said, true).unwrap()
    }

    /// Computes what is new of the tokens, at once, and gives the likeliest next one.
    fn next(&mut self, tokens: &[LlamaToken]) -> LlamaToken {
        let mut batch = LlamaBatch::new(CONTEXT, 1);
        for (at, token) in tokens.iter().enumerate().skip(self.computed.len()) {
            batch.add(*token, at as i32, &[0], at + 1 == tokens.len()).unwrap();
        }
        self.context.decode(&mut batch).unwrap();
        self.computed = tokens.to_vec();
        let logits = self.context.get_logits_ith(batch.n_tokens() - 1);
        let best = logits
            .iter()
            .enumerate()
            .fold((0, f32::NEG_INFINITY), |best, (token, logit)| if *logit > best.1 { (token, *logit) } else { best });
        LlamaToken(best.0 as i32)
    }
}

/// Where the model is; nothing when the developer said so.
fn model_file() -> Option<PathBuf> {
    let settings = settings(1);
    let folders = [settings.models_dir, Some(settings.cache_dir.join("models"))];
    let found =
        folders.into_iter().flatten().map(|folder| folder.join(MODEL).join("model.gguf")).find(|file| file.is_file());
    let without = std::env::var("RIVERRUN_TEST_WITHOUT_MODELS").is_ok();
    assert!(
        found.is_some() || without,
        "model {MODEL} is missing; set RIVERRUN_MODELS_DIR, or RIVERRUN_TEST_WITHOUT_MODELS=1"
    );
    found
}

fn settings(parallel: usize) -> ModelSettings {
    let mut settings = ModelSettings::from_env(&|name| std::env::var(name).ok()).unwrap();
    (settings.offline, settings.context_tokens, settings.threads, settings.parallel) =
        (true, CONTEXT, Some(1), parallel);
    (settings.timeout, settings.idle_timeout) = (Duration::from_secs(600), Duration::from_secs(600));
    settings
}

async fn ours(models: &Models, turns: &[&str]) -> String {
    let speakers = [Message::user, Message::assistant].into_iter().cycle();
    let said = speakers.zip(turns.iter().copied()).map(|(message, text)| message(text));
    let request = ChatRequest {
        model: MODEL.into(),
        messages: std::iter::once(Message::system(SYSTEM)).chain(said).collect(),
        temperature: Some(0.0),
        max_tokens: Some(TOKENS as u32),
        ..ChatRequest::default()
    };
    models.chat(None, request, &mut NoDeltas, CancellationToken::new()).await.unwrap().text
}

fn questions() -> Vec<String> {
    TOPICS.iter().map(|topic| format!("Explain in a few sentences what one should know about {topic}.")).collect()
}

#[tokio::test]
async fn given_questions_when_they_are_answered_and_asked_on_then_each_token_is_that_of_llama_cpp() {
    let Some(file) = model_file() else { return };
    let (model, models) = (load_model(&file).unwrap(), Models::new(settings(1)).unwrap());
    let mut plain = Plain::new(&model);
    for question in questions() {
        let mut turns = vec![question.as_str()];
        let first = ours(&models, &turns).await;
        assert_eq!(first, plain.answer(&turns), "{question}");
        turns.extend([first.as_str(), "Which of that matters most, and why?"]);
        assert_eq!(ours(&models, &turns).await, plain.answer(&turns), "after {question}");
    }
}

#[tokio::test]
async fn given_four_questions_at_a_time_when_they_are_answered_then_each_token_is_that_of_llama_cpp_alone() {
    let Some(file) = model_file() else { return };
    let (model, models) = (load_model(&file).unwrap(), Models::new(settings(4)).unwrap());
    for four in questions().chunks(4) {
        let turns: Vec<[&str; 1]> = four.iter().map(|question| [question.as_str()]).collect();
        let answers = futures::future::join_all(turns.iter().map(|turns| ours(&models, turns))).await;
        for (answer, turns) in answers.iter().zip(&turns) {
            assert_eq!(*answer, Plain::new(&model).answer(turns), "{}", turns[0]);
        }
    }
}
