//! Builder of schedules: tracks which buffers are in memory, and makes missing buffers again.

use super::{Action, Facts, RecomputeSchedule, ScheduleError};
use crate::{Capture, Order};

/// Actions so far, and the buffers that are in memory after these actions.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub capture: &'a Capture,
    pub facts: Facts,
    pub there: Vec<bool>,
    /// Buffer -> number of runs in preparation that need the buffer. A buffer with pins must not be
    /// dropped.
    pub pins: Vec<u32>,
    /// Missing buffers that repeated runs needed, each with the op of the repeated run.
    pub missed: Vec<(usize, usize)>,
    actions: Vec<Action>,
}

impl<'a> Builder<'a> {
    pub fn new(order: &Order<'a>) -> Self {
        let capture = order.capture();
        Self {
            capture,
            facts: Facts::new(order),
            there: capture.buffers().iter().map(|buffer| buffer.before).collect(),
            pins: vec![0; capture.buffers().len()],
            missed: Vec::new(),
            actions: Vec::with_capacity(capture.ops().len()),
        }
    }

    /// Runs an op. Before the op, the ops that make its missing inputs run again. `room` is called
    /// before each run, so that the caller can drop buffers.
    pub fn run(&mut self, op: usize, mut room: impl FnMut(&mut Self, usize)) {
        let mut stack = vec![op];
        self.pin(op, 1);
        while let Some(&op) = stack.last() {
            let this = &self.capture.ops()[op];
            let missing = this.uses().find(|&buffer| !self.there[buffer]);
            // A missing buffer was made before, so its maker runs again.
            if let Some(missing) = missing
                && let Some(maker) = self.capture.maker(missing)
            {
                if stack.len() > 1 {
                    self.missed.push((missing, op));
                }
                self.pin(maker, 1);
                stack.push(maker);
                continue;
            }
            room(self, op);
            self.actions.push(Action::Run(op));
            this.makes.iter().for_each(|&made| self.there[made] = true);
            self.pin(op, -1);
            stack.pop();
        }
    }

    fn pin(&mut self, op: usize, by: i32) {
        for buffer in self.capture.ops()[op].uses() {
            self.pins[buffer] = self.pins[buffer].saturating_add_signed(by);
        }
    }

    /// Drops a buffer that is in memory and may be dropped.
    pub fn drop(&mut self, buffer: usize) {
        self.there[buffer] = false;
        self.actions.push(Action::Drop(buffer));
    }

    /// Checks the actions.
    ///
    /// # Errors
    ///
    /// [`ScheduleError`] if the code that built the schedule has a bug.
    pub fn finish(self) -> Result<RecomputeSchedule<'a>, ScheduleError> {
        RecomputeSchedule::new(self.capture, self.actions)
    }
}
