//! Cross-encoders: an encoder with a head that scores a pair of texts.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::{LayerNorm, Linear, Module, VarBuilder, layer_norm_no_bias, linear, linear_no_bias};
use serde_json::Value;
use tokenizers::Encoding;
use tokio_util::sync::CancellationToken;

use super::batching;
use super::body::{self, Body};
use super::hidden::{Hidden, Wanted};
use super::layout;
use super::text::{self, EncodeError, TextReader};
use super::weights::Weights;

/// A loaded cross-encoder with one output.
pub(super) struct CrossEncoder {
    body: Body,
    head: Head,
    reader: TextReader,
    sigmoid: bool,
}

/// Scores in the order of the documents.
pub(super) struct Scored {
    pub(super) scores: Vec<f32>,
    /// Pairs that were longer than the model reads.
    pub(super) truncated: usize,
    /// Tokens of all pairs.
    pub(super) tokens: u64,
}

/// What makes a score of the vectors of a pair's tokens.
struct Head {
    dense: Linear,
    activation: HeadActivation,
    output: Linear,
    /// Takes the mean of all tokens; else the first one stands for all.
    mean: bool,
}

enum HeadActivation {
    Tanh,
    /// With a normalization behind it.
    Gelu(LayerNorm),
}

impl Head {
    /// The head of an architecture. BERT's pooler is part of the encoder's names, RoBERTa's of the classifier's; ModernBERT's own is
    /// not that of `candle-transformers`, which makes probabilities of one label and so always 1.
    fn load(config: &Value, root: &VarBuilder<'static>) -> Result<Self, EncodeError> {
        let hidden = config["hidden_size"].as_u64().and_then(|size| usize::try_from(size).ok()).unwrap_or(0);
        let name = config["model_type"].as_str().unwrap_or("none");
        let tanh = |dense: &str, output: &str| -> Result<Head, EncodeError> {
            Ok(Head {
                dense: linear(hidden, hidden, root.pp(dense))?,
                activation: HeadActivation::Tanh,
                output: linear(hidden, 1, root.pp(output))?,
                mean: false,
            })
        };
        match name {
            "bert" => tanh("bert.pooler.dense", "classifier"),
            "xlm-roberta" | "roberta" | "camembert" => tanh("classifier.dense", "classifier.out_proj"),
            "modernbert" => {
                let epsilon = config["norm_eps"].as_f64().unwrap_or(1e-5);
                Ok(Head {
                    dense: linear_no_bias(hidden, hidden, root.pp("head.dense"))?,
                    activation: HeadActivation::Gelu(layer_norm_no_bias(hidden, epsilon, root.pp("head.norm"))?),
                    output: linear(hidden, 1, root.pp("classifier"))?,
                    mean: config["classifier_pooling"] == "mean",
                })
            }
            other => Err(EncodeError(format!(
                "architecture {other:?} is not supported for re-ranking; supported: bert, xlm-roberta, roberta, modernbert"
            ))),
        }
    }

    /// Which tokens it looks at.
    fn wanted(&self) -> Wanted {
        if self.mean { Wanted::All } else { Wanted::First }
    }

    /// Scores of pairs, `[pairs]`, from the vectors of their wanted tokens, which stand one behind the other; `lengths` are the counts of all.
    fn forward(&self, hidden: Hidden, lengths: &[usize]) -> candle_core::Result<Tensor> {
        let rows = hidden.numbers.len() / hidden.width;
        let mut pooled = Tensor::from_vec(hidden.numbers, (rows, hidden.width), &Device::Cpu)?;
        if self.mean {
            let mut start = 0;
            let means = lengths.iter().map(|length| {
                start += length;
                pooled.narrow(0, start - length, *length)?.mean(0)
            });
            pooled = Tensor::stack(&means.collect::<candle_core::Result<Vec<Tensor>>>()?, 0)?;
        }
        let dense = self.dense.forward(&pooled)?;
        let active = match &self.activation {
            HeadActivation::Tanh => dense.tanh()?,
            HeadActivation::Gelu(norm) => norm.forward(&dense.gelu_erf()?)?,
        };
        self.output.forward(&active)?.squeeze(1)
    }
}

impl CrossEncoder {
    pub(super) fn load(folder: &Path) -> Result<Self, EncodeError> {
        let config = layout::config(folder)?;
        let labels = labels(&config);
        if labels != 1 {
            return Err(EncodeError(format!("it has {labels} outputs; a re-ranker has one")));
        }
        let root = Weights::read(&folder.join("model.safetensors"))?.into_builder();
        Ok(CrossEncoder {
            head: Head::load(&config, &root)?,
            body: Body::load(&config, &root)?,
            reader: TextReader::load(folder, body::max_tokens(&config)?)?,
            sigmoid: !has_identity(&config),
        })
    }

    /// Scores in the order of the documents, as long as the caller waits; higher is nearer to the query.
    pub(super) fn scores(
        &self,
        query: &str,
        documents: Vec<String>,
        caller: &CancellationToken,
    ) -> Result<Scored, EncodeError> {
        let pairs = documents.into_iter().map(|document| (query.to_owned(), document)).collect();
        let encodings = self.reader.encode::<(String, String)>(pairs)?;
        let truncated = encodings.iter().filter(|encoding| !encoding.get_overflowing().is_empty()).count();
        let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
        let mut scores = Vec::with_capacity(encodings.len());
        for batch in batching::plan(&lengths) {
            text::check_waited_for(caller)?;
            let logits = self.forward(&encodings[batch.clone()], &lengths[batch])?.to_vec1::<f32>()?;
            scores.extend(
                logits.into_iter().map(|logit| if self.sigmoid { 1.0 / (1.0 + (-logit).exp()) } else { logit }),
            );
        }
        Ok(Scored { scores, truncated, tokens: lengths.iter().sum::<usize>() as u64 })
    }

    fn forward(&self, encodings: &[Encoding], lengths: &[usize]) -> Result<Tensor, EncodeError> {
        let (ids, types) = text::joined(encodings);
        let hidden = self.body.forward(&ids, &types, lengths, self.head.wanted())?;
        Ok(self.head.forward(hidden, lengths)?)
    }
}

fn labels(config: &Value) -> usize {
    let listed = config["id2label"].as_object().map(serde_json::Map::len);
    let counted = config["num_labels"].as_u64().and_then(|number| usize::try_from(number).ok());
    // transformers writes neither for its default of two.
    listed.or(counted).unwrap_or(2)
}

/// Whether the model's scores are its plain outputs; the default of sentence-transformers for one output is the sigmoid.
fn has_identity(config: &Value) -> bool {
    let function = [&config["sentence_transformers"]["activation_fn"], &config["sbert_ce_default_activation_function"]];
    function.iter().any(|value| value.as_str().is_some_and(|name| name.ends_with("Identity")))
}
