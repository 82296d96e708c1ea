//! The known step that is running.

use super::StorageKey;
use crate::step::{NEVER, StepFuture};
use slotmap::SecondaryMap;
use std::sync::Arc;

/// The known step that is running, with the current position in the step and the value of the step
/// that each storage holds.
#[derive(Clone, Debug)]
pub struct Foreseen {
    step: Arc<StepFuture>,
    /// Position of the current command.
    at: u32,
    /// Position of the next command.
    next: u32,
    /// Number of the current turn. Entries of `ordinals` with other numbers are from earlier turns.
    turn: u32,
    /// Turn of each storage, and the number of the step's value that the storage holds in the turn.
    /// The table is not cleared between turns, because clearing takes time in proportion to all
    /// slots ever used.
    ordinals: SecondaryMap<StorageKey, (u32, u32)>,
}

impl Foreseen {
    pub(super) fn new(step: Arc<StepFuture>) -> Self {
        Self { step, at: 0, next: 0, turn: 0, ordinals: SecondaryMap::new() }
    }

    /// Begins a turn of `step`, at its first command.
    pub(super) fn begin(&mut self, step: Arc<StepFuture>) {
        (self.step, self.at, self.next) = (step, 0, 0);
        match self.turn.checked_add(1) {
            Some(turn) => self.turn = turn,
            None => (self.turn, self.ordinals) = (0, SecondaryMap::new()),
        }
    }

    /// Known step that is running.
    #[must_use]
    pub const fn step(&self) -> &Arc<StepFuture> {
        &self.step
    }

    /// Position of the current command in the step.
    #[must_use]
    pub const fn at(&self) -> u32 {
        self.at
    }

    /// Number of the step's value that a storage holds; `None` if the storage holds no value of the
    /// step.
    #[must_use]
    #[inline]
    pub fn ordinal(&self, storage: StorageKey) -> Option<u32> {
        let &(turn, ordinal) = self.ordinals.get(storage)?;
        (turn == self.turn).then_some(ordinal)
    }

    /// Number of commands until the next use of a storage; 0 if the current command uses it. `None`
    /// if no use is left, or if the storage holds no value of the step.
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

    /// Numbers of the values that the current command makes.
    pub(super) fn outputs(&self) -> &[u32] {
        match (self.at as usize) < self.step.len() {
            true => self.step.outputs(self.at as usize),
            false => &[],
        }
    }
}
