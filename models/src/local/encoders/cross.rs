//! Cross-encoders: BERT with a head that scores a pair of texts.

use std::path::Path;

use candle_core::{Device, Tensor};
use candle_nn::{Linear, Module, linear};
use serde_json::Value;
use tokenizers::Encoding;

use super::batching;
use super::encoder::{Config, Encoder};
use super::layout;
use super::text::{self, EncodeError, TextReader};
use super::weights::Weights;

/// A loaded cross-encoder with one output.
pub(super) struct CrossEncoder {
    body: Encoder,
    pooler: Linear,
    classifier: Linear,
    reader: TextReader,
    sigmoid: bool,
}

impl CrossEncoder {
    pub(super) fn load(folder: &Path) -> Result<Self, EncodeError> {
        let config = layout::config(folder)?;
        let name = config["model_type"].as_str().unwrap_or("none");
        if name != "bert" {
            return Err(EncodeError(format!("architecture '{name}' is not supported for re-ranking; supported: bert")));
        }
        let labels = labels(&config);
        if labels != 1 {
            return Err(EncodeError(format!("it has {labels} outputs; a re-ranker has one")));
        }
        let bert: Config = layout::typed(&config)?;
        let root = Weights::read(&folder.join("model.safetensors"))?.into_builder();
        let hidden = bert.hidden_size;
        Ok(CrossEncoder {
            body: Encoder::load(&root.pp("bert"), &bert)?,
            pooler: linear(hidden, hidden, root.pp("bert.pooler.dense"))?,
            classifier: linear(hidden, 1, root.pp("classifier"))?,
            reader: TextReader::load(folder, bert.max_tokens())?,
            sigmoid: !has_identity(&config),
        })
    }

    /// Scores in the order of the documents; higher is nearer to the query.
    pub(super) fn scores(&self, query: &str, documents: Vec<String>) -> Result<Vec<f32>, EncodeError> {
        let pairs = documents.into_iter().map(|document| (query.to_owned(), document)).collect();
        let encodings = self.reader.encode::<(String, String)>(pairs)?;
        let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
        let mut scores = Vec::with_capacity(encodings.len());
        for batch in batching::plan(&lengths) {
            let logits = self.forward(&encodings[batch.clone()], &lengths[batch])?.to_vec1::<f32>()?;
            scores.extend(
                logits.into_iter().map(|logit| if self.sigmoid { 1.0 / (1.0 + (-logit).exp()) } else { logit }),
            );
        }
        Ok(scores)
    }

    fn forward(&self, encodings: &[Encoding], lengths: &[usize]) -> Result<Tensor, EncodeError> {
        let (ids, types) = text::joined(encodings);
        let hidden = self.body.forward(ids, types, lengths)?;
        // The first token of each text stands for the whole.
        let ends = lengths.iter().scan(0, |end, length| {
            *end += *length as u32;
            Some(*end)
        });
        let firsts: Vec<u32> = ends.zip(lengths).map(|(end, length)| end - *length as u32).collect();
        let first = hidden.index_select(&Tensor::from_vec(firsts, lengths.len(), &Device::Cpu)?, 0)?;
        let pooled = self.pooler.forward(&first)?.tanh()?;
        Ok(self.classifier.forward(&pooled)?.squeeze(1)?)
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
