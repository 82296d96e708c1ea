//! The beginning of turns by plan: allocates the plan's block and computes the places of all
//! operands.

use super::boundary::{Boundary, Slots};
use super::kinds::Kinds;
use super::{Laid, Placed, Planning, Replay, StepPlan};
use crate::device::{Device, Place};
use crate::engine::Engine;
use crate::layout::Layout;
use crate::store::{Action, Operand, Spot};
use remat_memory::Held;

impl<D: Device> Planning<D> {
    /// Begins to run turns by plan, with a turn of kind `kind`. Returns false if the kind has no
    /// plan for the current live tensors, or if the plan's block does not fit in memory.
    pub(super) fn enter(
        &mut self,
        engine: &mut Engine<D>,
        kind: usize,
        boundary: Boundary,
    ) -> bool {
        let like = |plan: &&StepPlan| plan.boundary == boundary;
        let Some(plan) = self.kinds.get(kind).plan.as_ref().filter(like) else { return false };
        let moved = engine.moved_bytes();
        // Allocate one block for the plans of all kinds, if the largest plan fits in memory.
        let all = self.kinds.largest_plan().map_or(0, |largest| largest.bytes);
        let bytes = if all <= engine.room() { all } else { plan.bytes };
        let lent = engine.lend(bytes);
        self.balance.moved(engine.moved_bytes() - moved);
        let start = match lent {
            Ok(Some(start)) => start,
            // Blocks that could not be moved stay in place. A failed move is not reported, because
            // no command asked for it.
            Ok(None) | Err(_) => {
                self.refuse(kind);
                return false;
            }
        };
        self.entries += 1;
        let (taken, entry) = (Vec::new(), self.entries);
        let mut replay = Replay { start, bytes, boundary, entry, kind, taken, marks: 0, turns: 0 };
        // Choose the plan after allocating its block, because the allocation may have moved other
        // blocks.
        let there = There { slots: &self.numbers.slots, engine };
        let entered = replay.choose(&mut self.kinds, kind, there);
        self.replay = Some(replay);
        entered
    }
}

impl<D: Device> Replay<D> {
    /// Selects the plan of a kind for the turn that begins. Returns false if the kind has no plan,
    /// if the plan needs a larger block, or if the plan was made for other live tensors.
    pub(super) fn choose(&mut self, kinds: &mut Kinds, kind: usize, there: There<'_, D>) -> bool {
        let Some(plan) = &mut kinds.get_mut(kind).plan else { return false };
        if plan.bytes > self.bytes || plan.boundary != self.boundary {
            return false;
        }
        // Blocks do not move while turns run by plan, so places stay valid until plans are left.
        if plan.laid.as_ref().is_none_or(|laid| laid.entry != self.entry) {
            let Some(held) = there.held(&plan.before) else { return false };
            let before = held.iter().map(|&held| there.engine.offset(held)).collect();
            plan.laid = Some(match plan.laid.take() {
                Some(laid) if laid.start == self.start && laid.before == before => {
                    Laid { entry: self.entry, ..laid }
                }
                _ => Laid::new(plan, self, before, &held),
            });
        }
        self.kind = kind;
        true
    }
}

/// Live storages between turns, with their addresses.
#[derive(Clone, Copy)]
pub(super) struct There<'a, D: Device> {
    pub slots: &'a Slots,
    pub engine: &'a Engine<D>,
}

impl<D: Device> There<'_, D> {
    /// The blocks of the storages whose tensors have the given slots.
    fn held(&self, slots: &[u32]) -> Option<Vec<Held>> {
        let held = |&slot| self.engine.graph().held(self.slots.storage(slot)?);
        slots.iter().map(held).collect()
    }
}

impl Laid {
    /// Computes the places of all operands. The plan's block starts at `replay.start`; `before` has
    /// the addresses of storages made before the turn.
    fn new<D: Device>(
        plan: &StepPlan,
        replay: &Replay<D>,
        before: Vec<u64>,
        held: &[Held],
    ) -> Self {
        let &Replay { start, entry, .. } = replay;
        // A block without an offset is never used, so any address will do.
        let taken = |number: u32| start + plan.offsets[number as usize].unwrap_or_default();
        let (mut places, mut layouts) = (Vec::new(), Vec::new());
        let mut actions = Vec::with_capacity(plan.actions.len());
        for action in &plan.actions {
            let first = places.len();
            let mut place = |&Operand { spot, layout }: &Operand| {
                places.push(Place { storage: offset(spot, &before, taken), layout });
                layouts.push(layout);
            };
            let (mut inputs, mut workspace) = (0, 0..0);
            match action {
                Action::Run { operands, inputs: read, workspace: scratch, .. } => {
                    operands.iter().for_each(place);
                    inputs = *read;
                    if let &Some((spot, bytes)) = scratch {
                        let first = offset(spot, &before, taken);
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
            (taken(block), before[storage], held[storage].bytes)
        });
        let returns = returns.collect();
        Self { entry, start, before, places, layouts, actions, returns }
    }
}

/// Address of an operand, given the addresses of the blocks.
fn offset(spot: Spot, before: &[u64], taken: impl Fn(u32) -> u64) -> u64 {
    match spot {
        Spot::Before(number) => before[number as usize],
        Spot::Taken(number) => taken(number),
    }
}
