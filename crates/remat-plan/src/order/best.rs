//! Comparison of orders by memory.

use super::{Order, OrderError, Reach, Scheduler};
use crate::{Capture, Limits, PlanError, Planner};

/// An order, with its load and the size of its placement.
#[derive(Clone, Debug)]
pub struct Scored<'a> {
    /// Name of the scheduler.
    pub name: &'static str,
    /// Order found by the scheduler.
    pub order: Order<'a>,
    /// Peak of the bytes in use.
    pub load: u64,
    /// Bytes of the placement that the planner found for this order.
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

/// Orders of all `schedulers`, each with its load and the size of its placement by `planner`.
///
/// # Errors
///
/// The result of a scheduler is an error if the scheduler finds no order, or if the planner does
/// not place the buffers of the order.
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

/// Finds the order with the smallest placement. On a tie, the order with the least load wins, then
/// the order of the first scheduler.
///
/// The order of the program wins unless another order is better in placement size or in load, and
/// worse in neither. Schedulers that find no order are skipped.
///
/// # Errors
///
/// [`OrderError`] if the planner does not place the buffers of the order of the program.
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
