//! Who finds out how the steps of the program are best run.

use crate::device::Device;
use crate::evict::Learn;
use crate::program::{Driver, Knowledge, Plan};

/// What a runtime is told about that.
#[derive(Debug, Default)]
pub(crate) struct Learning {
    /// How much is found out.
    pub learn: Learn,
    /// What is known from earlier runs.
    pub known: Knowledge,
    pub seed: u64,
    /// Whether steps run by plan.
    pub plan: Plan,
}

impl Learning {
    /// From now on the steps of a driver are recognized, if its evictor wants that and memory is short, and learned about.
    pub fn begin<D: Device>(self, driver: &mut Driver<D>) {
        let Self { learn, known, seed, plan } = self;
        driver.know(known);
        set(driver, learn, seed);
        driver.plan_steps(plan);
    }
}

/// Has as much found out as is wanted. Without the lab nobody can.
pub(super) fn set<D: Device>(driver: &mut Driver<D>, learn: Learn, seed: u64) {
    #[cfg(feature = "lab")]
    let learner = (learn != Learn::Ahead).then(|| in_the_background(driver, learn, seed)).flatten();
    #[cfg(not(feature = "lab"))]
    let (learner, _) = (None, (learn, seed));
    driver.learn_by(learner);
}

#[cfg(feature = "lab")]
fn in_the_background<D: Device>(
    driver: &Driver<D>,
    learn: Learn,
    seed: u64,
) -> Option<Box<dyn crate::program::Learner>> {
    use crate::lab::{Background, MemoryKind};
    let engine = driver.engine();
    let memory = match engine.arena() {
        Some(_) => MemoryKind::Arena,
        None => MemoryKind::Counted,
    };
    match Background::new(learn, memory, engine.settings().clone(), seed) {
        Ok(background) => Some(Box::new(background)),
        Err(error) => {
            tracing::warn!(target: "remat", %error, "no thread for the search of forecasts");
            None
        }
    }
}
