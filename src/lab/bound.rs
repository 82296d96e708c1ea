//! Memory needs of a replay, and a lower bound on its recomputation.

use super::Replay;
use crate::bound::{Bound, Demand, Effort, Misfit};
use crate::command::RecordedProgram;
use rayon::prelude::*;

impl Replay {
    /// Memory needs of a program, with the memory kind and the costs of this replay. The result
    /// does not depend on policy and budget.
    #[must_use]
    pub fn demand(&self, program: &RecordedProgram) -> Demand {
        Demand::new(program.commands(), self.memory.granule(), &mut *self.costs.model())
    }
}

impl Demand {
    /// Lower bounds for all budgets, in the order of `budgets`, computed on all cores.
    #[must_use]
    pub fn bounds(&self, budgets: &[u64], effort: Effort) -> Vec<Result<Bound, Misfit>> {
        let bounds = budgets.par_iter().map(|&budget| self.bound_by(budget, effort));
        crate::sync::shared(|| bounds.collect())
    }
}
