//! Out-of-memory error, which lists the holders of the memory and what the user can do.
//! `driver/attempt.rs` and `lab/passing.rs` find the passing budget.

use remat_memory::ByteSize;
use std::fmt;

/// Budget with which the program would have got past the failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassingBudget {
    /// Budget in bytes. [`ByteSize`] prints the budget as text that parses to an equal number.
    pub bytes: u64,
    /// Number of ops that the rehearsal simulated: those that make the values present at its start,
    /// and all later ops up to the failure.
    pub ops: u64,
}

/// Request for memory that could not be met, and what occupies the memory.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("4KiB").cpu()?;
/// let Err(Error::OutOfMemory(error)) = runtime.ones(&[2048])?.to_vec::<f32>() else {
///     panic!("8 KiB do not fit")
/// };
/// assert_eq!((error.budget, error.wanted), (4 << 10, 8 << 10));
/// # Ok::<(), Error>(())
/// ```
#[derive(Clone)]
pub struct OutOfMemory {
    /// Op that was running.
    pub op: String,
    /// Inputs of the op, each as text such as `f32[64, 3, 32, 32]`.
    pub inputs: Vec<String>,
    /// Requested bytes that did not fit, rounded as the arena rounds sizes. The request was for all
    /// outputs and the workspace of a run together, or for one of them.
    pub wanted: u64,
    /// Hard limit in bytes.
    pub budget: u64,
    /// Bytes in use at the failure.
    pub used: u64,
    /// Bytes free at the failure.
    pub free: u64,
    /// Bytes of the largest free piece.
    pub largest_free: u64,
    /// Share of the free bytes outside of the largest free piece: `(free - largest_free) / free`.
    pub fragmentation: f64,
    /// Bytes of operands of the current op, and of ops that wait for the current op.
    pub pinned: u64,
    /// Bytes of unpinned leaves: values without a compute path. Leaves are values that were updated
    /// in place, committed, or made by ops that cannot run twice.
    pub leaves: u64,
    /// Bytes that could still have been evicted. Above 0 only if evicting all evictable bytes would
    /// not have sufficed, or if the policy never evicts.
    pub evictable: u64,
    /// Number of values without a handle that are kept only to recompute other values. The number
    /// is 0 unless most values have no handle, and step marks are missing.
    pub unmarked: usize,
    /// Message of the device, if its own memory ran out before the budget was used up.
    pub device: Option<String>,
    /// Five largest holders of memory: name, bytes, and the reason why the bytes cannot be evicted.
    pub holders: Vec<(String, u64, &'static str)>,
    /// Larger budget with which a rehearsal of the program got past the failure. `None` if no tried
    /// budget was large enough, or if no budget was tried.
    ///
    /// The search needs the feature `lab` and a policy of the crate. A budget is searched only for
    /// failures in the first two steps, and in the two steps after an out-of-memory error.
    pub passing: Option<PassingBudget>,
}

impl OutOfMemory {
    /// Bytes that the failed op needed at the failure: pinned bytes, leaves, and the bytes wanted.
    ///
    /// Later ops may need more. With another budget, other values may be in memory, so a smaller
    /// budget may suffice. [`OutOfMemory::passing`] is a budget for all ops so far. `tune::Tuner`
    /// finds a budget for a whole program.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("4KiB").cpu()?;
    /// let Err(Error::OutOfMemory(error)) = runtime.ones(&[2048])?.to_vec::<f32>() else {
    ///     panic!("8 KiB do not fit")
    /// };
    /// assert_eq!(error.op_needed(), 8 << 10);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn op_needed(&self) -> u64 {
        self.pinned.saturating_add(self.leaves).saturating_add(self.wanted)
    }
}

impl std::error::Error for OutOfMemory {}

/// Prints the text of [`Display`](fmt::Display), for people who see the error from `unwrap` or
/// `main`.
impl fmt::Debug for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes| ByteSize(bytes);
        // With a policy that never evicts, all bytes in use must fit, evictable bytes included.
        let evicts = self.op_needed() > self.budget;
        let needed = if evicts { self.op_needed() } else { self.used + self.wanted };
        let [budget, needed] = ByteSize::apart(self.budget, needed);
        // Print the request, and the bytes in use.
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
            "  of the used bytes: {} pinned by this op, {} in leaves that cannot be recomputed, {} evictable",
            size(self.pinned),
            size(self.leaves),
            size(self.evictable)
        )?;
        // Print the largest holders.
        for (i, (name, bytes, why)) in self.holders.iter().enumerate() {
            let head = if i == 0 { "  largest holders: " } else { "                   " };
            writeln!(f, "{head}{} {name} ({why})", size(*bytes))?;
        }
        // Say what the user can do.
        if self.unmarked > 0 {
            writeln!(
                f,
                "  {} values without handles are kept, because held values are computed from them, and no end of a \
                 step was marked; call step() at the end of each step, or commit() on the values that the next step \
                 uses",
                self.unmarked
            )?;
        }
        if let Some(device) = &self.device {
            return write!(
                f,
                "  the device itself is out of memory ({device}), and nothing is left to evict; lower the budget, or \
                 free memory that others use on the device"
            );
        }
        let would_do = match evicts {
            true => format!("at this point, this op needs a budget of {needed}"),
            false => format!("the policy does not evict; this op needs a budget of {needed}"),
        };
        match &self.passing {
            Some(PassingBudget { bytes, ops }) => write!(
                f,
                "  {would_do}; in a rehearsal, the {ops} ops so far pass with {}",
                size(*bytes)
            ),
            None => write!(f, "  {would_do}; later ops may need more"),
        }
    }
}
