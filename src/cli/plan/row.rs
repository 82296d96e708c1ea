//! A row of results, as text and as JSON.

use super::super::words::{Seconds, rounded, rounded_down};
use super::case::{Case, ratio};
use remat::ByteSize;
use remat::unstable::plan::{PlanError, Planned};
use serde::Serialize;
use std::fmt::Write as _;

/// Result of a planner for a case, or the reason why the case has no result.
#[derive(Serialize)]
pub struct Row {
    trace: String,
    /// Name of the trace a second time, under the JSON key that versions before 0.2 used.
    name: String,
    /// Order of the ops; `None` for a file of buffers.
    order: Option<String>,
    /// Largest number of ops that are delayed at the same time; see
    /// [`Ordered`](super::case::Ordered).
    held: Option<usize>,
    budget_bytes: Option<u64>,
    /// Schedule of recomputation; `None` if nothing is recomputed.
    schedule: Option<String>,
    slowdown: Option<f64>,
    recompute_ratio: Option<f64>,
    least_slowdown: Option<f64>,
    /// Number of buffers, without workspaces of ops.
    buffers: usize,
    workspaces: usize,
    /// Load of the program's own order, in bytes.
    program_load: Option<u64>,
    /// Most bytes alive at once.
    load: Option<u64>,
    /// Name of the planner.
    reuse: Option<String>,
    bytes: Option<u64>,
    /// `bytes` divided by `load`.
    ratio: Option<f64>,
    /// Seconds taken by the planner.
    seconds: Option<f64>,
    /// Whether the planner proved that no placement takes fewer bytes.
    proven: bool,
    /// Reason why the case has no placement.
    #[serde(skip_serializing_if = "Option::is_none")]
    refusal: Option<String>,
}

impl Row {
    pub fn new(
        name: &str,
        case: &Case,
        reuse: &str,
        seconds: f64,
        planned: &Result<Planned, PlanError>,
    ) -> Self {
        let bytes = planned.as_ref().ok().map(|planned| planned.placement.bytes());
        Self {
            load: Some(case.load),
            reuse: Some(reuse.to_owned()),
            bytes,
            ratio: bytes.map(|bytes| to_a_millionth(ratio(bytes, case.load))),
            seconds: Some(to_a_millionth(seconds)),
            proven: planned.as_ref().is_ok_and(|planned| planned.proven),
            refusal: planned.as_ref().err().map(ToString::to_string),
            ..Self::of_case(name, case)
        }
    }

    /// Row of a case that no planner was run on.
    pub fn refused(name: &str, case: &Case, why: &str) -> Self {
        Self { refusal: Some(why.to_owned()), ..Self::of_case(name, case) }
    }

    fn of_case(name: &str, case: &Case) -> Self {
        let (order, recomputed) = (case.order.as_ref(), case.recomputed.as_ref());
        Self {
            trace: name.to_owned(),
            name: name.to_owned(),
            order: order.map(|order| order.name.clone()),
            held: order.and_then(|order| order.held),
            budget_bytes: recomputed.map(|one| one.budget),
            schedule: recomputed.and_then(|one| one.schedule.clone()),
            slowdown: recomputed.and_then(|one| one.slowdown).map(to_a_millionth),
            recompute_ratio: recomputed
                .and_then(|one| one.slowdown)
                .map(|one| to_a_millionth(one - 1.0)),
            // Round a lower bound down, so that it stays a lower bound.
            least_slowdown: recomputed
                .and_then(|one| one.least_slowdown)
                .map(|least| rounded_down(least, 6)),
            buffers: case.buffers(),
            workspaces: case.lifetimes().len() - case.buffers(),
            program_load: order.map(|order| order.program_load),
            load: None,
            reuse: None,
            bytes: None,
            ratio: None,
            seconds: None,
            proven: false,
            refusal: None,
        }
    }

    /// Width of the row's first column, in characters.
    pub fn name_width(&self) -> usize {
        self.reuse.as_ref().map_or(0, |name| name.chars().count())
    }

    /// Line of the row in a table whose first column has `width` characters.
    pub fn line(&self, width: usize) -> String {
        let mut line = format!("{:width$}", self.reuse.as_deref().unwrap_or_default());
        if let Some(refusal) = &self.refusal {
            let _ = write!(line, "  {refusal}");
            return line;
        }
        let bytes = self.bytes.unwrap_or(0);
        let _ = write!(
            line,
            "  {:>10}  {:.4}  {:>9}",
            ByteSize(bytes).to_string(),
            self.ratio.unwrap_or(1.0),
            Seconds(self.seconds.unwrap_or(0.0)).to_string(),
        );
        if self.proven {
            line += "  proven";
        }
        if self.budget_bytes.is_some_and(|budget| bytes > budget) {
            line += "  over the budget";
        }
        line
    }
}

/// Rounds to a millionth.
fn to_a_millionth(number: f64) -> f64 {
    rounded(number, 6)
}
