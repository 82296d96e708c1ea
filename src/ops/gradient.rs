//! Gradients of ops, and the log of the ops that a tape records.

use super::Op;
use super::tensor::Tensor;
use crate::command::TensorId;
use crate::error::Error;
use crate::layout::{DType, Dims};
use crate::op::OpError;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};
use smallvec::SmallVec;
use std::fmt;
use std::sync::{Arc, Weak};

/// Gradients of an op's inputs, in order. An entry is `None` if the gradient is zero or not wanted.
/// Entries that are missing at the end of the list count as `None`.
pub type InputGradients = SmallVec<[Option<Tensor>; 3]>;

type Rule = Box<dyn Fn(&[Option<Tensor>]) -> Result<InputGradients, Error> + Send + Sync>;

/// Rule that computes the gradients of an op's inputs from the gradients of its outputs.
pub struct Gradient(Kind);

enum Kind {
    /// The op has no gradient.
    Missing,
    /// The gradient is zero everywhere.
    Zero,
    Rule(Rule),
}

impl Gradient {
    /// Declares that the op has no gradient, so that using the op on a tape is an error.
    #[must_use]
    pub fn missing() -> Self {
        Self(Kind::Missing)
    }

    /// The gradient is zero everywhere.
    #[must_use]
    pub fn zero() -> Self {
        Self(Kind::Zero)
    }

    /// Makes a gradient from a rule that reads the gradients of all outputs. The gradient of at
    /// least one output is `Some`. The tape keeps the tensors that the rule captures.
    #[must_use]
    pub fn of_all(
        rule: impl Fn(&[Option<Tensor>]) -> Result<InputGradients, Error> + Send + Sync + 'static,
    ) -> Self {
        Self(Kind::Rule(Box::new(rule)))
    }

    /// Makes a gradient from a rule that reads the gradient of the first output. All outputs after
    /// the first count as constants.
    ///
    /// ```
    /// # use remat::device::{DeviceError, cpu};
    /// use remat::ops::{CustomOp, Gradient, Recorded};
    /// # use remat::{Layout, prelude::*};
    /// # #[derive(Debug)]
    /// # struct Product;
    ///
    /// impl CustomOp for Product {
    ///     // ..
    /// #     fn name(&self) -> &str { "product" }
    /// #     fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
    /// #         Ok(inputs[..1].to_vec())
    /// #     }
    /// #     fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
    /// #         let ([a, b], [y]) = (operands.floats(), operands.outputs());
    /// #         y.iter_mut().enumerate().for_each(|(i, y)| *y = a[i] * b[i]);
    /// #         Ok(())
    /// #     }
    ///     fn gradient(&self, of: &Recorded<'_>) -> Gradient {
    ///         let (a, b) = (of.input(0), of.input(1));
    ///         Gradient::of_first(move |dy| {
    ///             Ok([Some(dy.mul(&b)?), Some(dy.mul(&a)?)].into_iter().collect())
    ///         })
    ///     }
    /// }
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// # let mut a = runtime.tensor(&[2], vec![1.0, 3.0])?;
    /// # let b = runtime.tensor(&[2], vec![5.0, 7.0])?;
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut a);
    /// let y = Tensor::apply(Product, &[&a, &b])?[0].sum()?;
    /// let gradients = tape.backward(&y)?;
    /// let da = gradients.get(&a).expect("y depends on a");
    /// assert_eq!(da.to_vec::<f32>()?, [5.0, 7.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn of_first(
        rule: impl Fn(&Tensor) -> Result<InputGradients, Error> + Send + Sync + 'static,
    ) -> Self {
        Self::of_all(move |dys| match &dys[0] {
            Some(dy) => rule(dy),
            None => Ok(InputGradients::new()),
        })
    }

    /// Makes a gradient for the first input only. `rule` computes the gradient of the first input
    /// from the gradient of the first output.
    ///
    /// ```
    /// # use remat::device::{DeviceError, cpu};
    /// use remat::ops::{CustomOp, Gradient, Recorded};
    /// # use remat::{Layout, prelude::*};
    /// # #[derive(Debug)]
    /// # struct Double;
    ///
    /// impl CustomOp for Double {
    ///     // ..
    /// #     fn name(&self) -> &str { "double" }
    /// #     fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
    /// #         Ok(inputs[..1].to_vec())
    /// #     }
    /// #     fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
    /// #         let ([x], [y]) = (operands.floats(), operands.outputs());
    /// #         y.iter_mut().enumerate().for_each(|(i, y)| *y = 2.0 * x[i]);
    /// #         Ok(())
    /// #     }
    ///     fn gradient(&self, _of: &Recorded<'_>) -> Gradient {
    ///         Gradient::of_one(|dy| dy.affine(2.0, 0.0))
    ///     }
    /// }
    ///
    /// # let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![1.0, 3.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let y = Tensor::apply(Double, &[&x])?[0].sum()?;
    /// let gradients = tape.backward(&y)?;
    /// let dx = gradients.get(&x).expect("y depends on x");
    /// assert_eq!(dx.to_vec::<f32>()?, [2.0, 2.0]);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn of_one(rule: impl Fn(&Tensor) -> Result<Tensor, Error> + Send + Sync + 'static) -> Self {
        Self::of_first(move |dy| Ok([Some(rule(dy)?)].into_iter().collect()))
    }
}

impl fmt::Debug for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Kind::Missing => "Gradient(missing)",
            Kind::Zero => "Gradient(zero)",
            Kind::Rule(_) => "Gradient(..)",
        })
    }
}

/// Description of a run of an op, for [`CustomOp::gradient`](super::CustomOp::gradient).
#[derive(Debug)]
pub struct Recorded<'a> {
    inputs: &'a [&'a Tensor],
    outputs: &'a [Tensor],
    wanted: &'a [bool],
}

impl Recorded<'_> {
    /// Input `i`, for a gradient rule that reads its value.
    #[must_use]
    pub fn input(&self, i: usize) -> Tensor {
        self.inputs[i].clone()
    }

    /// Output `i`, for a gradient rule that reads its value.
    #[must_use]
    pub fn output(&self, i: usize) -> Tensor {
        self.outputs[i].clone()
    }

    /// Shape of input `i`.
    #[must_use]
    pub fn shape(&self, i: usize) -> Dims {
        *self.inputs[i].layout().shape()
    }

    /// Whether the gradient of input `i` is wanted, because the input depends on a watched tensor.
    #[must_use]
    pub fn wanted(&self, i: usize) -> bool {
        self.wanted[i]
    }

    /// Number of inputs.
    #[must_use]
    pub fn inputs(&self) -> usize {
        self.inputs.len()
    }
}

/// Gradient of an operand that was broadcast from `shape`: the sum of `dy` over the repeated
/// dimensions.
pub(super) fn sum_to(dy: &Tensor, shape: &Dims) -> Result<Tensor, Error> {
    if dy.layout().shape() == shape {
        return Ok(dy.clone());
    }
    let of = dy.layout().shape();
    let extra = of.len() - shape.len();
    let repeated = |axis: usize| axis < extra || (shape[axis - extra] == 1 && of[axis] != 1);
    let axes: Vec<usize> = (0..of.len()).filter(|&axis| repeated(axis)).collect();
    dy.sum_along(&axes, true)?.reshape(shape)
}

/// Whether tensors of this type have gradients.
const fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F32 | DType::BF16)
}

/// One op that a tape recorded.
pub(crate) struct Node {
    /// Identities of the inputs.
    pub inputs: SmallVec<[TensorId; 3]>,
    /// Identities of the outputs.
    pub outputs: SmallVec<[TensorId; 2]>,
    /// Types of the inputs. The gradient of an input has the type of the input.
    dtypes: SmallVec<[DType; 8]>,
    rule: Rule,
}

impl Node {
    /// Gradients of the inputs, computed from the gradients of the outputs.
    pub fn gradients(&self, dys: &[Option<Tensor>]) -> Result<InputGradients, Error> {
        let mut all = (self.rule)(dys)?;
        for (gradient, &dtype) in all.iter_mut().zip(&self.dtypes) {
            if let Some(found) = gradient.take_if(|found| found.dtype() != dtype) {
                *gradient = Some(found.cast(dtype)?);
            }
        }
        Ok(all)
    }
}

/// Log of a tape: the recorded ops that depend on watched tensors, in order. Each tensor that is
/// watched or depends on a watched tensor has a reference to the log. The log records the ops that
/// read a tensor with a reference to it.
#[derive(Default)]
pub(crate) struct Log {
    nodes: Mutex<Vec<Option<Node>>>,
    /// Whether recording has ended.
    ended: AtomicBool,
}

impl Log {
    /// Recorded ops. An entry is `None` after a backward pass has used the op.
    pub fn nodes(&self) -> MutexGuard<'_, Vec<Option<Node>>> {
        lock(&self.nodes)
    }

    /// Stops recording.
    pub fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Log that records an op with the given inputs; `None` if no input has a log.
    ///
    /// # Errors
    /// If the inputs are watched by different tapes.
    pub fn of(op: &str, inputs: &[&Tensor]) -> Result<Option<Arc<Self>>, OpError> {
        let mut found: Option<Arc<Self>> = None;
        for log in inputs.iter().filter_map(|input| input.tape()) {
            match &found {
                None => found = Some(log),
                Some(other) if Arc::ptr_eq(other, &log) => {}
                Some(_) => {
                    let message =
                        "its inputs are watched by different tapes; detach() some of them";
                    return Err(OpError::new(op, message));
                }
            }
        }
        Ok(found)
    }

    /// Whether the log still records.
    pub fn is_open(&self) -> bool {
        !self.ended.load(Ordering::Relaxed)
    }

    /// Records a run of `op`, and makes the float outputs refer to this log.
    ///
    /// # Errors
    /// If the op has no gradient.
    pub fn record(
        self: &Arc<Self>,
        op: &Op,
        inputs: &[&Tensor],
        outputs: &mut [Tensor],
    ) -> Result<(), Error> {
        let wanted: SmallVec<[bool; 4]> = inputs.iter().map(|x| x.tape().is_some()).collect();
        let plain: SmallVec<[Option<Weak<Self>>; 2]> =
            outputs.iter().map(|y| is_float(y.dtype()).then(|| Arc::downgrade(self))).collect();
        outputs.iter_mut().zip(plain).for_each(|(y, log)| y.follow(log));
        let definition = op.definition();
        let gradient = definition.gradient(&Recorded { inputs, outputs, wanted: &wanted });
        let rule = match gradient.0 {
            Kind::Rule(rule) => rule,
            Kind::Zero => {
                outputs.iter_mut().for_each(|y| y.follow(None));
                return Ok(());
            }
            Kind::Missing => {
                let message = "has no gradient; detach() its inputs";
                return Err(OpError::new(definition.name(), message).into());
            }
        };
        self.nodes().push(Some(Node {
            inputs: inputs.iter().map(|x| x.id()).collect(),
            outputs: outputs.iter().map(Tensor::id).collect(),
            dtypes: inputs.iter().map(|x| x.dtype()).collect(),
            rule,
        }));
        Ok(())
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("nodes", &self.nodes().len()).finish_non_exhaustive()
    }
}
