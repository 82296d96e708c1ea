//! What a replay needs of memory, and the least that it recomputes.

use super::Replay;
use crate::bound::{Bound, Demand, Effort, Misfit};
use crate::command::RecordedProgram;
use rayon::prelude::*;

impl Replay {
    /// What a program needs of the memory of this replay, at its costs, whatever the policy and the budget are.
    #[must_use]
    pub fn demand(&self, program: &RecordedProgram) -> Demand {
        Demand::new(program.commands(), self.memory.granule(), &mut *self.costs.model())
    }
}

impl Demand {
    /// A bound for each budget, on all cores.
    #[must_use]
    pub fn bounds(&self, budgets: &[u64], effort: Effort) -> Vec<Result<Bound, Misfit>> {
        let bounds = budgets.par_iter().map(|&budget| self.bound_by(budget, effort));
        crate::sync::shared(|| bounds.collect())
    }
}
