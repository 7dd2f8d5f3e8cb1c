//! Tokens of examples, with those marked that the model is taught to write.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokenizers::Tokenizer;

use super::template::ChatTemplate;
use crate::dataset::{Example, Speaker, Turn};
use crate::error::TrainingError;
use crate::files;

/// The file of a tokenizer's settings.
const SETTINGS: &str = "tokenizer_config.json";

/// Tokens, and which of them are taught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Encoded {
    /// The tokens.
    pub ids: Vec<u32>,
    /// For each token whether its probability is learned. Never true for the first.
    pub taught: Vec<bool>,
}

impl Encoded {
    /// Tokens that are taught.
    pub fn taught_tokens(&self) -> usize {
        self.taught.iter().filter(|taught| **taught).count()
    }
}

/// The two answers of a preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncodedPair {
    /// The better one behind its prompt.
    pub chosen: Encoded,
    /// The worse one behind the same prompt.
    pub rejected: Encoded,
}

/// A model's tokenizer and chat template.
#[derive(Debug, Clone)]
pub struct TextCodec {
    tokenizer: Tokenizer,
    template: ChatTemplate,
    controls: Vec<String>,
    bos: Option<u32>,
}

impl TextCodec {
    pub(crate) fn new(
        tokenizer: Tokenizer,
        template: ChatTemplate,
        mut controls: Vec<String>,
        bos: Option<u32>,
    ) -> Self {
        controls.retain(|text| !text.is_empty());
        Self { tokenizer, template, controls, bos }
    }

    /// Of a folder in Hugging Face's layout.
    pub(crate) fn of_folder(folder: &Path) -> Result<Self, TrainingError> {
        let path = folder.join("tokenizer.json");
        let bytes = files::read(&path, files::MAX_TOKENIZER)?;
        // Whoever wrote it may have meant nothing good, and not every part of a tokenizer is built without a panic.
        let mut tokenizer = catch_unwind(AssertUnwindSafe(|| Tokenizer::from_bytes(bytes)))
            .map_err(|_| TrainingError::base(&path, "it makes no sense"))?
            .map_err(|error| TrainingError::base(&path, error))?;
        // Both are for batches of somebody else: here nothing is cut, and nothing is filled up to billions of tokens.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| TrainingError::base(&path, error))?;
        let Settings { eos, bos, add_bos, template } = Settings::of_folder(folder)?;
        if tokenizer.token_to_id(&eos).is_none() {
            return Err(TrainingError::base(&folder.join(SETTINGS), "its eos_token is no token"));
        }
        let added = tokenizer.get_added_tokens_decoder();
        let controls = added.values().filter(|token| token.special).map(|token| token.content.clone()).collect();
        let first = bos.as_deref().filter(|_| add_bos).and_then(|bos| tokenizer.token_to_id(bos));
        let template = ChatTemplate::new(template, bos.unwrap_or_default(), eos);
        Ok(Self::new(tokenizer, template, controls, first))
    }

    /// The control token of the model that stands in a text, where one does: such a text can't be trained on, for its letters
    /// would become the token (MODEL-2).
    pub fn control_in(&self, text: &str) -> Option<&str> {
        self.controls.iter().map(String::as_str).find(|control| text.contains(*control))
    }

    /// Tokens of a text in which control tokens count as such.
    pub(super) fn tokens(&self, text: &str) -> Result<Vec<u32>, String> {
        let encoding = catch_unwind(AssertUnwindSafe(|| self.tokenizer.encode(text, false)))
            .map_err(|_| "the tokenizer breaks off over a text".to_owned())?
            .map_err(|error| error.to_string())?;
        Ok(encoding.get_ids().to_vec())
    }

    /// A prompt with its completion, of which the completion and the token that ends it are taught.
    pub fn completion(&self, prompt: &str, completion: &str) -> Result<Encoded, String> {
        self.conversation(&[turn(Speaker::User, prompt), turn(Speaker::Assistant, completion)])
    }

    /// A preference.
    pub fn pair(&self, prompt: &str, chosen: &str, rejected: &str) -> Result<EncodedPair, String> {
        Ok(EncodedPair { chosen: self.completion(prompt, chosen)?, rejected: self.completion(prompt, rejected)? })
    }

    /// A conversation of which everything that the assistant says is taught, each time with the token that ends it.
    pub fn conversation(&self, turns: &[Turn]) -> Result<Encoded, String> {
        if let Some(control) = turns.iter().find_map(|turn| self.control_in(&turn.content)) {
            return Err(format!("a text holds the control token {control} of the base model"));
        }
        let mut encoded = Encoded { ids: self.bos.into_iter().collect(), taught: vec![false; self.bos.iter().len()] };
        let mut written = String::new(); // what of the rendered conversation is in `encoded`
        for (at, said) in turns.iter().enumerate().filter(|(_, turn)| turn.role == Speaker::Assistant) {
            let before = self.template.render(&turns[..at], true)?;
            let through = self.template.render(&turns[..=at], false)?;
            let (Some(asked), Some(answer)) =
                (before.strip_prefix(written.as_str()), through.strip_prefix(before.as_str()))
            else {
                return Err("the chat template changes what was said before; it can't be trained with".to_owned());
            };
            let answer = self.answer(answer, &said.content)?;
            encoded.add(&self.tokens(asked)?, false);
            encoded.add(&self.tokens(answer)?, true);
            let answer_end = before.len() + answer.len();
            written = through[..answer_end].to_owned();
        }
        if let Some(first) = encoded.taught.first_mut() {
            *first = false;
        }
        Ok(encoded)
    }

    /// What of a rendered answer is taught: up to the control token that ends it. What templates write behind that (a line
    /// end, mostly) is never generated.
    fn answer<'a>(&'a self, rendered: &'a str, content: &str) -> Result<&'a str, String> {
        let end =
            self.controls.iter().filter_map(|control| rendered.find(control.as_str()).map(|at| at + control.len()));
        match end.min() {
            Some(end) => Ok(&rendered[..end]),
            None => Err(format!(
                "the chat template puts no control token behind an answer, such as {}: generation would not stop after {:?}",
                self.template.eos(),
                content.chars().take(40).collect::<String>()
            )),
        }
    }

    /// The sequences of an example: one, or those of the better and the worse answer of a preference.
    pub fn sequences(&self, example: &Example) -> Result<Vec<Encoded>, String> {
        Ok(match example {
            Example::Sft { prompt, completion } => vec![self.completion(prompt, completion)?],
            Example::Dpo { prompt, chosen, rejected } => {
                let EncodedPair { chosen, rejected } = self.pair(prompt, chosen, rejected)?;
                vec![chosen, rejected]
            }
            Example::Chat { messages } => vec![self.conversation(messages)?],
        })
    }
}

impl Encoded {
    fn add(&mut self, ids: &[u32], taught: bool) {
        self.ids.extend_from_slice(ids);
        self.taught.extend(std::iter::repeat_n(taught, ids.len()));
    }
}

fn turn(role: Speaker, content: &str) -> Turn {
    Turn { role, content: content.to_owned() }
}

/// What `tokenizer_config.json` says, and a template beside it.
pub(super) struct Settings {
    pub(super) eos: String,
    pub(super) bos: Option<String>,
    /// Whether `bos` stands before everything.
    pub(super) add_bos: bool,
    pub(super) template: Option<String>,
}

impl Settings {
    pub(super) fn of_folder(folder: &Path) -> Result<Self, TrainingError> {
        let path = folder.join(SETTINGS);
        let bytes = files::read(&path, files::MAX_SETTINGS)?;
        let config: Value = serde_json::from_slice(&bytes).map_err(|error| TrainingError::base(&path, error))?;
        let text = |key: &str| {
            let value = &config[key];
            value.as_str().or(value["content"].as_str()).map(str::to_owned)
        };
        Ok(Self {
            eos: text("eos_token").ok_or_else(|| TrainingError::base(&path, "it names no eos_token"))?,
            bos: text("bos_token"),
            add_bos: config["add_bos_token"].as_bool().unwrap_or(false),
            template: template_file(folder)?.or_else(|| text("chat_template")),
        })
    }
}

/// The template in a file of its own, where newer models have it; it counts before one in `tokenizer_config.json`, as in
/// `transformers`.
fn template_file(folder: &Path) -> Result<Option<String>, TrainingError> {
    let path = folder.join("chat_template.jinja");
    let bytes = files::maybe(&path, files::MAX_SETTINGS)?;
    bytes.map(String::from_utf8).transpose().map_err(|error| TrainingError::base(&path, error))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder whose tokenizer splits words, and whose configuration has that template.
    fn folder(template: Option<&str>) -> tempfile::TempDir {
        let words = ["<e>", "user", "assistant", "x"];
        let vocabulary: serde_json::Map<String, Value> =
            words.iter().zip(0..).map(|(word, id): (&&str, u32)| ((*word).to_owned(), id.into())).collect();
        let added = serde_json::json!([{ "id": 0, "content": "<e>", "single_word": false, "lstrip": false,
            "rstrip": false, "normalized": false, "special": true }]);
        let tokenizer = serde_json::json!({ "version": "1.0", "truncation": null, "padding": null, "added_tokens": added,
            "normalizer": null, "pre_tokenizer": { "type": "Whitespace" }, "post_processor": null, "decoder": null,
            "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "x" } });
        let config = serde_json::json!({ "eos_token": "<e>", "chat_template": template });
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("tokenizer.json"), tokenizer.to_string()).unwrap();
        std::fs::write(folder.path().join("tokenizer_config.json"), config.to_string()).unwrap();
        folder
    }

    fn rendered(folder: &Path) -> String {
        let codec = TextCodec::of_folder(folder).unwrap();
        codec.template.render(&[turn(Speaker::User, "x")], true).unwrap()
    }

    #[test]
    fn given_a_template_in_a_file_of_its_own_then_it_counts_before_that_of_the_configuration() {
        let folder = folder(Some("of the configuration"));
        assert_eq!(rendered(folder.path()), "of the configuration");
        std::fs::write(folder.path().join("chat_template.jinja"), "{{ messages[0]['role'] }} of a file").unwrap();
        assert_eq!(rendered(folder.path()), "user of a file");
    }

    #[test]
    fn given_no_template_anywhere_then_that_of_chatml_is_used_and_an_unreadable_file_is_no_absent_one() {
        let folder = folder(None);
        assert!(rendered(folder.path()).starts_with("<|im_start|>user"));
        std::fs::create_dir(folder.path().join("chat_template.jinja")).unwrap();
        assert_eq!(TextCodec::of_folder(folder.path()).unwrap_err().code(), "training_io_failed");
    }

    #[test]
    fn given_a_tokenizer_that_cuts_and_fills_up_then_neither_is_done() {
        let folder = folder(None);
        let path = folder.path().join("tokenizer.json");
        let mut json: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        json["truncation"] =
            serde_json::json!({ "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0 });
        json["padding"] = serde_json::json!({ "strategy": { "Fixed": 4_294_967_295_u32 }, "direction": "Right",
            "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0, "pad_token": "<e>" });
        std::fs::write(&path, json.to_string()).unwrap();
        assert_eq!(TextCodec::of_folder(folder.path()).unwrap().tokens("x user x x").unwrap(), [3, 1, 3, 3]);
    }

    #[test]
    fn given_a_file_that_is_no_tokenizer_then_it_is_refused_by_its_name() {
        let folder = folder(None);
        for content in ["", "[]", "{}", "null", "\u{0}"] {
            std::fs::write(folder.path().join("tokenizer.json"), content).unwrap();
            let error = TextCodec::of_folder(folder.path()).unwrap_err();
            assert!(error.code() == "base_model_unusable" && error.to_string().contains("tokenizer.json"), "{error}");
        }
    }
}
