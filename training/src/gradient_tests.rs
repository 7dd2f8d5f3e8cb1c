//! Gradients against finite differences, on a tiny model of each family.

use std::sync::Arc;

use candle_core::{Device, Tensor};

use crate::base::Family;
use crate::lora::{Adapter, LoraSettings, Target};
use crate::network::{AdapterWeights, Batch, Memory, Network};
use crate::testing::{base, config, plan, sequences};
use crate::text::Encoded;

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

fn mean_loss(network: &Network, batch: &Batch, adapter: &Adapter, dropout: Dropout) -> f64 {
    let logs = network.log_probabilities(batch, &adapter.weights(false, dropout)).unwrap();
    -logs.iter().map(|log| f64::from(*log)).sum::<f64>() / logs.len() as f64
}

type Dropout = Option<(f32, u64)>;

const CASES: [(Family, Dropout); 3] = [(Family::Llama, None), (Family::Qwen2, None), (Family::Llama, Some((0.3, 9)))];

/// Compares the gradient of every third number of every matrix with finite differences.
fn check_slopes(network: &Network, case: (Family, Dropout)) {
    check_slopes_of(network, &Batch::of(&sequences(3, 1)), case);
}

fn check_slopes_of(network: &Network, batch: &Batch, (family, dropout): (Family, Dropout)) {
    let adapter = adapter(family, &plan().lora);
    let coefficients = vec![-1.0 / batch.rows.len() as f32; batch.rows.len()];
    let found = network.gradients(batch, &adapter, dropout, Memory::Recompute, &|_| coefficients.clone()).unwrap();
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
                mean_loss(network, batch, &adapter, dropout)
            };
            let slope = (at_offset(step) - at_offset(-step)) / f64::from(2.0 * step);
            let own = f64::from(gradient[at]);
            assert!((slope - own).abs() < 2e-3 + 0.03 * own.abs(), "{family:?} {at}: {slope} and {own}");
        }
        variable.set(&Tensor::from_vec(before, shape, &Device::Cpu).unwrap()).unwrap();
    }
}

#[test]
fn given_any_matrix_then_its_gradient_is_the_slope_of_the_loss() {
    for (family, dropout) in CASES {
        check_slopes(&Network::new(base(family)), (family, dropout));
    }
}

/// Random sequences, and two that begin as the first one does; what the first one is taught is not taught to them.
fn alike() -> Vec<Encoded> {
    let mut all = sequences(3, 1);
    for (shared, seed) in [(2, 5), (3, 6)] {
        let other = sequences(1, seed).remove(0);
        let ids = [&all[0].ids[..shared], other.ids.as_slice()].concat();
        let taught = [vec![false; shared], other.taught].concat();
        all.push(Encoded { ids, taught });
    }
    all
}

#[test]
fn given_sequences_that_begin_alike_then_the_gradients_are_the_slopes_of_the_loss_with_either_operations() {
    let batch = Batch::of(&alike());
    assert!(batch.tokens.len() + 5 <= batch.given, "at least five tokens are shared");
    check_slopes_of(&Network::new(base(Family::Llama)), &batch, (Family::Llama, None));
    check_slopes_of(&Network::composed(base(Family::Qwen2)), &batch, (Family::Qwen2, None));
}

#[test]
fn given_sequences_that_begin_alike_then_what_is_learned_is_the_sum_of_what_each_teaches_alone() {
    for family in [Family::Llama, Family::Qwen2] {
        let (network, adapter) = (Network::new(base(family)), adapter(family, &plan().lora));
        let of = |sequences: &[Encoded]| {
            let found =
                network.gradients(&Batch::of(sequences), &adapter, None, Memory::Keep, &|logs| vec![0.1; logs.len()]);
            let (logs, gradients) = found.unwrap();
            let gradients = gradients.0.iter().map(|g| g.flatten_all().unwrap().to_vec1::<f32>().unwrap());
            (logs, gradients.flatten().collect::<Vec<f32>>())
        };
        let all = alike();
        let (logs, gradients) = of(&all);
        let mut alone = (Vec::new(), vec![0f32; gradients.len()]);
        for sequence in &all {
            let (logs, gradients) = of(std::slice::from_ref(sequence));
            alone.0.extend(logs);
            alone.1.iter_mut().zip(gradients).for_each(|(sum, gradient)| *sum += gradient);
        }
        let near = |one: &[f32], other: &[f32]| {
            one.iter().zip(other).all(|(one, other)| (one - other).abs() < 1e-5 * (1.0 + one.abs()))
        };
        assert_eq!(logs.len(), alone.0.len());
        assert!(near(&logs, &alone.0), "{family:?}: {logs:?} {:?}", alone.0);
        assert!(near(&gradients, &alone.1), "{family:?}: {gradients:?} {:?}", alone.1);
    }
}

#[test]
fn given_a_base_in_four_bits_then_the_gradients_beside_it_are_the_slopes_of_the_loss_with_either_operations() {
    for (family, dropout) in CASES {
        let quantized = Arc::new(base(family).in_four_bits(&Device::Cpu).unwrap());
        check_slopes(&Network::new(Arc::clone(&quantized)), (family, dropout));
        check_slopes(&Network::composed(quantized), (family, dropout));
    }
}

#[test]
fn given_the_operations_of_a_gpu_then_they_give_what_those_of_the_cpu_give() {
    for (family, dropout) in CASES {
        let adapter = adapter(family, &plan().lora);
        let batch = Batch::of(&alike());
        let coefficients: Vec<f32> = (0..batch.rows.len()).map(|at| 0.1 * at as f32 - 0.3).collect();
        for memory in [Memory::Keep, Memory::Recompute] {
            let of = |network: Network| {
                let known = |_: &[f32]| coefficients.clone();
                let found = network.gradients(&batch, &adapter, dropout, memory, &known).unwrap();
                let gradients = found.1.0.iter().map(|g| g.flatten_all().unwrap().to_vec1::<f32>().unwrap());
                (found.0, gradients.flatten().collect::<Vec<f32>>())
            };
            let (fused, composed) = (of(Network::new(base(family))), of(Network::composed(base(family))));
            let near = |one: &[f32], other: &[f32], most: f32| {
                one.len() == other.len() && one.iter().zip(other).all(|(one, other)| (one - other).abs() < most)
            };
            assert!(near(&fused.0, &composed.0, 1e-5), "{family:?} {memory:?}: {:?} {:?}", fused.0, composed.0);
            assert!(near(&fused.1, &composed.1, 1e-4), "{family:?} {memory:?}: {:?} {:?}", fused.1, composed.1);
        }
    }
}

#[test]
fn given_a_token_that_is_not_there_then_it_is_refused_with_either_operations() {
    for network in [Network::new(base(Family::Llama)), Network::composed(base(Family::Llama))] {
        let mut batch = Batch::of(&sequences(1, 1));
        batch.targets[0] = 20;
        let error = network.log_probabilities(&batch, &AdapterWeights::default()).unwrap_err();
        assert!(error.to_string().contains("token 20"), "{error}");
    }
}

#[test]
fn given_a_base_in_four_bits_then_it_is_near_the_one_that_it_was_made_of_and_its_vectors_are_the_same() {
    let plain = base(Family::Qwen2);
    let quantized = Arc::new(plain.in_four_bits(&Device::Cpu).unwrap());
    assert!(quantized.is_in_four_bits() && !plain.is_in_four_bits());
    let numbers = |tensor: &Tensor| tensor.flatten_all().unwrap().to_vec1::<f32>().unwrap();
    assert_eq!(numbers(&quantized.embeddings), numbers(&plain.embeddings));
    let (one, other) = (&quantized.layers[1], &plain.layers[1]);
    assert_eq!(numbers(&one.mlp_norm), numbers(&other.mlp_norm));
    assert_eq!(one.q.bias.as_ref().map(numbers), other.q.bias.as_ref().map(numbers));
    for ((target, one), (_, other)) in one.projections().into_iter().zip(other.projections()) {
        let (one, other) = (numbers(&one.weight.floats().unwrap()), numbers(&other.weight.floats().unwrap()));
        // No number is larger than 0.4, and half the widest gap of the levels is 0.152.
        assert!(one.iter().zip(&other).all(|(one, other)| (one - other).abs() < 0.065), "{target:?}");
    }
}

#[test]
fn given_kept_or_recomputed_layers_then_the_gradients_are_the_same() {
    let network = Network::new(base(Family::Qwen2));
    let adapter = adapter(Family::Qwen2, &plan().lora);
    let batch = Batch::of(&sequences(2, 4));
    let coefficients = vec![1.0f32; batch.rows.len()];
    let of = |memory| {
        let found = network.gradients(&batch, &adapter, Some((0.2, 5)), memory, &|_| coefficients.clone()).unwrap();
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
