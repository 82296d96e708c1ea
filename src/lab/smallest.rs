//! Search for the smallest passing budget, with few rehearsals.

/// Number of consecutive failures after which the search for smaller budgets ends.
const FAILURES: u32 = 3;

/// Smallest number from `low` to `high`, such as a percentage of a budget, for which `passes` was
/// found to hold. `None` if `high` fails.
///
/// Passing is not monotone: greedy eviction may fail in a budget although it passes in a smaller
/// budget. The returned budget was therefore tried, and passed. Bisection finds a passing budget
/// just above a failing budget. After the bisection, smaller budgets are tried one by one.
///
/// # Errors
/// The first error of `passes`.
pub fn smallest<E>(
    low: u32,
    high: u32,
    mut passes: impl FnMut(u32) -> Result<bool, E>,
) -> Result<Option<u32>, E> {
    if low > high || !passes(high)? {
        return Ok(None);
    }
    // `best` has passed. `failed` has failed, or is `low - 1`, which was not tried.
    let (mut best, mut failed) = (high, low - 1);
    let mut failures = Vec::new();
    while best - failed > 1 {
        let middle = failed.midpoint(best);
        if passes(middle)? {
            best = middle;
        } else {
            failed = middle;
            failures.push(middle);
        }
    }
    let mut next = best;
    while best - next < FAILURES && next > low {
        next -= 1;
        if !failures.contains(&next) && passes(next)? {
            best = next;
        }
    }
    Ok(Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Result of a search, and its number of rehearsals.
    fn search(low: u32, high: u32, passes: impl Fn(u32) -> bool) -> (Option<u32>, usize) {
        let mut asked = Vec::new();
        let found = smallest::<Infallible>(low, high, |percent| {
            assert!(percent >= low && percent <= high && !asked.contains(&percent), "{percent}");
            asked.push(percent);
            Ok(passes(percent))
        });
        let Ok(found) = found;
        assert!(found.is_none_or(&passes), "{found:?} was not seen to pass");
        (found, asked.len())
    }

    #[test]
    fn an_edge_is_found_wherever_it_is() {
        for edge in 1..=100 {
            let (found, rehearsals) = search(1, 100, |percent| percent >= edge);
            assert_eq!(found, Some(edge));
            assert!(rehearsals <= 10, "{rehearsals} for {edge}");
        }
        assert_eq!(search(100, 100, |_| true), (Some(100), 1));
        assert_eq!(search(100, 100, |_| false), (None, 1));
        assert_eq!(search(101, 100, |_| true), (None, 0));
    }

    #[test]
    fn the_budget_found_passes_whatever_the_pattern() {
        // All patterns of passing and failing budgets are tried, over ten budgets, the last of
        // which passes.
        for pattern in 0..1 << 9u32 {
            let passes = |percent: u32| percent == 50 || pattern >> (percent - 41) & 1 == 1;
            assert!(search(41, 50, passes).0.is_some());
        }
    }

    #[test]
    fn a_hole_at_the_edge_does_not_hide_what_is_below() {
        let (found, _) = search(1, 100, |percent| percent >= 60 && percent != 61 && percent != 62);
        assert_eq!(found, Some(60));
    }
}
