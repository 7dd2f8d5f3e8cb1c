//! A base in Hugging Face's layout as a GGUF file, as llama.cpp's converter writes it: matrices in 16-bit floats, vectors in 32.

use std::collections::HashMap;

use candle_core::quantized::gguf_file::Value;
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};

use super::merged::{MERGED, delta, in_file};
use crate::base::Config;
use crate::error::TrainingError;
use crate::lora::Target;
use crate::text::Listed;
use crate::trainer::Trained;

/// Vectors are small, and llama.cpp adds and multiplies with them as they are.
const VECTORS: GgmlDType = GgmlDType::F32;
/// `general.file_type` of a file that is mostly 16-bit floats.
const MOSTLY_F16: u32 = 1;

/// Every tensor of the base with the adapter added to it, by its name in the file.
pub(super) fn tensors(trained: &Trained) -> Result<Vec<(String, QTensor)>, TrainingError> {
    let (base, config) = (&trained.base, &trained.base.config);
    let adapted: HashMap<(usize, Target), usize> = trained.adapter.places().collect();
    let vector = |tensor: &Tensor| QTensor::quantize(&tensor.to_device(&Device::Cpu)?, VECTORS);
    let matrix = |tensor: &Tensor| QTensor::quantize(&tensor.to_device(&Device::Cpu)?, MERGED);
    let mut all = vec![("token_embd.weight".to_owned(), matrix(&base.embeddings)?)];
    all.push(("output_norm.weight".to_owned(), vector(&base.norm)?));
    if let Some(output) = &base.output {
        all.push(("output.weight".to_owned(), matrix(output)?));
    }
    for (at, layer) in base.layers.iter().enumerate() {
        all.push((format!("blk.{at}.attn_norm.weight"), vector(&layer.attention_norm)?));
        all.push((format!("blk.{at}.ffn_norm.weight"), vector(&layer.mlp_norm)?));
        for (target, projection) in layer.projections() {
            let name = format!("blk.{at}.{}", target.gguf());
            let weight = in_file(&projection.weight.floats()?.to_device(&Device::Cpu)?, target, config)?;
            let merged = match adapted.get(&(at, target)) {
                Some(place) => (weight + delta(trained, target, *place)?)?,
                None => weight,
            };
            all.push((format!("{name}.weight"), matrix(&merged)?));
            if let Some(bias) = &projection.bias {
                let rows = bias.dims1()?;
                let turned = in_file(&bias.reshape((rows, 1))?, target, config)?.reshape(rows)?;
                all.push((format!("{name}.bias"), vector(&turned)?));
            }
        }
    }
    Ok(all)
}

/// What llama.cpp has to know of the network and its tokens.
pub(super) fn metadata(config: &Config, listed: &Listed) -> Vec<(String, Value)> {
    let family = config.family.as_str();
    let text = |text: &str| Value::String(text.to_owned());
    let texts = |all: &[String]| Value::Array(all.iter().map(|one| text(one)).collect());
    let number = |number: usize| Value::U32(u32::try_from(number).unwrap_or(u32::MAX));
    let of_network = [
        ("block_count", number(config.layers)),
        ("context_length", number(config.context)),
        ("embedding_length", number(config.hidden)),
        ("feed_forward_length", number(config.intermediate)),
        ("attention.head_count", number(config.heads)),
        ("attention.head_count_kv", number(config.kv_heads)),
        ("attention.key_length", number(config.head_dim)),
        ("attention.value_length", number(config.head_dim)),
        ("attention.layer_norm_rms_epsilon", Value::F32(config.norm_eps as f32)),
        ("rope.dimension_count", number(config.head_dim)),
        ("rope.freq_base", Value::F32(config.rope_theta as f32)),
        ("vocab_size", number(config.vocab)),
    ];
    let vocabulary = &listed.vocabulary;
    let of_tokens = [
        ("model", Some(text("gpt2"))),
        ("pre", Some(text(&vocabulary.splitting))),
        ("tokens", Some(texts(&vocabulary.tokens))),
        ("token_type", Some(Value::Array(listed.kinds.iter().map(|kind| Value::I32(*kind)).collect()))),
        ("merges", Some(texts(&vocabulary.merges))),
        ("bos_token_id", vocabulary.bos.map(number)),
        ("eos_token_id", vocabulary.eos.map(number)),
        ("add_bos_token", Some(Value::Bool(vocabulary.add_bos))),
    ];
    let mut all = vec![
        ("general.architecture".to_owned(), text(family)),
        ("general.file_type".to_owned(), Value::U32(MOSTLY_F16)),
    ];
    all.extend(of_network.into_iter().map(|(key, value)| (format!("{family}.{key}"), value)));
    all.extend(of_tokens.into_iter().filter_map(|(key, value)| Some((format!("tokenizer.ggml.{key}"), value?))));
    all.extend(vocabulary.template.as_deref().map(|template| ("tokenizer.chat_template".to_owned(), text(template))));
    all
}
