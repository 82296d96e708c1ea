use super::target::About;
use indicatif::HumanCount;
use remat::{ByteSize, Stats};
use serde::Serialize;
use std::fmt;

/// The result of a run. Printed for people, serialized for programs.
#[derive(Debug, Serialize)]
pub struct Report {
    pub model: String,
    pub data: String,
    pub batch: usize,
    pub steps: usize,
    pub seed: u64,
    #[serde(flatten)]
    pub device: About,
    pub policy: String,
    /// Of `megengine` alone: cost, bytes, staleness.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exponents: Option<[f64; 3]>,
    /// Of `megengine` alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub own_cost: Option<bool>,
    pub cost_model: String,
    pub budget_bytes: u64,
    pub eviction_threshold_bytes: Option<u64>,
    /// Of the dry run.
    pub unbudgeted_peak_bytes: u64,
    /// Of the whole run, test included.
    pub peak_bytes: u64,
    /// Of the last step. Not a number: null.
    pub final_loss: f32,
    pub test_accuracy: f64,
    pub test_images: usize,
    /// Learned values in the network.
    pub parameters: usize,
    /// Over parameters and buffers.
    pub params_sha256: String,
    pub train_seconds: f64,
    pub seconds_per_step_median: f64,
    #[serde(flatten)]
    pub counters: Counters,
}

/// What the engine counted in training.
#[derive(Debug, Serialize)]
pub struct Counters {
    pub ops: u64,
    pub recomputed_ops: u64,
    pub recompute_seconds: f64,
    /// Cost of what was recomputed over the cost of the work itself.
    pub recompute_ratio: f64,
    pub search_seconds: f64,
    pub evictions: u64,
    pub evicted_bytes: u64,
    pub compactions: u64,
    pub moved_bytes: u64,
    pub fragmentation: f64,
    pub max_regeneration_depth: usize,
}

impl From<&Stats> for Counters {
    fn from(stats: &Stats) -> Self {
        Self {
            ops: stats.ops,
            recomputed_ops: stats.recomputed_ops,
            recompute_seconds: stats.recompute_seconds,
            recompute_ratio: stats.recompute_cost / stats.base_cost,
            search_seconds: stats.search_seconds,
            evictions: stats.evictions,
            evicted_bytes: stats.evicted_bytes,
            compactions: stats.compactions,
            moved_bytes: stats.moved_bytes,
            fragmentation: stats.fragmentation,
            max_regeneration_depth: stats.max_regeneration_depth,
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, data, steps, batch, counters, .. } = self;
        let of_time = |seconds: f64| 100.0 * seconds / self.train_seconds;
        writeln!(
            f,
            "{model} on {data}: {} steps of {} images in {}, {} a step",
            HumanCount(*steps as u64),
            HumanCount(*batch as u64),
            Seconds(self.train_seconds),
            Seconds(self.seconds_per_step_median),
        )?;
        writeln!(f, "  device      {}", self.device)?;
        writeln!(
            f,
            "  accuracy    {:.2} % of {} test images; last loss {:.4}",
            100.0 * self.test_accuracy,
            HumanCount(self.test_images as u64),
            self.final_loss,
        )?;
        writeln!(
            f,
            "  memory      peak {} of a budget of {}; {} without one",
            ByteSize(self.peak_bytes),
            ByteSize(self.budget_bytes),
            ByteSize(self.unbudgeted_peak_bytes),
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
            "  recomputed  {} ops run again, on top of {}; {:.1} % of the time",
            HumanCount(counters.recomputed_ops),
            HumanCount(counters.ops),
            of_time(counters.recompute_seconds),
        )?;
        write!(
            f,
            "  parameters  {}, sha256 {}",
            HumanCount(self.parameters as u64),
            &self.params_sha256[..16],
        )
    }
}

/// Prints as `1.2 ms`, `3.45 s` or `12 min 3 s`.
struct Seconds(f64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            s if s < 1.0 => write!(f, "{:.1} ms", s * 1e3),
            s if s < 120.0 => write!(f, "{s:.2} s"),
            s => {
                let seconds = s.round() as u64;
                write!(f, "{} min {} s", seconds / 60, seconds % 60)
            }
        }
    }
}
