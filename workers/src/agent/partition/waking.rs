//! Which runs that rest have something to do.

use riverrun_schemas::RunId;
use tokio::sync::mpsc;

use super::{Holder, Partition, ReadyRun, Resting, Slot};

impl Partition {
    /// Makes a resting run ready when there is something to do for it.
    pub(super) fn wake(&mut self, run: &RunId) {
        if !self.live {
            return;
        }
        let Some(slot) = self.runs.get(run) else { return };
        let Holder::Resting(resting) = &slot.holder else { return };
        let turn = slot.session.as_ref().is_none_or(|session| self.sessions.is_first(session, run));
        let state = &resting.state;
        let inputs_missing = state.waits_for_inputs() && resting.ends.is_none();
        let waits = state.history_missing() || inputs_missing || !turn || (state.waits_for_person() && !resting.woken);
        // Whoever was asked to stop waits for nothing.
        if !waits || state.cancel_requested.is_some() {
            self.make_ready(run);
        }
    }

    /// Makes the resting runs ready whose time is over: they end, and wait for nothing any more.
    pub(in crate::agent) fn wake_out_of_time(&mut self, now_ms: i64) {
        if !self.live {
            return;
        }
        let is_over = |slot: &Slot| match &slot.holder {
            // A claim would cut the copying of steps short.
            Holder::Resting(resting) => resting.state.is_out_of_time(now_ms) && !resting.state.history_missing(),
            Holder::Driver(_) => false,
        };
        let over: Vec<RunId> = self.runs.iter().filter(|(_, slot)| is_over(slot)).map(|(run, _)| *run).collect();
        over.iter().for_each(|run| self.make_ready(run));
    }

    fn make_ready(&mut self, run: &RunId) {
        let Some(slot) = self.runs.get_mut(run).filter(|slot| matches!(slot.holder, Holder::Resting(_))) else {
            return;
        };
        let (driver, inbox) = mpsc::unbounded_channel();
        if let Holder::Resting(resting) = std::mem::replace(&mut slot.holder, Holder::Driver(driver)) {
            let Resting { state, next_offset, ends, .. } = *resting;
            let accepted_offset = slot.accepted_offset;
            let behind = slot.session.as_ref().and_then(|session| self.sessions.last_turn(session));
            self.ready.push(ReadyRun { state, accepted_offset, next_offset, inbox, ends, behind });
        }
    }
}
