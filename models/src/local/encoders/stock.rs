//! The encoders that run on `candle-transformers`: ModernBERT, nomic-bert, Jina's BERT and (XLM-)RoBERTa.
//!
//! They differ from BERT in more than names (rotary positions, gated layers, local attention, linear biases), and that crate has each of
//! them after its original. Our own [encoder](super::encoder) is faster for BERT and MPNet, which most people run.
//!
//! Texts of the same length go through together and no text is padded: a vector then cannot depend on what else is in the batch, and
//! Jina's model, which takes no mask, is right too.

use std::collections::BTreeMap;

use candle_core::{Device, Module, Result, Tensor, bail};
use candle_nn::VarBuilder;
use candle_transformers::models::{jina_bert, modernbert, nomic_bert, xlm_roberta};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::layout;
use super::text::EncodeError;

/// These models compare all tokens of a text with all others in one matrix a head, so that longer texts would take gigabytes.
const MAX_TOKENS: usize = 2048;

/// A family of encoders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// ModernBERT: rotary positions, two layers of three see only a window around each token.
    Modern,
    /// nomic-bert: rotary positions and gated layers.
    Nomic,
    /// Jina's BERT: distances as linear biases (ALiBi) and gated layers.
    Jina,
    /// RoBERTa and XLM-RoBERTa: BERT whose positions begin behind the padding id.
    Roberta,
}

/// Takes ids and types `[texts, tokens]`, gives vectors `[texts, tokens, hidden]`.
type Run = Box<dyn Fn(&Tensor, &Tensor) -> Result<Tensor> + Send + Sync>;

/// A loaded encoder.
pub(super) struct StockEncoder {
    run: Run,
    /// Texts that go through together.
    together: usize,
}

impl Family {
    /// The family of a configuration; none when our own encoder has it or nobody does.
    pub(super) fn of(config: &Value) -> Option<Self> {
        match config["model_type"].as_str()? {
            "modernbert" => Some(Family::Modern),
            "nomic_bert" => Some(Family::Nomic),
            // Jina's files call it BERT.
            "bert" | "jina_bert" if config["position_embedding_type"] == "alibi" => Some(Family::Jina),
            "xlm-roberta" | "roberta" | "camembert" => Some(Family::Roberta),
            _ => None,
        }
    }

    /// Tokens of a text at most.
    pub(super) fn max_tokens(self, config: &Value) -> usize {
        let number = |name: &str| config[name].as_u64().and_then(|number| usize::try_from(number).ok());
        let positions = match self {
            Family::Nomic => number("n_positions"),
            Family::Modern | Family::Jina => number("max_position_embeddings"),
            Family::Roberta => number("max_position_embeddings")
                .map(|positions| positions.saturating_sub(number("pad_token_id").unwrap_or(1) + 1)),
        };
        positions.unwrap_or(0).min(MAX_TOKENS)
    }

    /// What the family's models were trained to see before a query and before a document.
    pub(super) fn prompts(self) -> (&'static str, &'static str) {
        match self {
            Family::Nomic => ("search_query: ", "search_document: "),
            Family::Modern | Family::Jina | Family::Roberta => ("", ""),
        }
    }

    /// Loads an encoder whose tensors are below `root`, with or without the name that a model with a head puts before them.
    pub(super) fn load(
        self,
        config: &Value,
        root: &VarBuilder<'static>,
    ) -> std::result::Result<StockEncoder, EncodeError> {
        let longest = self.max_tokens(config);
        Ok(match self {
            Family::Modern => StockEncoder { run: modern(config, root)?, together: 1 },
            Family::Nomic => StockEncoder { run: nomic(config, root, longest)?, together: usize::MAX },
            Family::Jina => StockEncoder { run: jina(config, root, longest)?, together: usize::MAX },
            Family::Roberta => StockEncoder { run: roberta(config, root)?, together: usize::MAX },
        })
    }
}

impl StockEncoder {
    /// The vectors of all tokens, `[tokens, hidden]`, of texts that stand one behind the other.
    pub(super) fn forward(&self, ids: &[u32], types: &[u32], lengths: &[usize]) -> Result<Tensor> {
        let starts: Vec<usize> = lengths
            .iter()
            .scan(0_usize, |end, length| {
                let start = *end;
                *end += *length;
                Some(start)
            })
            .collect();
        let mut same: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (text, length) in lengths.iter().enumerate() {
            same.entry(*length).or_default().push(text);
        }
        let mut rows: Vec<(usize, Tensor)> = Vec::with_capacity(lengths.len());
        for (length, texts) in same {
            for group in texts.chunks(self.together) {
                let gather = |of: &[u32]| {
                    let numbers: Vec<u32> =
                        group.iter().flat_map(|text| &of[starts[*text]..starts[*text] + length]).copied().collect();
                    Tensor::from_vec(numbers, (group.len(), length), &Device::Cpu)
                };
                let hidden = (self.run)(&gather(ids)?, &gather(types)?)?;
                for (row, text) in group.iter().enumerate() {
                    rows.push((*text, hidden.get(row)?));
                }
            }
        }
        rows.sort_unstable_by_key(|(text, _)| *text);
        let rows: Vec<Tensor> = rows.into_iter().map(|(_, row)| row).collect();
        Tensor::cat(&rows, 0)
    }
}

/// `config.json` with what newer or older files leave out.
fn with_defaults<T: DeserializeOwned>(
    config: &Value,
    defaults: &[(&str, Value)],
) -> std::result::Result<T, EncodeError> {
    let mut config = config.clone();
    if let Value::Object(map) = &mut config {
        for (name, value) in defaults {
            if map.get(*name).is_none_or(Value::is_null) {
                map.insert((*name).to_owned(), value.clone());
            }
        }
    }
    layout::typed(&config)
}

/// Refuses what a model has and the code would not compute.
fn only(config: &Value, name: &str, supported: &[&str]) -> Result<()> {
    match config[name].as_str() {
        Some(value) if !supported.contains(&value) => {
            bail!("{name} {value:?} is not supported; supported: {}", supported.join(", "))
        }
        _ => Ok(()),
    }
}

fn modern(config: &Value, root: &VarBuilder<'static>) -> std::result::Result<Run, EncodeError> {
    only(config, "hidden_activation", &["gelu"])?;
    if let Some(bias) = ["attention_bias", "mlp_bias", "norm_bias"].iter().find(|name| config[**name] == true) {
        return Err(EncodeError(format!("a ModernBERT with {bias} is not supported")));
    }
    // Newer files keep the bases of the rotary positions by kind of attention.
    let theta = |kind: &str, default: f64| match &config["rope_parameters"][kind]["rope_theta"] {
        Value::Null => json!(default),
        given => given.clone(),
    };
    let epsilon = if config["norm_eps"].is_null() { json!(1e-5) } else { config["norm_eps"].clone() };
    let shape: modernbert::Config = with_defaults(
        config,
        &[
            ("layer_norm_eps", epsilon),
            ("pad_token_id", json!(0)),
            ("global_attn_every_n_layers", json!(3)),
            ("local_attention", json!(128)),
            ("global_rope_theta", theta("full_attention", 160_000.0)),
            ("local_rope_theta", theta("sliding_attention", 10_000.0)),
        ],
    )?;
    divides(shape.hidden_size, shape.num_attention_heads)?;
    if shape.global_attn_every_n_layers == 0 {
        return Err(EncodeError("global_attn_every_n_layers is 0".to_owned()));
    }
    let named = root.contains_tensor("model.embeddings.tok_embeddings.weight");
    // The crate looks for the names that a model with a head has.
    let root = if named {
        root.clone()
    } else {
        root.clone().rename_f(|name| name.strip_prefix("model.").unwrap_or(name).to_owned())
    };
    let model = modernbert::ModernBert::load(root, &shape)?;
    Ok(Box::new(move |ids: &Tensor, _: &Tensor| model.forward(ids, &ids.ones_like()?)))
}

fn nomic(config: &Value, root: &VarBuilder<'static>, longest: usize) -> std::result::Result<Run, EncodeError> {
    only(config, "activation_function", &["swiglu"])?;
    let mut shape: nomic_bert::Config = layout::typed(config)?;
    divides(shape.n_embd, shape.n_head)?;
    if shape.rotary_emb_fraction != 1.0 {
        return Err(EncodeError(format!(
            "rotary_emb_fraction {} is not supported; supported: 1",
            shape.rotary_emb_fraction
        )));
    }
    shape.n_positions = longest;
    let typed = shape.type_vocab_size > 0;
    let model = nomic_bert::NomicBertModel::load(root.clone(), &shape)?;
    Ok(Box::new(move |ids: &Tensor, types: &Tensor| model.forward(ids, typed.then_some(types), None)))
}

fn jina(config: &Value, root: &VarBuilder<'static>, longest: usize) -> std::result::Result<Run, EncodeError> {
    only(config, "feed_forward_type", &["geglu"])?;
    let root = below(root, "bert", "embeddings.word_embeddings.weight");
    if root.contains_tensor("encoder.layer.0.attention.self.layer_norm_q.weight") {
        return Err(EncodeError("a Jina model that normalizes its queries is not supported".to_owned()));
    }
    let mut shape: jina_bert::Config = with_defaults(
        config,
        &[("hidden_act", json!("gelu")), ("pad_token_id", json!(0)), ("initializer_range", json!(0.02))],
    )?;
    divides(shape.hidden_size, shape.num_attention_heads)?;
    // The biases of all distances are laid out at once; they do not depend on how many there are.
    shape.max_position_embeddings = longest;
    let model = jina_bert::BertModel::new(root, &shape)?;
    Ok(Box::new(move |ids: &Tensor, _: &Tensor| model.forward(ids)))
}

fn roberta(config: &Value, root: &VarBuilder<'static>) -> std::result::Result<Run, EncodeError> {
    only(config, "position_embedding_type", &["absolute"])?;
    let shape: xlm_roberta::Config = with_defaults(
        config,
        &[
            ("attention_probs_dropout_prob", json!(0.0)),
            ("hidden_dropout_prob", json!(0.0)),
            ("position_embedding_type", json!("absolute")),
            ("pad_token_id", json!(1)),
            ("type_vocab_size", json!(1)),
        ],
    )?;
    divides(shape.hidden_size, shape.num_attention_heads)?;
    let model = xlm_roberta::XLMRobertaModel::new(&shape, below(root, "roberta", "embeddings.word_embeddings.weight"))?;
    // The family has one type of token, whatever its tokenizer says.
    Ok(Box::new(move |ids: &Tensor, _: &Tensor| {
        model.forward(ids, &ids.ones_like()?, &ids.zeros_like()?, None, None, None)
    }))
}

fn divides(hidden: usize, heads: usize) -> std::result::Result<(), EncodeError> {
    if heads == 0 || !hidden.is_multiple_of(heads) {
        return Err(EncodeError(format!("a width of {hidden} does not divide into {heads} heads")));
    }
    Ok(())
}

/// The tensors below `prefix`, when a tensor named `prefix` + `probe` is there, else all of them from the root.
pub(super) fn below(root: &VarBuilder<'static>, prefix: &str, probe: &str) -> VarBuilder<'static> {
    if root.contains_tensor(&format!("{prefix}.{probe}")) { root.pp(prefix) } else { root.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_configurations_when_they_are_read_then_each_family_is_known_with_its_length() {
        for (config, family, tokens) in [
            (json!({"model_type": "modernbert", "max_position_embeddings": 8192}), Family::Modern, MAX_TOKENS),
            (json!({"model_type": "nomic_bert", "n_positions": 1024}), Family::Nomic, 1024),
            (
                json!({"model_type": "bert", "position_embedding_type": "alibi", "max_position_embeddings": 512}),
                Family::Jina,
                512,
            ),
            (
                json!({"model_type": "xlm-roberta", "max_position_embeddings": 514, "pad_token_id": 1}),
                Family::Roberta,
                512,
            ),
        ] {
            assert_eq!(Family::of(&config), Some(family), "{config}");
            assert_eq!(family.max_tokens(&config), tokens, "{config}");
        }
        for config in
            [json!({}), json!({"model_type": "bert"}), json!({"model_type": "mpnet"}), json!({"model_type": 3})]
        {
            assert_eq!(Family::of(&config), None, "{config}");
        }
        assert_eq!(Family::Roberta.max_tokens(&json!({})), 0, "nothing is read by a model that does not say how much");
    }

    #[test]
    fn given_texts_of_several_lengths_when_they_run_then_each_keeps_its_place() {
        for together in [1, 2, usize::MAX] {
            // Each token's vector is its id and its type.
            let run: Run = Box::new(|ids: &Tensor, types: &Tensor| Tensor::stack(&[ids, types], 2));
            let encoder = StockEncoder { run, together };
            let ids = [1, 2, 3, 4, 5, 6, 7, 8];
            let types = [0, 0, 1, 0, 1, 0, 0, 1];
            let rows = encoder.forward(&ids, &types, &[2, 1, 2, 1, 2]).unwrap().to_vec2::<u32>().unwrap();
            let expected: Vec<Vec<u32>> = ids.iter().zip(&types).map(|(id, kind)| vec![*id, *kind]).collect();
            assert_eq!(rows, expected);
        }
    }
}
