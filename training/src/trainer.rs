//! Training: step after step, from wherever the last checkpoint is.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use candle_core::{Device, Tensor};
use sha2::{Digest, Sha256};

use crate::base::BaseModel;
use crate::checkpoint::{self, ADAPTER, BEST, FIRST, Lists, REWARD, SECOND, State};
use crate::dataset::hex;
use crate::device::device_of;
use crate::error::TrainingError;
use crate::estimate;
use crate::examples::{Examples, Order, Sets};
use crate::gain::Gain;
use crate::lora::Adapter;
use crate::network::{AdapterWeights, Batch, Memory, Network};
use crate::objective::{preference, supervised};
use crate::optimizer::{AdamW, clip};
use crate::plan::{Method, Plan};
use crate::reward::RewardHead;
use crate::rng::Rng;
use crate::rollout::{Roles, Rollout};
use crate::text::EncodedPair;

mod measure;

const DROPOUT_PURPOSE: u64 = 5;
/// A measurement must be better by so much to count as a gain.
const LEAST_GAIN: f64 = 1e-4;
/// Work that a crash may cost, about: where steps take minutes, a number of them is too long to wait for a checkpoint.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(10 * 60);

/// What a step came to.
#[derive(Debug, Clone, PartialEq)]
pub struct StepReport {
    /// Counts from 1.
    pub step: u64,
    /// Mean loss of the step's examples, before the step.
    pub loss: f64,
    /// Its learning rate.
    pub learning_rate: f64,
    /// Length of its gradients before they were cut.
    pub gradient_norm: f64,
    /// Tokens of its examples; those that several of a pass begin with go through the network once.
    pub tokens: u64,
    /// How long it took.
    pub seconds: f64,
    /// Loss on what was held out, when it was measured behind this step.
    pub eval_loss: Option<f64>,
}

/// Who looks on.
pub trait Watch {
    /// A step is done. After a restart, steps behind the last checkpoint are told again with the same numbers.
    fn step(&mut self, report: &StepReport);

    /// Waits until every step that is done is known for good, and says whether it is: a checkpoint that is ahead of what is known
    /// would leave a gap after a crash, so that it is not written.
    fn settled(&mut self) -> bool {
        true
    }

    /// A checkpoint is written: a restart goes on from there.
    fn saved(&mut self) {}

    /// Whether to give up; asked before every pass.
    fn stop(&self) -> bool;
}

/// A training that came to its end.
pub struct Trained {
    /// Its numbers.
    pub outcome: Outcome,
    pub(crate) adapter: Adapter,
    pub(crate) base: Arc<BaseModel>,
}

/// The numbers of a training.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// Steps that were taken.
    pub steps: u64,
    /// Loss of the last step.
    pub loss: f64,
    /// Loss of the base model on what was held out.
    pub base_loss: Option<f64>,
    /// Loss of the adapter that came out on what was held out.
    pub eval_loss: Option<f64>,
    /// The step of that adapter; it is the best one measured.
    pub best_step: Option<u64>,
    /// Whether it stopped before its last step because nothing got better.
    pub stopped_early: bool,
    /// By how much that adapter is better than the base; none with fewer than [`LEAST_HELD_OUT`](crate::LEAST_HELD_OUT) held-out
    /// examples.
    pub gain: Option<Gain>,
    /// Held-out examples.
    pub held_out: usize,
    /// Examples that were too long.
    pub too_long: usize,
}

/// Trains, going on from the newest checkpoint of `folder`. `dataset_sha256` is that of the examples.
pub fn train(
    plan: &Plan,
    base: Arc<BaseModel>,
    sets: &Sets,
    dataset_sha256: &str,
    folder: &Path,
    watch: &mut dyn Watch,
) -> Result<Trained, TrainingError> {
    plan.check()?;
    let base = prepared(plan.method, base, &device_of(plan.method)?)?;
    train_prepared(plan, base, sets, dataset_sha256, folder, watch)
}

/// The base as a method trains it. One that nobody else holds goes, once it is there in another form.
pub(crate) fn prepared(method: Method, base: Arc<BaseModel>, device: &Device) -> Result<Arc<BaseModel>, TrainingError> {
    match method {
        Method::SftLora | Method::Dpo => Ok(base),
        Method::Qlora => Ok(Arc::new(base.in_four_bits(device)?)),
        Method::Rlhf => Ok(Arc::new(base.on(device)?)),
    }
}

/// Trains on the device that the base lies on.
pub(crate) fn train_prepared(
    plan: &Plan,
    base: Arc<BaseModel>,
    sets: &Sets,
    dataset_sha256: &str,
    folder: &Path,
    watch: &mut dyn Watch,
) -> Result<Trained, TrainingError> {
    let mut session = Session::open(plan, base, sets, dataset_sha256, folder)?;
    session.run(folder, watch)?;
    session.finish(watch)
}

struct Session<'s> {
    plan: &'s Plan,
    sets: &'s Sets,
    network: Network,
    adapter: Adapter,
    optimizer: AdamW,
    order: Order,
    memory: Memory,
    state: State,
    best: Option<Vec<Tensor>>,
    /// What judges answers, once it is learned; `rlhf` alone has it.
    reward: Option<RewardHead>,
    stopped_early: bool,
}

fn fingerprint(plan: &Plan, base: &BaseModel, dataset_sha256: &str) -> Result<String, TrainingError> {
    let told = serde_json::to_vec(&(plan, &base.config, dataset_sha256));
    let told = told.map_err(|error| TrainingError::Compute(error.to_string()))?;
    Ok(hex(&Sha256::digest(told)))
}

impl<'s> Session<'s> {
    fn open(
        plan: &'s Plan,
        base: Arc<BaseModel>,
        sets: &'s Sets,
        dataset_sha256: &str,
        folder: &Path,
    ) -> Result<Self, TrainingError> {
        let fingerprint = fingerprint(plan, &base, dataset_sha256)?;
        let adapter = Adapter::new(&plan.lora, &base.config, plan.seed)?;
        let optimizer = AdamW::new(adapter.variables(), plan.weight_decay);
        let memory = estimate::memory_mode(&base.config, plan, estimate::available_bytes());
        let known = checkpoint::newest(folder, &fingerprint)?;
        let fresh = State { fingerprint, step: 0, base_loss: None, best: None, last: None, worse: 0, loss: None };
        let mut session = Self {
            plan,
            sets,
            network: Network::new(base),
            adapter,
            optimizer,
            order: Order::new(plan.seed, sets.train.len()),
            memory,
            state: fresh,
            best: None,
            reward: None,
            stopped_early: false,
        };
        if let Some((state, lists)) = known {
            session.restore(state, lists)?;
        }
        Ok(session)
    }

    fn restore(&mut self, state: State, mut lists: Lists) -> Result<(), TrainingError> {
        tracing::info!(step = state.step, "training goes on from a checkpoint");
        let mut take = |purpose: &str| lists.remove(purpose).unwrap_or_default();
        self.adapter.set(&take(ADAPTER))?;
        let plain = |list: Vec<Tensor>| -> Result<Vec<Vec<f32>>, TrainingError> {
            Ok(list.iter().map(|tensor| tensor.to_vec1::<f32>()).collect::<Result<_, _>>()?)
        };
        self.optimizer.first = plain(take(FIRST))?;
        self.optimizer.second = plain(take(SECOND))?;
        self.optimizer.steps = state.step;
        self.best = Some(take(BEST)).filter(|best| !best.is_empty());
        let reward = plain(take(REWARD))?.pop();
        self.reward = reward.map(|weights| RewardHead { weights });
        self.state = state;
        Ok(())
    }

    fn save(&self, folder: &Path) -> Result<(), TrainingError> {
        let flat = |list: &[Vec<f32>]| -> Result<Vec<Tensor>, TrainingError> {
            Ok(list.iter().map(|v| Tensor::from_slice(v, v.len(), &Device::Cpu)).collect::<Result<_, _>>()?)
        };
        let mut lists = Lists::from([
            (ADAPTER, self.adapter.copy()?),
            (FIRST, flat(&self.optimizer.first)?),
            (SECOND, flat(&self.optimizer.second)?),
        ]);
        if let Some(best) = &self.best {
            lists.insert(BEST, best.clone());
        }
        if let Some(RewardHead { weights }) = &self.reward {
            lists.insert(REWARD, flat(std::slice::from_ref(weights))?);
        }
        checkpoint::write(folder, &self.state, &lists).map(drop)
    }

    fn run(&mut self, folder: &Path, watch: &mut dyn Watch) -> Result<(), TrainingError> {
        if self.plan.method == Method::Rlhf && self.reward.is_none() {
            self.reward = Some(self.learn_reward(watch)?);
        }
        if self.state.step == 0 && self.state.base_loss.is_none() {
            self.state.base_loss = self.measure(&AdapterWeights::default(), watch)?;
        }
        let mut saved = Instant::now();
        while self.state.step < self.plan.max_steps && !self.gave_up() {
            let report = self.step(watch)?;
            let saves = is_due(self.plan, report.step, saved.elapsed());
            watch.step(&report);
            if saves && watch.settled() {
                saved = Instant::now(); // one that can't be written is no reason to try at every step
                match self.save(folder) {
                    Ok(()) => watch.saved(),
                    // What is on the disk already is whole: a crash now costs more steps, and nothing else.
                    Err(error) => {
                        tracing::warn!(step = report.step, error = %error, "a checkpoint could not be written")
                    }
                }
            }
        }
        self.stopped_early = self.state.step < self.plan.max_steps;
        Ok(())
    }

    fn gave_up(&self) -> bool {
        self.plan.patience > 0 && self.state.worse >= self.plan.patience
    }

    fn step(&mut self, watch: &dyn Watch) -> Result<StepReport, TrainingError> {
        let began = Instant::now();
        let step = self.state.step + 1;
        let examples = self.order.of_step(step, self.plan.examples_per_step());
        let passes: Vec<&[usize]> = examples.chunks(self.plan.batch_size).collect();
        let work = (0..).zip(&passes).map(|(number, pass)| self.work(pass, (step, number), watch));
        let work: Vec<Work> = work.collect::<Result<_, _>>()?;
        let scored = work.iter().map(|work| work.batch().rows.len()).sum();
        let whole = Whole { scored, examples: examples.len() };
        let mut loss = 0.0;
        let mut sum: Option<Vec<Vec<f32>>> = None;
        for (number, work) in work.iter().enumerate() {
            if watch.stop() {
                return Err(TrainingError::Cancelled);
            }
            let (part, gradients) = self.pass(work, (step, number), &whole)?;
            loss += part;
            match &mut sum {
                None => sum = Some(gradients),
                Some(sum) => add(sum, &gradients),
            }
        }
        let mut gradients = sum.unwrap_or_default();
        let gradient_norm = clip(&mut gradients, self.plan.max_grad_norm);
        if !loss.is_finite() || !gradient_norm.is_finite() {
            return Err(TrainingError::Diverged { step });
        }
        let learning_rate = self.plan.schedule().rate(step);
        self.optimizer.step(self.adapter.variables(), &gradients, learning_rate)?;
        (self.state.step, self.state.loss) = (step, Some(loss));
        let tokens = work.iter().map(|work| work.batch().given as u64).sum();
        let seconds = began.elapsed().as_secs_f64();
        let due = step.is_multiple_of(self.plan.eval_every) || step == self.plan.max_steps;
        let eval_loss = if due { self.look_back(watch)? } else { None };
        Ok(StepReport { step, loss, learning_rate, gradient_norm, tokens, seconds, eval_loss })
    }

    /// What a pass of a step works on.
    fn work(&self, places: &[usize], (step, number): (u64, usize), watch: &dyn Watch) -> Result<Work, TrainingError> {
        let (Examples::Pairs(all), Some(head)) = (&self.sets.train, &self.reward) else {
            return Ok(Work::Given(batch(&self.sets.train, places)));
        };
        let first = (number * self.plan.batch_size) as u64;
        let pairs: Vec<(u64, &EncodedPair)> = (first..).zip(places.iter().map(|place| &all[*place])).collect();
        let policy = self.adapter.weights(false, None);
        let roles = Roles { network: &self.network, policy: &policy, head };
        Ok(Work::Sampled(Rollout::of(&roles, &pairs, (self.plan, step), &|| watch.stop())?))
    }

    /// The part of the step's loss that a pass adds, and its gradients.
    fn pass(
        &self,
        work: &Work,
        (step, number): (u64, usize),
        whole: &Whole,
    ) -> Result<(f64, Vec<Vec<f32>>), TrainingError> {
        let part = self.plan.lora.dropout;
        let seed = Rng::of(self.plan.seed, &[DROPOUT_PURPOSE, step, number as u64]).draw();
        let dropout = (part > 0.0).then_some((part, seed));
        let (beta, batch) = (self.plan.dpo_beta, work.batch());
        let (loss, gradients) = match (work, &self.sets.train) {
            (Work::Sampled(rollout), _) => {
                // Answers were drawn without dropout, and are scored as they were drawn.
                let found = |logs: &[f32]| rollout.reinforced(logs, beta, whole.examples);
                let coefficients = |logs: &[f32]| found(logs).coefficients;
                let (logs, gradients) =
                    self.network.gradients(batch, &self.adapter, None, self.memory, &coefficients)?;
                (rollout.loss(&logs, beta) / whole.examples as f64, gradients)
            }
            (Work::Given(_), Examples::Sequences(_)) => {
                let known = supervised(batch.rows.len(), whole.scored);
                let (logs, gradients) =
                    self.network.gradients(batch, &self.adapter, dropout, self.memory, &|_| known.clone())?;
                (-sum(&logs) / whole.scored.max(1) as f64, gradients)
            }
            (Work::Given(_), Examples::Pairs(_)) => {
                let reference = self.network.log_probabilities(batch, &AdapterWeights::default())?;
                let found = |logs: &[f32]| preference(logs, &reference, &batch.sequence, beta, whole.examples);
                let coefficients = |logs: &[f32]| found(logs).coefficients;
                let (logs, gradients) =
                    self.network.gradients(batch, &self.adapter, dropout, self.memory, &coefficients)?;
                (found(&logs).loss / whole.examples as f64, gradients)
            }
        };
        let plain = gradients.0.iter().map(|gradient| gradient.flatten_all()?.to_vec1::<f32>());
        Ok((loss, plain.collect::<Result<_, _>>()?))
    }

    /// Measures on what was held out, and remembers the best.
    fn look_back(&mut self, watch: &dyn Watch) -> Result<Option<f64>, TrainingError> {
        let Some(loss) = self.measure(&self.adapter.weights(false, None), watch)? else { return Ok(None) };
        self.state.last = Some(loss);
        let before = self.state.best.map(|(best, _)| best).or(self.state.base_loss);
        if before.is_none_or(|before| loss < before - LEAST_GAIN) {
            self.state.best = Some((loss, self.state.step));
            self.state.worse = 0;
            self.best = Some(self.adapter.copy()?);
        } else {
            self.state.worse += 1;
        }
        Ok(Some(loss))
    }

    /// Learns from the examples what judges answers; the network stays as it is.
    fn learn_reward(&self, watch: &dyn Watch) -> Result<RewardHead, TrainingError> {
        let places: Vec<usize> = (0..self.sets.train.len()).collect();
        let mut differences = Vec::with_capacity(places.len());
        for pass in places.chunks(self.plan.batch_size) {
            if watch.stop() {
                return Err(TrainingError::Cancelled);
            }
            let ends = self.network.ends(&batch(&self.sets.train, pass), &AdapterWeights::default())?;
            let apart =
                |pair: &[Vec<f32>]| pair[0].iter().zip(&pair[1]).map(|(better, worse)| better - worse).collect();
            differences.extend(ends.chunks_exact(2).map(apart));
        }
        Ok(RewardHead::learn(&differences))
    }

    fn finish(self, watch: &dyn Watch) -> Result<Trained, TrainingError> {
        if let Some(best) = &self.best {
            self.adapter.set(best)?;
        }
        let before = self.each(&AdapterWeights::default(), watch)?;
        let after = self.each(&self.adapter.weights(false, None), watch)?;
        let gain = Gain::of(&before, &after, self.plan.seed);
        let outcome = Outcome {
            steps: self.state.step,
            loss: self.state.loss.unwrap_or_default(),
            base_loss: self.state.base_loss,
            eval_loss: self.state.best.map(|(loss, _)| loss).or(self.state.last),
            best_step: self.state.best.map(|(_, step)| step),
            stopped_early: self.stopped_early,
            gain,
            held_out: self.sets.held_out.len(),
            too_long: self.sets.too_long,
        };
        Ok(Trained { outcome, adapter: self.adapter, base: self.network.base })
    }
}

/// Whether a checkpoint is to be written behind a step, so long after the one before it. When does not change what comes out.
fn is_due(plan: &Plan, step: u64, since: Duration) -> bool {
    step.is_multiple_of(plan.checkpoint_every) || step == plan.max_steps || since >= CHECKPOINT_AFTER
}

/// What a pass works on.
enum Work {
    /// Examples.
    Given(Batch),
    /// Answers of the policy itself.
    Sampled(Rollout),
}

impl Work {
    fn batch(&self) -> &Batch {
        match self {
            Work::Given(batch) => batch,
            Work::Sampled(rollout) => &rollout.batch,
        }
    }
}

/// What all passes of a step have together.
struct Whole {
    scored: usize,
    examples: usize,
}

fn batch(examples: &Examples, places: &[usize]) -> Batch {
    match examples {
        Examples::Sequences(all) => Batch::of(places.iter().map(|place| &all[*place])),
        Examples::Pairs(all) => {
            let pairs = places.iter().map(|place| &all[*place]);
            Batch::of(pairs.flat_map(|pair| [&pair.chosen, &pair.rejected]))
        }
    }
}

fn sum(logs: &[f32]) -> f64 {
    logs.iter().map(|log| f64::from(*log)).sum()
}

fn add(sum: &mut [Vec<f32>], more: &[Vec<f32>]) {
    for (sum, more) in sum.iter_mut().zip(more) {
        sum.iter_mut().zip(more).for_each(|(sum, more)| *sum += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_steps_that_take_long_then_a_checkpoint_comes_by_time_and_else_by_their_number() {
        let plan = Plan { max_steps: 60, checkpoint_every: 25, ..Plan::default() };
        let due = |since: Duration| (1..=60).filter(|step| is_due(&plan, *step, since)).collect::<Vec<u64>>();
        assert_eq!(due(Duration::from_secs(1)), [25, 50, 60]);
        assert_eq!(due(CHECKPOINT_AFTER).len(), 60);
    }
}
