use super::rules;
use crate::error::Error;
use crate::layout::{DType, Layout};
use crate::op::OpError;
use crate::ops::Op;
use crate::runtime::{Ops, Runtime, Tensor, Tensors};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::{SmallVec, smallvec};
use std::cell::RefCell;

/// Records the ops that depend on watched tensors, for one backward pass.
///
/// ```
/// use remat::{HostTensor, Ops, Runtime, autograd::Tape};
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let x = runtime.put(HostTensor::f32([3], vec![1.0, 2.0, 3.0])?)?;
/// let tape = Tape::new(&runtime);
/// tape.watch(&x);
/// let y = tape.sum(&tape.square(&x)?)?;
/// let mut gradients = tape.backward(&y)?;
/// let dx = gradients.take(&x).expect("y depends on x");
/// assert_eq!(runtime.get(&dx)?.as_f32(), Some(&[2.0, 4.0, 6.0][..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tape {
    runtime: Runtime,
    nodes: RefCell<Vec<Node>>,
    /// Numbers of the watched tensors.
    watched: RefCell<FxHashSet<u64>>,
    /// Numbers of the tensors that depend on a watched one, or are watched.
    tracked: RefCell<FxHashSet<u64>>,
}

/// An op that was run, with what its gradient needs.
#[derive(Debug)]
pub(super) struct Node {
    pub op: Op,
    pub inputs: SmallVec<[Operand; 3]>,
    pub outputs: SmallVec<[Operand; 2]>,
}

/// An input or output of a recorded op.
#[derive(Debug)]
pub(super) struct Operand {
    pub id: u64,
    pub layout: Layout,
    /// Of an input: whether its gradient is wanted.
    pub wanted: bool,
    /// `Some` iff the gradient of the op reads its value.
    pub value: Option<Tensor>,
}

impl Operand {
    fn new(tensor: &Tensor, wanted: bool, keep: bool) -> Self {
        Self {
            id: tensor.id(),
            layout: *tensor.layout(),
            wanted,
            value: keep.then(|| tensor.clone()),
        }
    }

    /// The value.
    ///
    /// # Panics
    /// If the rule did not declare that it reads it.
    pub fn value(&self) -> &Tensor {
        self.value.as_ref().expect("a rule reads only what it declared")
    }
}

/// Gradients of the watched tensors.
#[derive(Debug, Default)]
pub struct Gradients(FxHashMap<u64, Tensor>);

impl Gradients {
    /// The gradient of a watched tensor, if the result depends on it.
    #[must_use]
    pub fn get(&self, tensor: &Tensor) -> Option<&Tensor> {
        self.0.get(&tensor.id())
    }

    /// The gradient of a watched tensor, if the result depends on it. Taken out, so that it is freed
    /// when the caller is done with it.
    pub fn take(&mut self, tensor: &Tensor) -> Option<Tensor> {
        self.0.remove(&tensor.id())
    }
}

impl Tape {
    /// An empty tape.
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self {
            runtime: runtime.clone(),
            nodes: RefCell::default(),
            watched: RefCell::default(),
            tracked: RefCell::default(),
        }
    }

    /// The runtime that runs the ops.
    #[must_use]
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Watches a tensor: its gradient is computed, through all ops from now on.
    pub fn watch(&self, tensor: &Tensor) {
        self.watched.borrow_mut().insert(tensor.id());
        self.tracked.borrow_mut().insert(tensor.id());
    }

    /// Whether a tensor is watched.
    #[must_use]
    pub fn watches(&self, tensor: &Tensor) -> bool {
        self.watched.borrow().contains(&tensor.id())
    }

    /// Gradients of a scalar with respect to the watched tensors. The tape is played backwards, and
    /// each op's tensors are let go as soon as they were used.
    ///
    /// The result and the gradients are committed: all history behind them can go, and none of them is
    /// ever recomputed from a pass long gone. What [`Runtime::replace`] replaced before, such as running
    /// statistics, stays replaced even if an update after this fails; [`Sgd::minimize`](crate::optim::Sgd::minimize)
    /// can take that back as well.
    ///
    /// # Errors
    /// If `result` is not a scalar, or depends on no watched tensor.
    pub fn backward(self, result: &Tensor) -> Result<Gradients, Error> {
        let runtime = self.runtime.clone();
        let gradients = self.gradients(result)?;
        runtime.confirm()?;
        Ok(gradients)
    }

    /// [`Tape::backward`], after which what the forward pass replaced can still be taken back.
    pub(crate) fn gradients(self, result: &Tensor) -> Result<Gradients, Error> {
        let runtime = self.runtime.clone();
        let mut gradients = FxHashMap::default();
        self.play(result, |id, gradient| {
            runtime.commit(&gradient)?;
            gradients.insert(id, gradient);
            Ok(())
        })?;
        Ok(Gradients(gradients))
    }

    /// Like [`Tape::backward`], but hands over each gradient, with the number of the watched tensor, as
    /// soon as it is complete. Nothing is committed but the result.
    ///
    /// # Errors
    /// If `result` is not a scalar, or depends on no watched tensor; and what `complete` returns.
    pub fn backward_with(
        self,
        result: &Tensor,
        complete: impl FnMut(u64, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let runtime = self.runtime.clone();
        self.play(result, complete)?;
        runtime.confirm()
    }

    fn play(
        self,
        result: &Tensor,
        mut complete: impl FnMut(u64, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if result.layout().elements() != 1 {
            let message =
                format!("starts from a scalar, but this is {}; sum it first", result.layout());
            return Err(OpError::new("backward", message).into());
        }
        if !self.tracked.borrow().contains(&result.id()) {
            let message = match self.watched.borrow().len() {
                0 => "nothing is watched; watch() the parameters before the ops that use them"
                    .to_owned(),
                n => format!(
                    "the result depends on none of the {n} watched tensors; run the ops on the tape, not on the \
                     runtime"
                ),
            };
            return Err(OpError::new("backward", message).into());
        }
        let Self { runtime, nodes, watched, .. } = self;
        runtime.commit(result)?;
        let mut nodes = nodes.into_inner();
        let mut gradients: FxHashMap<u64, Tensor> = FxHashMap::default();
        gradients.insert(result.id(), runtime.full(result.shape(), 1.0)?);
        // Watched tensor -> ops that are still to add to its gradient.
        let mut uses: FxHashMap<u64, usize> =
            watched.into_inner().into_iter().map(|id| (id, 0)).collect();
        for input in nodes.iter().flat_map(|node| &node.inputs) {
            uses.entry(input.id).and_modify(|n| *n += 1);
        }
        if uses.get(&result.id()) == Some(&0) {
            complete(result.id(), gradients[&result.id()].clone())?;
        }
        let watched_outputs: FxHashSet<u64> = nodes
            .iter()
            .flat_map(|n| &n.outputs)
            .map(|o| o.id)
            .filter(|id| uses.contains_key(id))
            .collect();
        while let Some(node) = nodes.pop() {
            let dy: SmallVec<[Option<Tensor>; 2]> =
                node.outputs.iter().map(|o| gradients.remove(&o.id)).collect();
            let dx = if dy.iter().any(Option::is_some) {
                rules::gradients(&node, &dy, &runtime)?
            } else {
                smallvec![None; node.inputs.len()]
            };
            let inputs: SmallVec<[u64; 3]> = node.inputs.iter().map(|input| input.id).collect();
            // Nothing of this op is read again; a parameter must have no other handle to be updated in
            // place.
            drop((node, dy));
            for (id, gradient) in inputs.into_iter().zip(dx) {
                if let Some(gradient) = gradient {
                    let total = match gradients.remove(&id) {
                        Some(sum) => runtime.add(&sum, &gradient)?,
                        None => gradient,
                    };
                    gradients.insert(id, total);
                }
                if let Some(left) = uses.get_mut(&id) {
                    *left -= 1;
                    if *left == 0
                        && let Some(gradient) = gradients.remove(&id)
                    {
                        if watched_outputs.contains(&id) {
                            gradients.insert(id, gradient.clone());
                        }
                        complete(id, gradient)?;
                    }
                }
            }
        }
        Ok(())
    }

    fn record(&self, op: Op, inputs: &[&Tensor], outputs: &Tensors) -> Result<(), Error> {
        let mut tracked = self.tracked.borrow_mut();
        let wanted: SmallVec<[bool; 3]> =
            inputs.iter().map(|t| tracked.contains(&t.id())).collect();
        if !wanted.contains(&true) {
            return Ok(());
        }
        let reads = rules::reads(&op, &wanted)?;
        let inputs = inputs
            .iter()
            .enumerate()
            .map(|(i, t)| Operand::new(t, wanted[i], reads.inputs.contains(&i)));
        let inputs = inputs.collect();
        tracked.extend(outputs.iter().filter(|t| t.dtype() == DType::F32).map(Tensor::id));
        let outputs = outputs
            .iter()
            .enumerate()
            .map(|(i, t)| Operand::new(t, true, reads.outputs.contains(&i)));
        self.nodes.borrow_mut().push(Node { op, inputs, outputs: outputs.collect() });
        Ok(())
    }
}

impl Ops for Tape {
    fn run(&self, op: Op, inputs: &[&Tensor]) -> Result<Tensors, Error> {
        let outputs = self.runtime.apply(op.clone(), inputs)?;
        self.record(op, inputs, &outputs)?;
        Ok(outputs)
    }

    fn random_state(&self) -> (u64, u64) {
        self.runtime.next_random()
    }

    fn commit(&self, x: &Tensor) -> Result<(), Error> {
        self.runtime.commit(x)
    }

    fn replace(&self, target: &mut Tensor, value: &Tensor) -> Result<(), Error> {
        self.runtime.replace(target, value)
    }
}
