//! The way back through a layer on the CPU, from what was kept of the way forward.

use std::collections::BTreeMap;

use candle_core::{Device, Tensor};

use super::layer::{Kept, Layer};
use super::linear::{Beside, adapter_back};
use super::{add_scaled, gated, norm, product, with_floats};
use crate::lora::Target;

/// What comes back through a layer.
pub(super) struct Pulled {
    /// The gradient of its input, where it was asked for.
    pub(super) input: Option<Tensor>,
    /// Those of its adapters' matrices, in their order.
    pub(super) own: Vec<Tensor>,
}

/// Gradients of `A` and `B` by projection, which are in the order of the network.
type Own = BTreeMap<Target, [Tensor; 2]>;

impl Layer<'_> {
    /// Gradients, where that of the layer's output is `upper`. Below the first layer nothing is trained, so that nobody asks for the
    /// gradient of its input.
    pub(super) fn backward(self, kept: &Kept, upper: &Tensor, wants_input: bool) -> candle_core::Result<Pulled> {
        let mut own = Own::new();
        let of_attended = self.through_mlp(kept, upper, &mut own)?;
        let input = self.through_attention(kept, &of_attended, wants_input, &mut own)?;
        Ok(Pulled { input, own: own.into_values().flatten().collect() })
    }

    /// The gradient of what attention and the input come to.
    fn through_mlp(self, kept: &Kept, upper: &Tensor, own: &mut Own) -> candle_core::Result<Tensor> {
        let (weight, epsilon) = (&self.weights.mlp_norm, self.pass.config.norm_eps);
        let mixed = gated::gated(&kept.gate, &kept.up)?;
        let of_mixed = self.project_back(Target::Down, (&mixed, upper), own)?;
        drop(mixed);
        let [of_gate, of_up] = gated::slopes(&kept.gate, &kept.up, &of_mixed)?;
        drop(of_mixed);
        let normed = norm::rms_norm(&kept.attended, weight, epsilon)?;
        let mut of_normed = self.project_back(Target::Gate, (&normed, &of_gate), own)?;
        add_scaled(&mut of_normed, 1.0, &self.project_back(Target::Up, (&normed, &of_up), own)?);
        beside(upper, norm::slopes(&kept.attended, weight, epsilon, &of_normed)?)
    }

    /// The gradient of the layer's input.
    fn through_attention(
        self,
        kept: &Kept,
        upper: &Tensor,
        wants_input: bool,
        own: &mut Own,
    ) -> candle_core::Result<Option<Tensor>> {
        let (weight, epsilon) = (&self.weights.attention_norm, self.pass.config.norm_eps);
        let of_taken = self.project_back(Target::O, (&kept.taken, upper), own)?;
        let given = [&kept.q, &kept.k, &kept.v];
        let [of_q, of_k, of_v] =
            self.pass.rotation.attend_back(given, &of_taken, self.pass.heads(), self.pass.spans)?;
        drop(of_taken);
        let normed = norm::rms_norm(&kept.input, weight, epsilon)?;
        if !wants_input {
            for (target, upper) in [(Target::Q, of_q), (Target::K, of_k), (Target::V, of_v)] {
                self.adapter_back(target, (&normed, &upper), own)?;
            }
            return Ok(None);
        }
        let mut of_normed = self.project_back(Target::Q, (&normed, &of_q), own)?;
        add_scaled(&mut of_normed, 1.0, &self.project_back(Target::K, (&normed, &of_k), own)?);
        add_scaled(&mut of_normed, 1.0, &self.project_back(Target::V, (&normed, &of_v), own)?);
        beside(upper, norm::slopes(&kept.input, weight, epsilon, &of_normed)?).map(Some)
    }

    /// The gradient of a projection's input; those of its adapter go to `own`.
    fn project_back(self, target: Target, at: (&Tensor, &Tensor), own: &mut Own) -> candle_core::Result<Vec<f32>> {
        let (_, upper) = at;
        let mut of_input = product(upper, &self.weights.projection(target).weight.floats()?)?;
        if let Some(beside) = self.adapter_back(target, at, own)? {
            add_scaled(&mut of_input, 1.0, &beside.input()?);
        }
        Ok(of_input)
    }

    /// Gradients of an adapter, where a projection has one, go to `own`.
    fn adapter_back(
        self,
        target: Target,
        (input, upper): (&Tensor, &Tensor),
        own: &mut Own,
    ) -> candle_core::Result<Option<Beside>> {
        let Some((matrices, beside)) = adapter_back(input, upper, (self.number, target), self.adapter)? else {
            return Ok(None);
        };
        own.insert(target, matrices);
        Ok(Some(beside))
    }
}

/// The sum of a gradient and what comes beside it.
fn beside(upper: &Tensor, mut slopes: Vec<f32>) -> candle_core::Result<Tensor> {
    with_floats(upper, |upper| add_scaled(&mut slopes, 1.0, upper))?;
    Tensor::from_vec(slopes, upper.shape().clone(), &Device::Cpu)
}
