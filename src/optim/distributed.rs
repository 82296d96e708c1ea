//! Gradients of all ranks, summed before the parameters are updated.
//!
//! All ranks must reduce the same parameters in the same order, whatever order the backward pass of
//! a rank completes the gradients in. The order is from the last parameter of the module to the
//! first, which is about the order of the backward pass. A gradient that is complete before its
//! turn waits.

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
    /// Positions of the parameters to reduce, in order.
    order: Vec<usize>,
    /// Number of entries of `order` that are done.
    done: usize,
    /// Complete gradients that wait for their turn, by position.
    waiting: Vec<Option<Tensor>>,
}

/// Gradient to which this rank contributed zeros.
pub(super) struct Empty {
    pub position: usize,
    pub gradient: Tensor,
    /// Whether another rank has a gradient; known after the reduction has run.
    any: Arc<AtomicBool>,
}

impl Empty {
    /// Whether another rank has a gradient. To be called after the runtime has been waited for.
    pub fn has_value(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

impl<'a> Reduction<'a> {
    /// Begins a step. `watched` says of each parameter whether it has a gradient in general.
    pub fn new(ranks: &'a Ranks, runtime: &'a Runtime, watched: &[bool]) -> Self {
        let order = (0..watched.len()).rev().filter(|&position| watched[position]).collect();
        let waiting = watched.iter().map(|_| None).collect();
        Self { ranks, runtime, order, done: 0, waiting }
    }

    /// Takes a complete gradient, and returns the gradients that can now be reduced, in order.
    pub fn complete(&mut self, position: usize, gradient: Tensor) -> Vec<(usize, Tensor)> {
        self.waiting[position] = Some(gradient);
        let mut next = Vec::new();
        while let Some(&position) = self.order.get(self.done)
            && let Some(gradient) = self.waiting[position].take()
        {
            next.push((position, gradient));
            self.done += 1;
        }
        next
    }

    /// Positions that are not reduced yet, in order, each with its gradient if there is one.
    pub fn rest(&mut self) -> Vec<(usize, Option<Tensor>)> {
        let rest = self.order[self.done..].iter();
        let rest = rest.map(|&position| (position, self.waiting[position].take())).collect();
        self.done = self.order.len();
        rest
    }

    /// Sums a gradient over all ranks.
    pub fn reduce(&self, name: &str, gradient: Tensor) -> Result<Tensor, Error> {
        let mut sum = gradient.contiguous()?;
        // With one handle only, the sum takes over the storage of the gradient.
        drop(gradient);
        self.runtime.update(self.ranks.all_reduce(name), &mut [&mut sum], &[])?;
        Ok(sum)
    }

    /// Takes part in a sum with zeros, because this rank has no gradient of the parameter.
    pub fn reduce_nothing(
        &self,
        name: &str,
        position: usize,
        parameter: &Tensor,
    ) -> Result<Empty, Error> {
        let any = Arc::new(AtomicBool::new(false));
        let mut gradient = self.runtime.zeros(parameter.shape())?;
        self.runtime.update(
            self.ranks.all_reduce_nothing(name, &any),
            &mut [&mut gradient],
            &[],
        )?;
        Ok(Empty { position, gradient, any })
    }
}
