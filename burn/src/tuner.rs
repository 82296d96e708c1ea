//! Choice of a budget before the first operation, by a rehearsal that computes no values.

use crate::builder::Builder;
use crate::error::Error;
use crate::guard::Guard;
use burn_ir::BackendIr;
use remat::error::RuntimeError;
use remat::evict::Learn;
use remat::tune::{
    Budget, CHOSEN_RATIO, NAMED_RATIO, OptionNames, Share, StandIn, TuneError, USUAL,
};
use remat::unstable::lab::{InMemory, MemoryKind, Replay, Status, smallest};
use remat::unstable::program::{Knowledge, KnownSteps, RecordedProgram};
use remat::{ByteSize, PolicyKind, RecomputeLimit};
use std::fmt::{self, Display};

/// Budget of the rehearsal, in bytes: so large that no tensor is evicted.
const PLENTY: u64 = 1 << 50;

/// Chooses a budget for a program before its first operation.
///
/// ```
/// use burn::tensor::Tensor;
/// use burn_flex::Flex;
///
/// fn train(device: &remat_burn::Guard, steps: usize) -> Result<(), remat_burn::Error> {
///     let mut weight = Tensor::<2>::ones([64, 64], device);
///     for _ in 0..steps {
///         let mut passed = vec![Tensor::<2>::ones([256, 64], device)];
///         for layer in 0..8 {
///             passed.push(passed[layer].clone().matmul(weight.clone()).tanh());
///         }
///         let mut sum = passed[8].clone().mean();
///         while let Some(x) = passed.pop() {
///             sum = sum + (x.clone() * x).mean();
///         }
///         weight = weight * sum.unsqueeze();
///         device.step()?;
///     }
///     Ok(())
/// }
///
/// let tuned = remat_burn::Tuner::new()
///     .budget("60%")
///     .tune::<Flex>(Default::default(), |device| train(device, 4))?;
/// let device = tuned.builder().serve::<Flex>(Default::default())?;
/// train(&device, 10)?;
/// assert!(device.stats()?.peak_bytes <= tuned.budget());
/// # Ok::<(), remat_burn::Error>(())
/// ```
#[derive(Debug, Default)]
#[must_use = "nothing is rehearsed before `tune`"]
pub struct Tuner {
    budget: Option<Budget>,
    wrong: Option<String>,
}

impl Tuner {
    /// A tuner with the default budget: 40 % of the memory that the program takes without
    /// evictions, or, if 40 % do not suffice, the smallest percentage found that does.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the budget: bytes, a text such as `"6GiB"`, a share such as `"40%"` of the memory that
    /// the program takes without evictions, or `"auto"`, the free memory of the machine.
    pub fn budget<T: TryInto<Budget, Error: Display>>(mut self, budget: T) -> Self {
        match budget.try_into() {
            Ok(budget) => self.budget = Some(budget),
            Err(error) => self.wrong = Some(format!("budget: {error}")),
        }
        self
    }

    /// Rehearses `train` on a simulated device ([`Builder::sim`]), and chooses a sufficient budget.
    /// `train` should run four steps, each with [`Guard::step`] at its end. Values that `train`
    /// reads are zeros.
    ///
    /// # Errors
    /// [`Error::TooSmall`] if the budget is too small; the error names a sufficient budget. Also
    /// any error of `train`, or of a setting.
    pub fn tune<B: BackendIr>(
        self,
        device: B::Device,
        train: impl FnOnce(&Guard) -> Result<(), Error>,
    ) -> Result<Tuned, Error> {
        let settings = |wrong| Error::from(remat::Error::from(RuntimeError::Settings(wrong)));
        if let Some(wrong) = self.wrong {
            return Err(settings(wrong));
        }
        let rehearsal = Rehearsal::of::<B>(device, train)?;
        let budget = match self.budget {
            None => rehearsal.choose()?,
            Some(Budget::Auto) => {
                let unknown =
                    || settings(TuneError::FreeUnknown(OptionNames::WORDS.budget).to_string());
                rehearsal.asked(StandIn::cpu(1).free_bytes.ok_or_else(unknown)?)?
            }
            Some(Budget::Share(share)) => rehearsal.asked(share.of(rehearsal.full))?,
        };
        Ok(Tuned { budget, full: rehearsal.full, steps: rehearsal.steps })
    }
}

/// Budget that suffices in the rehearsal, and the steps of the program.
///
/// `Display` prints one line with the size of the budget.
#[derive(Clone, Debug)]
pub struct Tuned {
    budget: u64,
    full: u64,
    steps: KnownSteps,
}

impl Tuned {
    /// Builder of a device with this budget. The device predicts the program's steps from the first
    /// operation on.
    pub fn builder(&self) -> Builder {
        crate::budget(self.budget).known_steps(self.steps.clone())
    }

    /// The budget, in bytes.
    #[must_use]
    pub const fn budget(&self) -> u64 {
        self.budget
    }

    /// Bytes that the program takes without evictions: 100 %.
    #[must_use]
    pub const fn full_budget(&self) -> u64 {
        self.full
    }
}

impl Display for Tuned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [budget, full] = ByteSize::apart(self.budget, self.full);
        if self.budget >= self.full {
            return write!(
                f,
                "budget {budget}; the program takes {full} without evictions, so nothing is recomputed"
            );
        }
        let percent = (1000.0 * self.budget as f64 / self.full as f64).round() / 10.0;
        write!(
            f,
            "budget {budget}, {percent} % of the {full} that the program takes without evictions"
        )
    }
}

/// The commands of a program, its steps, and the bytes that it takes without evictions.
struct Rehearsal {
    program: RecordedProgram,
    steps: KnownSteps,
    full: u64,
}

impl Rehearsal {
    fn of<B: BackendIr>(
        device: B::Device,
        train: impl FnOnce(&Guard) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let recorder = InMemory::default();
        let builder = crate::budget(PLENTY).known_steps(KnownSteps::marked());
        let guard = builder.record(recorder.clone()).sim::<B>(device)?;
        train(&guard)?;
        guard.sync()?;
        let steps = guard.known_steps()?.unwrap_or_default();
        drop(guard);
        let program = recorder.take().map_err(|error| Error::Panicked(error.to_string()))?;
        let mut rehearsal = Self { program, steps, full: PLENTY };
        rehearsal.full = rehearsal.replay(PLENTY, 0.0).unbudgeted(&rehearsal.program)?.full_budget;
        Ok(rehearsal)
    }

    /// Replay of the program under a budget, as a real device would run it. Burn's backends place
    /// their tensors themselves, so the replay only counts bytes.
    fn replay(&self, budget: u64, ratio: f64) -> Replay {
        let mut replay = Replay::new(PolicyKind::Learned(Learn::Ahead), budget);
        replay.memory = MemoryKind::Counted;
        replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(ratio));
        replay.as_run = Some(Knowledge { steps: Some(self.steps.clone()), ..Knowledge::default() });
        replay
    }

    /// Error of a replay under the budget; `None` if the budget suffices.
    fn fails(&self, budget: u64, ratio: f64) -> Result<Option<remat::Error>, remat::Error> {
        if budget >= self.full {
            return Ok(None);
        }
        Ok(match self.replay(budget, ratio).run(&self.program)?.status {
            Status::Done => None,
            Status::Failed { error, .. } => Some(error),
        })
    }

    /// Smallest sufficient percentage found, from `low` on. 100 % always suffices.
    fn passing(&self, low: u32, ratio: f64) -> Result<u32, Error> {
        let passes = |percent| Ok(self.fails(self.bytes(percent), ratio)?.is_none());
        Ok(smallest::<remat::Error>(low.min(100), 100, passes)?.unwrap_or(100))
    }

    fn bytes(&self, percent: u32) -> u64 {
        Share::Percent(percent.into()).of(self.full)
    }

    /// The default budget, in bytes.
    fn choose(&self) -> Result<u64, Error> {
        let usual = self.bytes(USUAL);
        Ok(match self.fails(usual, CHOSEN_RATIO)? {
            None => usual,
            Some(_) => self.bytes(self.passing(USUAL + 1, CHOSEN_RATIO)?),
        })
    }

    /// The budget that the user gave, if it suffices.
    fn asked(&self, budget: u64) -> Result<u64, Error> {
        let Some(error) = self.fails(budget, NAMED_RATIO)? else { return Ok(budget) };
        let above = (u128::from(budget) * 100 / u128::from(self.full.max(1))) as u32 + 1;
        let percent = self.passing(above, NAMED_RATIO)?;
        Err(Error::TooSmall {
            budget,
            passing: self.bytes(percent),
            percent,
            full: self.full,
            error,
        })
    }
}
