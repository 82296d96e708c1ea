//! The out-of-memory error, with all that a person needs to act on it. The budget that it names is found by `driver/attempt.rs`
//! and `lab/passing.rs`.

use crate::bytes::ByteSize;
use std::fmt;

/// A budget that a program passes with, as far as it came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassingBudget {
    /// The budget in bytes. [`ByteSize`] prints it so that the text means as many.
    pub bytes: u64,
    /// Ops that were rehearsed: those that made what was there, and all from there on up to where the failure was told.
    pub ops: u64,
}

/// Memory that could not be had, and what stood in the way.
#[derive(Clone)]
pub struct OutOfMemory {
    /// What was running.
    pub op: String,
    /// Its inputs, as `f32[64, 3, 32, 32]`.
    pub inputs: Vec<String>,
    /// Bytes that did not fit, as the arena counts them: what a run wants for its outputs and scratch,
    /// or the last of it.
    pub wanted: u64,
    /// The hard limit.
    pub budget: u64,
    /// Bytes in use when it gave up.
    pub used: u64,
    /// Bytes free when it gave up.
    pub free: u64,
    /// Largest contiguous free piece.
    pub largest_free: u64,
    /// `(free - largest_free) / free`.
    pub fragmentation: f64,
    /// Bytes held by the inputs and outputs of the op at hand, and of ops waiting for it.
    pub pinned: u64,
    /// Bytes of leaves that are not pinned: values without a compute path (updated in place,
    /// committed, or from ops that cannot run twice).
    pub leaves: u64,
    /// Bytes that could still have been evicted; above 0 only if that would not have been enough, or
    /// the policy never evicts.
    pub evictable: u64,
    /// Values that are kept only because others are made from them, where they are most of all and no end of a step was
    /// marked, or none for long; otherwise 0.
    pub unmarked: usize,
    /// What the device said, if it ran out of memory of its own before the budget was used up.
    pub device: Option<String>,
    /// The five largest holders: what, how many bytes, and why it stays.
    pub holders: Vec<(String, u64, &'static str)>,
    /// A larger budget that the program passed with in a rehearsal, up to where this was told. `None` if none was found, or
    /// nobody looked: that takes the feature `lab`, a policy of the crate, and one of the first two steps, or one after an
    /// out-of-memory.
    pub passing: Option<PassingBudget>,
}

impl OutOfMemory {
    /// The budget that this op needed as things were: what could not be evicted then, and what it wanted. It says
    /// nothing of the ops to come; and with another budget other things may lie in memory, so that less may be
    /// enough. [`OutOfMemory::passing`] is one that those pass with, too, and `tune::Tuner` finds one for a whole program.
    #[must_use]
    pub const fn op_needed(&self) -> u64 {
        self.pinned.saturating_add(self.leaves).saturating_add(self.wanted)
    }
}

impl std::error::Error for OutOfMemory {}

/// As [`Display`](fmt::Display): what `unwrap` and a `main` that returns it show is for people, too.
impl fmt::Debug for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes);
        let [budget, needed] = ByteSize::apart(self.budget, self.op_needed());
        writeln!(
            f,
            "out of memory: {}({}) wanted {} more, but the budget is {}",
            self.op,
            self.inputs.join(", "),
            size(self.wanted),
            budget
        )?;
        writeln!(
            f,
            "  used {}, free {} (largest hole {}, fragmentation {:.1} %)",
            size(self.used),
            size(self.free),
            size(self.largest_free),
            100.0 * self.fragmentation
        )?;
        writeln!(
            f,
            "  of what is used: {} pinned by the op at hand, {} in leaves that cannot be recomputed, {} evictable",
            size(self.pinned),
            size(self.leaves),
            size(self.evictable)
        )?;
        for (i, (name, bytes, why)) in self.holders.iter().enumerate() {
            let head = if i == 0 { "  largest holders: " } else { "                   " };
            writeln!(f, "{head}{} {name} ({why})", size(*bytes))?;
        }
        if self.unmarked > 0 {
            writeln!(
                f,
                "  {} values that nobody holds are kept, for others are made from them, and no end of a step was \
                 marked: call step() where one ends, or commit() on what is carried on from there",
                self.unmarked
            )?;
        }
        if let Some(device) = &self.device {
            return write!(
                f,
                "  the device ran out of memory of its own ({device}), and nothing was left to evict; \
                 lower the budget, or what else uses the device"
            );
        }
        let would_do = match self.op_needed() > self.budget {
            true => format!("as things were, this op needed a budget of {needed}"),
            false => format!(
                "the policy does not evict; a budget of {} would get past this op",
                size(self.used + self.wanted)
            ),
        };
        match &self.passing {
            Some(PassingBudget { bytes, ops }) => write!(
                f,
                "  {would_do}; the {ops} ops so far pass with {}, as a rehearsal showed",
                size(*bytes)
            ),
            None => write!(f, "  {would_do}; ops after it may need more"),
        }
    }
}
