//! Who finds out how the steps of a program are best run, where nobody made a [`Learner`] by hand.

use super::{Driver, Knowledge, Learner, Plan, Rehearse};
use crate::device::Device;
use crate::evict::Learn;

/// Makes a learner that goes as far as wanted, from a seed; `None` if there is nothing to find out, or nobody to do it.
pub(crate) type NewLearner = fn(Learn, u64) -> Option<Box<dyn Learner>>;

/// Learners of any kind, as there are some in the lab, which is far above.
#[derive(Debug)]
pub(crate) struct Learners {
    pub new: NewLearner,
    pub seed: u64,
}

impl Learners {
    /// From now on as much is found out for a driver.
    pub fn set<D: Device>(&self, driver: &mut Driver<D>, learn: Learn) {
        driver.learn_by((self.new)(learn, self.seed));
    }
}

/// What is known of a program's steps, and to be found out.
#[derive(Debug)]
pub(crate) struct LearnOptions {
    pub learn: Learn,
    pub learners: Learners,
    /// One of the user's, in place of theirs until the policy changes.
    pub own: Option<Box<dyn Learner>>,
    /// What is known from earlier runs.
    pub known: Knowledge,
    /// Whether steps run by plan.
    pub plan: Plan,
    /// Finds budgets for out-of-memory errors.
    pub rehearse: Option<Rehearse>,
}

impl LearnOptions {
    /// From now on the steps of a driver are recognized, if its evictor wants that and memory is short, and learned about.
    /// Returns who does, for [changes](super::Change) of policy.
    pub fn begin<D: Device>(self, driver: &mut Driver<D>) -> Learners {
        driver.know(self.known);
        match self.own {
            Some(own) => driver.learn_by(Some(own)),
            None => self.learners.set(driver, self.learn),
        }
        driver.plan_steps(self.plan);
        driver.name_budgets_by(self.rehearse);
        self.learners
    }
}
