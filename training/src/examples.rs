//! The examples of a training, as tokens; and which of them a step is made of.

use crate::dataset::{Dataset, DatasetError, Example, MAX_TOLD, Remark, Split};
use crate::error::TrainingError;
use crate::plan::Plan;
use crate::rng::Rng;
use crate::text::{CountedWidths, Encoded, EncodedPair, TextCodec, Widths};

const PURPOSE: u64 = 4;

/// Examples of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Examples {
    /// Sequences.
    Sequences(Vec<Encoded>),
    /// Preferences.
    Pairs(Vec<EncodedPair>),
}

impl Examples {
    /// How many.
    pub fn len(&self) -> usize {
        match self {
            Examples::Sequences(all) => all.len(),
            Examples::Pairs(all) => all.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn longest(&self) -> usize {
        let longest = match self {
            Examples::Sequences(all) => all.iter().map(|one| one.ids.len()).max(),
            Examples::Pairs(all) => all.iter().map(|pair| pair.chosen.ids.len().max(pair.rejected.ids.len())).max(),
        };
        longest.unwrap_or_default()
    }

    fn count(&self, widths: &mut CountedWidths) {
        match self {
            Examples::Sequences(all) => all.iter().for_each(|one| widths.add(&[one])),
            Examples::Pairs(all) => all.iter().for_each(|pair| widths.add(&[&pair.chosen, &pair.rejected])),
        }
    }
}

/// What is trained on and what is measured on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sets {
    /// What is trained on.
    pub train: Examples,
    /// What is measured on; may be empty.
    pub held_out: Examples,
    /// Examples that are longer than the plan allows and were left out.
    pub too_long: usize,
}

impl Sets {
    /// Splits and encodes a dataset.
    pub fn of(dataset: &Dataset, plan: &Plan, text: &TextCodec) -> Result<Self, TrainingError> {
        plan.method.check_format(dataset.format)?;
        let split = Split::of(dataset.examples.len(), plan.seed);
        let (train, long) = encode(dataset, &split.train, plan, text)?;
        let (held_out, also_long) = encode(dataset, &split.held_out, plan, text)?;
        let too_long = long + also_long;
        if train.is_empty() {
            let longer = match too_long {
                1 => "the only example is longer".to_owned(),
                several => format!("all {several} examples are longer"),
            };
            let reason = format!("is {}, and {longer}", plan.seq_len);
            return Err(TrainingError::Setting { field: "seq_len", reason });
        }
        Ok(Self { train, held_out, too_long })
    }

    /// Tokens of the longest example; of a preference, of one answer.
    pub fn longest(&self) -> usize {
        self.train.longest().max(self.held_out.longest())
    }

    /// What examples take of a pass; `None` without any.
    pub fn widths(&self) -> Option<Widths> {
        let mut counted = CountedWidths::default();
        self.train.count(&mut counted);
        self.held_out.count(&mut counted);
        counted.widths()
    }

    /// What the passes of a step are made of; steps count from 1. Of a preference, the better answer comes first.
    pub fn of_step(&self, plan: &Plan, step: u64) -> Vec<Encoded> {
        let places = Order::new(plan.seed, self.train.len()).of_step(step, plan.examples_per_step());
        match &self.train {
            Examples::Sequences(all) => places.into_iter().map(|place| all[place].clone()).collect(),
            Examples::Pairs(all) => {
                places.into_iter().flat_map(|place| [all[place].chosen.clone(), all[place].rejected.clone()]).collect()
            }
        }
    }
}

/// Lines of a dataset that can't be encoded for a model, because they hold its control tokens or its template refuses them.
pub fn unfit(dataset: &Dataset, text: &TextCodec) -> Option<DatasetError> {
    let mut found = DatasetError { errors: Vec::new(), total: 0 };
    for (line, example) in &dataset.examples {
        let fault = example.texts().into_iter().find_map(|(field, content)| Some((field, text.control_in(content)?)));
        if let Some((field, control)) = fault {
            found.total += 1;
            if found.errors.len() < MAX_TOLD {
                let reason = format!("holds the control token {control} of the base model");
                found.errors.push(Remark::new(*line, Some(field), reason));
            }
        }
    }
    (found.total > 0).then_some(found)
}

fn encode(
    dataset: &Dataset,
    places: &[usize],
    plan: &Plan,
    text: &TextCodec,
) -> Result<(Examples, usize), TrainingError> {
    let (mut sequences, mut pairs, mut too_long) = (Vec::new(), Vec::new(), 0);
    for (line, example) in places.iter().map(|place| &dataset.examples[*place]) {
        let fault = |reason: String| TrainingError::from(DatasetError::one(*line, reason));
        match example {
            Example::Sft { prompt, completion } => sequences.push(text.completion(prompt, completion).map_err(fault)?),
            Example::Chat { messages } => sequences.push(text.conversation(messages).map_err(fault)?),
            Example::Dpo { prompt, chosen, rejected } => {
                pairs.push(text.pair(prompt, chosen, rejected).map_err(fault)?)
            }
        }
    }
    let fits = |encoded: &Encoded| encoded.ids.len() <= plan.seq_len;
    let all = sequences.len() + pairs.len();
    sequences.retain(fits);
    pairs.retain(|pair| fits(&pair.chosen) && fits(&pair.rejected));
    too_long += all - sequences.len() - pairs.len();
    let examples = if pairs.is_empty() && dataset.format != crate::dataset::Format::Dpo {
        Examples::Sequences(sequences)
    } else {
        Examples::Pairs(pairs)
    };
    Ok((examples, too_long))
}

/// The order in which examples come: every epoch has each once, in an order of its own. Where a step begins follows from its
/// number, so that nothing has to be remembered to go on.
pub(crate) struct Order {
    seed: u64,
    examples: usize,
    epoch: u64,
    order: Vec<usize>,
}

impl Order {
    pub(crate) fn new(seed: u64, examples: usize) -> Self {
        Self { seed, examples, epoch: u64::MAX, order: Vec::new() }
    }

    /// The examples of a step; steps count from 1.
    pub(crate) fn of_step(&mut self, step: u64, per_step: usize) -> Vec<usize> {
        let first = (step - 1) * per_step as u64;
        (first..first + per_step as u64).map(|place| self.at(place)).collect()
    }

    fn at(&mut self, place: u64) -> usize {
        let epoch = place / self.examples as u64;
        if epoch != self.epoch {
            self.epoch = epoch;
            self.order = Rng::of(self.seed, &[PURPOSE, epoch]).order(self.examples);
        }
        self.order[(place % self.examples as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_steps_then_each_epoch_has_every_example_once_and_any_step_can_be_gone_on_from() {
        let mut order = Order::new(5, 7);
        let all: Vec<usize> = (1..=7).flat_map(|step| order.of_step(step, 3)).collect();
        for epoch in all.chunks(7) {
            let mut sorted = epoch.to_vec();
            sorted.sort_unstable();
            assert_eq!(sorted, (0..7).collect::<Vec<_>>());
        }
        assert_eq!(Order::new(5, 7).of_step(5, 3), all[12..15]);
    }
}
