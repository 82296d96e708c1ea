//! A known step that is running.

use super::StorageKey;
use crate::step::{NEVER, StepFuture};
use slotmap::SecondaryMap;
use std::sync::Arc;

/// A known step that is running: where it is, and which storage holds which of its values.
#[derive(Clone, Debug)]
pub struct Foreseen {
    step: Arc<StepFuture>,
    /// Position of the command at hand.
    at: u32,
    /// Position of the next one.
    next: u32,
    /// Which of all turns it is.
    turn: u32,
    /// Of storages: the turn in which a value was theirs, and that. Kept from turn to turn, for the table is as long as there
    /// ever were storages.
    ordinals: SecondaryMap<StorageKey, (u32, u32)>,
}

impl Foreseen {
    pub(super) fn new(step: Arc<StepFuture>) -> Self {
        Self { step, at: 0, next: 0, turn: 0, ordinals: SecondaryMap::new() }
    }

    /// The same for a turn of this step, from its first command on.
    pub(super) fn begin(&mut self, step: Arc<StepFuture>) {
        (self.step, self.at, self.next) = (step, 0, 0);
        match self.turn.checked_add(1) {
            Some(turn) => self.turn = turn,
            None => (self.turn, self.ordinals) = (0, SecondaryMap::new()),
        }
    }

    /// The step.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// Position of the command at hand.
    #[must_use]
    pub const fn at(&self) -> u32 {
        self.at
    }

    /// The value that a storage holds; `None` if the step does not know it.
    #[must_use]
    #[inline]
    pub fn ordinal(&self, storage: StorageKey) -> Option<u32> {
        let &(turn, ordinal) = self.ordinals.get(storage)?;
        (turn == self.turn).then_some(ordinal)
    }

    /// How many commands away the next use of a storage is, 0 for the one at hand; `None` if there is none to come, or
    /// the step does not know it.
    #[must_use]
    pub fn next_use(&self, storage: StorageKey) -> Option<usize> {
        let next = self.step.next_use(self.ordinal(storage)?, self.at);
        (next != NEVER).then(|| (next - self.at) as usize)
    }

    pub(super) const fn advance(&mut self) {
        self.at = self.next;
        self.next = self.next.saturating_add(1);
    }

    pub(super) const fn seek(&mut self, position: u32) {
        self.next = position;
    }

    pub(super) fn bind(&mut self, storage: StorageKey, ordinal: u32) {
        if (ordinal as usize) < self.step.values() {
            self.ordinals.insert(storage, (self.turn, ordinal));
        }
    }

    /// The values that the command at hand makes.
    pub(super) fn outputs(&self) -> &[u32] {
        match (self.at as usize) < self.step.len() {
            true => self.step.outputs(self.at as usize),
            false => &[],
        }
    }
}
