//! The beginning of turns by plan: its block is taken, and all operands get their places.

use super::boundary::Boundary;
use super::{Placed, Planning, Replay, StepPlan};
use crate::device::{Device, Place};
use crate::program::Driver;
use crate::store::{Action, Operand, Spot};

impl<D: Device> Driver<D> {
    /// Whether the plan runs from now on: there is room for its block.
    pub(super) fn enter(&mut self, planning: &mut Planning<D>, boundary: &Boundary) -> bool {
        let Some(plan) = &planning.plan else { return false };
        let lent = match self.engine.lend(plan.bytes) {
            Ok(Some(start)) => start,
            Ok(None) => {
                planning.give_up();
                return false;
            }
            Err(error) => {
                planning.give_up();
                self.engine.fail(error);
                return false;
            }
        };
        // Only now, for blocks may have been moved to make room.
        let before: Vec<u64> = boundary.held.iter().map(|&held| self.engine.offset(held)).collect();
        planning.misses = 0;
        planning.replay = Some(Replay::new(plan, boundary, lent, &before));
        true
    }
}

impl<D: Device> Replay<D> {
    fn new(plan: &StepPlan, boundary: &Boundary, start: u64, before: &[u64]) -> Self {
        let taken = |number: u32| start + plan.offsets[number as usize];
        let (mut places, mut layouts) = (Vec::new(), Vec::new());
        let mut actions = Vec::with_capacity(plan.actions.len());
        for action in &plan.actions {
            let first = places.len();
            let mut place = |&Operand { spot, layout }: &Operand| {
                places.push(Place { storage: offset(spot, before, taken), layout });
                layouts.push(layout);
            };
            let (mut inputs, mut workspace) = (0, 0..0);
            match action {
                Action::Run { operands, inputs: read, workspace: scratch, .. } => {
                    operands.iter().for_each(place);
                    inputs = *read;
                    if let &Some((spot, bytes)) = scratch {
                        let first = offset(spot, before, taken);
                        workspace = first..first + bytes;
                    }
                }
                Action::Upload { to: one } | Action::Read { from: one } => place(one),
                Action::Copy { from, to } => [from, to].into_iter().for_each(place),
            }
            actions.push(Placed { operands: first..places.len(), inputs, workspace });
        }
        let returns = plan.returns.iter().map(|&(block, storage)| {
            let storage = storage as usize;
            (taken(block), before[storage], boundary.held[storage].bytes)
        });
        let returns = returns.collect();
        Self { start, places, layouts, actions, returns, taken: Vec::new(), marks: 0 }
    }
}

/// Where a spot is, if blocks of before and blocks taken begin there.
fn offset(spot: Spot, before: &[u64], taken: impl Fn(u32) -> u64) -> u64 {
    match spot {
        Spot::Before(number) => before[number as usize],
        Spot::Taken(number) => taken(number),
    }
}
