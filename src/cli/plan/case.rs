//! A case is the input of planners. The buffers of a case are from a file, or from a step in some
//! order, with or without recomputation.

use super::super::words::Counted;
use remat::ByteSize;
use remat::unstable::lab::plot::Kind;
use remat::unstable::plan::schedule::RecomputeSchedule;
use remat::unstable::plan::{Capture, Instance, Lifetimes, Order, PlanError};
use std::fmt::Write as _;

/// Buffers that planners place.
#[derive(Clone, Debug, Default)]
pub struct Case {
    /// Order of the ops; `None` for a file of buffers.
    pub order: Option<Ordered>,
    /// Budget and schedule of recomputation; `None` without `--budget`.
    pub recomputed: Option<Recomputed>,
    pub instance: Instance,
    pub load: u64,
    /// Role of each buffer; `None` for a buffer of a file.
    pub kinds: Vec<Option<Kind>>,
}

#[derive(Clone, Debug)]
pub struct Ordered {
    pub name: String,
    /// Largest number of ops that are delayed at the same time: issued by the program, but not yet
    /// run. `None` if a runtime can use the order only when it knows the whole step at its start.
    pub held: Option<usize>,
    /// Load of the program's own order, in bytes.
    pub program_load: u64,
}

#[derive(Clone, Debug)]
pub struct Recomputed {
    pub budget: u64,
    /// Name of the schedule; `None` if the order was refused before any schedule was tried.
    pub schedule: Option<String>,
    pub slowdown: Option<f64>,
    /// Lower bound on the slowdown of any schedule in this order; `None` if no schedule fits the
    /// budget.
    pub least_slowdown: Option<f64>,
}

impl Case {
    pub fn of_buffers(instance: Instance) -> Self {
        let load = instance.lifetimes().load();
        Self { load, kinds: vec![None; instance.ids().len()], instance, ..Self::default() }
    }

    /// A case without buffers, for an order that could not be planned.
    pub fn refused(order: &str, program_load: u64) -> Self {
        let order = Ordered { name: order.to_owned(), held: None, program_load };
        Self { order: Some(order), ..Self::default() }
    }

    /// Case of a step in some order. `ids` has the names of the step's buffers, if the input named
    /// them.
    pub fn of_order(
        name: &str,
        order: &Order<'_>,
        program_load: u64,
        ids: Option<&[String]>,
    ) -> Result<Self, PlanError> {
        let lifetimes = order.lifetimes()?;
        let buffers = 0..order.capture().buffers().len();
        Ok(Self {
            order: Some(Ordered { name: name.to_owned(), held: order.held(), program_load }),
            load: lifetimes.load(),
            kinds: kinds(order.capture(), buffers, lifetimes.len()),
            instance: named(order, ids, lifetimes),
            recomputed: None,
        })
    }

    pub fn of_schedule(
        order: &Ordered,
        recomputed: Recomputed,
        schedule: &RecomputeSchedule<'_>,
    ) -> Result<Self, PlanError> {
        let lifetimes = schedule.lifetimes()?;
        let buffers = schedule.lives().into_iter().map(|life| life.buffer);
        Ok(Self {
            order: Some(order.clone()),
            load: lifetimes.load(),
            kinds: kinds(schedule.capture(), buffers, lifetimes.len()),
            instance: Instance::numbered(lifetimes),
            recomputed: Some(recomputed),
        })
    }

    pub fn lifetimes(&self) -> &Lifetimes {
        self.instance.lifetimes()
    }

    /// Number of buffers, without the workspaces of ops.
    pub fn buffers(&self) -> usize {
        self.kinds.iter().filter(|kind| **kind != Some(Kind::Workspace)).count()
    }

    /// Title of the case: order and schedule.
    pub fn title(&self) -> String {
        let order = self.order.as_ref().map(|order| order.name.as_str());
        let schedule = self.recomputed.as_ref().and_then(|one| one.schedule.as_deref());
        order.into_iter().chain(schedule).collect::<Vec<_>>().join(", ")
    }

    pub fn heading(&self) -> String {
        let Some(order) = &self.order else {
            let [load, total] = [self.load, self.lifetimes().total()].map(ByteSize);
            return format!("load {load}; the sizes of all buffers add up to {total}");
        };
        let mut text = self.title();
        match order.held {
            Some(0) => {}
            Some(held) => {
                let _ = write!(text, " (delays up to {})", Counted(held as u64, "op"));
            }
            None => text += " (needs the whole step ahead)",
        }
        let slowdown = self.recomputed.as_ref().and_then(|one| one.slowdown);
        if let Some(slowdown) = slowdown {
            let _ = write!(text, ": slowdown {slowdown:.4}, load {}", ByteSize(self.load));
        } else {
            let _ = write!(text, ": load {}", ByteSize(self.load));
        }
        if self.load != order.program_load {
            let share = percent_of(self.load, order.program_load);
            let _ = write!(text, ", {share} of the load in program order");
        }
        text
    }
}

/// Instance whose buffers have the names in `ids`. A workspace has the name of its op.
fn named(order: &Order<'_>, ids: Option<&[String]>, lifetimes: Lifetimes) -> Instance {
    let Some(ids) = ids else { return Instance::numbered(lifetimes) };
    let ops = order.capture().ops().iter().enumerate().filter(|(_, op)| op.workspace > 0);
    let workspaces = ops.map(|(number, _)| format!("workspace of op {number}"));
    let all = ids.iter().cloned().chain(workspaces).collect();
    // Two buffers may get the same name: a buffer of two tensors is named `x+y`, and another tensor
    // may have this name. If two names are equal, all buffers get numbers.
    Instance::named(all, lifetimes.clone()).unwrap_or_else(|_| Instance::numbered(lifetimes))
}

/// Roles of the buffers, followed by the roles of the workspaces; `count` roles in total.
fn kinds(
    capture: &Capture,
    buffers: impl Iterator<Item = usize>,
    count: usize,
) -> Vec<Option<Kind>> {
    let mut kinds: Vec<_> =
        buffers.map(|number| Some(Kind::Class(capture.class(number)))).collect();
    kinds.resize(count, Some(Kind::Workspace));
    kinds
}

/// `bytes` divided by `load`; 1 if `load` is 0.
pub fn ratio(bytes: u64, load: u64) -> f64 {
    if load == 0 { 1.0 } else { bytes as f64 / load as f64 }
}

/// Text of `part` in percent of `whole`: `97.62 %`.
fn percent_of(part: u64, whole: u64) -> String {
    format!("{:.2} %", 100.0 * ratio(part, whole))
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat::unstable::plan::{CapturedBuffer, CapturedOp};

    #[test]
    fn a_heading_says_how_far_an_order_delays_ops() {
        let waits = CapturedOp { waits: true, ..CapturedOp::new("get").reads([0]) };
        let ops = vec![CapturedOp::new("f").makes([1]), waits, CapturedOp::new("g").makes([2])];
        let buffers = vec![
            CapturedBuffer::kept(100),
            CapturedBuffer::transient(50),
            CapturedBuffer::transient(30),
        ];
        let capture = Capture::new(buffers, ops).unwrap();
        let heading = |ops: [usize; 3]| {
            let order = Order::new(&capture, ops.to_vec()).unwrap();
            Case::of_order("mine", &order, 200, None).unwrap().heading()
        };
        let load = "load 150 B, 75.00 % of the load in program order";
        assert_eq!(heading([0, 1, 2]), format!("mine: {load}"));
        assert_eq!(heading([1, 0, 2]), format!("mine (delays up to 1 op): {load}"));
        assert_eq!(heading([2, 0, 1]), format!("mine (needs the whole step ahead): {load}"));
    }
}
