//! Search for budgets at which a run fails or recomputes more than at a smaller budget.

use super::sweep::Row;
use serde::Serialize;

/// Budgets at which a policy fails or recomputes more, although a smaller budget passes or
/// recomputes less.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Feasibility {
    /// Name of the program.
    pub trace: String,
    /// The policy's name or formula.
    pub policy: String,
    /// Setting for tensors that are recomputed only to recompute others: `linger`, `drop` or
    /// `keep`.
    pub dead: &'static str,
    /// Eviction threshold in bytes; `None` without a threshold.
    pub threshold_bytes: Option<u64>,
    /// Seed of the runs.
    pub seed: u64,
    /// Number of budgets tried.
    pub budgets: usize,
    /// Smallest passing budget, as a share of the full budget.
    pub smallest_ratio: Option<f64>,
    /// Ranges of failing budgets above a passing budget. Each entry is the first and the last
    /// budget of a range, as shares of the full budget.
    pub holes: Vec<[f64; 2]>,
    /// Passing budgets at which the run recomputes more than at the next smaller passing budget, as
    /// shares of the full budget.
    pub inversions: Vec<f64>,
    /// Largest increase of the slowdown from a passing budget to the next larger passing budget.
    pub worst_inversion: f64,
}

/// Searches the rows of a sweep. The result has one entry for each trace, policy,
/// [`Dead`](crate::Dead), threshold and seed.
#[must_use]
pub fn feasibility(rows: &[Row]) -> Vec<Feasibility> {
    let mut groups: Vec<Vec<&Row>> = Vec::new();
    for row in rows {
        let same = |group: &&mut Vec<&Row>| {
            let other = group[0];
            (&other.trace, &other.policy, other.dead, other.threshold_bytes, other.seed)
                == (&row.trace, &row.policy, row.dead, row.threshold_bytes, row.seed)
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.push(row),
            None => groups.push(vec![row]),
        }
    }
    groups.into_iter().map(look_through).collect()
}

fn look_through(mut rows: Vec<&Row>) -> Feasibility {
    rows.sort_by_key(|row| row.budget_bytes);
    let mut found = Feasibility {
        trace: rows[0].trace.clone(),
        policy: rows[0].policy.clone(),
        dead: rows[0].dead,
        threshold_bytes: rows[0].threshold_bytes,
        seed: rows[0].seed,
        budgets: rows.len(),
        smallest_ratio: None,
        holes: Vec::new(),
        inversions: Vec::new(),
        worst_inversion: 0.0,
    };
    let mut before = f64::INFINITY;
    let mut failed = false;
    for row in rows {
        let ratio = row.budget_ratio;
        match row.slowdown {
            None if found.smallest_ratio.is_some() => {
                match found.holes.last_mut().filter(|_| failed) {
                    Some(hole) => hole[1] = ratio,
                    None => found.holes.push([ratio, ratio]),
                }
                failed = true;
            }
            None => {}
            Some(slowdown) => {
                failed = false;
                found.smallest_ratio.get_or_insert(ratio);
                if slowdown > before {
                    found.inversions.push(ratio);
                    found.worst_inversion = found.worst_inversion.max(slowdown - before);
                }
                before = slowdown;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::Verdict;

    fn row(budget: u64, slowdown: Option<f64>) -> Row {
        Row {
            trace: "t".to_owned(),
            policy: "lru".to_owned(),
            dead: "drop",
            budget_ratio: budget as f64 / 100.0,
            budget_bytes: budget,
            full_budget_bytes: 100,
            unbudgeted_peak_bytes: 100,
            threshold_bytes: None,
            seed: 0,
            status: if slowdown.is_some() { Verdict::Ok } else { Verdict::Oom },
            slowdown,
            recompute_ratio: None,
            least_slowdown: None,
            peak_bytes: 0,
            ops: 0,
            recomputed_ops: 0,
            evictions: 0,
            score_evaluations: 0,
            max_regeneration_depth: 0,
            compactions: 0,
            moved_bytes: 0,
            search_seconds: 0.0,
            seconds: 0.0,
            step: None,
            marks: Vec::new(),
        }
    }

    #[test]
    fn holes_and_inversions_are_found_in_any_order_of_rows() {
        let rows = [
            row(60, Some(1.2)),
            row(20, None),
            row(30, Some(1.5)),
            row(40, None),
            row(45, None),
            row(50, Some(1.75)),
            row(55, None),
            row(100, Some(1.0)),
        ];
        let found = feasibility(&rows);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].smallest_ratio, Some(0.3));
        assert_eq!(found[0].holes, [[0.4, 0.45], [0.55, 0.55]]);
        assert_eq!(found[0].inversions, [0.5]);
        assert_eq!(found[0].worst_inversion, 0.25);
        let fails = feasibility(&[row(10, None)]);
        assert_eq!((fails[0].smallest_ratio, fails[0].holes.len()), (None, 0));
    }
}
