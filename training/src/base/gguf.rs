//! Models in GGUF files, as llama.cpp runs them: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>. Quantized weights
//! are turned into 32-bit floats at loading: what is trained is the model as the local runtime runs it.

use std::fs::File;
use std::io::BufReader;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use candle_core::quantized::QTensor;
use candle_core::quantized::gguf_file::{Content, TensorInfo, Value};
use candle_core::{Device, Tensor};

use super::rows::{Way, permute};
use super::{BaseModel, Config, Family, LayerWeights, Projection, check_count};
use crate::error::TrainingError;
use crate::text::{GgufVocabulary, TextCodec};

/// An open file with its directory read.
pub(crate) struct GgufFile {
    pub(crate) path: PathBuf,
    pub(crate) content: Content,
    reader: BufReader<File>,
}

impl GgufFile {
    pub(crate) fn open(path: &Path) -> Result<Self, TrainingError> {
        let file = File::open(path).map_err(TrainingError::io("opening", path))?;
        let mut reader = BufReader::new(file);
        // candle checks lengths and counts, and yet divides by the alignment that the file claims, which may be zero.
        let content = catch_unwind(AssertUnwindSafe(|| Content::read(&mut reader)))
            .map_err(|_| TrainingError::base(path, "its header makes no sense"))?
            .map_err(|error| TrainingError::base(path, error))?;
        // Nor does it ask whether the sizes of a tensor have a product at all.
        for (name, info) in &content.tensor_infos {
            let size = info.ggml_dtype.type_size();
            let bytes = info.shape.dims().iter().try_fold(size, |product, side| product.checked_mul(*side));
            if bytes.is_none() {
                return Err(TrainingError::base(path, format!("its tensor {name} is larger than anything")));
            }
        }
        Ok(Self { path: path.to_path_buf(), content, reader })
    }

    fn bad(&self, reason: impl std::fmt::Display) -> TrainingError {
        TrainingError::base(&self.path, reason)
    }

    fn text_value(&self, key: &str) -> Option<&str> {
        match self.content.metadata.get(key)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    fn number(&self, key: &str) -> Option<usize> {
        let number = match self.content.metadata.get(key)? {
            Value::U8(n) => u64::from(*n),
            Value::U16(n) => u64::from(*n),
            Value::U32(n) => u64::from(*n),
            Value::U64(n) => *n,
            Value::I32(n) => u64::try_from(*n).ok()?,
            Value::I64(n) => u64::try_from(*n).ok()?,
            _ => return None,
        };
        usize::try_from(number).ok()
    }

    fn float(&self, key: &str) -> Option<f64> {
        match self.content.metadata.get(key)? {
            Value::F32(n) => Some(f64::from(*n)),
            Value::F64(n) => Some(*n),
            _ => None,
        }
    }

    fn texts(&self, key: &str) -> Option<Vec<String>> {
        let Value::Array(items) = self.content.metadata.get(key)? else { return None };
        let text = |item: &Value| match item {
            Value::String(text) => Some(text.clone()),
            _ => None,
        };
        items.iter().map(text).collect()
    }

    /// Kinds of tokens; 3 are control tokens.
    fn kinds(&self) -> Vec<i64> {
        let kind = |item: &Value| match item {
            Value::I32(n) => i64::from(*n),
            Value::U32(n) => i64::from(*n),
            _ => 1,
        };
        match self.content.metadata.get("tokenizer.ggml.token_type") {
            Some(Value::Array(items)) => items.iter().map(kind).collect(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn config(&self) -> Result<Config, TrainingError> {
        let name = self.text_value("general.architecture").unwrap_or("nothing");
        let family = Family::by_name(name)
            .ok_or_else(|| self.bad(format!("its architecture is {name}; llama and qwen2 can be trained")))?;
        let key = |field: &str| format!("{name}.{field}");
        let wanted = |field: &str| {
            self.number(&key(field)).ok_or_else(|| self.bad(format!("its metadata has no {name}.{field}")))
        };
        if self.number(&key("expert_count")).is_some_and(|experts| experts > 0) {
            return Err(self.bad("mixtures of experts can't be trained"));
        }
        let scaling = self.text_value(&key("rope.scaling.type")).unwrap_or("none");
        if scaling != "none" && !self.content.tensor_infos.contains_key("rope_freqs.weight") {
            return Err(self.bad(format!("its positions are scaled by {scaling}")));
        }
        let embeddings = self.content.tensor_infos.get("token_embd.weight");
        let vocab = embeddings.and_then(|info| info.shape.dims().first().copied());
        let (hidden, heads) = (wanted("embedding_length")?, wanted("attention.head_count")?);
        let config = Config {
            family,
            layers: wanted("block_count")?,
            hidden,
            intermediate: wanted("feed_forward_length")?,
            heads,
            kv_heads: self.number(&key("attention.head_count_kv")).unwrap_or(heads),
            head_dim: self.number(&key("attention.key_length")).unwrap_or(hidden / heads.max(1)),
            vocab: vocab.ok_or_else(|| self.bad("it has no token embeddings"))?,
            norm_eps: self.float(&key("attention.layer_norm_rms_epsilon")).unwrap_or(1e-5),
            rope_theta: self.float(&key("rope.freq_base")).unwrap_or(10_000.0),
            context: wanted("context_length")?,
            own_output: self.content.tensor_infos.contains_key("output.weight"),
        };
        config.check().map_err(|reason| self.bad(reason))?;
        if self.number(&key("rope.dimension_count")).is_some_and(|numbers| numbers != config.head_dim) {
            return Err(self.bad("its positions turn a part of each head only"));
        }
        Ok(config)
    }

    pub(crate) fn text(&self) -> Result<TextCodec, TrainingError> {
        let model = self.text_value("tokenizer.ggml.model").unwrap_or("nothing");
        if model != "gpt2" {
            return Err(self.bad(format!("its tokenizer is {model}; byte-level BPE (gpt2) is known")));
        }
        let tokens = self.texts("tokenizer.ggml.tokens").ok_or_else(|| self.bad("it has no tokens"))?;
        let merges = self.texts("tokenizer.ggml.merges").ok_or_else(|| self.bad("it has no merges"))?;
        let vocabulary = GgufVocabulary {
            controls: self.kinds().iter().enumerate().filter(|(_, kind)| **kind == 3).map(|(id, _)| id).collect(),
            tokens,
            merges,
            splitting: self.text_value("tokenizer.ggml.pre").unwrap_or("default").to_owned(),
            template: self.text_value("tokenizer.chat_template").map(str::to_owned),
            bos: self.number("tokenizer.ggml.bos_token_id"),
            eos: self.number("tokenizer.ggml.eos_token_id"),
            add_bos: matches!(self.content.metadata.get("tokenizer.ggml.add_bos_token"), Some(Value::Bool(true))),
        };
        vocabulary.codec().map_err(|reason| self.bad(reason))
    }

    /// A tensor as it lies in the file.
    pub(crate) fn raw(&mut self, name: &str) -> Result<QTensor, TrainingError> {
        let read = self.content.tensor(&mut self.reader, name, &Device::Cpu);
        read.map_err(|error| TrainingError::base(&self.path, error))
    }

    fn floats(&mut self, name: &str) -> Result<Tensor, TrainingError> {
        Ok(self.raw(name)?.dequantize(&Device::Cpu)?)
    }

    fn maybe(&mut self, name: &str) -> Result<Option<Tensor>, TrainingError> {
        if self.content.tensor_infos.contains_key(name) { self.floats(name).map(Some) } else { Ok(None) }
    }

    fn parts(&mut self, layer: usize, name: &str) -> Result<(Tensor, Option<Tensor>), TrainingError> {
        let weight = self.floats(&format!("blk.{layer}.{name}.weight"))?;
        Ok((weight, self.maybe(&format!("blk.{layer}.{name}.bias"))?))
    }

    fn projection(&mut self, layer: usize, name: &str) -> Result<Projection, TrainingError> {
        let (weight, bias) = self.parts(layer, name)?;
        Ok(Projection::new(weight, bias))
    }

    /// A query or key projection, with its rows as they lie inside.
    fn turned(&mut self, layer: usize, name: &str, config: &Config, heads: usize) -> Result<Projection, TrainingError> {
        let (weight, bias) = self.parts(layer, name)?;
        if config.family != Family::Llama {
            return Ok(Projection::new(weight, bias));
        }
        let weight = permute(&weight, heads, Way::FromGguf)?;
        let bias = match bias {
            Some(bias) => {
                let rows = bias.dims1()?;
                Some(permute(&bias.reshape((rows, 1))?, heads, Way::FromGguf)?.reshape(rows)?)
            }
            None => None,
        };
        Ok(Projection::new(weight, bias))
    }

    fn layer(&mut self, layer: usize, config: &Config) -> Result<LayerWeights, TrainingError> {
        Ok(LayerWeights {
            attention_norm: self.floats(&format!("blk.{layer}.attn_norm.weight"))?,
            q: self.turned(layer, "attn_q", config, config.heads)?,
            k: self.turned(layer, "attn_k", config, config.kv_heads)?,
            v: self.projection(layer, "attn_v")?,
            o: self.projection(layer, "attn_output")?,
            mlp_norm: self.floats(&format!("blk.{layer}.ffn_norm.weight"))?,
            gate: self.projection(layer, "ffn_gate")?,
            up: self.projection(layer, "ffn_up")?,
            down: self.projection(layer, "ffn_down")?,
        })
    }
}

pub(super) fn load(path: &Path) -> Result<BaseModel, TrainingError> {
    let mut file = GgufFile::open(path)?;
    let config = file.config()?;
    let count = |sum: u64, info: &TensorInfo| sum.saturating_add(info.shape.elem_count() as u64);
    check_count(file.content.tensor_infos.values().fold(0, count), &config).map_err(|reason| file.bad(reason))?;
    let text = file.text()?;
    let layers = (0..config.layers).map(|layer| file.layer(layer, &config)).collect::<Result<Vec<_>, _>>()?;
    let factors = file.maybe("rope_freqs.weight")?;
    Ok(BaseModel {
        path: path.to_path_buf(),
        text,
        embeddings: file.floats("token_embd.weight")?,
        output: file.maybe("output.weight")?,
        norm: file.floats("output_norm.weight")?,
        layers,
        rope_factors: factors.map(|factors| factors.to_vec1::<f32>()).transpose()?,
        config,
    })
}
