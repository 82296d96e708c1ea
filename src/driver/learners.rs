//! Factories that make a [`Learner`] for a driver whose user set none.

use super::{Driver, Knowledge, Learner, Plan, Rehearse};
use crate::device::Device;
use crate::evict::Learn;

/// Makes a learner for an effort and a seed. Returns `None` if there is nothing to learn, or if no
/// learner is available.
pub(crate) type NewLearner = fn(Learn, u64) -> Option<Box<dyn Learner>>;

/// A factory of learners with its seed. The factory is a function pointer, because learners are in
/// `lab`, a module above the driver.
#[derive(Debug)]
pub(crate) struct Learners {
    pub new: NewLearner,
    pub seed: u64,
}

impl Learners {
    /// Gives the driver a learner with the effort `learn`.
    pub fn set<D: Device>(&self, driver: &mut Driver<D>, learn: Learn) {
        driver.learn_by((self.new)(learn, self.seed));
    }
}

/// Knowledge of a program's steps, and settings for learning more.
#[derive(Debug)]
pub(crate) struct LearnOptions {
    pub learn: Learn,
    pub learners: Learners,
    /// The user's learner, used in place of `learners` until the policy changes.
    pub own: Option<Box<dyn Learner>>,
    /// Knowledge from earlier runs.
    pub known: Knowledge,
    /// Whether steps run by plan.
    pub plan: Plan,
    /// Search for the budget that an out-of-memory error names. If `None`, errors name no budget.
    pub rehearse: Option<Rehearse>,
}

impl LearnOptions {
    /// Applies all options to a driver. Returns the factory of learners, for
    /// [changes](super::Change) of policy.
    ///
    /// Steps are recognized if the evictor uses foresight. See [`Driver::know`] for when
    /// recognition begins.
    pub fn begin<D: Device>(self, driver: &mut Driver<D>) -> Learners {
        let learn = self.known.learn(self.learn);
        driver.know(self.known);
        match self.own {
            Some(own) => driver.learn_by(Some(own)),
            None => self.learners.set(driver, learn),
        }
        driver.plan_steps(self.plan);
        driver.name_budgets_by(self.rehearse);
        self.learners
    }
}
