//! Figures of many runs, which show that the random programs reach enough situations.

use super::verdict::Run;
use remat::op::Operation as _;
use remat::ops::Op;
use std::collections::BTreeSet;
use std::fmt;

/// Sums over all runs, and the number of runs in which each thing happened.
#[derive(Debug, Default)]
pub struct Figures {
    pub runs: u64,
    pub sum: Run,
    evicted: u64,
    recomputed: u64,
    compacted: u64,
    updated: u64,
    failed: u64,
}

impl Figures {
    pub fn add(&mut self, run: &Run) {
        self.runs += 1;
        self.sum.add(run);
        self.evicted += u64::from(run.evictions > 0);
        self.recomputed += u64::from(run.recomputed > 0);
        self.compacted += u64::from(run.compactions > 0);
        self.updated += u64::from(run.updated > 0);
        self.failed += u64::from(run.failures > 0);
    }

    /// Fails unless the runs reach enough situations.
    ///
    /// A minimum share of the runs must evict, recompute, compact, update in place and fail, and a
    /// minimum share must not fail. Most values must be read. Most numbers must be finite, since
    /// one NaN looks like another. All ops must run.
    pub fn check(&self) {
        let Self { runs, sum, .. } = self;
        let part = |count: u64| count as f64 / *runs as f64;
        assert!(part(self.evicted) > 0.5 && part(self.recomputed) > 0.5, "{self}");
        assert!(part(self.compacted) > 0.2 && part(self.updated) > 0.5, "{self}");
        assert!((0.2..0.8).contains(&part(self.failed)), "{self}");
        assert!(sum.schedules > 0 && sum.skipped > 0 && sum.refused > 0, "{self}");
        assert!(sum.read > 5 * sum.unread && sum.read > 10 * sum.unknown, "{self}");
        assert!(sum.finite as f64 > 0.9 * sum.elements as f64, "{self}");
        let ran: BTreeSet<&str> = sum.ops.keys().map(String::as_str).collect();
        let each = remat::unstable::ops::samples::each();
        // `adamw` updates three tensors, one of which must not be negative. tests/optimizers.rs
        // runs it under every budget.
        let mut missing: Vec<&str> =
            each.iter().map(Op::name).filter(|op| !ran.contains(op)).collect();
        missing.retain(|op| *op != "adamw");
        assert!(missing.is_empty(), "these ops never ran: {missing:?}");
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, sum, .. } = self;
        let ops: u64 = sum.ops.values().sum();
        let part = |count: u64| 100.0 * count as f64 / *runs as f64;
        writeln!(
            f,
            "{runs} runs: {ops} ops, {} evictions, {} ops again, {} by a schedule, {} compactions",
            sum.evictions, sum.recomputed, sum.schedules, sum.compactions
        )?;
        writeln!(
            f,
            "  {} updates in place, {} skipped, {} failures heard of, {} calls refused",
            sum.updated, sum.skipped, sum.failures, sum.refused
        )?;
        writeln!(
            f,
            "  {} values read as expected ({} of which several are possible), {} could not be read; {:.1} % finite",
            sum.read,
            sum.unknown,
            sum.unread,
            100.0 * sum.finite as f64 / sum.elements as f64
        )?;
        write!(
            f,
            "  of the runs {:.0} % evicted, {:.0} % recomputed, {:.0} % compacted, {:.0} % updated in place, {:.0} % failed",
            part(self.evicted),
            part(self.recomputed),
            part(self.compacted),
            part(self.updated),
            part(self.failed)
        )
    }
}
