//! AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", 2019), with the arithmetic of PyTorch's: its state is
//! plain numbers, so that it can be written down and gone on from exactly.

use candle_core::{Device, Tensor, Var};
use rayon::prelude::*;

use crate::error::TrainingError;

const BETA1: f64 = 0.9;
const BETA2: f64 = 0.999;
const EPSILON: f32 = 1e-8;

/// How far and in what way steps go.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Schedule {
    /// The highest rate.
    pub(crate) learning_rate: f64,
    /// Steps in which the rate rises from 0 to its highest.
    pub(crate) warmup_steps: u64,
    /// Steps of the whole training: behind the warm-up the rate falls to 0 along a half cosine.
    pub(crate) max_steps: u64,
}

impl Schedule {
    /// The rate of a step; steps count from 1.
    pub(crate) fn rate(&self, step: u64) -> f64 {
        if step <= self.warmup_steps {
            return self.learning_rate * step as f64 / self.warmup_steps as f64;
        }
        let (done, all) = (step - self.warmup_steps, self.max_steps.saturating_sub(self.warmup_steps).max(1));
        // The last step still moves: the cosine reaches 0 one step behind it.
        let part = (done as f64 - 1.0) / all as f64;
        self.learning_rate * 0.5 * (1.0 + (std::f64::consts::PI * part.min(1.0)).cos())
    }
}

/// First and second moments of the gradients.
pub(crate) struct AdamW {
    pub(crate) first: Vec<Vec<f32>>,
    pub(crate) second: Vec<Vec<f32>>,
    /// Steps that were taken.
    pub(crate) steps: u64,
    weight_decay: f64,
}

impl AdamW {
    pub(crate) fn new(variables: &[Var], weight_decay: f64) -> Self {
        let zeros = || variables.iter().map(|variable| vec![0f32; variable.elem_count()]).collect();
        Self { first: zeros(), second: zeros(), steps: 0, weight_decay }
    }

    /// Moves the variables against their gradients.
    pub(crate) fn step(&mut self, variables: &[Var], gradients: &[Vec<f32>], rate: f64) -> Result<(), TrainingError> {
        self.steps += 1;
        let correction1 = 1.0 - BETA1.powf(self.steps as f64);
        let correction2 = (1.0 - BETA2.powf(self.steps as f64)).sqrt() as f32;
        let (step_size, keep) = ((rate / correction1) as f32, (1.0 - rate * self.weight_decay) as f32);
        let (beta1, beta2) = (BETA1 as f32, BETA2 as f32);
        let moments = self.first.par_iter_mut().zip(self.second.par_iter_mut());
        let moved = variables.par_iter().zip(gradients.par_iter()).zip(moments);
        moved.try_for_each(|((variable, gradient), (first, second))| -> candle_core::Result<()> {
            let mut values = variable.flatten_all()?.to_vec1::<f32>()?;
            for (((value, g), m), v) in values.iter_mut().zip(gradient).zip(first).zip(second) {
                *m += (g - *m) * (1.0 - beta1);
                *v = *v * beta2 + g * g * (1.0 - beta2);
                let denominator = v.sqrt() / correction2 + EPSILON;
                *value = *value * keep - step_size * *m / denominator;
            }
            variable.set(&Tensor::from_vec(values, variable.shape().clone(), &Device::Cpu)?)
        })?;
        Ok(())
    }
}

/// Scales gradients down so that their length together is at most `most`; gives the length that they had.
pub(crate) fn clip(gradients: &mut [Vec<f32>], most: f64) -> f64 {
    let squares = gradients.iter().flatten().map(|g| f64::from(*g) * f64::from(*g)).sum::<f64>();
    let length = squares.sqrt();
    if length > most {
        let factor = (most / (length + 1e-6)) as f32;
        gradients.iter_mut().flatten().for_each(|g| *g *= factor);
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_steps_then_the_rate_rises_falls_and_never_stops_early() {
        let schedule = Schedule { learning_rate: 1.0, warmup_steps: 4, max_steps: 14 };
        let rates: Vec<f64> = (1..=14).map(|step| schedule.rate(step)).collect();
        assert_eq!(&rates[..5], [0.25, 0.5, 0.75, 1.0, 1.0]);
        assert!(rates[4..].windows(2).all(|pair| pair[1] < pair[0]) && rates[13] > 0.0, "{rates:?}");
    }

    #[test]
    fn given_the_first_step_then_every_number_moves_by_the_rate_against_its_gradient() {
        // With one step, bias correction makes the moments the gradient itself.
        let variable = Var::from_vec(vec![1f32, -2.0], 2, &Device::Cpu).unwrap();
        let mut optimizer = AdamW::new(std::slice::from_ref(&variable), 0.0);
        optimizer.step(std::slice::from_ref(&variable), &[vec![0.5, -3.0]], 0.1).unwrap();
        let moved = variable.to_vec1::<f32>().unwrap();
        assert!((moved[0] - 0.9).abs() < 1e-5 && (moved[1] + 1.9).abs() < 1e-5, "{moved:?}");
    }

    #[test]
    fn given_long_gradients_then_they_are_as_long_as_allowed_and_short_ones_stay() {
        let mut gradients = vec![vec![3.0], vec![4.0]];
        assert_eq!(clip(&mut gradients, 10.0), 5.0);
        assert_eq!(gradients, [[3.0], [4.0]]);
        clip(&mut gradients, 1.0);
        assert!((gradients[0][0] - 0.6).abs() < 1e-5 && (gradients[1][0] - 0.8).abs() < 1e-5);
    }
}
