//! Plans within a budget, for steps that recompute.

use super::super::failure::Failure;
use super::super::terminal::muted;
use super::super::values::Share;
use super::super::words::at_least;
use super::case::{Case, Ordered, Recomputed};
use super::{PlannedCases, Planning};
use remat::unstable::lab::Replay;
use remat::unstable::memory::ALIGNMENT;
use remat::unstable::plan::Order;
use remat::unstable::plan::schedule::{self, RecomputeSchedule, ScheduleError};
use remat::unstable::program::RecordedProgram;
use remat::{ByteSize, PolicyKind};
use std::fmt::Write as _;

/// Policies whose simulated runs give schedules of recomputation: the best policy of this crate,
/// and the policy of the DTR paper.
const POLICIES: [&str; 2] = ["learned:portfolio", "dtr-eq"];

impl Planning<'_> {
    /// Plans the step in each order within a budget, with every schedule of recomputation.
    pub fn within(
        &self,
        share: Share,
        orders: &[(String, Order<'_>)],
        program_load: u64,
        done: &mut PlannedCases,
    ) -> Result<(), Failure> {
        let budget = share.of(program_load).max(1);
        let _ = write!(done.text, "\nWithin a budget of {share}, {}:", ByteSize(budget));
        let (mut refused, mut fitting) = (None, 0);
        for (name, order) in orders {
            let of_order = Ordered { name: name.clone(), held: order.held(), program_load };
            let program = RecordedProgram::of_order(order);
            let program = program.map_err(|e| Failure::new(format!("{}: {e}", self.name)))?;
            let demand = Replay::new(PolicyKind::None, budget).demand(&program);
            match demand.bound(budget) {
                Ok(bound) => {
                    fitting += 1;
                    let least = bound.excess();
                    let _ = write!(
                        done.text,
                        "\n{name}: every schedule recomputes at least {} %",
                        at_least(least)
                    );
                    self.recompute(order, &of_order, &program, (budget, 1.0 + least), done)?;
                }
                Err(misfit) => {
                    let mut case = Case::refused(name, program_load);
                    case.recomputed = Some(recomputed(budget, None));
                    self.refuse(&case, &misfit.to_string(), done);
                    refused.get_or_insert((demand.least_bytes(), misfit));
                }
            }
        }
        match refused {
            // No order has a schedule that fits the budget.
            Some((least, misfit)) if fitting == 0 => {
                Err(Failure::usage(format!("--budget {share}: {misfit}; give {least}B or more")))
            }
            _ => Ok(()),
        }
    }

    /// Plans the step in one order, with every schedule of recomputation.
    fn recompute(
        &self,
        order: &Order<'_>,
        of_order: &Ordered,
        program: &RecordedProgram,
        (budget, least): (u64, f64),
        done: &mut PlannedCases,
    ) -> Result<(), Failure> {
        let with = |name: &str| Recomputed {
            schedule: Some(name.to_owned()),
            ..recomputed(budget, Some(least))
        };
        for one in schedule::all() {
            self.waiting.at(format!("{}: recomputing by {}", self.name, one.name()));
            let found = one.schedule(order, budget).map_err(|error| match error {
                ScheduleError::Budget { least, .. } => {
                    format!("does not fit; the smallest schedule found takes {}", ByteSize(least))
                }
                error => error.to_string(),
            });
            self.scheduled(of_order, with(one.name()), found, done);
        }
        let written = program.capture_whole(self.granule(order));
        let written = written.map_err(|e| Failure::new(format!("{}: {e}", self.name)))?;
        for policy in POLICIES {
            self.waiting.at(format!("{}: recomputing by {policy}", self.name));
            let replay = Replay::new(policy.parse().expect("its name"), budget);
            let found = muted(|| replay.schedule(program, &written));
            self.scheduled(of_order, with(policy), found.map_err(|e| e.to_string()), done);
        }
        Ok(())
    }

    fn scheduled(
        &self,
        order: &Ordered,
        mut recomputed: Recomputed,
        found: Result<RecomputeSchedule<'_>, String>,
        done: &mut PlannedCases,
    ) {
        recomputed.slowdown = found.as_ref().ok().map(RecomputeSchedule::slowdown);
        let case = found.and_then(|schedule| {
            let case = Case::of_schedule(order, recomputed.clone(), &schedule);
            case.map_err(|e| e.to_string())
        });
        match case {
            Ok(case) => self.plan(case, done),
            Err(why) => {
                let mut case = Case::refused(&order.name, order.program_load);
                case.order = Some(order.clone());
                case.recomputed = Some(recomputed);
                self.refuse(&case, &why, done);
            }
        }
    }

    /// Granule of the step, in bytes: the addresses of all blocks are multiples of the granule.
    fn granule(&self, order: &Order<'_>) -> u64 {
        let buffers = order.capture().buffers().iter();
        buffers.map(|buffer| buffer.align).max().unwrap_or(ALIGNMENT)
    }
}

fn recomputed(budget: u64, least_slowdown: Option<f64>) -> Recomputed {
    Recomputed { budget, schedule: None, slowdown: None, least_slowdown }
}
