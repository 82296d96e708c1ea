//! Limits on the effort of simulated runs that search for the best way to run steps.

use crate::sync::atomic::{AtomicU64, Ordering};

/// Number of ops, first runs and reruns alike, that searches and rehearsals may run on simulated
/// devices. The ops are spent before a program begins and while the program runs.
///
/// An allowance is given as turns of a step without recomputation
/// ([`Turn::ops`](super::Turn::ops)). Because ops are counted and not time, the results of a search
/// do not depend on the speed of the machine. A search in a small memory budget takes no longer
/// than a search in a large budget.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    left: u64,
    spent: u64,
}

impl Allowance {
    /// An allowance of `left` ops.
    #[must_use]
    pub const fn of_ops(left: u64) -> Self {
        Self { left, spent: 0 }
    }

    /// An allowance of `turns` turns with `ops` ops each.
    #[must_use]
    pub const fn of_turns(turns: u64, ops: u64) -> Self {
        Self::of_ops(turns.saturating_mul(ops))
    }

    /// Number of ops not yet spent.
    #[must_use]
    pub const fn left(self) -> u64 {
        self.left
    }

    /// Number of ops spent.
    #[must_use]
    pub const fn spent(self) -> u64 {
        self.spent
    }

    /// Records that `ops` ops were run. `ops` may exceed [`left`](Self::left).
    pub const fn spend(&mut self, ops: u64) {
        self.left = self.left.saturating_sub(ops);
        self.spent = self.spent.saturating_add(ops);
    }

    /// Splits off up to `most` ops as a part. The unspent ops of the part can be [given
    /// back](Self::give_back).
    #[must_use]
    pub const fn take(&mut self, most: u64) -> Self {
        let left = if most < self.left { most } else { self.left };
        self.left -= left;
        Self::of_ops(left)
    }

    /// Ends a part and returns its unspent ops.
    pub const fn give_back(&mut self, part: Self) {
        self.left += part.left;
        self.spent = self.spent.saturating_add(part.spent);
    }

    /// Ends a part without returning its unspent ops.
    pub const fn close(&mut self, part: Self) {
        self.spent = self.spent.saturating_add(part.spent);
    }

    /// Returns a predicate for [`Engine::interrupt_when`], called before each rerun. When the
    /// predicate is true, the regeneration is given up. The predicate is true once reruns have used
    /// all remaining ops, except `first_runs` ops reserved for first runs.
    ///
    /// [`Engine::interrupt_when`]: crate::engine::Engine::interrupt_when
    pub fn interrupt(self, first_runs: u64) -> impl Fn() -> bool + Send + 'static {
        let left = AtomicU64::new(self.left.saturating_sub(first_runs));
        let take = |left: u64| left.checked_sub(1);
        move || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err()
    }
}
