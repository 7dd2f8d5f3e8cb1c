//! Gradients against finite differences, on a tiny model of each family.

use candle_core::{Device, Tensor};

use crate::base::Family;
use crate::lora::{Adapter, LoraSettings, Target};
use crate::network::{AdapterWeights, Batch, Memory, Network};
use crate::testing::{base, config, plan, sequences};

/// An adapter whose `B` is not 0, so that every matrix has a gradient.
fn adapter(family: Family, settings: &LoraSettings) -> Adapter {
    let adapter = Adapter::new(settings, &config(family), 3).unwrap();
    let shifted: Vec<Tensor> = adapter
        .variables()
        .iter()
        .enumerate()
        .map(|(at, variable)| {
            let count = variable.elem_count();
            let numbers: Vec<f32> = (0..count).map(|n| ((n * 7 + at * 3) % 11) as f32 / 22.0 - 0.25).collect();
            Tensor::from_vec(numbers, variable.shape().clone(), &Device::Cpu).unwrap()
        })
        .collect();
    adapter.set(&shifted).unwrap();
    adapter
}

fn mean_loss(network: &Network, batch: &Batch, adapter: &Adapter, dropout: Option<(f32, u64)>) -> f64 {
    let logs = network.log_probabilities(batch, &adapter.weights(false, dropout)).unwrap();
    -logs.iter().map(|log| f64::from(*log)).sum::<f64>() / logs.len() as f64
}

#[test]
fn given_any_matrix_then_its_gradient_is_the_slope_of_the_loss() {
    for (family, dropout) in [(Family::Llama, None), (Family::Qwen2, None), (Family::Llama, Some((0.3, 9)))] {
        let network = Network::new(base(family));
        let adapter = adapter(family, &plan().lora);
        let batch = Batch::of(&sequences(3, 1));
        let coefficients = vec![-1.0 / batch.rows.len() as f32; batch.rows.len()];
        let found =
            network.gradients(&batch, &adapter, dropout, Memory::Recompute, &|_| Some(coefficients.clone())).unwrap();
        let step = 2e-3f32;
        for (variable, gradient) in adapter.variables().iter().zip(&found.1.0) {
            let gradient = gradient.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let before = variable.flatten_all().unwrap().to_vec1::<f32>().unwrap();
            let shape = variable.shape().clone();
            for at in (0..before.len()).step_by(3) {
                let at_offset = |offset: f32| {
                    let mut moved = before.clone();
                    moved[at] += offset;
                    variable.set(&Tensor::from_vec(moved, shape.clone(), &Device::Cpu).unwrap()).unwrap();
                    mean_loss(&network, &batch, &adapter, dropout)
                };
                let slope = (at_offset(step) - at_offset(-step)) / f64::from(2.0 * step);
                let own = f64::from(gradient[at]);
                assert!((slope - own).abs() < 2e-3 + 0.03 * own.abs(), "{family:?} {at}: {slope} and {own}");
            }
            variable.set(&Tensor::from_vec(before, shape, &Device::Cpu).unwrap()).unwrap();
        }
    }
}

#[test]
fn given_kept_or_recomputed_layers_then_the_gradients_are_the_same() {
    let network = Network::new(base(Family::Qwen2));
    let adapter = adapter(Family::Qwen2, &plan().lora);
    let batch = Batch::of(&sequences(2, 4));
    let coefficients = vec![1.0f32; batch.rows.len()];
    let of = |memory| {
        let found =
            network.gradients(&batch, &adapter, Some((0.2, 5)), memory, &|_| Some(coefficients.clone())).unwrap();
        let gradients = found.1.0.iter().map(|g| g.flatten_all().unwrap().to_vec1::<f32>().unwrap());
        (found.0, gradients.collect::<Vec<_>>())
    };
    assert_eq!(of(Memory::Keep), of(Memory::Recompute));
}

#[test]
fn given_sequences_side_by_side_then_each_has_the_probabilities_that_it_has_alone() {
    for family in [Family::Llama, Family::Qwen2] {
        let network = Network::new(base(family));
        let all = sequences(4, 2);
        let together = network.log_probabilities(&Batch::of(&all), &AdapterWeights::default()).unwrap();
        let mut alone = Vec::new();
        for one in &all {
            alone.extend(network.log_probabilities(&Batch::of([one]), &AdapterWeights::default()).unwrap());
        }
        assert_eq!(together.len(), alone.len());
        assert!(together.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-5), "{together:?} {alone:?}");
    }
}

#[test]
fn given_logits_then_their_softmax_has_the_log_probabilities() {
    let network = Network::new(base(Family::Llama));
    let batch = Batch::of(&sequences(2, 8));
    let logs = network.log_probabilities(&batch, &AdapterWeights::default()).unwrap();
    let logits = network.logits(&batch, &AdapterWeights::default()).unwrap().to_vec2::<f32>().unwrap();
    for ((row, target), log) in logits.iter().zip(&batch.targets).zip(logs) {
        let sum: f32 = row.iter().map(|score| score.exp()).sum();
        assert!((row[*target as usize] - sum.ln() - log).abs() < 1e-5);
    }
}

#[test]
fn given_a_new_adapter_then_the_model_is_unchanged() {
    let network = Network::new(base(Family::Llama));
    let targets = vec![Target::Q, Target::Down];
    let settings = LoraSettings { targets, ..plan().lora };
    let adapter = Adapter::new(&settings, &config(Family::Llama), 1).unwrap();
    let batch = Batch::of(&sequences(2, 3));
    let plain = network.log_probabilities(&batch, &AdapterWeights::default()).unwrap();
    assert_eq!(plain, network.log_probabilities(&batch, &adapter.weights(false, None)).unwrap());
}
