//! Gradients of all ranks, summed before the parameters are updated.
//!
//! All ranks must reduce the same parameters in the same order, even if their backward passes
//! complete gradients in different orders. The first backward pass of rank 0 sets the order. A
//! gradient that is complete before its turn waits.

use crate::autograd::{Gradients, Tape};
use crate::collective::Ranks;
use crate::command::TensorId;
use crate::device::{DeviceError, cpu};
use crate::error::Error;
use crate::layout::{DType, Dims, Layout};
use crate::nn::{Module, State, state};
use crate::ops::{ApplyStatistics, CustomOp, Deferred, Op, Tensor};
use crate::runtime::{Runtime, Update};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A step's reduction of gradients. Parameters are named by their positions in the module.
///
/// Sums are made while the ops of the backward pass run. Gradients wait for their sums in a buffer
/// of fixed size. When the buffer is full, the oldest sum is taken out first, so the order of
/// events does not depend on timing.
pub(super) struct Reduction<'a> {
    ranks: &'a Ranks,
    runtime: &'a Runtime,
    /// Positions of the parameters that are not reduced yet, in their order.
    left: VecDeque<usize>,
    /// Complete gradients that wait for their turn, by position.
    waiting: Vec<Option<Tensor>>,
    /// Size of the buffer in bytes.
    room: usize,
    /// Gradients in the buffer, the oldest first.
    under_way: VecDeque<Sum>,
    /// Bytes of the gradients in the buffer, at most half of [`Reduction::room`].
    bytes: u64,
    /// Whether all ranks agree at the end of the step whether to use the sums.
    is_agreed: bool,
}

/// Sum that is being made.
struct Sum {
    position: usize,
    bytes: u64,
    /// Op that returns the sum.
    wait: Op,
}

/// Takes the sum of a gradient, after the position, the name and the value of its parameter.
pub(super) type Take<'t> = dyn FnMut(usize, &str, &mut Tensor, Tensor) -> Result<(), Error> + 't;

impl<'a> Reduction<'a> {
    /// Begins a step. `order` has the positions of the parameters that have a gradient in general,
    /// of `count` parameters.
    pub fn new(
        ranks: &'a Ranks,
        runtime: &'a Runtime,
        order: impl Iterator<Item = usize>,
        count: usize,
        room: usize,
        is_agreed: bool,
    ) -> Self {
        let waiting = (0..count).map(|_| None).collect();
        let (left, under_way) = (order.collect(), VecDeque::new());
        Self { ranks, runtime, left, waiting, room, under_way, bytes: 0, is_agreed }
    }

    /// Takes a complete gradient, which waits for its turn. Starts the sums of all gradients whose
    /// turn it is. `took` gets the sums that leave the buffer.
    pub fn complete(
        &mut self,
        position: usize,
        gradient: Tensor,
        targets: &mut [(String, &mut Tensor)],
        took: &mut Take<'_>,
    ) -> Result<(), Error> {
        self.waiting[position] = Some(gradient);
        while let Some(&position) = self.left.front() {
            let Some(gradient) = self.waiting[position].take() else { break };
            self.left.pop_front();
            self.sum(position, gradient, targets, took)?;
        }
        Ok(())
    }

    /// Starts the sum of a gradient. A gradient that is too large for the buffer is summed at once.
    fn sum(
        &mut self,
        position: usize,
        gradient: Tensor,
        targets: &mut [(String, &mut Tensor)],
        took: &mut Take<'_>,
    ) -> Result<(), Error> {
        let mut sum = gradient.contiguous()?;
        // With one handle only, the op takes over the storage of the gradient.
        drop(gradient);
        let bytes = sum.layout().bytes();
        let most = self.room as u64 / 2;
        while self.bytes + bytes > most && self.finish_oldest(targets, took)? {}
        let (name, parameter) = &mut targets[position];
        if bytes > most {
            let op = self.ranks.all_reduce_now(name, self.room);
            self.runtime.update(op, &mut [&mut sum], &[])?;
            return took(position, name, parameter, sum);
        }
        let [start, wait] =
            self.ranks.all_reduce_later(name, *sum.layout(), self.room, self.is_agreed);
        self.runtime.update(start, &mut [&mut sum], &[])?;
        self.under_way.push_back(Sum { position, bytes, wait });
        self.bytes += bytes;
        Ok(())
    }

    /// Takes the oldest sum out of the buffer. Returns whether there was one.
    fn finish_oldest(
        &mut self,
        targets: &mut [(String, &mut Tensor)],
        took: &mut Take<'_>,
    ) -> Result<bool, Error> {
        let Some(Sum { position, bytes, wait }) = self.under_way.pop_front() else {
            return Ok(false);
        };
        self.bytes -= bytes;
        let sum = self.runtime.apply(wait, &[])?.remove(0);
        let (name, parameter) = &mut targets[position];
        took(position, name, parameter, sum)?;
        Ok(true)
    }

    /// Reduces all gradients that are left: those that wait, and those in `gradients`. A parameter
    /// without a gradient takes part with zeros. `took` gets each sum, with the position and the
    /// parameter, except for parameters that have no gradient on any rank.
    pub fn finish(
        mut self,
        targets: &mut [(String, &mut Tensor)],
        gradients: &mut Gradients,
        took: &mut Take<'_>,
    ) -> Result<(), Error> {
        let mut empty = Vec::new();
        while let Some(position) = self.left.pop_front() {
            let (name, parameter) = &mut targets[position];
            match self.waiting[position].take().or_else(|| gradients.take(parameter)) {
                Some(gradient) => self.sum(position, gradient, targets, took)?,
                None => {
                    // Whether another rank has a gradient is known after the op has run.
                    let any = Arc::new(AtomicBool::new(false));
                    let mut zeros = self.runtime.zeros(parameter.shape())?;
                    let op = self.ranks.all_reduce_nothing(name, self.room, &any);
                    self.runtime.update(op, &mut [&mut zeros], &[])?;
                    empty.push((position, zeros, any));
                }
            }
        }
        while self.finish_oldest(targets, took)? {}
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

/// Order in which all ranks reduce the parameters, set by the backward pass of rank 0. A simulation
/// runs no collective, and uses the order of its own backward pass. `places` has the positions of
/// all parameters.
///
/// # Errors
/// Returns errors of the step so far.
pub(super) fn agree_order(
    ranks: &Ranks,
    runtime: &Runtime,
    tape: &Tape,
    places: &FxHashMap<TensorId, usize>,
) -> (Vec<usize>, Result<(), Error>) {
    let mut own: Vec<usize> =
        tape.order().iter().filter_map(|id| places.get(id).copied()).collect();
    let mut is_left = vec![true; places.len()];
    own.iter().for_each(|&place| is_left[place] = false);
    own.extend((0..places.len()).rev().filter(|&place| is_left[place]));
    let agreed = (|| {
        let own = own.iter().map(|&place| place as i32).collect();
        let mut order = runtime.tensor(&[places.len()], own)?;
        runtime.update(ranks.broadcast("order of gradients", 0), &mut [&mut order], &[])?;
        order.to_vec::<i32>()
    })();
    match agreed {
        Ok(agreed) => {
            let agreed: Vec<usize> = agreed.into_iter().map(|place| place as usize).collect();
            let mut sorted = agreed.clone();
            sorted.sort_unstable();
            let is_order = sorted.into_iter().eq(0..places.len());
            (if is_order { agreed } else { own }, Ok(()))
        }
        Err(error) => (own, Err(error)),
    }
}

/// Op whose output has the size of the buffer, so that the buffer counts towards the budget. The
/// buffer itself is host memory: nothing is written to the op's output.
#[derive(Debug)]
pub(super) struct ReserveBuffer {
    /// Size in bytes.
    pub bytes: usize,
}

impl CustomOp for ReserveBuffer {
    fn name(&self) -> &str {
        "reserve_buffer"
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![Layout::contiguous(DType::U8, Dims::new(&[self.bytes]))])
    }

    fn once(&self) -> bool {
        true
    }

    fn cpu(&self, _operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        Ok(())
    }
}

impl Ranks {
    /// Gives the batch norms on `runtime` the running statistics of all ranks, from now on.
    ///
    /// Each rank calls this function for its own runtime. A batch norm then keeps the statistics of
    /// its batch, and a distributed [`Optimizer`](crate::optim::Optimizer) applies the statistics
    /// of all ranks to the running statistics, in the order of the ranks. All ranks must run the
    /// same batch norms equally often in a step. Without the call, each rank keeps running
    /// statistics of its own part of the data.
    ///
    /// ```
    /// use remat::nn::BatchNorm2d;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    /// use remat::unstable::collective::{Ranks, threads};
    ///
    /// let train = |ranks: Ranks| -> Result<Vec<f32>, Error> {
    ///     let runtime = Runtime::builder().budget("64KiB").cpu()?;
    ///     ranks.share_statistics(&runtime);
    ///     let mut norm = BatchNorm2d::new(&runtime, 1)?;
    ///     let mut sgd = Optimizer::sgd(0.1, 0.0, 0.0).distributed(&ranks);
    ///     let x = runtime.full(&[2, 1, 2, 2], 10.0 * (1 + ranks.rank()) as f32)?;
    ///     let tape = Tape::new(&runtime);
    ///     tape.watch(&mut norm);
    ///     let loss = norm.forward(&x, Mode::Train)?.sum()?;
    ///     sgd.minimize(tape, &loss, &mut norm)?;
    ///     let mut state = remat::nn::state(&mut norm);
    ///     let (_, remat::nn::State::Buffer(mean)) = &mut state[2] else { panic!() };
    ///     mean.to_vec()
    /// };
    /// let ranks = threads(2).into_iter().map(|fabric| {
    ///     std::thread::spawn(move || train(Ranks::new(fabric)))
    /// });
    /// for rank in ranks.collect::<Vec<_>>() {
    ///     // .9 (.9 * 0 + .1 * 10) + .1 * 20
    ///     assert_eq!(rank.join().unwrap()?, [2.9]);
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    pub fn share_statistics(&self, runtime: &Runtime) {
        if self.size() > 1 {
            runtime.defer_statistics();
        }
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
    let buffers = state(module).into_iter().filter_map(|(_, state)| match state {
        State::Buffer(buffer) => Some(Some(buffer)),
        State::Parameter(_) => None,
    });
    let mut buffers: Vec<Option<&mut Tensor>> = buffers.collect();
    let ids: Vec<TensorId> = buffers.iter().flatten().map(|buffer| buffer.id()).collect();
    let place = |id: TensorId| ids.iter().position(|other| *other == id);
    let (mut norms, mut own_statistics, mut first) = (Vec::new(), Vec::new(), 0);
    for (at, id) in ids.iter().enumerate() {
        let Some(own) = of_norms.remove(id) else { continue };
        let var = place(own[0].running[1]).and_then(|at| buffers[at].take());
        let Some((mean, var)) = buffers[at].take().zip(var) else { continue };
        let parts = own.len();
        norms.push((ApplyStatistics { momentum: own[0].momentum, first, parts }, [mean, var]));
        first += parts * own[0].statistics.shape()[2];
        own_statistics.extend(own.into_iter().map(|deferred| deferred.statistics));
    }
    // One exchange for all norms: a message for each norm would take longer than its few bytes.
    let own = Tensor::concat(&own_statistics.iter().collect::<Vec<_>>(), 2)?;
    drop(own_statistics);
    let all = Tensor::apply(ranks.all_gather("statistics of batch norms"), &[&own])?.remove(0);
    let updates = norms.iter_mut().map(|(op, targets)| Update {
        op: Op::from(*op),
        targets: targets.iter_mut().map(|target| &mut **target).collect(),
        others: vec![&all],
    });
    // None of the statistics is updated if the step has failed before.
    runtime.update_all(updates.collect())
}
