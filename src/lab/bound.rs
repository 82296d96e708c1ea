//! What a replay needs of memory.

use super::Replay;
use crate::bound::Demand;
use crate::program::RecordedProgram;

impl Replay {
    /// What a program needs of the memory of this replay, at its costs, whatever the policy and the budget are.
    #[must_use]
    pub fn demand(&self, program: &RecordedProgram) -> Demand {
        Demand::new(program.commands(), self.placement.granule(), &mut *self.costs.model())
    }
}
