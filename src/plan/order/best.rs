//! Comparison of orders by memory.

use super::super::{Capture, Limits, PlanError, Planner};
use super::{Order, OrderError, Reach, Scheduler};

/// An order, with its load and the size of its placement.
#[derive(Clone, Debug)]
pub struct Scored<'a> {
    /// Name of the scheduler.
    pub name: &'static str,
    /// Order found by the scheduler.
    pub order: Order<'a>,
    /// Peak of the bytes in use.
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

/// Orders of all schedulers, with their loads and their placements by this planner.
///
/// # Errors
///
/// One result a scheduler: its error, or the planner's.
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

/// Finds the order with the smallest placement; on a tie the least load, then the first scheduler.
///
/// The program's own order wins unless another one is better in placement or load and worse in
/// neither. Schedulers that refuse the step are skipped.
///
/// # Errors
///
/// [`OrderError`] if the planner refuses the program's own order.
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
