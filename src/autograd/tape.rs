use crate::command::TensorId;
use crate::error::Error;
use crate::op::OpError;
use crate::ops::{Accumulate, InputGradients, Log, Tensor};
use crate::runtime::Runtime;
use crate::sync::{Mutex, MutexGuard, lock};
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Records the ops that depend on watched tensors, for backward passes.
///
/// Each watched tensor refers to its tape. As long as the tape exists, the tape records all ops
/// that depend on a watched tensor. [`Tensor::detach`] gives a handle without a tape.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("64KiB").cpu()?;
/// let mut x = runtime.tensor(&[3], vec![1.0, 2.0, 3.0])?;
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut x);
/// let y = x.square()?.sum()?;
/// let gradients = tape.backward(&y)?;
/// let dx = gradients.get(&x).expect("y depends on x");
/// assert_eq!(dx.to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct Tape {
    runtime: Runtime,
    log: Arc<Log>,
    /// Identities of the watched tensors.
    watched: Mutex<FxHashSet<TensorId>>,
}

/// Something that a tape can watch: a tensor, or all parameters of a [`Module`](crate::nn::Module).
///
/// ```
/// use remat::autograd::Watch;
/// use remat::prelude::*;
///
/// struct Pair(Tensor, Tensor);
///
/// impl Watch for Pair {
///     fn each(&mut self, watch: &mut dyn FnMut(&mut Tensor)) {
///         watch(&mut self.0);
///         watch(&mut self.1);
///     }
/// }
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut pair = Pair(runtime.full(&[], 2.0)?, runtime.full(&[], 5.0)?);
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut pair);
/// let gradients = tape.backward(&(&pair.0 * &pair.1)?)?;
/// assert_eq!(gradients.get(&pair.0).unwrap().item()?, 5.0);
/// # Ok::<(), Error>(())
/// ```
pub trait Watch {
    /// Calls `watch` with each tensor.
    fn each(&mut self, watch: &mut dyn FnMut(&mut Tensor));
}

impl Watch for Tensor {
    fn each(&mut self, watch: &mut dyn FnMut(&mut Tensor)) {
        watch(self);
    }
}

/// Gradients of the watched tensors.
///
/// ```
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut x = runtime.tensor(&[2], vec![1.0, 2.0])?;
/// let tape = Tape::new(&runtime);
/// tape.watch(&mut x);
/// let gradients = tape.backward(&(&x * 3.0)?.sum()?)?;
/// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>()?, [3.0, 3.0]);
/// # Ok::<(), Error>(())
/// ```
// The map sorts gradients by the identity of their tensors, so every step frees gradients in the
// same order.
#[derive(Debug, Default)]
pub struct Gradients(BTreeMap<TensorId, Tensor>);

impl Gradients {
    /// The gradient of a watched tensor; `None` if the differentiated result does not depend on the
    /// tensor.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let (mut x, mut y) = (runtime.ones(&[2])?, runtime.ones(&[2])?);
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// tape.watch(&mut y);
    /// let gradients = tape.backward(&x.sum()?)?;
    /// assert!(gradients.get(&x).is_some() && gradients.get(&y).is_none());
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn get(&self, tensor: &Tensor) -> Option<&Tensor> {
        self.0.get(&tensor.id())
    }

    /// Removes and returns the gradient of a watched tensor; `None` if the differentiated result
    /// does not depend on the tensor. The gradient is freed when the caller drops the returned
    /// handle.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.ones(&[2])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let mut gradients = tape.backward(&x.sum()?)?;
    /// assert_eq!(gradients.take(&x).unwrap().to_vec::<f32>()?, [1.0, 1.0]);
    /// assert!(gradients.take(&x).is_none());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn take(&mut self, tensor: &Tensor) -> Option<Tensor> {
        self.0.remove(&tensor.id())
    }

    /// Sets the gradient of a watched tensor.
    pub(crate) fn set(&mut self, tensor: &Tensor, gradient: Tensor) {
        self.0.insert(tensor.id(), gradient);
    }

    /// Adds `gradient` in place to the gradient of a tensor. If the tensor has no gradient yet, the
    /// function commits a contiguous `gradient` and stores it as the tensor's gradient.
    fn add(&mut self, runtime: &Runtime, id: TensorId, gradient: &Tensor) -> Result<(), Error> {
        if let Some(sum) = self.0.get_mut(&id) {
            return runtime.update(Accumulate, &mut [sum], &[gradient]);
        }
        // Pack the first gradient, because later gradients can be added in place only to a
        // contiguous tensor.
        let gradient = gradient.contiguous()?;
        runtime.commit(&gradient)?;
        self.0.insert(id, gradient);
        Ok(())
    }
}

impl Tape {
    /// An empty tape.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let tape = Tape::new(&runtime);
    /// assert!(!tape.watches(&runtime.ones(&[2])?));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn new(runtime: &Runtime) -> Self {
        Self { runtime: runtime.clone(), log: Arc::default(), watched: Mutex::default() }
    }

    /// The runtime.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let tape = Tape::new(&runtime);
    /// assert_eq!(tape.runtime().budget(), 1 << 20);
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub const fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Watches a tensor, or all parameters of a network: from now on, ops on this handle and its
    /// clones are recorded.
    ///
    /// ```
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 2, 1)?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut layer);
    /// let y = layer.forward(&runtime.ones(&[1, 2])?, Mode::Train)?.sum()?;
    /// assert!(tape.backward(&y).is_ok());
    /// # Ok::<(), Error>(())
    /// ```
    pub fn watch(&self, what: &mut (impl Watch + ?Sized)) {
        let mut watched = self.watched();
        what.each(&mut |tensor| {
            watched.insert(tensor.id());
            tensor.follow(Some(Arc::downgrade(&self.log)));
        });
    }

    /// Whether this tape watches a tensor.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.ones(&[2])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// assert!(tape.watches(&x));
    /// assert!(!tape.watches(&x.square()?));
    /// # Ok::<(), Error>(())
    /// ```
    #[must_use]
    pub fn watches(&self, tensor: &Tensor) -> bool {
        self.watched().contains(&tensor.id())
    }

    fn watched(&self) -> MutexGuard<'_, FxHashSet<TensorId>> {
        lock(&self.watched)
    }

    /// Gradients of a scalar with respect to the watched tensors. The tape releases the tensors of
    /// each op as soon as the backward pass has used them.
    ///
    /// The function commits the result and the gradients: it cuts their compute paths, so that they
    /// are never recomputed. A tensor that the forward pass replaced ([`Runtime::replace`]), such
    /// as running statistics, keeps its new value even if a later update fails. In contrast,
    /// [`Optimizer::minimize`](crate::optim::Optimizer::minimize) can undo these replacements after
    /// a failure.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![3.0, 4.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let gradients = tape.backward(&x.square()?.sum()?)?;
    /// assert_eq!(gradients.get(&x).unwrap().to_vec::<f32>()?, [6.0, 8.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `result` is not a scalar, or depends on no watched tensor.
    pub fn backward(self, result: &Tensor) -> Result<Gradients, Error> {
        let mut gradients = Gradients::default();
        self.backward_onto(result, &mut gradients)?;
        Ok(gradients)
    }

    /// Computes gradients, and records the ops that compute them, so that gradients of gradients
    /// can be computed. The function keeps the tape and all compute paths.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![2.0, 3.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let cube = (x.square()? * &x)?.sum()?;
    /// let first = tape.backward_with_graph(&cube)?;
    /// let slope = first.get(&x).expect("it depends on x").sum()?;
    /// let second = tape.backward(&slope)?;
    /// assert_eq!(second.get(&x).expect("so does this").to_vec::<f32>()?, [12.0, 18.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Tape::backward`] does, and if an op that computes a gradient has no gradient
    /// itself.
    pub fn backward_with_graph(&self, result: &Tensor) -> Result<Gradients, Error> {
        let mut gradients = BTreeMap::default();
        self.play(result, Graph::Kept, None, |id, gradient| {
            gradients.insert(id, gradient);
            Ok(())
        })?;
        Ok(Gradients(gradients))
    }

    /// Computes gradients like [`Tape::backward_with_graph`], but only with respect to the tensors
    /// `of`. Each tensor in `of` must be watched, or depend on a watched tensor.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![2.0, 3.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let square = x.square()?;
    /// let y = square.square()?.sum()?;
    /// let gradients = tape.gradients_of(&y, &[&square])?;
    /// assert_eq!(gradients.get(&square).expect("it depends on it").to_vec::<f32>()?, [8.0, 18.0]);
    /// assert!(gradients.get(&x).is_none());
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Tape::backward_with_graph`] does.
    pub fn gradients_of(&self, result: &Tensor, of: &[&Tensor]) -> Result<Gradients, Error> {
        let mut gradients = BTreeMap::default();
        let wanted = of.iter().map(|tensor| tensor.id()).collect();
        self.play(result, Graph::Kept, Some(&wanted), |id, gradient| {
            gradients.insert(id, gradient);
            Ok(())
        })?;
        Ok(Gradients(gradients))
    }

    /// Computes the gradients of [`Tape::backward`], and adds each gradient to `gradients` in place
    /// as soon as it is complete.
    ///
    /// Use this method to split a batch into parts, and take one optimizer step on the sum of the
    /// parts' gradients. The gradients of a part are never all in memory at the same time. Update
    /// the watched tensors only after the last part, so that the gradients of all parts belong to
    /// the same values of the tensors.
    ///
    /// ```
    /// use remat::autograd::Gradients;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("64KiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![1.0, 2.0])?;
    /// let mut gradients = Gradients::default();
    /// for factor in [1.0, 10.0] {
    ///     let tape = Tape::new(&runtime);
    ///     tape.watch(&mut x);
    ///     tape.backward_onto(&(x.square()? * factor)?.sum()?, &mut gradients)?;
    /// }
    /// assert_eq!(gradients.get(&x).expect("both depend on it").to_vec::<f32>()?, [22.0, 44.0]);
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Tape::backward`] does.
    pub fn backward_onto(self, result: &Tensor, gradients: &mut Gradients) -> Result<(), Error> {
        let runtime = self.runtime.clone();
        self.gradients_onto(result, gradients)?;
        runtime.confirm()
    }

    /// Adds gradients like [`Tape::backward_onto`], but the runtime can still undo each
    /// [`Runtime::replace`] of the forward pass.
    pub(crate) fn gradients_onto(
        self,
        result: &Tensor,
        gradients: &mut Gradients,
    ) -> Result<(), Error> {
        self.play(result, Graph::LetGo, None, |id, gradient| {
            gradients.add(&self.runtime, id, &gradient)
        })
    }

    /// Computes the gradients of [`Tape::backward`], and calls `complete` with each gradient and
    /// the number of its tensor as soon as the gradient is complete. The function commits only the
    /// result, not the gradients.
    ///
    /// ```
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut x = runtime.tensor(&[2], vec![3.0, 4.0])?;
    /// let tape = Tape::new(&runtime);
    /// tape.watch(&mut x);
    /// let y = x.square()?.sum()?;
    /// let mut found = None;
    /// tape.backward_with(&y, |id, gradient| {
    ///     found = Some((id, gradient));
    ///     Ok(())
    /// })?;
    /// let (id, gradient) = found.expect("y depends on x");
    /// assert_eq!((id, gradient.to_vec::<f32>()?), (x.id(), vec![6.0, 8.0]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Tape::backward`] does, and if `complete` fails.
    pub fn backward_with(
        self,
        result: &Tensor,
        complete: impl FnMut(TensorId, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let runtime = self.runtime.clone();
        self.gradients_with(result, complete)?;
        runtime.confirm()
    }

    /// Computes gradients like [`Tape::backward_with`], but the runtime can still undo each
    /// [`Runtime::replace`] of the forward pass.
    pub(crate) fn gradients_with(
        self,
        result: &Tensor,
        complete: impl FnMut(TensorId, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.play(result, Graph::LetGo, None, complete)
    }

    /// Watched tensors in the order in which the backward pass completes their gradients. The
    /// backward pass goes through the ops from last to first. The gradient of a tensor is complete
    /// after the op that was the first to read the tensor in the forward pass.
    pub(crate) fn order(&self) -> Vec<TensorId> {
        let mut left = self.watched().clone();
        let mut order: Vec<TensorId> = Vec::with_capacity(left.len());
        let nodes = self.log.nodes();
        for node in nodes.iter().flatten() {
            // Add the inputs of an op in reverse order, because the whole list is reversed below.
            order.extend(node.inputs.iter().rev().filter(|id| left.remove(id)));
        }
        order.reverse();
        order
    }

    fn play(
        &self,
        result: &Tensor,
        graph: Graph,
        wanted: Option<&FxHashSet<TensorId>>,
        mut complete: impl FnMut(TensorId, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.check(result)?;
        if graph == Graph::LetGo {
            // End the log, so that it records neither the ops that compute gradients nor updates of
            // parameters.
            self.log.end();
            self.runtime.commit(result)?;
        }
        let mut gradients: BTreeMap<TensorId, Tensor> = BTreeMap::default();
        gradients.insert(result.id(), self.runtime.full(result.shape(), 1.0)?);
        // Maps each tensor whose gradient is wanted to the number of ops that have yet to add to
        // the gradient.
        let mut uses: FxHashMap<TensorId, usize> = match wanted {
            Some(wanted) => wanted.iter().map(|&id| (id, 0)).collect(),
            None => self.watched().iter().map(|&id| (id, 0)).collect(),
        };
        // Tensors that depend on a wanted tensor. `None` if the gradients of all tensors are
        // needed.
        let mut useful: Option<FxHashSet<TensorId>> = wanted.cloned();
        // Count the uses of each wanted tensor, and find the wanted tensors that recorded ops made.
        let (count, watched_outputs) = {
            let nodes = self.log.nodes();
            if let Some(useful) = &mut useful {
                for node in nodes.iter().flatten() {
                    if node.inputs.iter().any(|id| useful.contains(id)) {
                        useful.extend(&node.outputs);
                    }
                }
            }
            for id in nodes.iter().flatten().flat_map(|node| &node.inputs) {
                uses.entry(*id).and_modify(|n| *n += 1);
            }
            let outputs = nodes.iter().flatten().flat_map(|node| &node.outputs).copied();
            (
                nodes.len(),
                outputs.filter(|id| uses.contains_key(id)).collect::<FxHashSet<TensorId>>(),
            )
        };
        // If the gradient of the result itself is wanted and no op reads the result, the gradient
        // is complete already.
        if uses.get(&result.id()) == Some(&0) {
            complete(result.id(), gradients[&result.id()].clone())?;
        }
        // Walk backwards through the recorded ops. For each op, compute the gradients of the inputs
        // from the gradients of the outputs.
        for at in (0..count).rev() {
            // Hold the lock on the log only in this line, because the ops that compute gradients
            // may be recorded in the log.
            let Some(node) = self.log.nodes()[at].take() else { continue };
            let dys: SmallVec<[Option<Tensor>; 2]> =
                node.outputs.iter().map(|id| gradients.remove(id)).collect();
            let leads_on = |id: &TensorId| useful.as_ref().is_none_or(|useful| useful.contains(id));
            let is_reached = dys.iter().any(Option::is_some) && node.inputs.iter().any(leads_on);
            let dx = if is_reached { node.gradients(&dys)? } else { InputGradients::new() };
            let inputs = node.inputs.clone();
            // Release the op's tensors now: a parameter is updated in place only if no other handle
            // to it exists.
            match graph {
                Graph::Kept => self.log.nodes()[at] = Some(node),
                Graph::LetGo => drop(node),
            }
            drop(dys);
            let dx = dx.into_iter().chain(std::iter::repeat(None));
            // Add each input's gradient to its sum. A wanted gradient is complete after its last
            // use.
            for (id, gradient) in inputs.into_iter().zip(dx) {
                if let Some(gradient) = gradient.filter(|_| leads_on(&id)) {
                    let total = match gradients.remove(&id) {
                        Some(sum) => sum.add(&gradient)?,
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

    /// Checks that gradients of `result` can be computed.
    fn check(&self, result: &Tensor) -> Result<(), Error> {
        if result.layout().elements() != 1 {
            let message =
                format!("starts from a scalar, but this is {}; sum it first", result.layout());
            return Err(OpError::new("backward", message).into());
        }
        if !result.tape().is_some_and(|log| Arc::ptr_eq(&log, &self.log)) {
            let message = match self.watched().len() {
                0 => "no tensor is watched; watch() the parameters before the ops that use them"
                    .to_owned(),
                n => format!(
                    "the result depends on none of the {n} watched tensors; watch() them before the ops that use them"
                ),
            };
            return Err(OpError::new("backward", message).into());
        }
        Ok(())
    }
}

/// Whether a backward pass keeps the recorded ops for another pass, or lets go of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Graph {
    Kept,
    LetGo,
}
