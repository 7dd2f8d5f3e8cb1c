//! The encoder of a model, whichever code runs it.

use candle_nn::VarBuilder;
use serde_json::Value;

use super::encoder::{Config, Encoder};
use super::hidden::{Hidden, Wanted};
use super::layout::{self, Prompts};
use super::stock::{Family, StockEncoder, below};
use super::text::EncodeError;

/// A loaded encoder.
pub(super) enum Body {
    /// BERT and MPNet on our own code.
    Own(Box<Encoder>),
    /// The other families on `candle-transformers`.
    Stock(StockEncoder),
}

/// What `config.json` says that a model is.
enum Architecture {
    Own { name: &'static str },
    Stock(Family),
}

impl Architecture {
    fn of(config: &Value) -> Result<Self, EncodeError> {
        if let Some(family) = Family::of(config) {
            return Ok(Architecture::Stock(family));
        }
        match config["model_type"].as_str() {
            Some("bert") => Ok(Architecture::Own { name: "bert" }),
            Some("mpnet") => Ok(Architecture::Own { name: "mpnet" }),
            other => Err(EncodeError(format!(
                "architecture {:?} is not supported; supported: bert, mpnet, modernbert, nomic_bert, jina_bert, \
                 xlm-roberta, roberta",
                other.unwrap_or("none")
            ))),
        }
    }
}

impl Body {
    /// The encoder among the tensors of a file.
    pub(super) fn load(config: &Value, root: &VarBuilder<'static>) -> Result<Self, EncodeError> {
        match Architecture::of(config)? {
            Architecture::Own { name } => {
                let shape: Config = layout::typed(config)?;
                let tensors = below(root, name, "embeddings.word_embeddings.weight");
                Ok(Body::Own(Box::new(Encoder::load(&tensors, &shape)?)))
            }
            Architecture::Stock(family) => Ok(Body::Stock(family.load(config, root)?)),
        }
    }

    /// The encoder whose layers can be looked into.
    pub(super) fn layered(&self) -> Option<&Encoder> {
        match self {
            Body::Own(encoder) => Some(encoder),
            Body::Stock(_) => None,
        }
    }

    /// The vectors of the wanted tokens of texts that stand one behind the other; `lengths` are their counts of tokens.
    pub(super) fn forward(
        &self,
        ids: &[u32],
        types: &[u32],
        lengths: &[usize],
        wanted: Wanted,
    ) -> candle_core::Result<Hidden> {
        match self {
            Body::Own(encoder) => encoder.forward(ids, types, lengths, wanted),
            Body::Stock(encoder) => {
                let mut hidden = Hidden::of(&encoder.forward(ids, types, lengths)?)?;
                hidden.keep(wanted, lengths);
                Ok(hidden)
            }
        }
    }
}

/// Tokens that a text may have, special ones included.
pub(super) fn max_tokens(config: &Value) -> Result<usize, EncodeError> {
    match Architecture::of(config)? {
        Architecture::Own { .. } => Ok(layout::typed::<Config>(config)?.max_tokens()),
        Architecture::Stock(family) => Ok(family.max_tokens(config)),
    }
}

/// What the models of the architecture want before a text when their files do not say.
pub(super) fn prompts(config: &Value) -> Prompts {
    let (query, document) = Family::of(config).map_or(("", ""), Family::prompts);
    Prompts { query: query.to_owned(), document: document.to_owned() }
}
