//! Median and range of several runs.

/// Slowdowns of runs with different seeds. A failed run counts as worse than all passing runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// Number of runs.
    pub runs: usize,
    /// Number of failed runs.
    pub failed: usize,
    /// Median slowdown; with an even number of runs, the mean of the middle two. `None` if a middle
    /// run failed.
    pub median: Option<f64>,
    /// Lowest and highest slowdown of the passing runs; `None` if all runs failed.
    pub range: Option<(f64, f64)>,
}

impl Spread {
    /// Collects slowdowns. `None`, or a number that cannot be a slowdown, counts as a failed run.
    ///
    /// ```
    /// use remat::unstable::lab::Spread;
    /// let spread = Spread::of([Some(1.2), None, Some(1.5)]);
    /// assert_eq!((spread.median, spread.range), (Some(1.5), Some((1.2, 1.5))));
    /// assert_eq!(Spread::of([Some(1.2), None]).median, None);
    /// ```
    #[must_use]
    pub fn of(slowdowns: impl IntoIterator<Item = Option<f64>>) -> Self {
        let is_one = |slowdown: &f64| (0.0..1e12).contains(slowdown);
        let all: Vec<Option<f64>> =
            slowdowns.into_iter().map(|slowdown| slowdown.filter(is_one)).collect();
        let mut passed: Vec<f64> = all.iter().copied().flatten().collect();
        passed.sort_unstable_by(f64::total_cmp);
        let runs = all.len();
        let [below, above] = [runs.saturating_sub(1) / 2, runs / 2].map(|i| passed.get(i));
        Self {
            runs,
            failed: runs - passed.len(),
            median: below.zip(above).map(|(a, b)| a + (b - a) / 2.0),
            range: passed.first().copied().zip(passed.last().copied()),
        }
    }

    /// Whether the slowdowns of the passing runs differ.
    #[must_use]
    pub fn varies(&self) -> bool {
        self.range.is_some_and(|(low, high)| low < high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_counts_failures_as_the_worst() {
        for (runs, median, range) in [
            (&[][..], None, None),
            (&[None], None, None),
            (&[Some(1.5)], Some(1.5), Some((1.5, 1.5))),
            (&[Some(3.0), Some(1.0)], Some(2.0), Some((1.0, 3.0))),
            (&[Some(3.0), Some(1.0), Some(1.5)], Some(1.5), Some((1.0, 3.0))),
            (&[None, Some(1.0), None], None, Some((1.0, 1.0))),
            (&[None, Some(1.0), Some(2.0), Some(1.5)], Some(1.75), Some((1.0, 2.0))),
            (&[Some(f64::NAN), Some(1.0), Some(2.0)], Some(2.0), Some((1.0, 2.0))),
        ] {
            let spread = Spread::of(runs.iter().copied());
            assert_eq!((spread.median, spread.range), (median, range), "{runs:?}");
            assert_eq!(spread.runs, runs.len());
        }
        let equal = Spread::of([Some(1.1); 7]);
        assert_eq!(equal.median, Some(1.1));
        assert!(!equal.varies() && Spread::of([Some(1.0), Some(1.1)]).varies());
    }
}
