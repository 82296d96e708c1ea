//! The contract between the engine and the operations it runs.
//!
//! The engine is generic over its op type and never looks inside an op. It asks for the layouts of the outputs, for
//! the work, and whether the op may run again.

use crate::layout::Layout;
use std::fmt;

/// Where an output of an op gets its storage from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// A storage of its own, packed in row-major order. The layout must be contiguous with offset 0.
    Fresh(Layout),
    /// A view of the storage of input `input`: no bytes, no kernel, no cost.
    View {
        /// Position in the input list.
        input: usize,
        /// Layout within that input's storage.
        layout: Layout,
    },
    /// The updated value of input `input`, whose handle is consumed. It takes over the input's storage if nothing else
    /// needs the old value; otherwise the engine copies the old value first. Either way the kernel finds the old value
    /// in the output and overwrites it.
    InPlace {
        /// Position in the input list; that input must be contiguous.
        input: usize,
    },
}

/// Re-exported, so that [`Outputs`] can be written with `smallvec!`.
pub use smallvec::{SmallVec, smallvec};

/// The outputs of an op, in order.
pub type Outputs = SmallVec<[Output; 1]>;

/// An operation on tensors.
///
/// # Contract
/// Running an op again on the same input bits must give the same output bits. This makes eviction and
/// rematerialization invisible. Random ops carry their key and counter.
///
/// Either all outputs are views, or none is. An op with an in-place output is never run again: all of its outputs
/// become leaves. An op without outputs is run once, for what it does elsewhere, and never again.
pub trait Operation: fmt::Debug + Send + 'static {
    /// A short name, for events, traces and error messages.
    fn name(&self) -> &str;

    /// The layouts of the outputs, and where each gets its storage from.
    ///
    /// # Errors
    /// If the inputs do not fit the op; the message says which and why.
    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError>;

    /// Floating-point operations of one run, for the `flops` cost model. Default: one per output element.
    fn flops(&self, _inputs: &[Layout], outputs: &[Layout]) -> f64 {
        outputs.iter().map(|o| o.elements() as f64).sum()
    }

    /// Whether it may run again and gives the same bits then. An op with effects outside the device (reading a file, a
    /// collective) returns false, and its outputs become leaves.
    fn rematerializable(&self) -> bool {
        true
    }
}

/// Inputs that do not fit an op.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{op}: {message}")]
pub struct OpError {
    /// Name of the op.
    pub op: String,
    /// What is wrong, with the offending value and what was expected.
    pub message: String,
}

impl OpError {
    /// An error of `op`.
    #[must_use]
    pub fn new(op: impl Into<String>, message: impl Into<String>) -> Self {
        Self { op: op.into(), message: message.into() }
    }
}

/// Checks the part of the contract that layouts can tell. `inputs` gives the layout of an input, if it exists.
pub(crate) fn check_outputs<'a>(
    op: &impl Operation,
    inputs: impl Fn(usize) -> Option<&'a Layout>,
    outputs: &Outputs,
) -> Result<(), OpError> {
    let fail = |message: &str| Err(OpError::new(op.name(), message));
    let mut views = 0;
    for (i, output) in outputs.iter().enumerate() {
        match *output {
            Output::Fresh(layout) if !layout.is_contiguous() || layout.offset() != 0 => {
                return fail("a fresh output must be contiguous with offset 0");
            }
            Output::Fresh(_) => {}
            Output::View { input, layout } => {
                views += 1;
                let Some(old) = inputs(input) else {
                    return fail("a view of an input that is not there");
                };
                if layout.dtype() != old.dtype() || layout.span() > old.span() {
                    return fail("a view reaches outside its input");
                }
            }
            Output::InPlace { input } => {
                let Some(old) = inputs(input) else {
                    return fail("an update of an input that is not there");
                };
                if !old.is_contiguous() {
                    return fail("an input that is updated in place must be contiguous");
                }
                if outputs[..i].contains(output) {
                    return fail("one input is updated by two outputs");
                }
            }
        }
    }
    if views > 0 && views < outputs.len() {
        fail("either all outputs are views or none is")
    } else {
        Ok(())
    }
}
