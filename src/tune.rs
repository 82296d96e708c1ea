//! Tuning of a run before its first step. The tuner finds a budget that suffices for the run, and
//! forecasts for its steps.
//!
//! A [`Tuner`] rehearses a [`Trainable`] program on a simulated device, which only counts bytes and
//! costs. A budget *passes* if the rehearsal runs to its end within the budget. The tuner refuses a
//! budget that is too small, and names one that passes. With a tuner, even the first step of the
//! run is predicted. Simulated runs show which evictions suit a step best, and how much of the
//! budget to use.
//!
//! ```
//! use remat::prelude::*;
//! use remat::tune::Tuner;
//!
//! let start = |runtime: &Runtime| -> Result<_, Error> {
//!     let runtime = runtime.clone();
//!     let mut weight = runtime.ones(&[64, 64])?;
//!     Ok(move || {
//!         let mut passed = vec![runtime.ones(&[256, 64])?];
//!         for layer in 0..8 {
//!             passed.push(passed[layer].matmul(&weight)?.tanh()?);
//!         }
//!         let mut sum = passed[8].mean()?;
//!         while let Some(x) = passed.pop() {
//!             sum = (sum + x.square()?.mean()?)?;
//!         }
//!         weight = (&weight * &sum)?;
//!         runtime.step()
//!     })
//! };
//! let tuned = Tuner::new(Runtime::builder).budget("60%").steps(10).tune(&start)?;
//! let runtime = tuned.builder().cpu()?;
//! let mut step = start(&runtime)?;
//! for _ in 0..10 {
//!     step()?;
//! }
//! assert!(runtime.stats()?.peak_bytes <= tuned.budget());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # 100 %
//!
//! Percentages are shares of the *full budget*: the smallest budget found under which the rehearsed
//! run evicts nothing with any policy. The full budget is larger than the peak of bytes in use,
//! because blocks leave holes between them. The first steps of the rehearsal are recorded, and
//! replays of the recording find the full budget
//! ([`Unbudgeted::full_budget`](crate::lab::Unbudgeted::full_budget)). `remat simulate` and
//! `remat sweep` find the same full budget for a recording of the same steps.
//!
//! Later steps may leave other holes in memory. If a later step of the rehearsal evicts something
//! in the full budget, the rehearsal tries larger budgets.

mod cache;
mod chosen;
mod default_budget;
mod error;
mod forecasts;
mod rehearsal;
mod share;
mod trainable;
mod tuned;

// The tuner of remat-burn chooses by the same limits.
pub use chosen::{ChosenBudget, Warning};
pub use default_budget::USUAL;
#[doc(hidden)]
pub use default_budget::{CHOSEN_RATIO, NAMED_RATIO};
pub use error::{Refusal, TuneError};
pub use forecasts::Forecasts;
pub use rehearsal::is_rehearsing;
// Documented in `unstable`.
#[doc(hidden)]
pub use rehearsal::{Rehearsal, Rehearsed};
pub use share::{Budget, ParseBudgetError, Share};
pub use trainable::{Trainable, Training};
pub use tuned::Tuned;

use crate::cost::CostModelKind;
use crate::device::sim::Sim;
use crate::error::RuntimeError;
use crate::host::HostTensor;
use crate::ops::Op;
use crate::runtime::{Builder, CostModelChoice, available_memory};
use crate::sync::thread;
use remat_memory::ByteSize;
use std::fmt::{self, Display};
use std::path::PathBuf;
use std::sync::Arc;

/// Makes a simulated device of the given number of bytes.
// Documented in `unstable`.
#[doc(hidden)]
pub type SimOf = Arc<dyn Fn(u64) -> Sim<Op, HostTensor> + Send + Sync>;

/// A description of the run's device, from which rehearsals simulate the device.
///
/// ```
/// use remat::Runtime;
/// use remat::tune::{StandIn, Tuner};
///
/// let tuner = Tuner::new(Runtime::builder).device(StandIn::cpu(8)).budget("50%");
/// ```
#[derive(Clone)]
pub struct StandIn {
    /// Name of the device. The name must contain everything that costs depend on, such as the
    /// number of threads. A file of forecasts is valid only for a device with the same name.
    pub name: String,
    /// Makes a simulation of the device. The simulation has the same workspaces, and therefore the
    /// same peak of memory.
    pub sim: SimOf,
    /// Free memory in bytes, less a margin; `None` if unknown.
    pub free_bytes: Option<u64>,
}

impl StandIn {
    /// The CPU, with `threads` threads.
    ///
    /// ```
    /// use remat::tune::StandIn;
    ///
    /// assert_eq!(StandIn::cpu(8).name, "cpu, 8 threads");
    /// ```
    #[must_use]
    pub fn cpu(threads: usize) -> Self {
        let plural = if threads == 1 { "" } else { "s" };
        let name = format!("cpu, {threads} thread{plural}");
        Self { name, sim: Arc::new(Sim::cpu), free_bytes: available_memory() }
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, free_bytes, .. } = self;
        f.debug_struct("StandIn").field("name", name).field("free_bytes", free_bytes).finish()
    }
}

/// Names of options, as messages show them: the flags of a program, or plain words.
///
/// ```
/// use remat::Runtime;
/// use remat::tune::{OptionNames, Tuner};
///
/// let names = OptionNames { budget: "--budget", batch: "--batch", ..OptionNames::WORDS };
/// let tuner = Tuner::new(Runtime::builder).names(names);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionNames {
    /// Name of the option for the budget.
    pub budget: &'static str,
    /// Name of the option for the eviction threshold.
    pub threshold: &'static str,
    /// Name of the option for the batch size.
    pub batch: &'static str,
    /// Name of the option for the cost model.
    pub cost_model: &'static str,
    /// Name of the option for the file of forecasts.
    pub cache: &'static str,
}

impl OptionNames {
    /// Plain words instead of flags.
    pub const WORDS: Self = Self {
        budget: "the budget",
        threshold: "the eviction threshold",
        batch: "the batch size",
        cost_model: "cost model",
        cache: "the file of forecasts",
    };
}

/// An event of the tuning.
///
/// ```
/// use remat::tune::Progress;
///
/// let progress = Progress::WithoutEvictions { budget: 64 << 20 };
/// assert_eq!(progress.to_string(), "rehearsing without evictions in 64.00 MiB");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Progress {
    /// A rehearsal begins without a limit on memory.
    Unlimited,
    /// A rehearsal begins, to test whether a budget evicts nothing.
    WithoutEvictions {
        /// The budget in bytes.
        budget: u64,
    },
    /// A rehearsal begins in a budget.
    Within {
        /// The budget in bytes.
        budget: u64,
        /// The budget in percent of the full budget.
        percent: f64,
    },
    /// Simulated runs begin in a budget.
    Learning {
        /// The budget in bytes.
        budget: u64,
        /// The budget in percent of the full budget.
        percent: f64,
    },
}

impl Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Unlimited => f.write_str("rehearsing without a limit"),
            Self::WithoutEvictions { budget } => {
                write!(f, "rehearsing without evictions in {}", ByteSize(budget))
            }
            Self::Within { budget, percent } => {
                write!(f, "rehearsing within {} ({percent:.0} %)", ByteSize(budget))
            }
            Self::Learning { budget, percent } => {
                let budget = ByteSize(budget);
                write!(f, "learning what to evict within {budget} ({percent:.0} %)")
            }
        }
    }
}

/// Options of a run that is to be tuned.
///
/// ```
/// use remat::prelude::*;
/// use remat::tune::Tuner;
///
/// # let start = |runtime: &Runtime| -> Result<_, Error> {
/// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
/// #     Ok(move || {
/// #         x = x.sin()?;
/// #         runtime.step()
/// #     })
/// # };
/// // `start` starts a program on a runtime: see `Trainable`.
/// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
/// assert_eq!(tuned.budget(), 4 << 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Tuner<'a> {
    make: Arc<dyn Fn() -> Builder + Send + Sync + 'a>,
    budget: Option<Budget>,
    threshold: Option<Share>,
    steps: usize,
    stand_in: StandIn,
    cache: Option<PathBuf>,
    names: OptionNames,
    progress: Box<dyn Fn(Progress) + Send + Sync + 'a>,
    interrupt: Box<dyn Fn() -> bool + Send + Sync + 'a>,
    wrong: Option<String>,
}

impl fmt::Debug for Tuner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { budget, threshold, steps, stand_in, cache, names, .. } = self;
        f.debug_struct("Tuner")
            .field("budget", budget)
            .field("threshold", threshold)
            .field("steps", steps)
            .field("stand_in", stand_in)
            .field("cache", cache)
            .field("names", names)
            .finish_non_exhaustive()
    }
}

impl<'a> Tuner<'a> {
    /// A tuner for runs on the runtime that `make` describes. `make` is `Runtime::builder`, or a
    /// closure that sets more options.
    ///
    /// The tuner searches for forecasts only with the policies
    /// [`Learned(Learn::Portfolio)`](crate::evict::Learn::Portfolio) and `Learned(Learn::Search)`.
    /// `remat train` uses the portfolio, and [`Plan::Auto`](crate::Plan::Auto).
    ///
    /// Each rehearsal has a runtime of its own, so `make` is called several times. Set an object
    /// that only one runtime can use, such as a recorder, on the result of [`Tuned::builder`]. The
    /// tuner sets budget and threshold.
    ///
    /// ```
    /// use remat::evict::Learn;
    /// use remat::tune::Tuner;
    /// use remat::{PolicyKind, Runtime};
    ///
    /// let policy = PolicyKind::Learned(Learn::Portfolio);
    /// let tuner = Tuner::new(move || Runtime::builder().policy(policy).seed(1)).steps(1000);
    /// ```
    #[must_use]
    pub fn new(make: impl Fn() -> Builder + Send + Sync + 'a) -> Self {
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = make().threads.unwrap_or_else(cores);
        Self {
            make: Arc::new(make),
            budget: None,
            threshold: None,
            steps: usize::MAX,
            stand_in: StandIn::cpu(threads),
            cache: None,
            names: OptionNames::WORDS,
            progress: Box::new(|_| {}),
            interrupt: Box::new(|| false),
            wrong: None,
        }
    }

    /// Sets the memory that the run may use: `"40%"` of the full budget, `"64MiB"`, a number of
    /// bytes, or `"auto"` for the free memory. Default: 40 %, or the smallest larger percentage
    /// found that passes.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("100%").steps(4).tune(&start)?;
    /// assert_eq!(tuned.budget(), tuned.chosen().full_budget());
    /// assert!(Tuner::new(Runtime::builder).budget("-1").tune(&start).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn budget<B: TryInto<Budget, Error: Display>>(mut self, budget: B) -> Self {
        self.budget = self.given("budget", budget.try_into()).or(self.budget);
        self
    }

    /// Sets the eviction threshold, see [`Builder::eviction_threshold`]. A threshold is written
    /// like a budget, but cannot be `"auto"`. Default: no threshold.
    ///
    /// ```
    /// use remat::Runtime;
    /// use remat::tune::Tuner;
    ///
    /// let tuner = Tuner::new(Runtime::builder).budget("60%").eviction_threshold("50%");
    /// ```
    #[must_use]
    pub fn eviction_threshold<S: TryInto<Share, Error: Display>>(mut self, threshold: S) -> Self {
        self.threshold = self.given("eviction threshold", threshold.try_into());
        self
    }

    /// Sets the number of steps of the run. A short run is rehearsed from start to end, with a
    /// shorter search for forecasts. Default: no limit.
    ///
    /// ```
    /// use remat::Runtime;
    /// use remat::tune::Tuner;
    ///
    /// let tuner = Tuner::new(Runtime::builder).budget("60%").steps(1000);
    /// ```
    #[must_use]
    pub const fn steps(mut self, steps: usize) -> Self {
        self.steps = steps;
        self
    }

    /// Sets the device of the run. Default: the CPU.
    #[must_use]
    pub fn device(mut self, stand_in: StandIn) -> Self {
        self.stand_in = stand_in;
        self
    }

    /// Sets a file with forecasts of earlier runs, to which new forecasts are added. A file is
    /// refused if it is from another device, number of threads, cost model or version of this
    /// crate. Default: no file.
    ///
    /// ```
    /// use remat::Runtime;
    /// use remat::tune::Tuner;
    ///
    /// let path = std::env::temp_dir().join("forecasts.json");
    /// let tuner = Tuner::new(Runtime::builder).budget("60%").cache(path);
    /// ```
    #[must_use]
    pub fn cache(mut self, path: impl Into<PathBuf>) -> Self {
        self.cache = Some(path.into());
        self
    }

    /// Sets the names of the options in messages. Default: [`OptionNames::WORDS`].
    #[must_use]
    pub const fn names(mut self, names: OptionNames) -> Self {
        self.names = names;
        self
    }

    /// Sets a function that is called with each event of the tuning, possibly from several threads.
    ///
    /// ```
    /// use remat::Runtime;
    /// use remat::tune::Tuner;
    ///
    /// let tuner = Tuner::new(Runtime::builder).progress(|event| eprintln!("{event}"));
    /// ```
    #[must_use]
    pub fn progress(mut self, told: impl Fn(Progress) + Send + Sync + 'a) -> Self {
        self.progress = Box::new(told);
        self
    }

    /// Calls `wanted` between the steps of rehearsals. If `wanted` returns true, the tuning ends
    /// with [`TuneError::Interrupted`].
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).interrupt_when(|| true).tune(&start);
    /// assert!(matches!(tuned, Err(remat::tune::TuneError::Interrupted)));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn interrupt_when(mut self, wanted: impl Fn() -> bool + Send + Sync + 'a) -> Self {
        self.interrupt = Box::new(wanted);
        self
    }

    /// Rehearses `program`, chooses a budget that passes, and searches for forecasts of the steps
    /// in that budget.
    ///
    /// ```
    /// use remat::prelude::*;
    /// use remat::tune::Tuner;
    ///
    /// # let start = |runtime: &Runtime| -> Result<_, Error> {
    /// #     let (runtime, mut x) = (runtime.clone(), runtime.ones(&[1 << 16])?);
    /// #     Ok(move || {
    /// #         x = x.sin()?;
    /// #         runtime.step()
    /// #     })
    /// # };
    /// // `start` starts a program on a runtime: see `Trainable`.
    /// let tuned = Tuner::new(Runtime::builder).budget("4MiB").steps(4).tune(&start)?;
    /// let runtime = tuned.builder().cpu()?;
    /// let mut step = start(&runtime)?;
    /// for _ in 0..4 {
    ///     step()?;
    /// }
    /// assert!(runtime.stats()?.peak_bytes <= tuned.budget());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TuneError::Refused`] if the budget does not pass. The error names a budget that passes, if
    /// the tuner finds a passing budget.
    pub fn tune<P: Trainable>(&self, program: &P) -> Result<Tuned<'a>, TuneError> {
        let rehearsal = Rehearsal::new(self, program)?;
        rehearsal.learn(rehearsal.choose()?)
    }

    /// The cost model of the run; `None` for a custom cost model.
    fn cost_model(&self) -> Option<CostModelKind> {
        match (self.make)().cost_model {
            CostModelChoice::Kind(kind) => Some(kind),
            CostModelChoice::Own(_) => None,
        }
    }

    /// A builder of the run's runtime, in `budget` bytes.
    fn builder(&self, budget: u64, threshold: Option<u64>) -> Builder {
        let builder = (self.make)().budget(budget);
        match threshold {
            Some(threshold) => builder.eviction_threshold(threshold),
            None => builder,
        }
    }

    fn given<T, E: Display>(&mut self, what: &str, value: Result<T, E>) -> Option<T> {
        let wrong = |error| _ = self.wrong.get_or_insert_with(|| format!("{what}: {error}"));
        value.map_err(wrong).ok()
    }

    fn check(&self) -> Result<(), TuneError> {
        match &self.wrong {
            Some(wrong) => {
                let wrong = RuntimeError::Settings(wrong.clone());
                Err(TuneError::Failed(wrong.into()))
            }
            None => self.interrupted(),
        }
    }

    /// Returns [`TuneError::Interrupted`] if the user's predicate returns true.
    fn interrupted(&self) -> Result<(), TuneError> {
        if (self.interrupt)() { Err(TuneError::Interrupted) } else { Ok(()) }
    }
}
