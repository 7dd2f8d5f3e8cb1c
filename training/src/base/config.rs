//! The measures of a network.

use serde::{Deserialize, Serialize};

/// Families of networks that can be trained. They differ in biases and in how GGUF files lay out queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Family {
    /// Llama 2 and 3, SmolLM2, and others that say `llama`.
    Llama,
    /// Qwen2 and Qwen2.5.
    Qwen2,
}

impl Family {
    /// Its name, as GGUF files have it.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Family::Llama => "llama",
            Family::Qwen2 => "qwen2",
        }
    }

    pub(crate) fn by_name(name: &str) -> Option<Self> {
        match name {
            "llama" | "LlamaForCausalLM" => Some(Family::Llama),
            "qwen2" | "Qwen2ForCausalLM" => Some(Family::Qwen2),
            _ => None,
        }
    }
}

/// The measures of a network.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Config {
    /// Its family.
    pub family: Family,
    /// Layers.
    pub layers: usize,
    /// Numbers of a hidden state.
    pub hidden: usize,
    /// Numbers between the two halves of an MLP.
    pub intermediate: usize,
    /// Heads of queries.
    pub heads: usize,
    /// Heads of keys and values, each for as many queries.
    pub kv_heads: usize,
    /// Numbers of a head.
    pub head_dim: usize,
    /// Tokens that there are.
    pub vocab: usize,
    /// What norms add below the root.
    pub norm_eps: f64,
    /// Base of the frequencies of positions.
    pub rope_theta: f64,
    /// Positions that it was trained for.
    pub context: usize,
    /// Whether the output has a matrix of its own.
    pub own_output: bool,
}

impl Config {
    /// Says what of it can't be.
    pub(crate) fn check(&self) -> Result<(), String> {
        let named = [
            ("layers", self.layers),
            ("hidden size", self.hidden),
            ("MLP size", self.intermediate),
            ("heads", self.heads),
            ("key and value heads", self.kv_heads),
            ("head size", self.head_dim),
            ("vocabulary", self.vocab),
        ];
        // Far more than any model that a CPU could train, and small enough that products stay in 64 bits.
        if let Some((name, value)) = named.iter().find(|(_, value)| *value == 0 || *value > 1 << 24) {
            return Err(format!("its {name} is {value}"));
        }
        if !self.heads.is_multiple_of(self.kv_heads) || !self.head_dim.is_multiple_of(2) {
            return Err(format!(
                "{} heads of {} numbers over {} key heads do not come out even",
                self.heads, self.head_dim, self.kv_heads
            ));
        }
        Ok(())
    }

    /// Weights of the whole network.
    pub fn parameters(&self) -> u64 {
        let (hidden, mlp) = (self.hidden as u64, self.intermediate as u64);
        let (queries, keys) = ((self.heads * self.head_dim) as u64, (self.kv_heads * self.head_dim) as u64);
        let layer = hidden * (2 * queries + 2 * keys) + 3 * hidden * mlp + 2 * hidden;
        let embeddings = self.vocab as u64 * hidden * if self.own_output { 2 } else { 1 };
        self.layers as u64 * layer + embeddings + hidden
    }
}
