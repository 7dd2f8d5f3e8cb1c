//! Adapters: the matrices that are trained.

use candle_core::{Device, Tensor, Var};
use serde::{Deserialize, Serialize};

use crate::base::Config;
use crate::error::TrainingError;
use crate::network::AdapterWeights;
use crate::rng::Rng;

const PURPOSE: u64 = 2;
const MAX_RANK: usize = 256;

/// Projections that can have an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Target {
    /// Queries.
    #[serde(rename = "q_proj")]
    Q,
    /// Keys.
    #[serde(rename = "k_proj")]
    K,
    /// Values.
    #[serde(rename = "v_proj")]
    V,
    /// What attention gives on.
    #[serde(rename = "o_proj")]
    O,
    /// The gate of the MLP.
    #[serde(rename = "gate_proj")]
    Gate,
    /// What the gate lets through.
    #[serde(rename = "up_proj")]
    Up,
    /// Back from the MLP.
    #[serde(rename = "down_proj")]
    Down,
}

impl Target {
    /// Every projection, in the order of the network.
    pub const ALL: [Target; 7] = [Target::Q, Target::K, Target::V, Target::O, Target::Gate, Target::Up, Target::Down];

    /// Its name, as Hugging Face has it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Target::Q => "q_proj",
            Target::K => "k_proj",
            Target::V => "v_proj",
            Target::O => "o_proj",
            Target::Gate => "gate_proj",
            Target::Up => "up_proj",
            Target::Down => "down_proj",
        }
    }

    /// The projection of that name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.as_str() == name)
    }

    /// The module that it is a part of, as Hugging Face has it.
    pub(crate) const fn module(self) -> &'static str {
        match self {
            Target::Q | Target::K | Target::V | Target::O => "self_attn",
            Target::Gate | Target::Up | Target::Down => "mlp",
        }
    }

    /// Its tensor's name in GGUF files.
    pub(crate) const fn gguf(self) -> &'static str {
        match self {
            Target::Q => "attn_q",
            Target::K => "attn_k",
            Target::V => "attn_v",
            Target::O => "attn_output",
            Target::Gate => "ffn_gate",
            Target::Up => "ffn_up",
            Target::Down => "ffn_down",
        }
    }

    /// Numbers in and out.
    pub(crate) fn sizes(self, config: &Config) -> (usize, usize) {
        let (queries, keys) = (config.heads * config.head_dim, config.kv_heads * config.head_dim);
        match self {
            Target::Q => (config.hidden, queries),
            Target::K | Target::V => (config.hidden, keys),
            Target::O => (queries, config.hidden),
            Target::Gate | Target::Up => (config.hidden, config.intermediate),
            Target::Down => (config.intermediate, config.hidden),
        }
    }
}

/// How adapters are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoraSettings {
    /// Rows of `A`.
    pub rank: usize,
    /// What `B A` is multiplied with, times the rank.
    pub alpha: f64,
    /// Part of the input that an adapter does not see while it is trained.
    pub dropout: f32,
    /// The projections that have one.
    pub targets: Vec<Target>,
}

impl Default for LoraSettings {
    fn default() -> Self {
        Self { rank: 8, alpha: 16.0, dropout: 0.0, targets: Target::ALL.to_vec() }
    }
}

impl LoraSettings {
    /// Refuses what can't be.
    pub fn check(&self) -> Result<(), TrainingError> {
        let bad = |field, reason: String| Err(TrainingError::Setting { field, reason });
        if self.rank == 0 || self.rank > MAX_RANK {
            return bad("lora.rank", format!("is {}, which is not between 1 and {MAX_RANK}", self.rank));
        }
        if !(self.alpha > 0.0 && self.alpha <= 4096.0) {
            return bad("lora.alpha", format!("is {}, which is not between 0 and 4096", self.alpha));
        }
        if !(0.0..0.9).contains(&self.dropout) {
            return bad("lora.dropout", format!("is {}, which is not between 0 and 0.9", self.dropout));
        }
        if self.targets.is_empty() {
            return bad("lora.targets", "names no projection".to_owned());
        }
        Ok(())
    }

    /// Its projections, each once, in the order of the network.
    pub fn sorted_targets(&self) -> Vec<Target> {
        Target::ALL.into_iter().filter(|target| self.targets.contains(target)).collect()
    }

    pub(crate) fn scale(&self) -> f64 {
        self.alpha / self.rank as f64
    }

    /// Numbers that are trained.
    pub fn parameters(&self, config: &Config) -> u64 {
        let of = |target: Target| {
            let (inner, outer) = target.sizes(config);
            (self.rank * (inner + outer)) as u64
        };
        config.layers as u64 * self.sorted_targets().into_iter().map(of).sum::<u64>()
    }

    /// Numbers of the base's matrices that have an adapter: of all of them, and of the largest one.
    pub(crate) fn adapted(&self, config: &Config) -> (u64, u64) {
        let of = |target: Target| {
            let (inner, outer) = target.sizes(config);
            (inner * outer) as u64
        };
        let sizes: Vec<u64> = self.sorted_targets().into_iter().map(of).collect();
        (config.layers as u64 * sizes.iter().sum::<u64>(), sizes.iter().copied().max().unwrap_or_default())
    }
}

/// The trained matrices of a model: for each layer and projection `A` `[rank, in]` and `B` `[out, rank]`.
pub(crate) struct Adapter {
    pub(crate) settings: LoraSettings,
    targets: Vec<Target>,
    layers: usize,
    variables: Vec<Var>,
}

impl Adapter {
    /// `A` is uniform within `±1/√in`, as PEFT has it (Kaiming with `a = √5`), and `B` is 0: at first the model is unchanged.
    pub(crate) fn new(settings: &LoraSettings, config: &Config, seed: u64) -> Result<Self, TrainingError> {
        settings.check()?;
        let targets = settings.sorted_targets();
        let mut variables = Vec::with_capacity(config.layers * targets.len() * 2);
        for layer in 0..config.layers {
            for target in &targets {
                let (inner, outer) = target.sizes(config);
                let mut rng = Rng::of(seed, &[PURPOSE, layer as u64, *target as u64]);
                let bound = 1.0 / (inner as f32).sqrt();
                let a: Vec<f32> = (0..settings.rank * inner).map(|_| (2.0 * rng.unit() - 1.0) * bound).collect();
                variables.push(Var::from_vec(a, (settings.rank, inner), &Device::Cpu)?);
                let b = vec![0f32; outer * settings.rank];
                variables.push(Var::from_vec(b, (outer, settings.rank), &Device::Cpu)?);
            }
        }
        Ok(Self { settings: settings.clone(), targets, layers: config.layers, variables })
    }

    pub(crate) fn variables(&self) -> &[Var] {
        &self.variables
    }

    /// Places of a layer's matrices among all.
    pub(crate) fn of_layer(&self, layer: usize) -> std::ops::Range<usize> {
        let width = 2 * self.targets.len();
        layer * width..(layer + 1) * width
    }

    /// Every layer and projection with the places of its `A`; `B` is the next.
    pub(crate) fn places(&self) -> impl Iterator<Item = ((usize, Target), usize)> + '_ {
        let all = (0..self.layers).flat_map(move |layer| self.targets.iter().map(move |target| (layer, *target)));
        all.zip((0..).step_by(2))
    }

    /// For a pass; with `tracked`, gradients reach the matrices.
    pub(crate) fn weights(&self, tracked: bool, dropout: Option<(f32, u64)>) -> AdapterWeights {
        let tensor = |at: usize| {
            let variable = &self.variables[at];
            if tracked { variable.as_tensor().clone() } else { variable.as_detached_tensor() }
        };
        let pairs = self.places().map(|(place, at)| (place, (tensor(at), tensor(at + 1)))).collect();
        AdapterWeights { pairs, scale: self.settings.scale(), dropout }
    }

    /// Copies of all matrices.
    pub(crate) fn copy(&self) -> Result<Vec<Tensor>, TrainingError> {
        Ok(self.variables.iter().map(|variable| variable.as_detached_tensor().copy()).collect::<Result<_, _>>()?)
    }

    /// Puts matrices in place of those that are there.
    pub(crate) fn set(&self, tensors: &[Tensor]) -> Result<(), TrainingError> {
        if tensors.len() != self.variables.len() {
            let (found, wanted) = (tensors.len(), self.variables.len());
            return Err(TrainingError::Compute(format!("an adapter of {found} matrices is not one of {wanted}")));
        }
        for (variable, tensor) in self.variables.iter().zip(tensors) {
            variable.set(tensor)?;
        }
        Ok(())
    }
}
