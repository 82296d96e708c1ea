//! What running an op costs: the unit of scores, and of the engine's clock.

use crate::layout::Layout;
use rustc_hash::{FxHashMap, FxHasher};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

/// One run of an op, as a cost model sees it.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// Name of the op.
    pub op: &'a str,
    /// Its inputs.
    pub inputs: &'a [Layout],
    /// Its outputs.
    pub outputs: &'a [Layout],
    /// Floating-point operations, as the op states them.
    pub flops: f64,
    /// Seconds it took, where the device can tell.
    pub seconds: Option<f64>,
}

impl Run<'_> {
    /// Bytes read and written.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.inputs.iter().chain(self.outputs).map(Layout::bytes).fold(0, u64::saturating_add)
    }
}

/// A way to put a number on a run.
pub trait CostModel: fmt::Debug + Send {
    /// The cost of running this again, in any unit, but always the same. Called after each run.
    fn cost(&mut self, run: Run<'_>) -> f64;
}

/// The cost models that come with the crate. Parses from and prints as the name in brackets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum CostModelKind {
    /// `measured`: milliseconds per kind of op and shapes, smoothed. Differs from run to run.
    Measured,
    /// `flops`: gigaflops, with 10 flops for each byte read or written: about what current devices
    /// compute in the time they move one, so that ops bound by memory count, too. Deterministic.
    #[default]
    Flops,
    /// `bytes`: bytes read and written, divided by 1e8, as MegEngine has it. Deterministic.
    Bytes,
}

/// A name that is not a cost model's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a cost model; choose one of {names}", names = CostModelKind::NAMES.join(", "))]
pub struct ParseCostModelError(String);

impl CostModelKind {
    /// All names.
    pub const NAMES: [&'static str; 3] = ["measured", "flops", "bytes"];

    /// What it counts, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Measured => "time each kind of op took; evictions differ from run to run",
            Self::Flops => "arithmetic and bytes moved; the same evictions each run",
            Self::Bytes => "bytes read and written, as in MegEngine; the same evictions each run",
        }
    }

    /// A fresh cost model.
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
    fn cost(&mut self, run: Run<'_>) -> f64 {
        run.bytes() as f64 / 1e8
    }
}

#[derive(Debug)]
struct Flops;

impl CostModel for Flops {
    fn cost(&mut self, run: Run<'_>) -> f64 {
        (run.flops + 10.0 * run.bytes() as f64) / 1e9
    }
}

/// Exponential smoothing of the times seen for the same op on the same shapes.
#[derive(Debug, Default)]
struct Measured {
    /// Hash of op and shapes -> milliseconds. A collision would only mix two estimates.
    seen: FxHashMap<u64, f64>,
}

impl Measured {
    /// Weight of the newest time.
    const NEWEST: f64 = 0.25;
}

impl CostModel for Measured {
    fn cost(&mut self, run: Run<'_>) -> f64 {
        let Some(seconds) = run.seconds else {
            return Bytes.cost(run);
        };
        let mut hasher = FxHasher::default();
        run.op.hash(&mut hasher);
        for layout in run.inputs.iter().chain(run.outputs) {
            layout.shape().hash(&mut hasher);
        }
        let milliseconds = seconds * 1e3;
        let smoothed = self.seen.entry(hasher.finish()).or_insert(milliseconds);
        *smoothed += Self::NEWEST * (milliseconds - *smoothed);
        *smoothed
    }
}
