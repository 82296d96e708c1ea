//! Gradients of all ranks, summed before the parameters are updated.
//!
//! All ranks must reduce the same parameters in the same order, whatever order the backward pass of
//! a rank completes the gradients in. The order is from the last parameter of the module to the
//! first, which is about the order of the backward pass. A gradient that is complete before its
//! turn waits.

use crate::autograd::Gradients;
use crate::collective::Ranks;
use crate::command::TensorId;
use crate::error::Error;
use crate::nn::{Module, State, state};
use crate::ops::{ApplyStatistics, Deferred, Op, Tensor};
use crate::runtime::{Runtime, Update};
use rustc_hash::FxHashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A step's reduction of gradients. Parameters are named by their positions in the module.
pub(super) struct Reduction<'a> {
    ranks: &'a Ranks,
    runtime: &'a Runtime,
    /// Positions of the parameters that are not reduced yet. The last is reduced next.
    left: Vec<usize>,
    /// Complete gradients that wait for their turn, by position.
    waiting: Vec<Option<Tensor>>,
}

impl<'a> Reduction<'a> {
    /// Begins a step. `watched` says of each parameter whether it has a gradient in general.
    pub fn new(
        ranks: &'a Ranks,
        runtime: &'a Runtime,
        watched: impl ExactSizeIterator<Item = bool>,
    ) -> Self {
        let waiting = (0..watched.len()).map(|_| None).collect();
        let left = watched.enumerate().filter_map(|(position, is)| is.then_some(position));
        Self { ranks, runtime, left: left.collect(), waiting }
    }

    /// Takes a complete gradient, which waits for its turn.
    pub fn complete(&mut self, position: usize, gradient: Tensor) {
        self.waiting[position] = Some(gradient);
    }

    /// The next gradient in order, if it is complete, with its position.
    pub fn next(&mut self) -> Option<(usize, Tensor)> {
        let &position = self.left.last()?;
        let gradient = self.waiting[position].take()?;
        self.left.pop();
        Some((position, gradient))
    }

    /// Sums a gradient over all ranks.
    pub fn reduce(&self, name: &str, gradient: Tensor) -> Result<Tensor, Error> {
        let mut sum = gradient.contiguous()?;
        // With one handle only, the sum takes over the storage of the gradient.
        drop(gradient);
        self.runtime.update(self.ranks.all_reduce(name), &mut [&mut sum], &[])?;
        Ok(sum)
    }

    /// Reduces all gradients that are left: those that wait, and those in `gradients`. A parameter
    /// without a gradient takes part with zeros. `took` gets each sum, with the position and the
    /// parameter, except for parameters that have no gradient on any rank.
    pub fn finish(
        mut self,
        targets: &mut [(String, &mut Tensor)],
        gradients: &mut Gradients,
        mut took: impl FnMut(usize, &str, &mut Tensor, Tensor) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut empty = Vec::new();
        while let Some(position) = self.left.pop() {
            let (name, parameter) = &mut targets[position];
            match self.waiting[position].take().or_else(|| gradients.take(parameter)) {
                Some(gradient) => took(position, name, parameter, self.reduce(name, gradient)?)?,
                None => {
                    // Whether another rank has a gradient is known after the op has run.
                    let any = Arc::new(AtomicBool::new(false));
                    let mut zeros = self.runtime.zeros(parameter.shape())?;
                    let op = self.ranks.all_reduce_nothing(name, &any);
                    self.runtime.update(op, &mut [&mut zeros], &[])?;
                    empty.push((position, zeros, any));
                }
            }
        }
        if !empty.is_empty() {
            self.runtime.sync()?;
        }
        for (position, sum, any) in empty {
            if any.load(Ordering::Acquire) {
                let (name, parameter) = &mut targets[position];
                took(position, name, parameter, sum)?;
            }
        }
        Ok(())
    }
}

/// Applies the statistics of the batches of all ranks to the running statistics of `module`, part by
/// part of the step, and within a part in the order of the ranks.
pub(super) fn apply_statistics(
    ranks: &Ranks,
    runtime: &Runtime,
    statistics: Vec<Deferred>,
    module: &mut dyn Module,
) -> Result<(), Error> {
    if statistics.is_empty() {
        return Ok(());
    }
    // Statistics by running mean, in the order of their batches.
    let mut of_norms: FxHashMap<TensorId, Vec<Deferred>> = FxHashMap::default();
    for deferred in statistics {
        of_norms.entry(deferred.running[0]).or_default().push(deferred);
    }
    let buffers = state(module).into_iter().filter_map(|(name, state)| match state {
        State::Buffer(buffer) => Some((name, buffer)),
        State::Parameter(_) => None,
    });
    let (names, mut buffers): (Vec<String>, Vec<Option<&mut Tensor>>) =
        buffers.map(|(name, buffer)| (name, Some(buffer))).unzip();
    let ids: Vec<TensorId> = buffers.iter().flatten().map(|buffer| buffer.id()).collect();
    let place = |id: TensorId| ids.iter().position(|other| *other == id);
    let mut norms = Vec::new();
    for (at, name) in names.iter().enumerate() {
        let Some(own) = of_norms.remove(&ids[at]) else { continue };
        let var = place(own[0].running[1]).and_then(|at| buffers[at].take());
        let Some((mean, var)) = buffers[at].take().zip(var) else { continue };
        let op = ApplyStatistics { momentum: own[0].momentum };
        let mut all = Vec::with_capacity(own.len());
        for Deferred { statistics, .. } in own {
            all.extend(Tensor::apply(ranks.all_gather(name), &[&statistics])?);
        }
        norms.push((op, [mean, var], all));
    }
    let updates = norms.iter_mut().map(|(op, targets, all)| Update {
        op: Op::from(*op),
        targets: targets.iter_mut().map(|target| &mut **target).collect(),
        others: all.iter().collect(),
    });
    // None of the statistics is updated if the step has failed before.
    runtime.update_all(updates.collect())
}
