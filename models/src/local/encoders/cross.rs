//! Cross-encoders: BERT with a head that scores a pair of texts.

use std::path::Path;

use candle_core::Tensor;
use candle_nn::{Linear, Module, linear};
use candle_transformers::models::bert::{BertModel, Config as BertConfig};
use serde_json::Value;

use super::batching;
use super::layout;
use super::text::{EncodeError, PaddedBatch, TextReader};
use super::weights::Weights;

/// A loaded cross-encoder with one output.
pub(super) struct CrossEncoder {
    body: BertModel,
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
        let bert: BertConfig = layout::typed(&config)?;
        let root = Weights::read(&folder.join("model.safetensors"))?.into_builder();
        let hidden = bert.hidden_size;
        Ok(CrossEncoder {
            body: BertModel::load(root.pp("bert"), &bert)?,
            pooler: linear(hidden, hidden, root.pp("bert.pooler.dense"))?,
            classifier: linear(hidden, 1, root.pp("classifier"))?,
            reader: TextReader::load(folder, bert.max_position_embeddings, bert.pad_token_id as u32)?,
            sigmoid: !has_identity(&config),
        })
    }

    /// Scores in the order of the documents; higher is nearer to the query.
    pub(super) fn scores(&self, query: &str, documents: Vec<String>) -> Result<Vec<f32>, EncodeError> {
        let mut scores = vec![0.0; documents.len()];
        let pairs = documents.into_iter().map(|document| (query.to_owned(), document)).collect();
        let encodings = self.reader.encode::<(String, String)>(pairs)?;
        let lengths: Vec<usize> = encodings.iter().map(|encoding| encoding.len()).collect();
        for batch in batching::plan(&lengths) {
            let padded = self.reader.pad(&encodings, &batch)?;
            let logits = self.forward(&padded)?.to_vec1::<f32>()?;
            for (index, logit) in batch.into_iter().zip(logits) {
                scores[index] = if self.sigmoid { 1.0 / (1.0 + (-logit).exp()) } else { logit };
            }
        }
        Ok(scores)
    }

    fn forward(&self, batch: &PaddedBatch) -> Result<Tensor, EncodeError> {
        let hidden = self.body.forward(&batch.ids, &batch.types, Some(&batch.mask))?;
        let first = hidden.narrow(1, 0, 1)?.squeeze(1)?;
        let pooled = self.pooler.forward(&first.contiguous()?)?.tanh()?;
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
