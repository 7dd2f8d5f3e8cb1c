//! What a driver waits for before it goes on with a run: its turn, and tools.

use super::{Driver, Interrupted, Left};
use crate::agent::places::{Place, Turn};

impl Driver {
    /// Waits until fewer runs are driven than may be. A run that is cancelled meanwhile, or whose time is over, needs no turn to end.
    pub(super) async fn wait_for(&mut self, mut turn: Turn) -> Result<Option<Place>, Interrupted> {
        let out_of_time = self.time_left();
        tokio::pin!(out_of_time);
        while self.state.cancel_requested.is_none() && self.state.finished.is_none() {
            tokio::select! {
                biased;
                () = self.stop.cancelled() => return Err(Interrupted::Left(Left::Stopped)),
                permit = &mut turn => return permit.map(Some).map_err(|_| Interrupted::Left(Left::Stopped)),
                () = &mut out_of_time => break,
                seen = self.inbox.recv() => match seen {
                    Some(seen) => self.take(&seen),
                    None => return Err(Interrupted::Left(Left::Stopped)),
                },
            }
        }
        Ok(None)
    }

    /// Whether all that is left to do is the end, for which no tool is needed.
    pub(super) fn must_end(&self) -> bool {
        self.state.cancel_requested.is_some() || self.state.is_out_of_time(self.clock.now_ms())
    }

    /// Gets tools ready that are started when they are first needed.
    pub(super) async fn prepare_tools(&mut self) -> Result<(), Interrupted> {
        if self.must_end() {
            return Ok(());
        }
        let (context, namespace) = (self.context.clone(), self.state.request.namespace.clone());
        tokio::select! {
            () = context.toolbox.prepare(&namespace) => Ok(()),
            interrupted = self.interruption() => match interrupted {
                Interrupted::Overtaken => Ok(()),
                left @ Interrupted::Left(_) => Err(left),
            },
        }
    }
}
