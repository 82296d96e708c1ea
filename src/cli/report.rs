use super::failure::Failure;
use super::target::About;
use super::training_loop::Outcome;
use super::words::{Counted, OnRanks, Seconds, at_least, rounded};
use indicatif::HumanCount;
use remat::tune::Tuned;
use remat::{ByteSize, Stats};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Result of a run. The report is printed for people, and serialized for programs.
#[derive(Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub data: String,
    /// Name of one example of the data: `image`, `window`.
    pub example: &'static str,
    pub batch: usize,
    /// Number of batches in a step of each rank.
    pub accumulate: usize,
    /// Results of each rank, in order; empty for one rank.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<OfRank>,
    pub optimizer: String,
    pub ending: EndingName,
    /// Number of finished steps.
    pub steps: usize,
    /// Number of requested steps.
    pub steps_asked: usize,
    pub seed: u64,
    #[serde(flatten)]
    pub device: About,
    pub policy: String,
    /// Exponents of cost, bytes and staleness. `None` unless the policy is `megengine` or
    /// `megengine-article`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponents: Option<[f64; 3]>,
    /// Whether the score counts the tensor's own cost. `None` unless the policy is `megengine`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cost: Option<bool>,
    /// Factor that multiplies the score for each rerun of the tensor's op. `None` unless the policy
    /// is `megengine` or `megengine-article`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rerun_factor: Option<f64>,
    pub cost_model: String,
    pub budget_bytes: u64,
    /// Bytes of the budget that the run may use. The number is less than the budget if the search
    /// found that a step recomputes less with fewer bytes.
    pub effective_budget_bytes: u64,
    pub eviction_threshold_bytes: Option<u64>,
    /// Full budget: the smallest budget found under which nothing is evicted. Options in percent
    /// are percentages of the full budget.
    pub full_budget_bytes: u64,
    /// Most bytes in use at once when nothing is evicted.
    pub unbudgeted_peak_bytes: u64,
    /// Bytes of parameters, buffers and optimizer state.
    pub state_bytes: u64,
    /// Most bytes in use at once in the whole run, test included.
    pub peak_bytes: u64,
    /// Loss of the last finished step; null if it is NaN or infinite.
    pub final_loss: Option<f32>,
    /// First step, counted from 1, whose loss is NaN or infinite.
    pub diverged_since_step: Option<usize>,
    pub test_accuracy: Option<f64>,
    /// Mean loss of the test, in nats.
    pub test_loss: Option<f64>,
    pub test_examples: usize,
    /// Text of the score of the test, for people.
    #[serde(skip)]
    pub test_told: Option<String>,
    pub test_seconds: Option<f64>,
    /// Number of learned values in the network.
    pub parameters: usize,
    /// Hash of parameters and buffers.
    pub params_sha256: Option<String>,
    pub train_seconds: f64,
    pub seconds_per_step_median: Option<f64>,
    /// Seconds that the search for forecasts took before the first step; null without a search.
    pub learn_seconds: Option<f64>,
    /// Ops simulated in searches and rehearsals.
    pub simulated_ops: Option<u64>,
    /// Value of [`Counters::recompute_ratio`] that the search predicts for a step.
    pub predicted_recompute_ratio: Option<f64>,
    /// Lower bound on [`Counters::recompute_ratio`] of a step whose ops run in program order.
    pub least_recompute_ratio: Option<f64>,
    #[serde(flatten)]
    pub counters: Counters,
    #[serde(flatten)]
    pub verified: Option<Verified>,
}

/// Numbers of verified and of unverified values, and the effort of verifying.
#[derive(Debug, Serialize)]
pub struct Verified {
    pub verified_values: u64,
    pub unverified_values: u64,
    pub hashed_bytes: u64,
    pub hash_bytes: u64,
}

impl From<&Stats> for Verified {
    fn from(stats: &Stats) -> Self {
        Self {
            verified_values: stats.verified_values,
            unverified_values: stats.unverified_values,
            hashed_bytes: stats.hashed_bytes,
            hash_bytes: stats.hash_bytes,
        }
    }
}

impl fmt::Display for Verified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { verified_values, unverified_values, hashed_bytes, hash_bytes } = *self;
        let all = Counted(verified_values + unverified_values, "recomputed value");
        let verified = HumanCount(verified_values);
        let [hashed, held] = [hashed_bytes, hash_bytes].map(ByteSize);
        writeln!(f, "  verified    {verified} of {all}, all with the same bits")?;
        write!(f, "{:14}{hashed} hashed; hashes take {held} of host memory", "")
    }
}

/// Results of one of several ranks.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OfRank {
    rank: usize,
    budget_bytes: u64,
    /// Number of the rank whose simulated runs found the forecasts of this rank; `None` without
    /// forecasts.
    learned_by: Option<usize>,
    peak_bytes: u64,
    evictions: u64,
    recomputed_ops: u64,
    recompute_ratio: f64,
    /// Time in which the rank sent, received, or waited for other ranks.
    waited_seconds: f64,
    train_seconds: f64,
    params_sha256: Option<String>,
}

impl OfRank {
    /// Results of this rank.
    pub fn new(rank: usize, learned_by: usize, tuned: &Tuned<'_>, outcome: &Outcome) -> Self {
        let stats = &outcome.training.stats;
        Self {
            rank,
            budget_bytes: tuned.chosen().budget(),
            learned_by: tuned.forecasts().map(|_| learned_by),
            peak_bytes: outcome.peak_bytes,
            evictions: stats.evictions,
            recomputed_ops: stats.recomputed_ops,
            recompute_ratio: stats.recompute_cost / stats.base_cost,
            waited_seconds: to_a_nanosecond(outcome.training.waited.as_secs_f64()),
            train_seconds: outcome.training.seconds.as_secs_f64(),
            params_sha256: outcome.params_sha256.clone(),
        }
    }

    /// Fails if two ranks have different parameters.
    pub fn alike(all: &[Self]) -> Result<(), Failure> {
        let differs = |other: &&Self| other.params_sha256 != all[0].params_sha256;
        match all.iter().find(differs) {
            None => Ok(()),
            Some(other) => Err(Failure::new(format!(
                "rank 0 and rank {} have different parameters after the same steps; please report this",
                other.rank
            ))),
        }
    }
}

impl fmt::Display for OfRank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = format!("rank {}", self.rank);
        write!(
            f,
            "  {name:12}peak {} of {}; recomputed {:.1} %, waited {:.1} %",
            ByteSize(self.peak_bytes),
            ByteSize(self.budget_bytes),
            100.0 * self.recompute_ratio,
            100.0 * self.waited_seconds / self.train_seconds.max(f64::MIN_POSITIVE),
        )
    }
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EndingName {
    Done,
    Interrupted,
    Diverged,
}

/// Counters of the engine in training.
#[derive(Debug, Serialize)]
pub struct Counters {
    pub ops: u64,
    pub recomputed_ops: u64,
    pub recompute_seconds: f64,
    /// Cost of recomputing, divided by the cost of the program's own ops.
    pub recompute_ratio: f64,
    /// Slowdown: `recompute_ratio` plus 1.
    pub slowdown: f64,
    pub search_seconds: f64,
    pub evictions: u64,
    pub evicted_bytes: u64,
    pub compactions: u64,
    pub moved_bytes: u64,
    pub fragmentation: f64,
    pub max_regeneration_depth: usize,
    pub planned_steps: u64,
    pub planned_steps_evicting: u64,
    pub spared_evictions: u64,
    pub plan_bytes: u64,
    pub unplanned_bytes: u64,
    pub planned_seconds: f64,
    pub unplanned_seconds: f64,
    pub planning_seconds: f64,
}

/// Rounds seconds to a nanosecond, so that the report has 0.1 and not 0.09999999999999999.
fn to_a_nanosecond(seconds: f64) -> f64 {
    rounded(seconds, 9)
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Self {
        Self {
            ops: stats.ops,
            recomputed_ops: stats.recomputed_ops,
            recompute_seconds: to_a_nanosecond(stats.recompute_seconds),
            recompute_ratio: stats.recompute_cost / stats.base_cost,
            slowdown: 1.0 + stats.recompute_cost / stats.base_cost,
            search_seconds: to_a_nanosecond(stats.search_seconds),
            evictions: stats.evictions,
            evicted_bytes: stats.evicted_bytes,
            compactions: stats.compactions,
            moved_bytes: stats.moved_bytes,
            fragmentation: stats.fragmentation,
            max_regeneration_depth: stats.max_regeneration_depth,
            planned_steps: stats.planned_steps,
            planned_steps_evicting: stats.planned_steps_evicting,
            spared_evictions: stats.spared_evictions,
            plan_bytes: stats.plan_bytes,
            unplanned_bytes: stats.unplanned_bytes,
            planned_seconds: to_a_nanosecond(stats.planned_seconds),
            unplanned_seconds: to_a_nanosecond(stats.unplanned_seconds),
            planning_seconds: to_a_nanosecond(stats.planning_seconds),
        }
    }
}

/// Text about the memory and the evictions that plans save; empty if no step ran by a plan. The
/// text does not mention saved time. The few steps without a plan are the first steps of the run,
/// which are slow for other reasons.
struct OfPlans<'a>(&'a Counters);

impl fmt::Display for OfPlans<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Counters { planned_steps, planned_steps_evicting, spared_evictions, .. } = self.0;
        if planned_steps == 0 {
            return Ok(());
        }
        write!(f, "  planned     {}", Counted(planned_steps, "step"))?;
        // `unplanned_bytes` is printed only if nothing is evicted. Steps that evict without a plan
        // use all memory, so the number would mean nothing.
        match (planned_steps_evicting, spared_evictions) {
            (0, 0) => {
                writeln!(f, "; without a plan, a step takes {}", ByteSize(self.0.unplanned_bytes))?
            }
            (0, spared) => writeln!(f, "; {} avoided", Counted(spared, "eviction"))?,
            (_, 0) => writeln!(f, ", with evictions")?,
            (_, spared) => writeln!(f, ", with evictions; {} avoided", HumanCount(spared))?,
        }
        let bytes = ByteSize(self.0.plan_bytes);
        writeln!(f, "{:14}each takes {bytes} on top of memory held between steps", "")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, data, counters, .. } = self;
        let of_time = |seconds: f64| 100.0 * seconds / self.train_seconds;
        let asked = Counted(self.steps_asked as u64, "step");
        let parts = self.accumulate * self.ranks.len().max(1);
        let images = Counted((self.batch * parts) as u64, self.example);
        write!(f, "{model} on {data}: ")?;
        if self.steps < self.steps_asked {
            write!(f, "{} of ", HumanCount(self.steps as u64))?;
        }
        let ranks = OnRanks(self.ranks.len());
        writeln!(f, "{asked} of {images}{ranks} in {}", Seconds(self.train_seconds))?;
        writeln!(f, "  device      {}", self.device)?;
        if let Some(loss) = self.final_loss {
            write!(f, "  training    last loss {loss:.4}")?;
            if let Some(step) = self.diverged_since_step {
                write!(f, " since step {}", HumanCount(step as u64))?;
            }
            let median = self.seconds_per_step_median.unwrap_or_default();
            writeln!(f, "; {} a step (median)", Seconds(median))?;
        }
        if let (Some(told), Some(seconds)) = (&self.test_told, self.test_seconds) {
            writeln!(
                f,
                "  test        {told}; {} in {}",
                Counted(self.test_examples as u64, self.example),
                Seconds(seconds),
            )?;
        }
        writeln!(
            f,
            "  memory      peak {} of {}; with {} nothing is evicted",
            ByteSize(self.peak_bytes),
            ByteSize(self.budget_bytes),
            ByteSize(self.full_budget_bytes),
        )?;
        writeln!(
            f,
            "  evictions   {} by {}; choosing took {:.1} % of the time",
            HumanCount(counters.evictions),
            self.policy,
            of_time(counters.search_seconds),
        )?;
        writeln!(
            f,
            "  recomputed  {} run again, on top of {}; {:.1} % of the time",
            Counted(counters.recomputed_ops, "op"),
            HumanCount(counters.ops),
            of_time(counters.recompute_seconds),
        )?;
        write!(f, "{}", OfPlans(counters))?;
        for rank in &self.ranks {
            writeln!(f, "{rank}")?;
        }
        if let Some(verified) = &self.verified {
            writeln!(f, "{verified}")?;
        }
        if let (Some(seconds), Some(ratio)) = (self.learn_seconds, self.predicted_recompute_ratio) {
            writeln!(
                f,
                "  learned     in {}; predicted recomputation {:.1} %, actual {:.1} %",
                Seconds(seconds),
                100.0 * ratio,
                100.0 * counters.recompute_ratio,
            )?;
        }
        if let Some(least) = self.least_recompute_ratio {
            // The bound holds for all steps after the first. The first step recomputes less, so a
            // short run may stay below the bound.
            let least = at_least(least);
            writeln!(
                f,
                "  bound       a later step in program order recomputes at least {least} %"
            )?;
        }
        write!(f, "  parameters  {}", HumanCount(self.parameters as u64))?;
        self.params_sha256.as_ref().map_or(Ok(()), |sha256| write!(f, ", sha256 {}", &sha256[..16]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tries numbers of steps, evictions and bytes from 0 to more than will ever occur.
    #[test]
    fn the_report_of_plans_fits_80_columns() {
        let many = 99_999_999;
        for planned_steps in [0, 1, 2, many] {
            for planned_steps_evicting in [0, 1, many] {
                for spared_evictions in [0, 1, many] {
                    for bytes in [0, 1 << 20, (1 << 40) - 1] {
                        let counters = Counters {
                            planned_steps,
                            planned_steps_evicting,
                            spared_evictions,
                            plan_bytes: bytes,
                            unplanned_bytes: bytes,
                            ..Counters::from(&Stats::default())
                        };
                        let text = OfPlans(&counters).to_string();
                        let lines = 2 * usize::from(planned_steps > 0);
                        assert_eq!(text.lines().count(), lines, "{text}");
                        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
                        assert!(text.is_empty() || text.ends_with('\n'), "{text}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_report_of_plans_tells_memory_and_evictions() {
        for (planned_steps_evicting, spared_evictions, told) in [
            (0, 0, "; without a plan, a step takes 4.00 MiB"),
            (0, 12, "; 12 evictions avoided"),
            (216, 0, ", with evictions"),
            (100, 12, ", with evictions; 12 avoided"),
        ] {
            let counters = Counters {
                planned_steps: 216,
                planned_steps_evicting,
                spared_evictions,
                plan_bytes: 3 << 20,
                unplanned_bytes: 4 << 20,
                ..Counters::from(&Stats::default())
            };
            let text = OfPlans(&counters).to_string();
            let (first, second) = text.split_once('\n').expect("two lines");
            assert_eq!(first, format!("  planned     216 steps{told}"));
            assert_eq!(second.trim(), "each takes 3.00 MiB on top of memory held between steps");
        }
    }

    #[test]
    fn seconds_have_no_more_digits_than_a_nanosecond() {
        for (seconds, text) in [
            (1.3076999999999997e-05, "0.000013077"),
            (0.1 + 0.2, "0.3"),
            (0.0, "0"),
            (12.5, "12.5"),
        ] {
            assert_eq!(to_a_nanosecond(seconds).to_string(), text);
        }
    }
}
