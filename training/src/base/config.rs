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
        // Far more than any model that a CPU could train, and so small that what is estimated from them stays in 64 bits.
        let named = [
            ("number of layers", self.layers, 1_usize << 12),
            ("hidden size", self.hidden, 1_usize << 20),
            ("MLP size", self.intermediate, 1_usize << 20),
            ("number of heads", self.heads, 1_usize << 12),
            ("number of key and value heads", self.kv_heads, 1_usize << 12),
            ("head size", self.head_dim, 1_usize << 12),
            ("vocabulary", self.vocab, 1_usize << 24),
        ];
        if let Some((name, value, most)) = named.iter().find(|(_, value, most)| *value == 0 || value > most) {
            return Err(format!("its {name} is {value}, which is not between 1 and {most}"));
        }
        if self.heads * self.head_dim > 1 << 20 {
            return Err(format!("its {} heads have {} numbers each, which is too much", self.heads, self.head_dim));
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

#[cfg(test)]
mod tests {
    use crate::base::{Config, Family, Measures};
    use crate::estimate::{Load, estimate};
    use crate::plan::Plan;
    use crate::testing::config;

    #[test]
    fn given_measures_that_can_not_be_then_they_are_refused_and_what_is_taken_can_be_estimated() {
        let usual = config(Family::Llama);
        for wrong in [
            Config { layers: 0, ..usual.clone() },
            Config { layers: usize::MAX, ..usual.clone() },
            Config { hidden: 1 << 24, ..usual.clone() },
            Config { heads: 3, ..usual.clone() },
            Config { heads: 1 << 12, kv_heads: 1 << 12, head_dim: 1 << 12, ..usual.clone() },
        ] {
            assert!(wrong.check().is_err(), "{wrong:?}");
        }
        let (layers, hidden, vocab) = (1 << 12, 1 << 20, 1 << 24);
        let largest = Config {
            layers,
            hidden,
            intermediate: hidden,
            heads: 1 << 12,
            kv_heads: 1 << 12,
            head_dim: 1 << 8,
            vocab,
            own_output: true,
            ..usual
        };
        largest.check().unwrap();
        let load = Load { train: 1, held_out: 1, mean_tokens: 1.0, longest: u64::MAX, widths: None };
        let plan = Plan { batch_size: 256, seq_len: 8192, ..Plan::default() };
        for gguf_bytes in [None, Some(1 << 50)] {
            let base = Measures { config: largest.clone(), gguf_bytes };
            assert!(!estimate(&base, &plan, load, 1e10, Some(1 << 40)).fits);
        }
    }
}
