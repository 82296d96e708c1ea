//! How much is simulated to find out how steps are best run.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Ops that may be run on simulated devices, first runs and reruns alike: by searches, by rehearsals, beside a program and before
/// it.
///
/// An allowance is given as turns of a step in which nothing is recomputed ([`Turn::ops`](super::Turn::ops)). So finds do not
/// depend on time, and a budget in which much is recomputed does not take longer than one in which little is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    left: u64,
    spent: u64,
}

impl Allowance {
    /// An allowance of so many ops.
    #[must_use]
    pub const fn of_ops(left: u64) -> Self {
        Self { left, spent: 0 }
    }

    /// The ops of so many turns, of which each has so many.
    #[must_use]
    pub const fn of_turns(turns: u64, ops: u64) -> Self {
        Self::of_ops(turns.saturating_mul(ops))
    }

    /// Ops that are left.
    #[must_use]
    pub const fn left(self) -> u64 {
        self.left
    }

    /// Ops that were run.
    #[must_use]
    pub const fn spent(self) -> u64 {
        self.spent
    }

    /// Takes note that so many ops were run: of those that are left, or more.
    pub const fn spend(&mut self, ops: u64) {
        self.left = self.left.saturating_sub(ops);
        self.spent = self.spent.saturating_add(ops);
    }

    /// Takes a part of what is left, to be [given back](Self::give_back) as far as it is not spent.
    #[must_use]
    pub const fn take(&mut self, most: u64) -> Self {
        let left = if most < self.left { most } else { self.left };
        self.left -= left;
        Self::of_ops(left)
    }

    /// Takes back what is left of a part that was taken.
    pub const fn give_back(&mut self, part: Self) {
        self.left += part.left;
        self.spent = self.spent.saturating_add(part.spent);
    }

    /// Ends a part that was taken: what is left of it is lost.
    pub const fn close(&mut self, part: Self) {
        self.spent = self.spent.saturating_add(part.spent);
    }

    /// Whether to give up a regeneration, asked before each rerun ([`Engine::interrupt_when`]): once as many are run as are left
    /// beside `first_runs`.
    ///
    /// [`Engine::interrupt_when`]: crate::engine::Engine::interrupt_when
    pub fn interrupt(self, first_runs: u64) -> impl Fn() -> bool + Send + 'static {
        let left = AtomicU64::new(self.left.saturating_sub(first_runs));
        let take = |left: u64| left.checked_sub(1);
        move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err()
    }
}
