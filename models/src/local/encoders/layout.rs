//! The files of a sentence-transformers model beside its weights.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::text::EncodeError;
use crate::provider::EmbedPurpose;

/// How the vectors of the tokens become the vector of the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooling {
    /// Their mean.
    Mean,
    /// That of the first token.
    Cls,
    /// The largest value in each dimension.
    Max,
}

/// What the files say about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) pooling: Pooling,
    pub(super) normalize: bool,
    /// Tokens of a text at most, special ones included; none when the files do not say.
    pub(super) max_tokens: Option<usize>,
    /// What the model wants before a query and before a document; none when the files do not say.
    pub(super) prompts: Option<Prompts>,
}

/// What stands before the texts that a model reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Prompts {
    pub(super) query: String,
    pub(super) document: String,
}

impl Prompts {
    /// What stands before a text of this purpose.
    pub(super) fn before(&self, purpose: EmbedPurpose) -> &str {
        match purpose {
            EmbedPurpose::Document => &self.document,
            EmbedPurpose::Query => &self.query,
        }
    }

    /// The two of a model's prompts that are used here; none when it has others only.
    fn of(mut named: BTreeMap<String, Option<String>>) -> Option<Self> {
        let mut take = |names: &[&str]| names.iter().find_map(|name| named.remove(*name).flatten());
        let (query, document) = (take(&["query", "search_query"]), take(&["document", "passage", "search_document"]));
        if query.is_none() && document.is_none() {
            return None;
        }
        Some(Prompts { query: query.unwrap_or_default(), document: document.unwrap_or_default() })
    }
}

impl Layout {
    /// Reads what is there; a plain encoder without those files gets mean pooling and vectors of length 1.
    pub(super) fn read(folder: &Path) -> Result<Self, EncodeError> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct PoolingConfig {
            pooling_mode_cls_token: bool,
            pooling_mode_mean_tokens: bool,
            pooling_mode_max_tokens: bool,
        }
        #[derive(Deserialize)]
        struct SentenceConfig {
            max_seq_length: Option<usize>,
        }
        #[derive(Deserialize)]
        struct PromptConfig {
            prompts: Option<BTreeMap<String, Option<String>>>,
        }
        #[derive(Deserialize)]
        struct Module {
            #[serde(rename = "type")]
            kind: String,
        }
        let pooling = match optional::<PoolingConfig>(&folder.join("1_Pooling").join("config.json"))? {
            None => Pooling::Mean,
            Some(config) => {
                match (config.pooling_mode_mean_tokens, config.pooling_mode_cls_token, config.pooling_mode_max_tokens) {
                    (true, false, false) => Pooling::Mean,
                    (false, true, false) => Pooling::Cls,
                    (false, false, true) => Pooling::Max,
                    _ => return Err(EncodeError("its pooling is not exactly one of mean, cls and max".to_owned())),
                }
            }
        };
        let modules: Option<Vec<Module>> = optional(&folder.join("modules.json"))?;
        let normalize = modules.is_none_or(|modules| modules.iter().any(|module| module.kind.ends_with("Normalize")));
        let sentence: Option<SentenceConfig> = optional(&folder.join("sentence_bert_config.json"))?;
        let prompts: Option<PromptConfig> = optional(&folder.join("config_sentence_transformers.json"))?;
        Ok(Layout {
            pooling,
            normalize,
            max_tokens: sentence.and_then(|config| config.max_seq_length),
            prompts: prompts.and_then(|config| Prompts::of(config.prompts?)),
        })
    }
}

/// `config.json`, whose shape depends on the architecture.
pub(super) fn config(folder: &Path) -> Result<Value, EncodeError> {
    let path = folder.join("config.json");
    optional(&path)?.ok_or_else(|| EncodeError(format!("{} is missing", path.display())))
}

/// The architecture's name and its typed configuration.
pub(super) fn typed<T: DeserializeOwned>(config: &Value) -> Result<T, EncodeError> {
    serde_json::from_value(config.clone()).map_err(|error| EncodeError(format!("config.json: {error}")))
}

fn optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, EncodeError> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(EncodeError(format!("{}: {error}", path.display()))),
    };
    serde_json::from_slice(&bytes).map(Some).map_err(|error| EncodeError(format!("{}: {error}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_the_files_of_a_model_when_they_are_read_then_they_decide_and_defaults_fill_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        let plain = Layout { pooling: Pooling::Mean, normalize: true, max_tokens: None, prompts: None };
        assert_eq!(Layout::read(dir.path()).unwrap(), plain);
        fs::create_dir(dir.path().join("1_Pooling")).unwrap();
        fs::write(
            dir.path().join("1_Pooling/config.json"),
            r#"{"pooling_mode_cls_token":true,"pooling_mode_mean_tokens":false}"#,
        )
        .unwrap();
        fs::write(dir.path().join("modules.json"), r#"[{"type":"sentence_transformers.models.Transformer"}]"#).unwrap();
        fs::write(dir.path().join("sentence_bert_config.json"), r#"{"max_seq_length":384}"#).unwrap();
        fs::write(
            dir.path().join("config_sentence_transformers.json"),
            r#"{"__version__":{"transformers":"4"},"prompts":{"query":"query: ","passage":"text: ","other":null}}"#,
        )
        .unwrap();
        let prompts = Some(Prompts { query: "query: ".into(), document: "text: ".into() });
        assert_eq!(
            Layout::read(dir.path()).unwrap(),
            Layout { pooling: Pooling::Cls, normalize: false, max_tokens: Some(384), prompts }
        );
        fs::write(dir.path().join("1_Pooling/config.json"), "{}").unwrap();
        assert!(Layout::read(dir.path()).is_err());
        fs::write(dir.path().join("modules.json"), "broken").unwrap();
        assert!(Layout::read(dir.path()).is_err());
    }
}
