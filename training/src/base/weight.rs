//! A frozen matrix, in whatever form it is held.

use candle_core::{Device, Tensor};

use super::nf4::{Levels, Nf4};
use super::{BaseModel, LayerWeights, Projection};
use crate::error::TrainingError;

/// A frozen matrix `[out, in]`.
#[derive(Debug, Clone)]
pub(crate) enum Weight {
    /// 32-bit floats.
    Floats(Tensor),
    /// Four bits a number.
    FourBits(Nf4),
}

impl Weight {
    /// Its sizes.
    pub(crate) fn dims(&self) -> &[usize] {
        match self {
            Weight::Floats(matrix) => matrix.dims(),
            Weight::FourBits(matrix) => matrix.dims(),
        }
    }

    /// Its numbers as 32-bit floats, on its device. What is held in four bits is made anew at each call: whoever asks keeps it no
    /// longer than a product takes.
    pub(crate) fn floats(&self) -> candle_core::Result<Tensor> {
        match self {
            Weight::Floats(matrix) => Ok(matrix.clone()),
            Weight::FourBits(matrix) => matrix.floats(),
        }
    }
}

impl Projection {
    pub(crate) fn new(weight: Tensor, bias: Option<Tensor>) -> Self {
        Self { weight: Weight::Floats(weight), bias }
    }

    fn on(&self, device: &Device, levels: Option<&Levels>) -> candle_core::Result<Self> {
        let matrix = self.weight.floats()?;
        Ok(Self {
            weight: match levels {
                Some(levels) => Weight::FourBits(Nf4::of(&matrix, levels)?),
                None => Weight::Floats(matrix.to_device(device)?),
            },
            bias: self.bias.as_ref().map(|bias| bias.to_device(device)).transpose()?,
        })
    }
}

impl LayerWeights {
    fn on(&self, device: &Device, levels: Option<&Levels>) -> candle_core::Result<Self> {
        let held = |projection: &Projection| projection.on(device, levels);
        Ok(Self {
            attention_norm: self.attention_norm.to_device(device)?,
            q: held(&self.q)?,
            k: held(&self.k)?,
            v: held(&self.v)?,
            o: held(&self.o)?,
            mlp_norm: self.mlp_norm.to_device(device)?,
            gate: held(&self.gate)?,
            up: held(&self.up)?,
            down: held(&self.down)?,
        })
    }
}

impl BaseModel {
    /// The same model on a device, with the matrices of its layers in four bits. Embeddings, output, norms and biases stay 32-bit
    /// floats: they are a small part, and the paper leaves them alone too.
    pub(crate) fn in_four_bits(&self, device: &Device) -> Result<Self, TrainingError> {
        self.held(device, Some(&Levels::on(device)?))
    }

    /// The same model on a device.
    pub(crate) fn on(&self, device: &Device) -> Result<Self, TrainingError> {
        self.held(device, None)
    }

    fn held(&self, device: &Device, levels: Option<&Levels>) -> Result<Self, TrainingError> {
        let layers = self.layers.iter().map(|layer| layer.on(device, levels));
        Ok(Self {
            path: self.path.clone(),
            config: self.config.clone(),
            text: self.text.clone(),
            embeddings: self.embeddings.to_device(device)?,
            output: self.output.as_ref().map(|output| output.to_device(device)).transpose()?,
            norm: self.norm.to_device(device)?,
            layers: layers.collect::<candle_core::Result<_>>()?,
            rope_factors: self.rope_factors.clone(),
        })
    }

    /// Whether the matrices of its layers are held in four bits.
    pub(crate) fn is_in_four_bits(&self) -> bool {
        let held = |layer: &LayerWeights| matches!(layer.q.weight, Weight::FourBits(_));
        self.layers.iter().any(held)
    }

    /// The device that its weights lie on.
    pub(crate) fn device(&self) -> &Device {
        self.embeddings.device()
    }
}
