//! Several orders of a step, compared by what they take.

use super::super::{Capture, Limits, PlanError, Planner};
use super::{Order, OrderError, Reach, Scheduler};

/// An order, and what it takes.
#[derive(Clone, Debug)]
pub struct Scored<'a> {
    /// The scheduler's name.
    pub name: &'static str,
    /// What it found.
    pub order: Order<'a>,
    /// Most bytes alive at once.
    pub load: u64,
    /// Bytes of the planner's placement.
    pub planned: u64,
}

impl<'a> Scored<'a> {
    fn new(
        name: &'static str,
        order: Order<'a>,
        planner: &dyn Planner,
        limits: &Limits,
    ) -> Result<Self, PlanError> {
        let planned = planner.plan(&order.lifetimes()?, limits)?.placement.bytes();
        Ok(Self { name, load: order.load(), order, planned })
    }
}

/// What each scheduler finds, and what that takes by this planner.
///
/// # Errors
///
/// Of each: it refuses the step, or the planner does.
pub fn score<'a>(
    capture: &'a Capture,
    schedulers: &[Box<dyn Scheduler>],
    reach: Reach,
    planner: &dyn Planner,
    limits: &Limits,
) -> Vec<Result<Scored<'a>, OrderError>> {
    let mut scored = Vec::with_capacity(schedulers.len());
    for scheduler in schedulers {
        let order = scheduler.order(capture, reach, limits);
        let one = |order| Ok(Scored::new(scheduler.name(), order, planner, limits)?);
        scored.push(order.and_then(one));
    }
    scored
}

/// The order of the smallest placement, then of the least load, then the first. The program's own unless another is better
/// in one and not worse in the other. Schedulers that refuse the step do not count.
///
/// # Errors
///
/// The planner refuses the program's own order.
pub fn best_of<'a>(
    capture: &'a Capture,
    schedulers: &[Box<dyn Scheduler>],
    reach: Reach,
    planner: &dyn Planner,
    limits: &Limits,
) -> Result<Scored<'a>, OrderError> {
    let own = Scored::new("program", capture.program(), planner, limits)?;
    let (load, planned) = (own.load, own.planned);
    let found = score(capture, schedulers, reach, planner, limits).into_iter().flatten();
    let found = found.filter(|one| one.load <= load && one.planned <= planned);
    Ok(found.fold(own, |best, one| {
        if (one.planned, one.load) < (best.planned, best.load) { one } else { best }
    }))
}
