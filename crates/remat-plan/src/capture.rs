//! A step as a value: the ops of the step, and the buffers that the ops read, make and update.

mod buffer;
mod decoder;
mod difference;
mod error;
mod op;
#[cfg(test)]
pub(crate) mod tests;
mod usage;

pub use buffer::{CapturedBuffer, Class};
pub use decoder::Decoder;
pub use difference::Difference;
pub use error::CaptureError;
pub use op::CapturedOp;
pub(crate) use usage::Usage;

use std::sync::Arc;

/// A step of a program as a value.
///
/// A capture is always valid: an op reads and updates only buffers that exist when the op runs, and
/// makes only new buffers. Making a capture takes time O(operands).
///
/// ```
/// use remat_plan::{Capture, CapturedBuffer, CapturedOp, Class};
///
/// // y = f(w); w -= y
/// let capture = Capture::new(
///     vec![CapturedBuffer::kept(100), CapturedBuffer::transient(100)],
///     vec![
///         CapturedOp::new("f").reads([0]).makes([1]),
///         CapturedOp::new("sub").reads([1]).updates([0]),
///     ],
/// )?;
/// assert_eq!(capture.class(0), Class::Updated);
/// assert_eq!(capture.edges(), [(0, 1)]);
/// assert_eq!(capture.program().load(), 200);
/// # Ok::<(), remat_plan::CaptureError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Capture {
    buffers: Vec<CapturedBuffer>,
    /// Each op reads and updates only buffers that exist when the op runs, and names no buffer
    /// twice. All buffers and workspaces, including the bytes that alignment may waste, have less
    /// than 2^64 bytes in total.
    ops: Vec<CapturedOp>,
    /// Buffer -> op that makes the buffer; `None` iff the buffer exists before the step.
    makers: Vec<Option<usize>>,
    /// Buffer -> ops that read or update the buffer, in the order of the program.
    users: Vec<Vec<usize>>,
    /// Buffer -> whether some op updates the buffer.
    is_updated: Vec<bool>,
    /// Op -> result of [`Capture::predecessors`], sorted, each op once.
    predecessors: Vec<Vec<usize>>,
    /// Op -> result of [`Capture::successors`], sorted.
    successors: Vec<Vec<usize>>,
}

impl Capture {
    /// Makes a capture of ops, given in the order of the program. Ops name buffers by their index
    /// in `buffers`.
    ///
    /// # Errors
    ///
    /// [`CaptureError`] in these cases:
    ///
    /// - An op uses a buffer that does not exist yet, names a buffer twice, or makes a buffer that
    ///   exists.
    /// - A buffer neither exists before the step nor is made by an op.
    /// - An alignment is not a power of two.
    /// - A cost is negative or not finite.
    /// - All buffers and workspaces together have 2^64 bytes or more.
    pub fn new(buffers: Vec<CapturedBuffer>, ops: Vec<CapturedOp>) -> Result<Self, CaptureError> {
        check_bytes(&buffers, &ops)?;
        let mut capture = Self {
            makers: vec![None; buffers.len()],
            users: vec![Vec::new(); buffers.len()],
            is_updated: vec![false; buffers.len()],
            predecessors: Vec::with_capacity(ops.len()),
            successors: vec![Vec::new(); ops.len()],
            buffers,
            ops,
        };
        let mut there: Vec<bool> = capture.buffers.iter().map(|buffer| buffer.before).collect();
        // Buffer -> op that wrote the buffer last, and the ops that have read the buffer since that
        // write.
        let mut writer: Vec<Option<usize>> = vec![None; there.len()];
        let mut readers: Vec<Vec<usize>> = vec![Vec::new(); there.len()];
        for (at, op) in capture.ops.iter().enumerate() {
            check_op(at, op, &there)?;
            let mut before: Vec<usize> = op.uses().filter_map(|buffer| writer[buffer]).collect();
            for &buffer in &op.reads {
                readers[buffer].push(at);
            }
            for &buffer in &op.updates {
                // Write after read: ops that read the old value must run before the op that
                // overwrites it.
                before.append(&mut readers[buffer]);
                capture.is_updated[buffer] = true;
            }
            for &buffer in &op.makes {
                there[buffer] = true;
                capture.makers[buffer] = Some(at);
            }
            for &buffer in op.updates.iter().chain(&op.makes) {
                writer[buffer] = Some(at);
            }
            for buffer in op.uses() {
                capture.users[buffer].push(at);
            }
            before.sort_unstable();
            before.dedup();
            for &one in &before {
                capture.successors[one].push(at);
            }
            capture.predecessors.push(before);
        }
        match there.iter().position(|there| !there) {
            Some(buffer) => Err(CaptureError::NeverMade { buffer }),
            None => Ok(capture),
        }
    }

    /// Ops, in the order of the program.
    #[must_use]
    pub fn ops(&self) -> &[CapturedOp] {
        &self.ops
    }

    /// Buffers, by number.
    #[must_use]
    pub fn buffers(&self) -> &[CapturedBuffer] {
        &self.buffers
    }

    /// Class of a buffer: whether the buffer exists before and after the step, and whether an op
    /// updates it.
    ///
    /// # Panics
    ///
    /// If no buffer has this number. Every method that takes the number of a buffer or op panics on
    /// an unknown number.
    #[must_use]
    pub fn class(&self, buffer: usize) -> Class {
        let CapturedBuffer { before, after, .. } = self.buffers[buffer];
        let is_uploaded = |maker: usize| self.ops[maker].uses().next().is_none();
        match (before, after) {
            (true, true) if self.is_updated[buffer] => Class::Updated,
            (true, true) => Class::Kept,
            (true, false) => Class::Input,
            (false, true) => Class::Result,
            (false, false) if self.makers[buffer].is_some_and(is_uploaded) => Class::Input,
            (false, false) => Class::Transient,
        }
    }

    /// Op that makes a buffer; `None` if the buffer exists before the step.
    #[must_use]
    pub fn maker(&self, buffer: usize) -> Option<usize> {
        self.makers[buffer]
    }

    /// Ops that read or update a buffer, in the order of the program.
    #[must_use]
    pub fn users(&self, buffer: usize) -> &[usize] {
        &self.users[buffer]
    }

    /// Ops that must run before op `op`: the writers of the buffers that `op` uses, and the readers
    /// of the values that `op` overwrites.
    #[must_use]
    pub fn predecessors(&self, op: usize) -> &[usize] {
        &self.predecessors[op]
    }

    /// Ops that must run after op `op`: every op that has `op` among its
    /// [`predecessors`](Self::predecessors).
    #[must_use]
    pub fn successors(&self, op: usize) -> &[usize] {
        &self.successors[op]
    }

    /// Sorted pairs of ops; the first op of a pair must run before the second. A pair `(a, c)` may
    /// be missing if it follows from pairs `(a, b)` and `(b, c)`.
    #[must_use]
    pub fn edges(&self) -> Vec<(usize, usize)> {
        let of = |(op, after): (usize, &Vec<usize>)| {
            after.iter().map(move |&after| (op, after)).collect::<Vec<_>>()
        };
        self.successors.iter().enumerate().flat_map(of).collect()
    }

    /// Cost of running every op once.
    #[must_use]
    pub fn cost(&self) -> f64 {
        self.ops.iter().map(|op| op.cost).sum()
    }
}

fn check_bytes(buffers: &[CapturedBuffer], ops: &[CapturedOp]) -> Result<(), CaptureError> {
    let mut total = 0_u64;
    let mut add = |bytes: u64| {
        total = total.checked_add(bytes).ok_or(CaptureError::TooLarge)?;
        Ok(())
    };
    for (buffer, &CapturedBuffer { bytes, align, .. }) in buffers.iter().enumerate() {
        if !align.is_power_of_two() {
            return Err(CaptureError::Alignment { buffer, align });
        }
        add(bytes)?;
        add(align - 1)?;
    }
    ops.iter().try_for_each(|op| add(op.workspace))
}

fn check_op(at: usize, op: &CapturedOp, there: &[bool]) -> Result<(), CaptureError> {
    if !(op.cost.is_finite() && op.cost >= 0.0) {
        return Err(CaptureError::Cost { op: at, cost: op.cost });
    }
    let name = || Arc::clone(&op.name);
    let mut all: Vec<usize> = op.uses().chain(op.makes.iter().copied()).collect();
    if let Some(buffer) = op.uses().find(|&buffer| there.get(buffer) != Some(&true)) {
        return Err(CaptureError::NotThere { op: at, name: name(), buffer });
    }
    if let Some(&buffer) = op.makes.iter().find(|&&buffer| there.get(buffer) != Some(&false)) {
        return Err(CaptureError::MadeTwice { op: at, name: name(), buffer });
    }
    all.sort_unstable();
    match all.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(CaptureError::NamedTwice { op: at, name: name(), buffer: pair[0] }),
        None => Ok(()),
    }
}
