//! The relaxed problem in a text format, for external solvers.

use super::dual::{Dual, Placed};
use super::{Demand, Effort, Misfit};
use std::fmt::Write as _;

impl Demand {
    /// The relaxed problem in the LP format of CPLEX, which HiGHS, SCIP, Gurobi and others read.
    ///
    /// [`Demand::bound_by`] solves the dual of the relaxed problem at the same instants. The
    /// optimum of the relaxed problem is the highest [`Bound::excess`] that any prices prove at
    /// these instants.
    ///
    /// Bytes are in units of the budget, costs in units of the cost of the program. Shared sources
    /// are inputs that several gaps need if their values are absent. Each variable is a fraction
    /// from 0 to 1. `y` and `a` are fractions of a value that is absent for a whole gap. `u` is for
    /// a value that is absent only while other commands need its shared sources. `f` is for a value
    /// that is absent and uses the shared sources. `z` is for a run of the shared sources. `k` is
    /// for the shared sources that are held at an instant.
    ///
    /// [`Bound::excess`]: super::Bound::excess
    ///
    /// # Errors
    /// The errors of [`Demand::bound`].
    pub fn relaxation(&self, budget: u64, effort: Effort) -> Result<String, Misfit> {
        self.check(budget)?;
        let points = self.instants(budget, effort.instants);
        let dual = Dual::new(self, budget, &points);
        let mut lp = Lp {
            byte: 1.0 / budget as f64,
            cost: if self.work > 0.0 { 1.0 / self.work } else { 0.0 },
            objective: String::new(),
            rows: String::new(),
            saved: vec![String::new(); points.len()],
        };
        // Gaps without shared sources have a variable for each line of the charge. The variables of
        // a gap add up to at most 1.
        for (i, placed) in dual.items[..dual.single].iter().enumerate() {
            let item = placed.item;
            let mut ways = Vec::new();
            for (l, line) in item.alone.lines().iter().enumerate() {
                let name = format!("y{i}_{l}");
                lp.away(
                    &name,
                    item.cost + line.cost,
                    item.bytes - line.held,
                    placed.low,
                    placed.high,
                );
                ways.push(name);
            }
            lp.at_most_one(&ways);
        }
        // Groups have a variable for each line of the charge for the shared sources. The charge for
        // the shared sources is paid once for all gaps of the group.
        for (g, group) in dual.groups.iter().enumerate() {
            let lines = self.terms.groups[group.group].charge.lines();
            let runs: Vec<String> = (0..lines.len()).map(|m| format!("z{g}_{m}")).collect();
            for (name, line) in runs.iter().zip(lines) {
                lp.costs(name, line.cost);
            }
            lp.at_most_one(&runs);
            let mut kept = vec![vec![false; points.len()]; lines.len()];
            for i in group.items.clone() {
                // The value of a gap is absent without the shared sources (`a`, `u`), or with a
                // line of the charge for the shared sources (`f`).
                let Placed { item, low, middle, high } = dual.items[i];
                let shared = item.shared.as_ref().expect("it is in a group");
                let mut ways = Vec::new();
                for (kind, charge, end) in [('a', &item.alone, high), ('u', &shared.own, middle)] {
                    for (l, line) in charge.lines().iter().enumerate() {
                        let name = format!("{kind}{i}_{l}");
                        lp.away(&name, item.cost + line.cost, item.bytes - line.held, low, end);
                        ways.push(name);
                    }
                }
                for (m, run) in lines.iter().enumerate() {
                    let mut sum = String::new();
                    for (l, line) in shared.own.lines().iter().enumerate() {
                        let name = format!("f{i}_{l}_{m}");
                        lp.away(&name, item.cost + line.cost, item.bytes - line.held, low, high);
                        let _ = write!(sum, "\n + {name}");
                        ways.push(name);
                    }
                    let _ = writeln!(lp.rows, "{sum} - z{g}_{m} <= 0");
                    for at in (middle..high).filter(|_| run.held > 0.0) {
                        let _ = writeln!(lp.rows, "{sum} - k{g}_{m}_{at} <= 0");
                        kept[m][at as usize] = true;
                    }
                }
                lp.at_most_one(&ways);
            }
            // Shared sources that are held take bytes at each instant.
            for (m, (kept, line)) in kept.iter().zip(lines).enumerate() {
                for at in (0..points.len()).filter(|at| kept[*at]) {
                    let _ = write!(lp.saved[at], "\n - {} k{g}_{m}_{at}", line.held * lp.byte);
                }
            }
        }
        Ok(lp.finish(&dual.excess))
    }
}

/// The text of the problem that is being written.
struct Lp {
    /// Factors that convert bytes and costs to the units of the text.
    byte: f64,
    cost: f64,
    objective: String,
    rows: String,
    /// Instant -> text of the sum of the bytes that are absent at this instant.
    saved: Vec<String>,
}

impl Lp {
    fn costs(&mut self, name: &str, cost: f64) {
        let _ = write!(self.objective, "\n + {} {name}", cost * self.cost);
    }

    fn away(&mut self, name: &str, cost: f64, bytes: f64, low: u32, high: u32) {
        self.costs(name, cost);
        for saved in &mut self.saved[low as usize..high as usize] {
            let _ = write!(saved, "\n {:+} {name}", bytes * self.byte);
        }
    }

    fn at_most_one(&mut self, names: &[String]) {
        if !names.is_empty() {
            let _ = writeln!(self.rows, "{} <= 1", names.join("\n + "));
        }
    }

    fn finish(self, excess: &[f64]) -> String {
        let Self { byte, objective, rows, saved, .. } = self;
        let mut text = format!("minimize\nobj: 0 nothing{objective}\nsubject to\n{rows}");
        for (saved, excess) in saved.iter().zip(excess) {
            let _ = writeln!(text, "0 nothing {saved} >= {}", excess * byte);
        }
        text + "end\n"
    }
}
