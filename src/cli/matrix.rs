//! A sweep as a table for people: a line per policy, a column per budget.

use super::sweep::{Labels, distinct};
use remat::lab::{Row, Verdict};
use std::collections::BTreeSet;
use std::fmt;

/// More columns do not fit a terminal.
const COLUMNS: usize = 12;

/// The tables of all traces.
pub struct Matrix<'a> {
    rows: &'a [Row],
    labels: Labels,
}

impl<'a> Matrix<'a> {
    /// Of these rows.
    pub fn of(rows: &'a [Row]) -> Self {
        Self { rows, labels: Labels::of(rows) }
    }
}

impl fmt::Display for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trace in distinct(self.rows.iter().map(|row| row.trace.as_str())) {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.trace == trace).collect();
            self.table(f, trace, &rows)?;
        }
        write!(f, "Slowdown; oom: out of memory, limit: recomputed more than the limit.")
    }
}

impl Matrix<'_> {
    fn table(&self, f: &mut fmt::Formatter<'_>, trace: &str, rows: &[&Row]) -> fmt::Result {
        // Of many budgets, some evenly between the smallest and the largest.
        let all: Vec<u64> =
            rows.iter().map(|row| row.budget_bytes).collect::<BTreeSet<_>>().into_iter().collect();
        let count = all.len().min(COLUMNS);
        let budgets: Vec<u64> = (0..count)
            .map(|i| all[if count == 1 { 0 } else { i * (all.len() - 1) / (count - 1) }])
            .collect();
        let labels = distinct(rows.iter().map(|row| self.labels.label(row)));
        let width = labels.iter().map(String::len).chain([trace.len()]).max().unwrap_or(0);
        write!(f, "{trace:width$}")?;
        for &budget in &budgets {
            let row = rows.iter().find(|row| row.budget_bytes == budget);
            let ratio = row.map_or(0.0, |row| row.budget_ratio);
            write!(f, " {:>6}", format!("{:.1}%", 100.0 * ratio))?;
        }
        writeln!(f)?;
        for label in labels {
            write!(f, "{label:width$}")?;
            for &budget in &budgets {
                let cell: Vec<&&Row> = rows
                    .iter()
                    .filter(|row| row.budget_bytes == budget && self.labels.label(row) == label)
                    .collect();
                write!(f, " {:>6}", summary(&cell))?;
            }
            writeln!(f)?;
        }
        writeln!(f)
    }
}

/// The mean of the seeds, or why the first of them failed.
fn summary(rows: &[&&Row]) -> String {
    if let Some(failed) = rows.iter().find(|row| row.slowdown.is_none()) {
        return match failed.status {
            Verdict::Oom => "oom",
            Verdict::RecomputeLimit => "limit",
            _ => "failed",
        }
        .to_owned();
    }
    let sum: f64 = rows.iter().filter_map(|row| row.slowdown).sum();
    if rows.is_empty() { String::new() } else { format!("{:.3}", sum / rows.len() as f64) }
}
