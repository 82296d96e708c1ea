//! A schedule in the making: what is there, and how what is not comes back.

use super::super::{Capture, Order};
use super::{Action, Facts, RecomputeSchedule, ScheduleError};

/// Actions so far, and what is there after them.
#[derive(Debug)]
pub(super) struct Builder<'a> {
    pub capture: &'a Capture,
    pub facts: Facts,
    pub there: Vec<bool>,
    /// Buffer -> how many runs to come at once need it: it must not be dropped.
    pub pins: Vec<u32>,
    /// What was missing for a run that is not the first of its op, and that op.
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

    /// Runs an op, and before it what has to run again for it. `room` is called before each run, to drop something.
    pub fn run(&mut self, op: usize, mut room: impl FnMut(&mut Self, usize)) {
        let mut stack = vec![op];
        self.pin(op, 1);
        while let Some(&op) = stack.last() {
            let this = &self.capture.ops()[op];
            let missing = this.uses().find(|&buffer| !self.there[buffer]);
            // What is not there was made before.
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

    /// Gives up a buffer that is there and may go.
    pub fn drop(&mut self, buffer: usize) {
        self.there[buffer] = false;
        self.actions.push(Action::Drop(buffer));
    }

    /// # Errors
    ///
    /// An error in who built it.
    pub fn finish(self) -> Result<RecomputeSchedule<'a>, ScheduleError> {
        RecomputeSchedule::new(self.capture, self.actions)
    }
}
