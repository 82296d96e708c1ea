//! Names of the lines and columns of a sweep.

use super::values::{Share, distinct};
use remat::ByteSize;
use remat::unstable::lab::{Job, Row};
use std::collections::HashMap;
use std::fmt::Write as _;

/// Name of the line that shows the lower bound.
pub const BOUND: &str = "bound";

/// Budgets and thresholds as the user wrote them. A key is the name of a trace and a size in bytes.
#[derive(Default)]
pub struct Given {
    pub budgets: HashMap<(String, u64), Share>,
    pub thresholds: HashMap<(String, u64), Share>,
}

impl Given {
    /// Text of the lowest threshold, as the user wrote it.
    pub fn lowest_threshold(&self) -> String {
        let lowest = self.thresholds.iter().min_by_key(|((_, bytes), _)| *bytes);
        let told = |((_, bytes), share): (&(String, u64), &Share)| match share {
            Share::Percent(percent) => format!("{percent}% ({})", ByteSize(*bytes)),
            Share::Bytes(_) => exact(*bytes),
        };
        lowest.map(told).unwrap_or_default()
    }

    /// Budgets without a replay, as the user wrote them; `None` if every budget has a replay.
    pub fn without_replay(&self, jobs: &[Job<'_>]) -> Option<String> {
        let is_replayed = |(trace, bytes): &(String, u64)| {
            jobs.iter().any(|job| job.trace == trace && job.replay.budget == *bytes)
        };
        let mut left_out: Vec<_> = self.budgets.keys().filter(|key| !is_replayed(key)).collect();
        left_out.sort_by_key(|(_, bytes)| bytes);
        let names = left_out.iter().map(|(trace, bytes)| as_given(&self.budgets, trace, *bytes));
        let names = distinct(names);
        (!names.is_empty()).then(|| names.join(", "))
    }
}

/// Names of the lines and columns of a table.
pub struct Labels<'a> {
    given: &'a Given,
    dead: bool,
    threshold: bool,
}

impl<'a> Labels<'a> {
    /// Names for `rows`. A name contains a setting only if the setting differs between rows.
    pub fn of(rows: &[Row], given: &'a Given) -> Self {
        let varies =
            |differs: fn(&Row, &Row) -> bool| rows.iter().any(|row| differs(row, &rows[0]));
        Self {
            given,
            dead: varies(|a, b| a.dead != b.dead),
            threshold: distinct(given.thresholds.values()).len() > 1,
        }
    }

    /// Name of the table's line that shows `row`.
    pub fn label(&self, row: &Row) -> String {
        let mut label = row.policy.clone();
        if self.dead {
            let _ = write!(label, ", {}", row.dead);
        }
        if let Some(threshold) = row.threshold_bytes.filter(|_| self.threshold) {
            let share = as_given(&self.given.thresholds, &row.trace, threshold);
            let _ = write!(label, ", from {share}");
        }
        label
    }

    /// Name of the table's column for a budget.
    pub fn budget(&self, trace: &str, bytes: u64) -> String {
        as_given(&self.given.budgets, trace, bytes)
    }
}

fn as_given(given: &HashMap<(String, u64), Share>, trace: &str, bytes: u64) -> String {
    match given.get(&(trace.to_owned(), bytes)) {
        Some(Share::Percent(percent)) => format!("{percent}%"),
        _ => exact(bytes),
    }
}

/// Exact text of a size, in the largest unit that needs at most two decimals: `64MiB`, `1.5GB`,
/// `145161`.
fn exact(bytes: u64) -> String {
    const UNITS: [(u64, &str); 8] = [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
        (1_000_000_000_000, "TB"),
        (1_000_000_000, "GB"),
        (1_000_000, "MB"),
        (1000, "KB"),
    ];
    let whole = |(scale, _): &&(u64, &str)| {
        bytes >= *scale && (u128::from(bytes) * 100).is_multiple_of(u128::from(*scale))
    };
    match UNITS.iter().find(whole) {
        Some(&(scale, unit)) => format!("{}{unit}", bytes as f64 / scale as f64),
        None => bytes.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_told_as_they_were_given() {
        for text in
            ["64MiB", "1.5GiB", "100KB", "1.25MB", "145161", "3TiB", "7", "1000000007", "2.5KiB"]
        {
            let ByteSize(bytes) = text.parse().unwrap();
            assert_eq!(exact(bytes), text);
        }
        let mut given = Given::default();
        given.budgets.insert(("t".to_owned(), 1000), Share::Percent(12.5));
        given.budgets.insert(("t".to_owned(), 1 << 20), Share::Bytes(1 << 20));
        let labels = Labels { given: &given, dead: false, threshold: false };
        assert_eq!(labels.budget("t", 1000), "12.5%");
        assert_eq!(labels.budget("t", 1 << 20), "1MiB");
    }
}
