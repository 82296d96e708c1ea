//! The contract between the engine and the operations that the engine runs.
//!
//! The engine is generic over its op type and never looks inside an op. The engine asks an op three
//! things: the layouts of its outputs, its number of floating-point operations, and whether it may
//! run again.

use crate::hint::cold;
use crate::layout::{Layout, bytes_of};
use std::fmt;

/// List type of the layouts and views in [`Outputs`].
pub use smallvec::{SmallVec, smallvec};

/// Outputs of an op: fresh storages, views, or new values of inputs.
///
/// [`Outputs::Updates`] is for parameters and states, which nothing can recompute.
/// [`Outputs::Over`] is for values on their way, such as an activation that `relu_` writes over.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case", deny_unknown_fields))]
pub enum Outputs {
    /// New storages, packed in row-major order: the layouts must be contiguous with offset 0. An op
    /// without outputs runs only once, for its side effects.
    Fresh(SmallVec<[Layout; 1]>),
    /// Views of inputs. A view has no bytes of its own, runs no kernel, and costs nothing.
    Views(SmallVec<[Look; 1]>),
    /// New values of the first `targets` inputs, followed by `fresh` outputs. The updated inputs
    /// must be contiguous, and the handles of the updated inputs are consumed.
    ///
    /// A new value takes over the input's storage if nothing else needs the old value. Otherwise
    /// the engine first copies the old value to a new storage. Either way, the kernel finds the old
    /// value in the output, and overwrites the old value.
    Updates {
        /// Number of inputs that are updated.
        targets: usize,
        /// Layouts of further outputs. The layouts must be contiguous with offset 0, as in
        /// [`Outputs::Fresh`].
        fresh: SmallVec<[Layout; 1]>,
    },
    /// A new value of the first input that can be evicted, because the op may run again. The input
    /// must be contiguous, and the handle of the input is consumed.
    ///
    /// The kernel finds the old value in the output, and overwrites the old value, as in
    /// [`Outputs::Updates`]. Before a second run, the old value is restored from its own compute
    /// path. A new value of a leaf is a leaf, because nothing can restore the old value of a leaf.
    Over,
}

/// View of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(deny_unknown_fields))]
pub struct Look {
    /// Position in the input list.
    pub input: usize,
    /// Layout of the view within the storage of the input.
    pub layout: Layout,
}

impl Default for Outputs {
    /// No outputs.
    fn default() -> Self {
        Self::Fresh(SmallVec::new())
    }
}

impl Outputs {
    /// Fresh outputs with the given layouts.
    #[must_use]
    pub fn fresh(layouts: impl IntoIterator<Item = Layout>) -> Self {
        // Use a loop, not `collect`: a loop takes a fraction of the time, and every op calls this
        // function.
        let mut fresh = SmallVec::new();
        layouts.into_iter().for_each(|layout| fresh.push(layout));
        Self::Fresh(fresh)
    }

    /// One view of an input.
    #[must_use]
    pub fn view(input: usize, layout: Layout) -> Self {
        Self::Views(smallvec![Look { input, layout }])
    }

    /// New values of the first `targets` inputs, without fresh outputs.
    #[must_use]
    pub fn updates(targets: usize) -> Self {
        Self::Updates { targets, fresh: SmallVec::new() }
    }

    /// Number of outputs.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Fresh(layouts) => layouts.len(),
            Self::Views(looks) => looks.len(),
            Self::Updates { targets, fresh } => targets + fresh.len(),
            Self::Over => 1,
        }
    }

    /// Whether there are no outputs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of inputs that get new values.
    #[must_use]
    pub const fn targets(&self) -> usize {
        match self {
            Self::Updates { targets, .. } => *targets,
            Self::Over => 1,
            Self::Fresh(_) | Self::Views(_) => 0,
        }
    }

    /// Outputs that a kernel writes: the number of updated inputs, and the layouts of fresh
    /// outputs. `None` for views, which have no kernel.
    #[must_use]
    pub fn written(&self) -> Option<(usize, &[Layout])> {
        match self {
            Self::Fresh(layouts) => Some((0, layouts)),
            Self::Views(_) => None,
            Self::Updates { targets, fresh } => Some((*targets, fresh)),
            Self::Over => Some((1, &[])),
        }
    }

    /// Whether the op can run only once, because it updates inputs.
    pub(crate) const fn are_updates(&self) -> bool {
        matches!(self, Self::Updates { .. })
    }

    /// Views of inputs; empty if the outputs are not views.
    #[must_use]
    pub fn views(&self) -> &[Look] {
        match self {
            Self::Views(looks) => looks,
            _ => &[],
        }
    }

    /// Layout of output number `output`. `input` returns the layout of the input with a given
    /// number. The new value of an updated input is contiguous.
    ///
    /// # Panics
    /// If no output has the number `output`.
    #[must_use]
    #[inline(always)]
    pub fn layout(&self, output: usize, input: impl Fn(usize) -> Layout) -> Layout {
        match self {
            Self::Fresh(layouts) => layouts[output],
            Self::Views(looks) => looks[output].layout,
            Self::Updates { targets, fresh } if output >= *targets => fresh[output - targets],
            Self::Updates { .. } | Self::Over => {
                let old = input(output);
                Layout::contiguous(old.dtype(), *old.shape())
            }
        }
    }
}

/// Operation on tensors.
///
/// # Contract
/// A second run of an op on equal input bits must give equal output bits, so that a rematerialized
/// tensor has the bits that were evicted. A random op therefore contains its key and counter.
///
/// The engine never runs an op that updates inputs ([`Outputs::Updates`]) again: all outputs of the
/// op become leaves. An op without outputs runs only once, for its side effects.
///
/// For each op that is issued, the engine either runs the op or calls
/// [`skipped`](Operation::skipped).
pub trait Operation: fmt::Debug + Send + 'static {
    /// Short name for events, traces and error messages.
    fn name(&self) -> &str;

    /// Attributes of the op as text (JSON for the crate's ops), for recordings. Name and attributes
    /// together must be enough to make the op again. If the result is `None` (the default), a
    /// recording that contains the op can be simulated from sizes and costs, but cannot be
    /// executed.
    fn attributes(&self) -> Option<String> {
        None
    }

    /// Infers the layouts of the outputs, and whether each output is fresh, a view, or an update of
    /// an input.
    ///
    /// # Errors
    /// If the op does not accept the number, types or shapes of the inputs. The message says which
    /// input is wrong, and why.
    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError>;

    /// Floating-point operations of one run, for the cost model `flops`. The default is one per
    /// output element.
    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs.iter().map(|o| o.elements() as f64).sum()
    }

    /// Bytes that one run reads and writes, for all cost models. The default is all bytes of all
    /// inputs and outputs. An op that reads a part of a large input returns fewer bytes.
    #[inline]
    fn moved(&self, inputs: &[Layout], outputs: &[Layout]) -> u64 {
        bytes_of(inputs).saturating_add(bytes_of(outputs))
    }

    /// Whether the op may run again, and then gives the bits of the first run. Return false for an
    /// op that depends on or changes state outside the device, such as a file or another process.
    /// The outputs of an op that returns false become leaves.
    fn rematerializable(&self) -> bool {
        true
    }

    /// Tells the op that it was issued but will never run, because an input is lost, memory is
    /// short, or the work was cancelled. The engine calls this function in place of the run, in the
    /// order of the commands, on the thread that runs ops. `_why` is the failure. Default: does
    /// nothing.
    ///
    /// An op for which other processes wait, such as a collective, can pass the failure on in this
    /// function. The engine does not call this function after a run that began and failed, because
    /// the op itself returned that failure.
    fn skipped(&self, _why: &(dyn std::error::Error + 'static)) {}
}

/// Error of an op that does not accept its inputs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct OpError {
    /// Name of the op.
    pub op: String,
    /// Description of the problem, with the value found and the value expected.
    pub message: String,
}

impl OpError {
    /// Makes an error of the op named `op`.
    #[must_use]
    pub fn new(op: impl Into<String>, message: impl Into<String>) -> Self {
        Self { op: op.into(), message: message.into() }
    }
}

/// Checks the layouts of outputs: views stay within their inputs, and updated inputs and fresh
/// outputs are contiguous. `inputs` returns the layout of the input with a given number, or `None`
/// if the op has no such input.
pub(crate) fn check_outputs<'a>(
    op: &impl Operation,
    inputs: impl Fn(usize) -> Option<&'a Layout>,
    outputs: &Outputs,
) -> Result<(), OpError> {
    let fail = |message: &str| cold(Err(OpError::new(op.name(), message)));
    if let Outputs::Views(looks) = outputs {
        for &Look { input, layout } in looks {
            let Some(old) = inputs(input) else {
                return fail("a view of an input that does not exist");
            };
            if layout.dtype() != old.dtype() || layout.span() > old.span() {
                return fail("a view reaches outside its input");
            }
        }
    }
    for input in 0..outputs.targets() {
        match inputs(input) {
            None => return fail("an update of an input that does not exist"),
            Some(old) if !old.is_contiguous() => {
                return fail("an input that is updated in place must be contiguous");
            }
            Some(_) => {}
        }
    }
    let fresh = outputs.written().map_or(&[][..], |(_, fresh)| fresh);
    if fresh.iter().any(|layout| !layout.is_contiguous() || layout.offset() != 0) {
        return fail("a fresh output must be contiguous with offset 0");
    }
    Ok(())
}
