//! Gradients of all ranks, summed before the parameters are updated.
//!
//! All ranks must reduce the same parameters in the same order, whatever order the backward pass of
//! a rank completes the gradients in. The order is from the last parameter of the module to the
//! first, which is about the order of the backward pass. A gradient that is complete before its
//! turn waits.

use crate::autograd::Gradients;
use crate::collective::Ranks;
use crate::error::Error;
use crate::ops::Tensor;
use crate::runtime::Runtime;
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
