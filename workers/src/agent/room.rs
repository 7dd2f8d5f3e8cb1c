//! Sees to it that a prompt fits the model's context before it is sent: counts its tokens, by the model's own tokenizer where
//! the provider has one, and looks for the form of it that fits when it does not. What is left out is a step of the run, and
//! the call is made when that step has been read back.

use riverrun_agents::compaction::{self, Compacted, Figures, Room, Search};
use riverrun_agents::decide::StepDraft;
use riverrun_agents::supervisor::Question;
use riverrun_agents::tools::ToolManifest;
use riverrun_agents::{ModelCall, RunState};
use riverrun_knowledge::room::{self, Counting};
use riverrun_models::ModelError;
use riverrun_schemas::Failure;

use super::driver::{Driver, Interrupted};

/// An estimate is never corrected by more than this factor: what servers tell of themselves may be wrong.
const MAX_CORRECTION: f64 = 8.0;

/// What becomes of a call.
#[derive(Debug)]
pub(super) enum Fit {
    /// It is made as it is.
    Whole,
    /// This step is appended first; the run then decides again.
    Without(Box<StepDraft>),
    /// It can't be made.
    Never(Failure),
}

/// What a driver knows of its run's model. Another driver asks anew: what was decided with it stands on the log.
#[derive(Debug)]
pub(super) struct Meter {
    /// Tokens of the context, once it was asked for; the inner `None` where nobody tells.
    context: Option<Option<usize>>,
    counting: Counting,
    /// How many tokens the model has found for each estimated one.
    correction: f64,
    /// The uncorrected estimate of the call that is made, where it was estimated.
    estimated: Option<usize>,
}

impl Default for Meter {
    fn default() -> Self {
        Self { context: None, counting: Counting::Prompt, correction: 1.0, estimated: None }
    }
}

impl Meter {
    /// Takes in how many tokens the model read in the last call. Fewer than estimated teach nothing: a server may not count
    /// what it had read before.
    pub(super) fn learn(&mut self, prompt_tokens: u64) {
        if let Some(estimated) = self.estimated.take().filter(|estimated| *estimated > 0) {
            let correction = prompt_tokens as f64 / estimated as f64;
            self.correction = correction.clamp(self.correction, MAX_CORRECTION);
        }
    }

    fn estimates(&self) -> bool {
        self.counting == Counting::Lengths
    }

    /// Notes what the reply to this call will be compared with.
    fn expect(&mut self, call: &ModelCall) {
        self.estimated = self.estimates().then(|| room::estimate(&call.messages));
    }

    fn estimate(&self, call: &ModelCall) -> usize {
        (room::estimate(&call.messages) as f64 * self.correction).ceil() as usize
    }
}

impl Driver {
    /// Counts a call that is due.
    pub(super) async fn fit(&mut self, call: &ModelCall, tools: &[ToolManifest]) -> Result<Fit, Interrupted> {
        self.meter.estimated = None;
        let Some(context) = self.context_tokens().await? else { return Ok(Fit::Whole) };
        let room = Room::new(Some(context), call.max_tokens);
        if room.fits(room::at_most(&self.request_of(call))) {
            return Ok(Fit::Whole);
        }
        let tokens = self.count(call).await?;
        self.meter.expect(call);
        if room.fits(tokens) {
            return Ok(Fit::Whole);
        }
        if let Some(step) = self.smaller(tools, room, tokens, false).await? {
            return Ok(Fit::Without(Box::new(step)));
        }
        // Where tokens are estimated, the model's server has the last word about what may fit.
        let least = if self.meter.estimates() { room::at_least(&call.messages) } else { tokens };
        Ok(match room.is_possible(least) {
            true => Fit::Whole,
            false => Fit::Never(compaction::too_large(least, context)),
        })
    }

    /// Looks for a smaller form of a call that the model's server has refused for its size; `Whole` where there is nothing to
    /// say that the error does not, and for every other error.
    pub(super) async fn fit_refused(
        &mut self,
        call: &ModelCall,
        tools: &[ToolManifest],
        error: &ModelError,
    ) -> Result<Fit, Interrupted> {
        let ModelError::ContextOverflow { tokens: found, limit, .. } = error else { return Ok(Fit::Whole) };
        let known = self.context_tokens().await?;
        let context = Some(*limit).filter(|limit| *limit > 0).or(known);
        self.meter.context = Some(context);
        let mut tokens = self.count(call).await?;
        if self.meter.estimates() {
            self.meter.expect(call);
            self.meter.learn(u64::try_from(*found).unwrap_or(u64::MAX));
            tokens = self.meter.estimate(call);
        }
        let room = Room::new(context, call.max_tokens);
        if let Some(step) = self.smaller(tools, room, tokens, true).await? {
            return Ok(Fit::Without(Box::new(step)));
        }
        Ok(match context {
            // The server did not say how much too large it is.
            Some(context) if *found == 0 && !room.fits(tokens) => Fit::Never(compaction::too_large(tokens, context)),
            Some(_) | None => Fit::Whole,
        })
    }

    /// The step that says what is left out from here on; `None` when that does not help.
    async fn smaller(
        &mut self,
        tools: &[ToolManifest],
        room: Room,
        tokens: usize,
        refused: bool,
    ) -> Result<Option<StepDraft>, Interrupted> {
        let mut search = Search::new(compaction::forms(&self.state), room, tokens, refused);
        while let Some(form) = search.wanted() {
            let Some(call) = compaction::due(&self.state, tools, &form) else { return Ok(None) };
            let tokens = self.count(&call).await?;
            search.measured(tokens);
        }
        // An estimate may be too large: with everything left out, the model's server has the last word.
        let last = search.smallest().filter(|_| self.meter.estimates());
        let Some((form, after)) = search.found().or(last) else { return Ok(None) };
        let figures = Figures { before: tokens, after, estimated: self.meter.estimates() };
        let compacted = Compacted::new(&self.state, form, room, figures);
        tell(&self.state, &compacted);
        Ok(Some(compacted.step()))
    }

    /// The supervisor's question with as much of the task as fits; where not even the least of it does, why.
    pub(super) async fn fit_question(&mut self, question: Question) -> Result<Result<Question, Failure>, Interrupted> {
        self.meter.estimated = None;
        let Some(context) = self.context_tokens().await? else { return Ok(Ok(question)) };
        let room = Room::new(Some(context), question.call.max_tokens);
        if room.fits(room::at_most(&self.request_of(&question.call))) {
            return Ok(Ok(question));
        }
        let tokens = self.count(&question.call).await?;
        if room.fits(tokens) {
            return Ok(Ok(question));
        }
        let mut search = Search::new(question.forms(), room, tokens, false);
        while let Some(form) = search.wanted() {
            let tokens = self.count(&form.call).await?;
            search.measured(tokens);
        }
        let (smallest, least) = search.smallest().unwrap_or((&question, tokens));
        let (form, tokens) = match search.found() {
            Some(found) => found,
            None if room.is_possible(tokens) => (&question, tokens),
            None => (smallest, least),
        };
        // As for the calls of agents.
        let least = if self.meter.estimates() { room::at_least(&form.call.messages) } else { tokens };
        Ok(match room.is_possible(least) {
            true => Ok(form.clone()),
            false => Err(compaction::too_large(least, context)),
        })
    }

    /// Tokens of the model's context; `None` where nobody tells.
    async fn context_tokens(&mut self) -> Result<Option<usize>, Interrupted> {
        if let Some(known) = self.meter.context {
            return Ok(known);
        }
        let context = self.context.clone();
        let (provider, model) = (self.state.request.provider.clone(), self.state.request.model.clone());
        let known = {
            let model = model.as_deref().unwrap_or_default();
            let asking = room::context_tokens(&context.models, provider.as_deref(), model);
            tokio::pin!(asking);
            tokio::select! {
                known = &mut asking => known,
                interrupted = self.interruption() => return Err(interrupted),
            }
        };
        self.meter.context = Some(known);
        Ok(known)
    }

    /// Tokens of a call, in the best way that the provider has.
    async fn count(&mut self, call: &ModelCall) -> Result<usize, Interrupted> {
        loop {
            if self.meter.estimates() {
                return Ok(self.meter.estimate(call));
            }
            match self.ask_tokens(call).await? {
                Ok(tokens) => return Ok(tokens),
                Err(error) => {
                    let next = self.meter.counting.next();
                    tracing::debug!(run_id = %self.state.run_id, error = %error, ?next, "tokens are counted in another way");
                    self.meter.counting = next;
                }
            }
        }
    }

    /// Asks the provider, given up when the run is cancelled, lost, out of time or the process stops.
    async fn ask_tokens(&mut self, call: &ModelCall) -> Result<Result<usize, ModelError>, Interrupted> {
        let context = self.context.clone();
        let provider = self.state.request.provider.clone();
        let request = self.request_of(call);
        let counting = self.meter.counting.count(&context.models, provider.as_deref(), &request);
        tokio::pin!(counting);
        tokio::select! {
            counted = &mut counting => Ok(counted),
            interrupted = self.interruption() => Err(interrupted),
        }
    }
}

fn tell(state: &RunState, compacted: &Compacted) {
    tracing::info!(
        run_id = %state.run_id,
        tokens_before = compacted.tokens_before,
        tokens_after = compacted.tokens_after,
        context_tokens = compacted.context_tokens,
        dropped_steps = compacted.dropped_steps.len(),
        "the conversation outgrew the model's context"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_replies_when_estimates_were_too_small_then_later_ones_are_corrected_and_never_back() {
        let mut meter = Meter::default();
        for (estimated, found, correction) in
            [(Some(100), 50, 1.0), (Some(100), 150, 1.5), (Some(100), 120, 1.5), (None, 900, 1.5), (Some(1), 900, 8.0)]
        {
            meter.estimated = estimated;
            meter.learn(found);
            assert!((meter.correction - correction).abs() < 1e-9, "{estimated:?} {found}: {}", meter.correction);
        }
    }
}
