//! The relaxed problem in a text format, for external solvers.

use super::dual::{Dual, Placed};
use super::{Demand, Effort, Misfit};
use std::fmt::Write as _;

impl Demand {
    /// The relaxed problem in the LP format of CPLEX, which HiGHS, SCIP, Gurobi and others read.
    ///
    /// [`Demand::bound_by`] solves the dual of this problem at the same instants. The optimum is
    /// the highest value of [`Bound::excess`] that any prices prove at these instants.
    ///
    /// Bytes are in units of the budget, costs in units of the cost of the program. A variable `y`
    /// or `a` is a gap in which a value is absent. `u` is a gap in which a value is absent only
    /// while its shared sources are in use anyway. `f` is a gap that asks for shared sources, `z`
    /// runs these sources, and `k` keeps them at an instant.
    ///
    /// [`Bound::excess`]: super::Bound::excess
    ///
    /// # Errors
    /// As for [`Demand::bound`].
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
        // Single gaps: a variable for each line of the charge, at most one of them.
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
        // Groups: a variable for each line of the shared charge, which pays for all gaps of the
        // group.
        for (g, group) in dual.groups.iter().enumerate() {
            let lines = self.terms.groups[group.group].charge.lines();
            let runs: Vec<String> = (0..lines.len()).map(|m| format!("z{g}_{m}")).collect();
            for (name, line) in runs.iter().zip(lines) {
                lp.costs(name, line.cost);
            }
            lp.at_most_one(&runs);
            let mut kept = vec![vec![false; points.len()]; lines.len()];
            for i in group.items.clone() {
                // A gap is absent on its own ways, or on ways that ask for a line of the shared
                // charge.
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
            // Kept shared sources take bytes at each instant.
            for (m, (kept, line)) in kept.iter().zip(lines).enumerate() {
                for at in (0..points.len()).filter(|at| kept[*at]) {
                    let _ = write!(lp.saved[at], "\n - {} k{g}_{m}_{at}", line.held * lp.byte);
                }
            }
        }
        Ok(lp.finish(&dual.excess))
    }
}

/// Text of the problem, as far as written.
struct Lp {
    /// A byte and a unit of cost, in the units of the text.
    byte: f64,
    cost: f64,
    objective: String,
    rows: String,
    /// Instant -> terms of the bytes absent then.
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
