//! Cost of running an op. Eviction scores and the engine's clock are in units of this cost.

use crate::layout::Layout;
use rustc_hash::{FxHashMap, FxHasher};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// Description of a run of an op, for a cost model.
///
/// ```
/// use remat::{CostModelKind, DType, Layout, Run};
///
/// let x = Layout::contiguous(DType::F32, [100]);
/// let (inputs, outputs) = (&[x], &[x]);
/// let run = Run { op: "exp", inputs, outputs, flops: 200.0, bytes: 800, seconds: None };
/// assert_eq!(CostModelKind::Flops.build().cost(run), (200.0 + 10.0 * 800.0) / 1e9);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Name of the op.
    pub op: &'a str,
    /// Layouts of the inputs.
    pub inputs: &'a [Layout],
    /// Layouts of the outputs.
    pub outputs: &'a [Layout],
    /// Floating-point operations of the run, as returned by
    /// [`Operation::flops`](crate::op::Operation::flops).
    pub flops: f64,
    /// Bytes that the run reads and writes, as returned by
    /// [`Operation::moved`](crate::op::Operation::moved).
    pub bytes: u64,
    /// Seconds that the run took; `None` if the device does not report the time at once.
    pub seconds: Option<f64>,
}

impl Run<'_> {
    /// Hash of the op's name, and of the types and shapes of inputs and outputs. Two runs of one op
    /// on equal types and shapes have equal keys.
    ///
    /// ```
    /// use remat::{DType, Layout, Run};
    ///
    /// let [x, y] = [100, 200].map(|n| Layout::contiguous(DType::F32, [n]));
    /// let (inputs, outputs) = (&[x], &[x]);
    /// let exp = Run { op: "exp", inputs, outputs, flops: 200.0, bytes: 800, seconds: None };
    /// let timed = Run { seconds: Some(1e-6), ..exp };
    /// let larger = Run { inputs: &[y], outputs: &[y], ..exp };
    /// assert!(exp.key() == timed.key() && exp.key() != larger.key());
    /// let z = Layout::contiguous(DType::BF16, [100]);
    /// assert_ne!(exp.key(), Run { inputs: &[z], outputs: &[z], ..exp }.key());
    /// ```
    #[must_use]
    pub fn key(&self) -> u64 {
        Self::key_of(self.op, self.inputs, self.outputs)
    }

    /// [`Run::key`] of an op on operands of given layouts.
    pub(crate) fn key_of(op: &str, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        let mut hasher = FxHasher::default();
        op.hash(&mut hasher);
        for layout in inputs.iter().chain(outputs) {
            (layout.dtype(), layout.shape()).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Model that estimates the cost of running an op.
///
/// ```
/// use remat::prelude::*;
/// use remat::{CostModel, Run};
///
/// /// Each run costs the same.
/// #[derive(Debug)]
/// struct Each;
///
/// impl CostModel for Each {
///     fn cost(&mut self, _run: Run<'_>) -> f64 {
///         1.0
///     }
/// }
///
/// let runtime = Runtime::builder().budget("1MiB").cost_model(Each).cpu()?;
/// let y = runtime.ones(&[2])?.exp()?;
/// assert_eq!(runtime.stats()?.base_cost, 2.0);
/// # Ok::<(), Error>(())
/// ```
pub trait CostModel: fmt::Debug + Send {
    /// Name of the cost model in recordings and error messages.
    fn name(&self) -> &str {
        "custom"
    }

    /// Estimates the cost of running the op again: a finite number from 0 up. All costs of a cost
    /// model are in one unit. The engine calls this function after each run. When memory is short,
    /// the engine also asks for the cost of runs that it postpones, and of runs that it never
    /// makes.
    fn cost(&mut self, run: Run<'_>) -> f64;

    /// Returns whether to time the next run. If timing takes time on a device, the device times a
    /// run only if this function returns true.
    fn wants_time(&mut self, _run: Run<'_>) -> bool {
        false
    }

    /// Learns the time, in seconds, of a run with the given [`Run::key`]. The engine calls this
    /// function for a run whose cost was computed before its time was known.
    fn learn(&mut self, _key: u64, _seconds: f64) {}
}

/// Cost models of the crate. A cost model prints as its name, the first word of its description,
/// and can be parsed from this name.
///
/// ```
/// use remat::CostModelKind;
///
/// assert_eq!("bytes".parse(), Ok(CostModelKind::Bytes));
/// assert_eq!(CostModelKind::default().to_string(), "flops");
/// assert!("seconds".parse::<CostModelKind>().is_err());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostModelKind {
    /// `measured`: measured milliseconds, smoothed over all runs of an op on equal shapes. A run
    /// that was never timed costs as much per byte as the average timed run. The costs differ from
    /// one execution of the program to the next.
    Measured,
    /// `flops`: gigaflops, with 10 flops added for each byte read or written. Current devices
    /// compute about 10 flops in the time in which they move a byte, so the costs of memory-bound
    /// ops are realistic, too. The costs are the same in every execution of the program.
    #[default]
    Flops,
    /// `bytes`: bytes read and written, divided by 1e8, as in MegEngine. The costs are the same in
    /// every execution of the program.
    Bytes,
}

/// Error for a text that is not the name of a cost model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cost model; choose one of {names}", names = CostModelKind::NAMES.join(", "))]
pub struct ParseCostModelError(String);

impl CostModelKind {
    /// Names of all cost models.
    pub const NAMES: [&'static str; 3] = ["measured", "flops", "bytes"];

    /// Describes the cost model in one line.
    ///
    /// ```
    /// use remat::CostModelKind;
    ///
    /// assert!(CostModelKind::Flops.about().contains("the same evictions in each run"));
    /// ```
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Measured => "measured time of each kind of op; evictions differ from run to run",
            Self::Flops => "arithmetic and bytes moved; the same evictions in each run",
            Self::Bytes => {
                "bytes read and written, as in MegEngine; the same evictions in each run"
            }
        }
    }

    /// Makes a fresh cost model.
    ///
    /// ```
    /// use remat::{CostModelKind, DType, Layout, Run};
    ///
    /// let x = Layout::contiguous(DType::F32, [25]);
    /// let (inputs, outputs) = (&[x], &[x]);
    /// let run = Run { op: "exp", inputs, outputs, flops: 0.0, bytes: 200, seconds: None };
    /// assert_eq!(CostModelKind::Bytes.build().cost(run), 200.0 / 1e8);
    /// ```
    #[must_use]
    pub fn build(self) -> Box<dyn CostModel> {
        match self {
            Self::Measured => Box::<Measured>::default(),
            Self::Flops => Box::new(Flops),
            Self::Bytes => Box::new(Bytes),
        }
    }
}

impl FromStr for CostModelKind {
    type Err = ParseCostModelError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "measured" => Ok(Self::Measured),
            "flops" => Ok(Self::Flops),
            "bytes" => Ok(Self::Bytes),
            _ => Err(ParseCostModelError(name.to_owned())),
        }
    }
}

impl fmt::Display for CostModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Measured => "measured",
            Self::Flops => "flops",
            Self::Bytes => "bytes",
        })
    }
}

#[derive(Debug)]
struct Bytes;

impl CostModel for Bytes {
    fn name(&self) -> &str {
        "bytes"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        run.bytes as f64 / 1e8
    }
}

#[derive(Debug)]
struct Flops;

impl CostModel for Flops {
    fn name(&self) -> &str {
        "flops"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        (run.flops + 10.0 * run.bytes as f64) / 1e9
    }
}

/// Cost model `measured`: exponential smoothing of the times of each op on each list of shapes.
#[derive(Debug, Default)]
struct Measured {
    /// Smoothed times by [`Run::key`]. A collision of the hash has little effect: two kinds of run
    /// would share an estimate.
    seen: FxHashMap<u64, Smoothed>,
    /// Total milliseconds and bytes of all kinds of run that were timed, to estimate the kinds that
    /// were not.
    known: (f64, f64),
}

/// Time and size of one kind of run.
#[derive(Debug, Default)]
struct Smoothed {
    /// Smoothed time; `None` before the first timed run.
    milliseconds: Option<f64>,
    /// Bytes read and written.
    bytes: f64,
    /// Number of calls of [`CostModel::wants_time`] for this kind.
    asked: u32,
}

impl Measured {
    /// Weight of the newest time in the smoothing.
    const NEWEST: f64 = 0.25;
    /// Number of first runs of a kind that are timed, on devices where timing takes time. Of the
    /// later runs, one in `EVERY` is timed. Few runs suffice, because times change little, and
    /// timing takes about as long as a small kernel.
    const EVERY: u32 = 8;
    /// Largest factor between a new time and the smoothed time for which the new time enters the
    /// smoothing unchanged.
    const FAR: f64 = 4.0;
    /// Estimate of milliseconds per byte before any run is timed: the speed of a memory of 100
    /// GB/s.
    const GUESS: f64 = 1e-8;

    /// Adds a measured time to the smoothing. Returns the smoothed time in milliseconds.
    fn told(&mut self, key: u64, seconds: f64) -> f64 {
        let newest = seconds * 1e3;
        let smoothed = self.seen.entry(key).or_default();
        let milliseconds = match smoothed.milliseconds {
            // If the new time is far shorter than the smoothed time, forget the smoothed time,
            // because earlier runs may have compiled the kernel or waited. A new time that is far
            // longer counts as `FAR` times the smoothed time.
            Some(before) if newest < before / Self::FAR => newest,
            Some(before) => before + Self::NEWEST * (newest.min(before * Self::FAR) - before),
            None => {
                self.known.1 += smoothed.bytes;
                newest
            }
        };
        self.known.0 += milliseconds - smoothed.milliseconds.unwrap_or(0.0);
        smoothed.milliseconds = Some(milliseconds);
        milliseconds
    }
}

impl CostModel for Measured {
    fn name(&self) -> &str {
        "measured"
    }

    fn cost(&mut self, run: Run<'_>) -> f64 {
        let (key, bytes) = (run.key(), run.bytes as f64);
        let smoothed = self.seen.entry(key).or_default();
        smoothed.bytes = bytes;
        if let Some(seconds) = run.seconds {
            return self.told(key, seconds);
        }
        smoothed.milliseconds.unwrap_or_else(|| match self.known {
            (milliseconds, known) if known > 0.0 => bytes * milliseconds / known,
            _ => bytes * Self::GUESS,
        })
    }

    fn wants_time(&mut self, run: Run<'_>) -> bool {
        let smoothed = self.seen.entry(run.key()).or_default();
        smoothed.asked = smoothed.asked.wrapping_add(1);
        smoothed.asked <= Self::EVERY || smoothed.asked.is_multiple_of(Self::EVERY)
    }

    fn learn(&mut self, key: u64, seconds: f64) {
        self.told(key, seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::DType;

    fn run(layout: &Layout, seconds: Option<f64>) -> Run<'_> {
        let inputs = std::slice::from_ref(layout);
        Run { op: "op", inputs, outputs: &[], flops: 0.0, bytes: layout.bytes(), seconds }
    }

    #[test]
    fn unknown_runs_cost_by_bytes_at_the_rate_of_known_ones() {
        let [small, large] = [10, 1000].map(|n| Layout::contiguous(DType::F32, [n]));
        let mut costs = Measured::default();
        assert_eq!(costs.cost(run(&small, None)), 40.0 * Measured::GUESS);
        costs.learn(run(&small, None).key(), 2.0);
        assert_eq!(costs.cost(run(&small, None)), 2000.0);
        assert_eq!(costs.cost(run(&large, None)), 200_000.0);
        costs.learn(run(&small, None).key(), 1.0);
        assert_eq!(costs.cost(run(&small, None)), 1750.0);
        assert_eq!(costs.cost(run(&small, Some(1.75))), 1750.0);
    }

    #[test]
    fn a_run_that_had_to_wait_first_is_forgotten() {
        let layout = Layout::contiguous(DType::F32, [10]);
        let mut costs = Measured::default();
        costs.cost(run(&layout, None));
        costs.learn(run(&layout, None).key(), 1.5);
        costs.learn(run(&layout, None).key(), 0.001);
        assert_eq!(costs.cost(run(&layout, None)), 1.0);
        let twice = Layout::contiguous(DType::F32, [20]);
        assert_eq!(costs.cost(run(&twice, None)), 2.0);
        costs.learn(run(&layout, None).key(), 3.0);
        assert_eq!(costs.cost(run(&layout, None)), 1.75);
    }

    #[test]
    fn few_times_are_asked_for_once_there_are_some() {
        let layout = Layout::contiguous(DType::F32, [3]);
        let mut costs = Measured::default();
        assert_eq!((0..800).filter(|_| costs.wants_time(run(&layout, None))).count(), 8 + 99);
        assert!(!Flops.wants_time(run(&layout, None)));
    }
}
