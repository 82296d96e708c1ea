//! Table of a sweep, for people, with a line for each policy and a column for each budget.

use super::labels::{BOUND, Labels};
use super::values::distinct;
use super::words::{Counted, rounded_down};
use remat::unstable::lab::{Row, Spread, StepTimes, Verdict};
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// Tables of all traces.
pub struct Matrix<'a> {
    rows: &'a [Row],
    labels: Labels<'a>,
    /// Most characters in a line. A wider table is divided into blocks, each with some of the
    /// columns.
    width: usize,
}

impl<'a> Matrix<'a> {
    /// Tables of `rows`, with at most `width` characters in a line.
    pub const fn new(rows: &'a [Row], labels: Labels<'a>, width: usize) -> Self {
        Self { rows, labels, width }
    }
}

impl fmt::Display for Matrix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for trace in distinct(self.rows.iter().map(|row| row.trace.as_str())) {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.trace == trace).collect();
            self.table(f, (trace, trace.to_owned()), &rows, &Figure::Slowdown)?;
        }
        write!(f, "Slowdown; oom: out of memory, limit: recomputed more than the limit.")?;
        if self.rows.iter().any(|row| row.least_slowdown.is_some()) {
            write!(
                f,
                "\n{BOUND}: lower bound for runs in program order; none: no run fits the budget."
            )?;
        }
        match distinct(self.rows.iter().map(|row| row.seed)).len() {
            1 => Ok(()),
            seeds => write!(
                f,
                "\nMedians of {}; a failed run counts as the worst.",
                Counted(seeds as u64, "seed")
            ),
        }?;
        self.times(f)
    }
}

/// Line of a table: the name of the line, and the text of each cell.
type Line = (String, Vec<String>);

/// Figure that a table shows of each row.
enum Figure {
    Slowdown,
    /// Time of a step on several ranks, divided by `unit` seconds. `place` is the index in
    /// [`StepTimes::on_ranks`].
    Step {
        place: usize,
        unit: f64,
    },
}

impl Figure {
    fn of(&self, row: &Row) -> Option<f64> {
        match self {
            Self::Slowdown => row.slowdown,
            Self::Step { place, unit } => {
                Some(row.step.as_ref()?.on_ranks.get(*place)?.seconds / unit)
            }
        }
    }
}

impl Matrix<'_> {
    /// Writes a table of the time of a step for each number of ranks, if rows have such times.
    fn times(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps = || self.rows.iter().filter_map(|row| row.step.as_ref());
        let Some(StepTimes { on_ranks, .. }) = steps().next() else { return Ok(()) };
        let most = steps().flat_map(|step| &step.on_ranks).map(|on| on.seconds).fold(0.0, f64::max);
        let (name, unit) = [("s", 1.0), ("ms", 1e-3)]
            .into_iter()
            .find(|(_, unit)| most >= *unit)
            .unwrap_or(("\u{b5}s", 1e-6));
        write!(f, "\n\n")?;
        for trace in distinct(self.rows.iter().map(|row| row.trace.as_str())) {
            let rows: Vec<&Row> = self.rows.iter().filter(|row| row.trace == trace).collect();
            for (place, on) in on_ranks.iter().enumerate() {
                let heading = format!("{trace}, {}", Counted(on.ranks, "rank"));
                self.table(f, (trace, heading), &rows, &Figure::Step { place, unit })?;
            }
        }
        write!(f, "Time of a step in {name} on several ranks.")
    }

    fn table(
        &self,
        f: &mut fmt::Formatter<'_>,
        (trace, name): (&str, String),
        rows: &[&Row],
        figure: &Figure,
    ) -> fmt::Result {
        let budgets: BTreeSet<u64> = rows.iter().map(|row| row.budget_bytes).collect();
        let heading = |&budget: &u64| self.labels.budget(trace, budget);
        let mut lines = vec![(name, budgets.iter().map(heading).collect())];
        for label in distinct(rows.iter().map(|row| self.labels.label(row))) {
            let of_label: Vec<&Row> =
                rows.iter().copied().filter(|row| self.labels.label(row) == label).collect();
            let cells: Vec<Cell> =
                budgets.iter().map(|&b| Cell::of(&of_label, b, figure)).collect();
            lines.push((label, cells.iter().map(Cell::median).collect()));
            if cells.iter().any(Cell::varies) {
                lines.push(("  range".to_owned(), cells.iter().map(Cell::range).collect()));
            }
        }
        let bounded = rows.iter().any(|row| row.least_slowdown.is_some());
        if bounded && matches!(figure, Figure::Slowdown) {
            let least = |budget: &u64| {
                let row = rows.iter().find(|row| row.budget_bytes == *budget)?;
                Some(match row.least_slowdown {
                    Some(least) => format!("{:.3}", rounded_down(least, 3)),
                    None => "none".to_owned(),
                })
            };
            let cells = budgets.iter().map(|budget| least(budget).unwrap_or_default());
            lines.push((BOUND.to_owned(), cells.collect()));
        }
        self.blocks(f, &lines)?;
        writeln!(f)
    }

    /// Writes a table in blocks, one below the other. A block has as many columns as fit the width,
    /// but at least one column.
    fn blocks(&self, f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
        let width = |text: &String| text.chars().count();
        let columns = lines[0].1.len();
        // All cells have the same width, so that the columns of all blocks are aligned.
        let cell = lines.iter().flat_map(|(_, cells)| cells).map(width).max().unwrap_or(0) + 1;
        let widest = lines.iter().map(|(label, _)| width(label)).max().unwrap_or(0);
        let label = widest.min(self.width.saturating_sub(cell));
        let fitting = (self.width.saturating_sub(label) / cell).clamp(1, columns.max(1));
        // The columns are divided evenly among the blocks: 5 and 5 columns instead of 7 and 3.
        let per_block = columns.div_ceil(columns.div_ceil(fitting).max(1)).max(1);
        for (i, start) in (0..columns).step_by(per_block).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            for (name, cells) in lines {
                let mut line = format!("{:label$}", shortened(name, label));
                for text in &cells[start..columns.min(start + per_block)] {
                    let _ = write!(line, "{text:>cell$}");
                }
                writeln!(f, "{}", line.trim_end())?;
            }
        }
        Ok(())
    }
}

/// Text cut to `width` characters.
fn shortened(text: &str, width: usize) -> String {
    match text.chars().count() <= width {
        true => text.to_owned(),
        false => {
            text.chars().take(width.saturating_sub(1)).chain(['\u{2026}']).take(width).collect()
        }
    }
}

/// Cell of a table: the replays with the same settings and budget, and different seeds.
struct Cell {
    spread: Spread,
    /// Reason why the first failed replay failed; empty if no replay failed.
    failure: &'static str,
}

impl Cell {
    fn of(rows: &[&Row], budget: u64, figure: &Figure) -> Self {
        let rows: Vec<&&Row> = rows.iter().filter(|row| row.budget_bytes == budget).collect();
        let failed = rows.iter().find(|row| row.slowdown.is_none());
        Self {
            spread: Spread::of(rows.iter().map(|row| figure.of(row))),
            failure: failed.map_or("", |row| match row.status {
                Verdict::Oom => "oom",
                Verdict::RecomputeLimit => "limit",
                _ => "failed",
            }),
        }
    }

    /// Text of the median. If failed replays leave no median, the text is the reason of the
    /// failure. The text is empty if no replay was made.
    fn median(&self) -> String {
        self.spread.median.map_or_else(|| self.failure.to_owned(), |median| format!("{median:.3}"))
    }

    fn varies(&self) -> bool {
        self.spread.varies() || (1..self.spread.runs).contains(&self.spread.failed)
    }

    /// Text of the range from the best to the worst replay; empty if all replays are equal.
    fn range(&self) -> String {
        match self.spread.range {
            Some((low, _)) if self.spread.failed > 0 => format!("{low:.2}-{}", self.failure),
            Some((low, high)) if low < high => format!("{low:.2}-{high:.2}"),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
