//! Sweeps: a replay for every policy at every budget, on all cores.

use super::network::StepTimes;
use super::replay::{Outcome, Replay, Status, Work};
use super::unbudgeted::Unbudgeted;
use crate::command::RecordedProgram;
use crate::engine::Dead;
use crate::error::{Error, RegenerationError, RuntimeError};
use crate::evict::{Learn, PolicyKind};
use crate::sync::ThreadPoolBuilder;
use rayon::prelude::*;
use rustc_hash::FxHashMap;
use serde::{Serialize, Serializer};

/// One replay of a sweep, with the memory and the cost of the program without evictions, for
/// comparison.
#[derive(Clone, Debug)]
pub struct Job<'a> {
    /// Name of the program.
    pub trace: &'a str,
    /// Program to run.
    pub program: &'a RecordedProgram,
    /// Memory and cost of the program without evictions.
    pub unbudgeted: Unbudgeted,
    /// Budget, policy and settings of the run.
    pub replay: Replay,
    /// Lower bound on the slowdown of any run under this budget:
    /// [`Bound::excess`](crate::bound::Bound::excess) plus 1. `None` if no run fits in the budget,
    /// or if no bound was requested.
    pub least_slowdown: Option<f64>,
}

/// Result of a replay, as one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The replay reached the end of the program.
    Ok,
    /// The replay ran out of memory.
    Oom,
    /// The replay recomputed more than the limit allows.
    RecomputeLimit,
    /// The replay failed with any other error.
    Failed,
}

/// Result of one replay. Times are measured on this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the program.
    pub trace: String,
    /// The policy's name or formula.
    pub policy: String,
    /// Setting for tensors that are recomputed only to recompute others: `linger`, `drop` or
    /// `keep`.
    pub dead: &'static str,
    /// Budget as a share of the full budget: the shortest decimal number that gives the same bytes,
    /// with at most six digits.
    pub budget_ratio: f64,
    /// Budget in bytes.
    pub budget_bytes: u64,
    /// Full budget in bytes, which is 100 %: [`Unbudgeted::full_budget`].
    pub full_budget_bytes: u64,
    /// Peak of the bytes in use when nothing is evicted: [`Unbudgeted::peak_bytes`].
    pub unbudgeted_peak_bytes: u64,
    /// Eviction threshold in bytes; `None` without a threshold.
    pub threshold_bytes: Option<u64>,
    /// Seed of sampling and of the policy `random`.
    pub seed: u64,
    /// End of the run.
    pub status: Verdict,
    /// Cost of the run, divided by the cost without a budget; `None` if the run failed. The number
    /// is rounded to a millionth when it is written.
    #[serde(serialize_with = "to_a_millionth")]
    pub slowdown: Option<f64>,
    /// Cost of recomputation, divided by the cost without a budget; `None` if the run failed. The
    /// number is rounded to a millionth when it is written.
    #[serde(serialize_with = "to_a_millionth")]
    pub recompute_ratio: Option<f64>,
    /// Lower bound on the slowdown of any run in program order under this budget. `None` if no run
    /// fits in the budget, or if no bound was requested. The bound is rounded down to a millionth.
    #[serde(serialize_with = "down_to_a_millionth")]
    pub least_slowdown: Option<f64>,
    /// Peak of the bytes in use.
    pub peak_bytes: u64,
    /// Number of first runs of ops.
    pub ops: u64,
    /// Number of reruns of ops.
    pub recomputed_ops: u64,
    /// Number of storages evicted for lack of memory.
    pub evictions: u64,
    /// Number of scores that the policy computed.
    pub score_evaluations: u64,
    /// Largest number of compute paths that waited for one another in a chain.
    pub max_regeneration_depth: usize,
    /// Number of blocks moved to make larger holes; 0 if bytes are only counted.
    pub compactions: u64,
    /// Bytes of the moved blocks.
    pub moved_bytes: u64,
    /// Seconds spent choosing what to evict.
    #[serde(serialize_with = "to_a_nanosecond")]
    pub search_seconds: f64,
    /// Seconds of the whole run.
    #[serde(serialize_with = "to_a_nanosecond")]
    pub seconds: f64,
    /// Time of a step on several ranks: [`Outcome::step`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepTimes>,
    /// Work done up to each step mark: [`Outcome::marks`]. Not written.
    #[serde(skip)]
    pub marks: Vec<Work>,
}

impl Job<'_> {
    /// Runs the replay.
    ///
    /// # Errors
    /// An error if the settings are invalid. A run that fails is a row, not an error.
    pub fn run(&self) -> Result<Row, Error> {
        Ok(self.row(&self.replay.run(self.program)?))
    }

    /// Row for an outcome.
    #[must_use]
    pub fn row(&self, outcome: &Outcome) -> Row {
        let (budget, settings) = (self.replay.budget, &self.replay.settings);
        let stats = &outcome.stats;
        Row {
            trace: self.trace.to_owned(),
            policy: self.replay.policy.to_string(),
            dead: dead_name(settings.dead),
            budget_ratio: ratio(budget, self.unbudgeted.full_budget),
            budget_bytes: budget,
            full_budget_bytes: self.unbudgeted.full_budget,
            unbudgeted_peak_bytes: self.unbudgeted.peak_bytes,
            threshold_bytes: settings.eviction_threshold,
            seed: self.replay.seed,
            status: Verdict::of(&outcome.status),
            slowdown: outcome.slowdown(),
            recompute_ratio: outcome.slowdown().map(|slowdown| slowdown - 1.0),
            least_slowdown: self.least_slowdown,
            peak_bytes: stats.peak_bytes,
            ops: stats.ops,
            recomputed_ops: stats.recomputed_ops,
            evictions: stats.evictions,
            score_evaluations: stats.score_evaluations,
            max_regeneration_depth: stats.max_regeneration_depth,
            compactions: stats.compactions,
            moved_bytes: stats.moved_bytes,
            search_seconds: stats.search_seconds,
            seconds: outcome.time.as_secs_f64(),
            step: outcome.step.clone(),
            marks: outcome.marks.clone(),
        }
    }
}

impl Verdict {
    fn of(status: &Status) -> Self {
        match status {
            Status::Done => Self::Ok,
            Status::Failed { error: Error::OutOfMemory(_), .. } => Self::Oom,
            Status::Failed { error: Error::Regeneration(e), .. }
                if matches!(**e, RegenerationError::RecomputeLimit { .. }) =>
            {
                Self::RecomputeLimit
            }
            Status::Failed { .. } => Self::Failed,
        }
    }
}

/// `budget` as a share of `full`, with as few digits as give the same bytes again. Budgets are
/// whole bytes, so the exact share of a budget of 60 % is rarely 0.6.
fn ratio(budget: u64, full: u64) -> f64 {
    let exact = budget as f64 / full as f64;
    let shortest = (0..6).map(|digits| to_digits(exact, digits));
    let is_it = |ratio: &f64| (-1e-6..1.0).contains(&(ratio * full as f64 - budget as f64));
    shortest.into_iter().find(is_it).unwrap_or_else(|| to_digits(exact, 6))
}

pub(super) fn to_digits(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

fn to_a_millionth<S: Serializer>(value: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    value.map(|value| to_digits(value, 6)).serialize(serializer)
}

fn down_to_a_millionth<S: Serializer>(
    value: &Option<f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    value.map(|value| (value * 1e6).floor() / 1e6).serialize(serializer)
}

pub(super) fn to_a_nanosecond<S: Serializer>(
    value: &f64,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    to_digits(*value, 9).serialize(serializer)
}

const fn dead_name(dead: Dead) -> &'static str {
    match dead {
        Dead::Linger => "linger",
        Dead::Drop => "drop",
        Dead::Keep => "keep",
    }
}

/// Runs all jobs on `threads` threads (0: one per core), and calls `done` after each job. The rows
/// are in the order of the jobs.
///
/// # Errors
/// The first error of [`Job::run`], or [`RuntimeError::Settings`] if the threads cannot be started.
pub fn sweep(
    jobs: &[Job<'_>],
    threads: usize,
    done: impl Fn(&Row) + Sync,
) -> Result<Vec<Row>, Error> {
    let pool = ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|e| RuntimeError::Settings(format!(
            "the threads could not be started: {e}; use fewer, or raise the limit on processes (ulimit -u)"
        )))?;
    let rows = pool.install(|| {
        // Threads take one job at a time, because the durations of jobs differ by orders of
        // magnitude.
        let rows = jobs.par_iter().with_max_len(1).map(|job| {
            let row = job.run()?;
            done(&row);
            Ok(row)
        });
        rows.collect::<Result<Vec<Row>, Error>>()
    });
    let mut rows = rows?;
    more_is_never_worse(jobs, &mut rows);
    Ok(rows)
}

/// Replaces the row of a budget by the row of a smaller budget if the smaller budget had less
/// slowdown. A run may use only a part of its budget, so a forecast found for a smaller budget can
/// also be used in a larger budget.
fn more_is_never_worse(jobs: &[Job<'_>], rows: &mut [Row]) {
    let has_forecast = |job: &Job<'_>| {
        let learned =
            matches!(job.replay.policy, PolicyKind::Learned(learn) if learn != Learn::Ahead);
        learned && job.replay.foresight.is_none()
    };
    let mut order: Vec<usize> = (0..rows.len()).filter(|&at| has_forecast(&jobs[at])).collect();
    order.sort_by_key(|&at| rows[at].budget_bytes);
    let of = |row: &Row| {
        (row.trace.clone(), row.policy.clone(), row.dead, row.threshold_bytes, row.seed)
    };
    let mut best: FxHashMap<_, usize> = FxHashMap::default();
    for at in order {
        let known = best.entry(of(&rows[at])).or_insert(at);
        let cost = |row: &Row| row.slowdown.unwrap_or(f64::INFINITY);
        if cost(&rows[*known]) < cost(&rows[at]) {
            let Row { budget_ratio, budget_bytes, .. } = rows[at];
            rows[at] = Row { budget_ratio, budget_bytes, ..rows[*known].clone() };
        } else {
            *known = at;
        }
    }
}

/// All combinations of policies, budgets and settings for a program.
#[derive(Clone, Debug)]
pub struct Grid {
    /// Policies to try.
    pub policies: Vec<PolicyKind>,
    /// Budgets in bytes.
    pub budgets: Vec<u64>,
    /// Thresholds in bytes, `None` for no threshold. A threshold above a budget has no effect, so
    /// the combination of the two is left out.
    pub thresholds: Vec<Option<u64>>,
    /// Settings for tensors that are recomputed only to recompute other tensors.
    pub dead: Vec<Dead>,
    /// Seeds to try.
    pub seeds: Vec<u64>,
}

impl Grid {
    /// A replay for each combination. All settings that the grid does not vary are taken from
    /// `like`.
    #[must_use]
    pub fn replays(&self, like: &Replay) -> Vec<Replay> {
        let vary = |replays: Vec<Replay>, count, change: &dyn Fn(&mut Replay, usize)| {
            let varied = replays.into_iter().flat_map(|replay| {
                (0..count).map(move |i| {
                    let mut replay = replay.clone();
                    change(&mut replay, i);
                    replay
                })
            });
            varied.collect::<Vec<_>>()
        };
        let mut replays = vec![like.clone()];
        replays = vary(replays, self.policies.len(), &|r, i| r.policy = self.policies[i]);
        replays = vary(replays, self.dead.len(), &|r, i| r.settings.dead = self.dead[i]);
        replays = vary(replays, self.thresholds.len(), &|r, i| {
            r.settings.eviction_threshold = self.thresholds[i];
        });
        replays = vary(replays, self.seeds.len(), &|r, i| r.seed = self.seeds[i]);
        replays = vary(replays, self.budgets.len(), &|r, i| r.budget = self.budgets[i]);
        let acts = |r: &Replay| r.settings.eviction_threshold.is_none_or(|t| t <= r.budget);
        replays.retain(acts);
        replays
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_number_that_was_asked_for() {
        for full in [997, 100_003, 145_160, 5_930_240, 10_061_179_648, (1 << 40) + 1] {
            for thousandths in 1..2000u64 {
                let share = thousandths as f64 / 1000.0;
                let budget = (full as f64 * (share * 100.0 / 100.0)) as u64;
                let found = ratio(budget, full);
                let bytes = (found * full as f64) as u64;
                assert!(budget.abs_diff(bytes) <= 1, "{budget} of {full}: {found}");
                // With a full budget below 1000 bytes, several shares give the same budget.
                assert!(found == share || full < 1000, "{share}: {found}");
            }
        }
        // A budget given in bytes is rarely a round share.
        assert_eq!(ratio(64 << 20, 100_000_000), 0.671089);
        assert_eq!(ratio(3, 2), 1.5);
    }

    #[test]
    fn written_numbers_are_no_longer_than_they_mean() {
        #[derive(Serialize)]
        struct Numbers {
            #[serde(serialize_with = "to_a_millionth")]
            slowdown: Option<f64>,
            #[serde(serialize_with = "to_a_millionth")]
            none: Option<f64>,
            #[serde(serialize_with = "to_a_nanosecond")]
            seconds: f64,
        }
        let numbers = Numbers { slowdown: Some(1.0 + 2.0 / 3.0), none: None, seconds: 0.1 + 0.2 };
        let json = serde_json::to_string(&numbers).unwrap();
        assert_eq!(json, r#"{"slowdown":1.666667,"none":null,"seconds":0.3}"#);
    }
}
