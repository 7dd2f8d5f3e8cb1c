//! The memory of a training at its peak: of each part of the work what is there at the same time, as the network, the trainer and
//! the export hold it. Parts that follow each other do not add up.

use super::answers;
use crate::base::{Config, Measures};
use crate::export::SEQUENCES;
use crate::lora::{LoraSettings, Target};
use crate::network::{Memory, TOGETHER, rows_together};
use crate::plan::{Method, Plan};
use crate::text::Widths;

/// Of the process itself: its code, its threads, what products pack. The rest of a server is in memory before, and is not free.
const PROCESS_BYTES: u64 = 32 << 20;
/// Of each token of the vocabulary: as text, by its number and by the pair that makes it, and the same once more at export.
const WORD_BYTES: u64 = 768;
/// Numbers are 32-bit floats.
const FLOAT: u64 = 4;
/// One part in so many is added to what comes and goes: allocators hold on to more than is used.
const SPREAD: u64 = 10;

/// Copies of a trained number that are there all along: itself, and two moments.
const HELD: u64 = 3;
/// Copies that a checkpoint is written from, of the same three. Gradients behind a pass are fewer: as they came, and as plain numbers.
const SAVED: u64 = 3;
/// Copies that a checkpoint is read into: the bytes of its file, and tensors.
const READ: u64 = 2;
/// Copies of the largest matrix while it is read beside all others: as it lies in its file, and before its rows are turned.
const LOADING: u64 = 2;

/// Matrices that are there while one is merged: itself, `B A`, that as it is scaled, its turned rows, and the sum.
const MERGING: u64 = 5;
/// Bytes of a number of a merged matrix.
const MERGED: u64 = 2;
/// The adapter at export: itself, and as the bytes of its file.
const EXPORTED: u64 = 2;

/// What a layer keeps of each token for the way back, in hidden states: its input, and that with what attention adds.
const KEPT_HIDDEN: u64 = 2;
/// The same in numbers of the MLP: gate and up.
const KEPT_MLP: u64 = 2;
/// In queries: projected, and what is taken.
const KEPT_QUERIES: u64 = 2;
/// In keys, which are as wide as values: keys and values, projected.
const KEPT_KEYS: u64 = 2;

/// What the head has in hand of each token, in hidden states: the last ones and their copy, their norm, and the two gradients of these.
const HEAD_TOKENS: u64 = 5;
/// The same of each token that is scored: its state, its slopes as they come and together, those times what it counts, and as they go
/// back.
const HEAD_ROWS: u64 = 6;
/// Scores of a pair of tokens in a head of attention: their weight, and its gradient.
const SCORES: u64 = 2;

/// Tokens of a pass, at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Width {
    /// Those that go through the network: what sequences begin with is there once.
    own: u64,
    /// Those of all sequences.
    given: u64,
    /// Those of the longest sequence.
    longest: u64,
    /// Those that are scored.
    scored: u64,
}

impl Width {
    /// Of so many examples of so many sequences each, none of which is longer than `longest`.
    fn of((examples, sequences): (u64, u64), longest: u64, widths: Option<Widths>) -> Self {
        let given = examples * sequences * longest;
        let Some(Widths { shared, widest, scored }) = widths else {
            return Self { own: given, given, longest, scored: given };
        };
        // Examples that are too long were counted, and are left out.
        let widest = widest.min(sequences * longest);
        let shared = shared.min(widest);
        let own = shared + examples * (widest - shared);
        Self { own, given, longest, scored: given.min(examples.saturating_mul(scored)) }
    }

    /// Of the passes of a training.
    pub(super) fn of_pass(plan: &Plan, longest: u64, widths: Option<Widths>) -> Self {
        // Answers that are yet to be drawn are in no dataset.
        let widths = widths.filter(|_| plan.method != Method::Rlhf);
        Self::of((plan.batch_size as u64, answers(plan.method) as u64), longest, widths)
    }

    /// Of what the merged model is compared by: one answer of each example.
    pub(super) fn of_parity(longest: u64, widths: Option<Widths>) -> Self {
        Self::of((SEQUENCES as u64, 1), longest, widths)
    }
}

/// What the process takes whatever is done.
pub(super) fn of_process(config: &Config) -> u64 {
    PROCESS_BYTES + config.vocab as u64 * WORD_BYTES
}

/// The peak of the steps, or of reading the base or a checkpoint before them.
pub(super) fn of_steps(config: &Config, plan: &Plan, width: Width, measures: bool, memory: Memory) -> u64 {
    let adapter = plan.lora.parameters(config) * FLOAT;
    let held = HELD + u64::from(measures); // with the best one
    let all_along = held + u64::from(plan.accumulation > 1); // with the sum over passes
    let work = spread(of_pass(config, plan, width, memory))
        .max(SAVED * adapter)
        .max(READ * held * adapter)
        .max(LOADING * largest(config) * FLOAT);
    of_process(config) + config.parameters() * FLOAT + all_along * adapter + work
}

/// The peak of the export: the base beside the merged file as it grows, or a model beside the sequences that the two are compared by.
pub(super) fn of_export(base: &Measures, plan: &Plan, width: Width) -> u64 {
    let config = &base.config;
    // Over a base in four bits every projection is written anew, also one without an adapter.
    let everything = LoraSettings { targets: Target::ALL.to_vec(), ..plan.lora.clone() };
    let written = if plan.method == Method::Qlora { &everything } else { &plan.lora };
    let (adapted, matrix) = written.adapted(config);
    let merged = match base.gguf_bytes {
        Some(bytes) => bytes + adapted * MERGED,
        None => config.parameters() * MERGED,
    };
    let comparing = kept_bytes(config, width.own) + moving_bytes(config, plan, width).max(head_bytes(config, width));
    let adapter = EXPORTED * plan.lora.parameters(config) * FLOAT;
    let work = spread((merged + MERGING * matrix * FLOAT).max(comparing));
    of_process(config) + config.parameters() * FLOAT + adapter + work
}

fn spread(bytes: u64) -> u64 {
    bytes + bytes / SPREAD
}

/// Numbers of the largest matrix of a layer.
fn largest(config: &Config) -> u64 {
    LoraSettings { targets: Target::ALL.to_vec(), ..LoraSettings::default() }.adapted(config).1
}

/// A pass at its peak. Where the way back begins, all is there that was kept; as it goes, gradients come in its place.
fn of_pass(config: &Config, plan: &Plan, width: Width, memory: Memory) -> u64 {
    let gradients = plan.lora.parameters(config) * FLOAT;
    let (layers, kept) = (config.layers as u64, kept_bytes(config, width.own));
    let inputs = layers * width.own * config.hidden as u64 * FLOAT;
    let there = match memory {
        Memory::Keep => (layers * kept).max(gradients),
        // Inputs of all layers, and one layer.
        Memory::Recompute => kept + inputs.max(gradients),
    };
    there + moving_bytes(config, plan, width).max(head_bytes(config, width))
}

/// Numbers of all heads of a token: of its queries, and of its keys.
fn heads(config: &Config) -> (u64, u64) {
    ((config.heads * config.head_dim) as u64, (config.kv_heads * config.head_dim) as u64)
}

/// What a layer keeps of so many tokens: all else is computed again on the way back.
fn kept_bytes(config: &Config, tokens: u64) -> u64 {
    let (hidden, mlp) = (config.hidden as u64, config.intermediate as u64);
    let (queries, keys) = heads(config);
    tokens * (KEPT_HIDDEN * hidden + KEPT_MLP * mlp + KEPT_QUERIES * queries + KEPT_KEYS * keys) * FLOAT
}

/// What the way back through a layer has in hand beside what is kept, at its widest place. The way forward has less.
fn moving_bytes(config: &Config, plan: &Plan, width: Width) -> u64 {
    let (hidden, mlp) = (config.hidden as u64, config.intermediate as u64);
    let (queries, keys) = heads(config);
    // A copy without what is dropped of whatever goes through an adapter.
    let dropped = u64::from(plan.lora.dropout > 0.0);
    let Width { own, given, .. } = width;
    let places = [
        // Of `down`: the gradient of what it gave; what went in, its gradient, and what the adapter adds to that.
        own * (hidden + (3 + dropped) * mlp),
        // Of `gate` and `up`: their gradients; that of what the layer gave, the norm, its gradient, a product and what is added.
        own * ((5 + dropped) * hidden + 2 * mlp),
        // Of attention: gradients of what it and the layer gave; that of what was taken, three gradients as rows and as heads, and
        // what they are computed from. Keys that sequences share are there for each of them.
        own * (2 * hidden + (5 + dropped) * queries + 2 * keys) + given * 4 * keys + scores(config, width),
        // Of its projections: the two, the norm, its gradient, a product and what is added; and three gradients.
        own * ((6 + dropped) * hidden + queries + 2 * keys),
    ];
    // What adapters have between their matrices, forward and back.
    let narrow = own * 2 * plan.lora.rank as u64;
    (places.into_iter().max().unwrap_or_default() + narrow) * FLOAT
}

/// Scores of attention that are there at a time, those of all heads.
fn scores(config: &Config, width: Width) -> u64 {
    let all = width.given * width.longest;
    SCORES * config.heads as u64 * all.min((width.longest * width.longest).max(TOGETHER as u64))
}

/// What the head has in hand: scores of some rows at a time, and states and gradients of all.
fn head_bytes(config: &Config, width: Width) -> u64 {
    let together = width.scored.min(rows_together(config.vocab) as u64);
    let states = (HEAD_TOKENS * width.own + HEAD_ROWS * width.scored) * config.hidden as u64;
    (together * config.vocab as u64 + states) * FLOAT
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::small;

    const SHARED: Widths = Widths { shared: 30, widest: 60, scored: 20 };

    #[test]
    fn given_a_layer_then_every_tensor_that_it_keeps_is_counted_and_nothing_else() {
        let (config, tokens) = (small(), 400);
        let (hidden, queries, keys, mlp): (u64, u64, u64, u64) = (576, 9 * 64, 3 * 64, 1536);
        // As network::layer keeps them, in its order.
        let kept = [hidden, queries, keys, keys, queries, hidden, mlp, mlp];
        assert_eq!(kept_bytes(&config, tokens), tokens * kept.into_iter().sum::<u64>() * FLOAT);
    }

    #[test]
    fn given_sequences_that_begin_alike_then_their_beginning_counts_once_and_in_each_what_attention_sees() {
        let plan = Plan { batch_size: 4, ..Plan::default() };
        let alone = Width::of_pass(&plan, 60, None);
        assert_eq!(alone, Width { own: 240, given: 240, longest: 60, scored: 240 });
        let shared = Width::of_pass(&plan, 60, Some(SHARED));
        assert_eq!(shared, Width { own: 30 + 4 * 30, given: 240, longest: 60, scored: 80 });
        // A preference whose answers begin alike has fewer tokens than its two sequences.
        let pairs = Plan { method: Method::Dpo, ..plan };
        assert_eq!(Width::of_pass(&pairs, 60, Some(Widths { widest: 75, ..SHARED })).own, 30 + 4 * 45);
        // What the plan leaves out does not count.
        assert_eq!(Width::of_pass(&pairs, 20, Some(Widths { widest: 7500, ..SHARED })).own, 30 + 4 * 10);
        let drawn = Plan { method: Method::Rlhf, ..pairs };
        assert_eq!(Width::of_pass(&drawn, 60, Some(SHARED)), Width::of_pass(&drawn, 60, None));
    }

    #[test]
    fn given_long_sequences_then_the_scores_of_one_are_in_hand_and_those_of_short_ones_together() {
        let of = |count: u64, longest: u64| {
            let plan = Plan { batch_size: count as usize, ..Plan::default() };
            scores(&small(), Width::of_pass(&plan, longest, None))
        };
        assert_eq!((of(1, 1000), of(2, 1000)), (2 * 9 * 1_000_000, 2 * 9 * 1_000_000));
        assert_eq!((of(4, 100), of(100, 100)), (2 * 9 * 40_000, 2 * 9 * 65_536));
    }

    #[test]
    fn given_a_pass_then_its_peak_is_what_is_kept_with_the_widest_place_of_what_follows() {
        let (config, plan) = (small(), Plan::default());
        let width = Width::of_pass(&plan, 60, Some(SHARED));
        let kept = 30 * kept_bytes(&config, 150);
        // The head: 80 rows of scores, which are fewer than fit together, and states.
        let head = (80 * 49_152 + (5 * 150 + 6 * 80) * 576) * FLOAT;
        assert_eq!(of_pass(&config, &plan, width, Memory::Keep), kept + head);
        let less = of_pass(&config, &plan, width, Memory::Recompute);
        assert_eq!(less, kept / 30 + 30 * 150 * 576 * FLOAT + head);
        // Without much of a head it is attention: rows of the pass, keys of each sequence, scores, and what is between an adapter's
        // matrices.
        let narrow = Config { vocab: 100, ..config };
        let rows = 150 * (2 * 576 + 5 * 576 + 2 * 192 + 2 * 8);
        let moving = (rows + 240 * 4 * 192 + 2 * 9 * 240 * 60) * FLOAT;
        assert_eq!(of_pass(&narrow, &plan, width, Memory::Keep), kept + moving);
    }

    #[test]
    fn given_a_large_adapter_then_reading_its_checkpoint_may_be_the_peak_and_what_is_not_needed_is_not_counted() {
        let lora = LoraSettings { rank: 256, ..LoraSettings::default() };
        let plan = Plan { batch_size: 1, lora, ..Plan::default() };
        let (config, width) = (small(), Width::of_pass(&plan, 8, None));
        let copy = plan.lora.parameters(&config) * FLOAT;
        let of = |measures| of_steps(&config, &plan, width, measures, Memory::Keep);
        let beside = of_process(&config) + config.parameters() * FLOAT;
        assert_eq!(of(true) - beside, 4 * copy + 2 * 4 * copy);
        assert_eq!(of(false) - beside, 3 * copy + 2 * 3 * copy);
        let summed = Plan { accumulation: 2, ..plan.clone() };
        assert_eq!(of_steps(&config, &summed, width, true, Memory::Keep), of(true) + copy);
    }
}
