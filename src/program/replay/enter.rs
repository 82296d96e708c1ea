//! The beginning of turns by plan: its block is taken, and all operands get their places.

use super::boundary::Boundary;
use super::kinds::Kinds;
use super::{Laid, Placed, Planning, Replay, StepPlan};
use crate::device::{Device, Place};
use crate::layout::Layout;
use crate::program::Driver;
use crate::store::{Action, Operand, Spot};

impl<D: Device> Driver<D> {
    /// Whether turns run by plan from now on, the first of them of this kind: there is room for their block.
    pub(super) fn enter(
        &mut self,
        planning: &mut Planning<D>,
        kind: usize,
        boundary: Boundary,
    ) -> bool {
        let like = |plan: &&StepPlan| plan.boundary.is_like(&boundary);
        let Some(plan) = planning.kinds.get(kind).plan.as_ref().filter(like) else { return false };
        let moved = self.engine.moved_bytes();
        // One block for the plans of all kinds, if there is room for that.
        let all = planning.kinds.largest_plan().map_or(0, |largest| largest.bytes);
        let bytes = if all <= self.engine.room() { all } else { plan.bytes };
        let lent = self.engine.lend(bytes);
        planning.balance.moved(self.engine.moved_bytes() - moved);
        let start = match lent {
            Ok(Some(start)) => start,
            // Blocks that could not be moved are where they were: nothing failed that a command had asked for.
            Ok(None) | Err(_) => {
                planning.refuse(kind);
                return false;
            }
        };
        // Only now, for blocks may have been moved to make room.
        let before: Vec<u64> = boundary.held.iter().map(|&held| self.engine.offset(held)).collect();
        let taken = Vec::new();
        let mut replay = Replay { start, bytes, boundary, before, kind, taken, marks: 0 };
        let entered = replay.choose(&mut planning.kinds, kind);
        planning.replay = Some(replay);
        entered
    }
}

impl<D: Device> Replay<D> {
    /// The turn that begins is of this kind. Whether there is a plan for that, which goes with what is there.
    pub(super) fn choose(&mut self, kinds: &mut Kinds, kind: usize) -> bool {
        let Some(plan) = &mut kinds.get_mut(kind).plan else { return false };
        if plan.bytes > self.bytes || !plan.boundary.is_like(&self.boundary) {
            return false;
        }
        let is_here = |laid: &Laid| laid.start == self.start && laid.before == self.before;
        if !plan.laid.as_ref().is_some_and(is_here) {
            plan.laid = Some(Laid::new(plan, &self.boundary, self.start, &self.before));
        }
        self.kind = kind;
        true
    }
}

impl Laid {
    fn new(plan: &StepPlan, boundary: &Boundary, start: u64, before: &[u64]) -> Self {
        // Of what is done nothing with, nobody asks.
        let taken = |number: u32| start + plan.offsets[number as usize].unwrap_or_default();
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
                Action::Upload { to: one, .. } | Action::Read { from: one } => place(one),
                Action::Copy { from, to } => [from, to].into_iter().for_each(place),
                &Action::Move { from, to, .. }
                    if plan.offsets[from as usize] != plan.offsets[to as usize] =>
                {
                    for block in [from, to] {
                        place(&Operand { spot: Spot::Taken(block), layout: Layout::raw(0) });
                    }
                }
                Action::Evict { .. } | Action::Move { .. } => {}
            }
            actions.push(Placed { operands: first..places.len(), inputs, workspace });
        }
        let returns = plan.returns.iter().map(|&(block, storage)| {
            let storage = storage as usize;
            (taken(block), before[storage], boundary.held[storage].bytes)
        });
        let returns = returns.collect();
        Self { start, before: before.to_vec(), places, layouts, actions, returns }
    }
}

/// Where a spot is, if blocks of before and blocks taken begin there.
fn offset(spot: Spot, before: &[u64], taken: impl Fn(u32) -> u64) -> u64 {
    match spot {
        Spot::Before(number) => before[number as usize],
        Spot::Taken(number) => taken(number),
    }
}
