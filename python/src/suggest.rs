//! Budgets that a recorded run would pass in, for `remat.suggest`.

use crate::python::wrong;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use remat::PolicyKind;
use remat::unstable::lab::{Job, Replay, Row, Trace, Unbudgeted, smallest, sweep};

/// Number of times that the last step is replayed.
const REPEATED: usize = 5;

/// Slowdown of the repeated steps. The recorded steps are left out, because the first step makes the
/// optimizer's state, and recomputes less than later steps. `None` if the run did not pass.
fn slowdown(row: &Row) -> Option<f64> {
    let slowdown = row.slowdown?;
    let from = row.marks.len().checked_sub(REPEATED).and_then(|recorded| row.marks.get(recorded));
    Some(match (from, row.marks.last()) {
        (Some(from), Some(end)) => end.slowdown_since(from),
        _ => slowdown,
    })
}

/// Replays a recording in the budgets, and in shares of the bytes that it needs without a limit.
///
/// Returns the bytes without a limit, and a row for each budget: its bytes, and its slowdown, or
/// `None` if the run does not pass. One row more is that of the smallest share that passes.
#[pyfunction]
#[pyo3(signature = (recording, budgets, percents, *, policy, seed))]
#[allow(clippy::type_complexity, reason = "a tuple for Python")]
pub(crate) fn replays(
    py: Python<'_>,
    recording: &str,
    budgets: Vec<String>,
    percents: Vec<u32>,
    policy: &str,
    seed: u64,
) -> PyResult<(u64, Vec<(u64, Option<f64>)>)> {
    let kind: PolicyKind = policy.parse().map_err(|error| wrong("policy", &error))?;
    let parsed = budgets.iter().map(|budget| budget.parse().map(|remat::ByteSize(bytes)| bytes));
    let given = parsed.collect::<Result<Vec<u64>, _>>().map_err(|error| wrong("budget", &error))?;
    py.detach(|| {
        let open = || Trace::open(recording).map_err(failed);
        // A step that uses up what was made before it cannot be repeated.
        let repeated = open()?.repeat_step(REPEATED);
        let trace = repeated.or_else(|_| open())?;
        let program = trace.program();
        let mut like = Replay::new(kind, 1);
        like.seed = seed;
        let unbudgeted = like.unbudgeted(program).map_err(failed)?;
        let Unbudgeted { full_budget, cost, .. } = unbudgeted;
        like.work = Some(cost);
        let percent = |percent: u32| (u128::from(full_budget) * u128::from(percent) / 100) as u64;
        let jobs = |budgets: &[u64]| -> Vec<Job<'_>> {
            let replay = |&budget: &u64| {
                let mut replay = Replay { budget: budget.max(1), ..like.clone() };
                replay.settings.min_evict_bytes = Some((budget / 4096).max(1));
                Job { trace: trace.name(), program, unbudgeted, replay, least_slowdown: None }
            };
            budgets.iter().map(replay).collect()
        };
        let mut all = given;
        all.extend(percents.iter().copied().map(percent));
        let mut rows: Vec<(u64, Option<f64>)> = Vec::new();
        for row in sweep(&jobs(&all), 0, |_| ()).map_err(failed)? {
            rows.push((row.budget_bytes, slowdown(&row)));
        }
        let passes = |wanted: u32| {
            let budget = percent(wanted);
            rows.iter().any(|&(bytes, slowdown)| bytes == budget && slowdown.is_some())
        };
        let high = percents.iter().copied().filter(|&percent| passes(percent)).min();
        if let Some(high) = high {
            let low = percents.iter().copied().filter(|&percent| percent < high).max();
            let mut tried = Vec::new();
            let found = smallest(low.unwrap_or(0) + 1, high, |wanted| {
                if wanted == high {
                    return Ok(true);
                }
                let row = jobs(&[percent(wanted)])[0].run()?;
                tried.push((row.budget_bytes, slowdown(&row)));
                Ok::<bool, remat::Error>(row.slowdown.is_some())
            });
            let least = found.map_err(failed)?.map(percent);
            rows.extend(tried.into_iter().filter(|&(bytes, _)| Some(bytes) == least));
        }
        rows.sort_unstable_by_key(|&(bytes, _)| std::cmp::Reverse(bytes));
        rows.dedup_by_key(|&mut (bytes, _)| bytes);
        Ok((full_budget, rows))
    })
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    PyRuntimeError::new_err(error.to_string())
}
