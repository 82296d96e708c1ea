//! Clocks of the computation and of the network.

use super::exchanges::{Exchange, Exchanges, Tensors, is_collective, waits};
use crate::command::{Apply, Command, RecordedCommand, RecordedOp, TensorId};
use rustc_hash::FxHashMap;

/// Clocks of a step on some number of ranks. All times are in seconds.
///
/// The caller reports each command after its run. An update that reads a result that has not
/// arrived yet is put off until the result has arrived. All other ops wait for the results that
/// they read.
#[derive(Debug, Default)]
pub(super) struct Clock {
    /// Time of the computation.
    now: f64,
    /// Time at which the network is free.
    free: f64,
    /// Total time that the computation has waited.
    waited: f64,
    /// Tensor -> the result of its collective, which has not arrived yet. Results that have arrived
    /// are left out.
    under_way: FxHashMap<TensorId, Arriving>,
    /// Updates that were put off.
    put_off: Vec<Update>,
}

/// Result of a collective that has not arrived yet.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    /// Time at which the network delivers the result.
    ready: f64,
    /// See [`Exchange::local_until`].
    local_until: usize,
}

/// Update in place that waits for results.
#[derive(Debug)]
struct Update {
    ready: f64,
    seconds: f64,
    /// Tensors that the update makes: for each op, its first tensor and its number of tensors.
    made: Vec<(TensorId, usize)>,
}

/// Run of a command; times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ran<'a> {
    /// Position of the command.
    pub at: usize,
    pub command: &'a RecordedCommand,
    /// Work around the command's own ops: recomputation of evicted inputs.
    pub around: f64,
    /// Work of the command's own ops, without collectives.
    pub own: f64,
}

impl Clock {
    /// Time so far, and the part of this time in which the computation waited.
    pub const fn times(&self) -> (f64, f64) {
        (self.now, self.waited)
    }

    /// Moves the clock by the run of a command.
    pub fn run(&mut self, ran: Ran<'_>, exchanges: &Exchanges, tensors: &Tensors) {
        let Ran { at, command, around, own } = ran;
        self.work(around);
        if self.under_way.is_empty() && self.put_off.is_empty() {
            self.work(own);
            return;
        }
        match command {
            &Command::Get(tensor) => self.read(at, tensor, tensors),
            // The end of a step waits for all collectives that the step began.
            Command::Step | Command::Sync => self.finish(),
            _ => match exchanges.read_by(at) {
                Some(results) => self.update(command, own, results, tensors),
                None => {
                    // A view reads no element, and the network reads the input of a collective.
                    let is_read = |call: &&Apply<RecordedOp>| {
                        call.outputs.views().is_empty() && !is_collective(call)
                    };
                    let inputs = command.calls().iter().filter(is_read).flat_map(|c| &c.inputs);
                    inputs.for_each(|&input| self.read(at, input, tensors));
                    let sums = command.calls().iter().filter(|call| waits(call));
                    sums.for_each(|call| self.read(at, call.made, tensors));
                    self.work(own);
                }
            },
        }
    }

    /// Makes an update in place, or puts it off until the results that it reads have arrived.
    fn update(
        &mut self,
        command: &RecordedCommand,
        own: f64,
        results: &[TensorId],
        tensors: &Tensors,
    ) {
        let inputs = command.calls().iter().flat_map(|call| &call.inputs);
        inputs.for_each(|&input| self.make_update_of(input, tensors));
        let arrivals = results.iter().filter_map(|&result| self.arrival(result, tensors));
        match arrivals.map(|result| result.ready).reduce(f64::max) {
            Some(ready) => {
                let made = command.calls().iter().map(|call| (call.made, call.outputs.len()));
                self.put_off.push(Update { ready, seconds: own, made: made.collect() });
            }
            None => self.work(own),
        }
    }

    /// Begins a collective as soon as the network is free. With `overlaps`, the computation goes on
    /// during the collective.
    pub fn send(&mut self, exchange: Exchange, seconds: f64, overlaps: bool, tensors: &Tensors) {
        let Exchange { result, input, local_until, .. } = exchange;
        self.make_update_of(input, tensors);
        let ready = self.arrival(input, tensors).map_or(self.now, |input| input.ready);
        let end = ready.max(self.now).max(self.free) + seconds;
        self.free = end;
        if overlaps {
            self.under_way.insert(result, Arriving { ready: end, local_until });
        } else {
            self.wait_until(end);
        }
    }

    /// Waits for all collectives, and makes all updates.
    pub fn finish(&mut self) {
        self.put_off.sort_by(|a, b| a.ready.total_cmp(&b.ready));
        for update in std::mem::take(&mut self.put_off) {
            self.make(&update);
        }
        self.wait_until(self.free);
        self.under_way.clear();
    }

    fn work(&mut self, seconds: f64) {
        self.now += seconds;
    }

    fn wait_until(&mut self, time: f64) {
        self.waited += (time - self.now).max(0.0);
        self.now = self.now.max(time);
    }

    fn make(&mut self, update: &Update) {
        self.wait_until(update.ready);
        self.work(update.seconds);
    }

    /// Result whose bytes a tensor has, if the result has not arrived yet.
    fn arrival(&self, tensor: TensorId, tensors: &Tensors) -> Option<Arriving> {
        let mut chain = std::iter::successors(Some(tensor), |&tensor| tensors.shown(tensor));
        let result = chain.find_map(|tensor| self.under_way.get(&tensor).copied())?;
        (result.ready > self.now).then_some(result)
    }

    /// Waits until the elements of a tensor have arrived, for the command at position `at`.
    fn read(&mut self, at: usize, tensor: TensorId, tensors: &Tensors) {
        if let Some(Arriving { ready, local_until }) = self.arrival(tensor, tensors)
            && at > local_until
        {
            self.wait_until(ready);
        }
        self.make_update_of(tensor, tensors);
    }

    /// Makes the update that makes `tensor`, if this update was put off.
    fn make_update_of(&mut self, tensor: TensorId, tensors: &Tensors) {
        let tensor = tensors.origin(tensor);
        let makes = |update: &Update| {
            update.made.iter().any(|(first, count)| (*first..first.plus(*count)).contains(&tensor))
        };
        if let Some(at) = self.put_off.iter().position(makes) {
            let update = self.put_off.remove(at);
            self.make(&update);
        }
    }

    /// Makes the updates whose results have arrived, and forgets the results that have arrived.
    ///
    /// The caller makes this call after each command and the collectives that begin after it.
    pub fn catch_up(&mut self) {
        while let Some(at) = self.put_off.iter().position(|update| update.ready <= self.now) {
            let update = self.put_off.remove(at);
            self.make(&update);
        }
        let now = self.now;
        self.under_way.retain(|_, result| result.ready > now);
    }
}
