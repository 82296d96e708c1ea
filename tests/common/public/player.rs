//! Player of one thread of a program: its tensors, acts and reads.

use super::change::is_like;
use super::journal::Fate;
use super::play::{Failure, Heard, Moment, Observed, Part, Value, alive};
use super::program::{Act, Data, Pick, Program};
use remat::unstable::program::TensorId;
use remat::{Error, HostTensor, Layout, Pending, Runtime, Tensor};
use remat_rng::SplitMix64;
use std::cell::Cell;
use std::collections::VecDeque;

/// Tensor that a program holds.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub tensor: Tensor,
    /// In an oracle: other tensors whose value may be the right one instead.
    pub others: Vec<Tensor>,
    /// In an oracle: whether the value depends on a tensor with several possible values.
    pub unknown: bool,
}

impl Slot {
    pub fn is_known(&self) -> bool {
        !self.unknown && self.others.is_empty()
    }
}

/// A thread of a program.
pub(super) struct Player<'a> {
    pub runtime: &'a Runtime,
    pub program: &'a Program,
    is_oracle: bool,
    /// Fates of the requests that this oracle has yet to make.
    pub fates: Option<std::slice::Iter<'a, Fate>>,
    pub slots: Vec<Slot>,
    /// Reads in the background: their moments and the numbers of their tensors.
    pending: VecDeque<(Moment, TensorId, Pending<HostTensor>)>,
    reads: usize,
    /// Number of single updates and groups of updates so far.
    pub groups: usize,
    /// Number of this thread, and number of its random ops so far.
    pub thread: u64,
    pub randoms: Cell<u64>,
    pub observed: Observed,
}

impl<'a> Player<'a> {
    pub fn new(runtime: &'a Runtime, program: &'a Program, part: Part<'a>, thread: usize) -> Self {
        Self {
            runtime,
            program,
            is_oracle: matches!(part, Part::Oracle(_)),
            fates: match part {
                Part::Oracle(Some(fates)) => Some(fates[thread].iter()),
                _ => None,
            },
            slots: Vec::new(),
            pending: VecDeque::new(),
            reads: 0,
            groups: 0,
            thread: thread as u64,
            randoms: Cell::new(0),
            observed: Observed::default(),
        }
    }

    /// Drops all handles. Returns the observations.
    pub fn end(self) -> Observed {
        let left = self.fates.map_or(0, |fates| fates.len());
        assert_eq!(
            left, 0,
            "an oracle makes the requests of the run that it follows, and all of them"
        );
        self.observed
    }

    /// Uploads a few tensors that both players hold from the start.
    pub fn share(&mut self, other: &mut Self) {
        for (seed, shape) in [(1, vec![8]), (2, vec![4, 8]), (3, vec![2, 3, 6, 5])] {
            let tensor = self.put(&Data { shape, seed }, false);
            other.hold(tensor.clone(), false);
            self.hold(tensor, false);
        }
    }

    pub fn act(&mut self, act: &Act) {
        match act {
            Act::Put { data, leaf } => {
                if self.has_room_for(&data.shape) {
                    let tensor = self.put(data, *leaf);
                    self.hold(tensor, false);
                }
            }
            Act::Calc(calc) => self.calc(calc),
            Act::Clone(pick) => {
                if let Some(i) = self.any(*pick) {
                    self.slots.push(self.slots[i].clone());
                }
            }
            Act::Del(pick) => {
                if let Some(i) = self.any(*pick) {
                    self.slots.swap_remove(i);
                }
            }
            // An oracle evicts nothing and cancels nothing.
            Act::DropNow(_) | Act::Cancel if self.is_oracle => {}
            Act::DropNow(pick) => {
                if let Some(i) = self.any(*pick) {
                    self.runtime.drop_now(&self.slots[i].tensor).map_err(alive).unwrap();
                }
            }
            Act::Cancel => {
                if self.program.cancels {
                    self.runtime.cancel();
                }
            }
            Act::Commit(pick) => {
                if let Some(i) = self.any(*pick) {
                    self.runtime.commit(&self.slots[i].tensor).map_err(alive).unwrap();
                }
            }
            Act::Label(pick) => {
                if let Some(i) = self.any(*pick) {
                    self.runtime.label(&self.slots[i].tensor, "labelled").map_err(alive).unwrap();
                }
            }
            Act::Get(pick) => {
                if let Some(i) = self.any(*pick) {
                    let moment = self.now();
                    let value = self.read(i);
                    self.observed.read.insert(moment, value);
                }
            }
            Act::GetLater(pick) => {
                if let Some(i) = self.any(*pick) {
                    let moment = self.now();
                    if self.is_oracle {
                        let value = self.read(i);
                        self.observed.read.insert(moment, value);
                    } else {
                        let tensor = &self.slots[i].tensor;
                        let later = self.runtime.get_later(tensor).map_err(alive).unwrap();
                        self.pending.push_back((moment, tensor.id(), later));
                    }
                }
            }
            Act::Wait => self.wait(),
            Act::Forget => {
                self.observed.forgotten += usize::from(self.pending.pop_front().is_some());
            }
            Act::Update(update) => self.update(&[*update], false),
            Act::UpdateAll(updates) => self.update(updates, true),
            Act::Replace { target, value } => {
                let is_plain = |layout: &Layout| layout.is_contiguous();
                let Some(target) = self.pick(*target, is_plain) else { return };
                let wanted = *self.slots[target].tensor.layout();
                let alike = |layout: &Layout| is_plain(layout) && is_like(layout, &wanted);
                let value = self.pick(*value, alike).expect("it is like itself");
                if target != value {
                    let value = self.slots[value].clone();
                    self.replace(target, &value);
                }
            }
            Act::Tape(segment) => self.segment(segment),
            Act::Step => self.runtime.step().unwrap(),
            Act::Sync => {
                if let Err(error) = self.runtime.sync() {
                    self.failed(Heard::Sync, &error);
                }
            }
            Act::Stats => {
                let stats = self.runtime.stats().unwrap();
                assert!(stats.used_bytes <= stats.peak_bytes, "{stats:?}");
                assert!(stats.peak_bytes <= stats.budget_bytes, "{stats:?}");
            }
        }
    }

    pub fn hold(&mut self, tensor: Tensor, unknown: bool) {
        self.slots.push(Slot { tensor, others: Vec::new(), unknown });
    }

    /// Position of a tensor that fits, counted back from the newest one.
    pub fn pick(&self, pick: Pick, fits: impl Fn(&Layout) -> bool) -> Option<usize> {
        let fitting = (0..self.slots.len()).rev().filter(|&i| fits(self.slots[i].tensor.layout()));
        let fitting: Vec<usize> = fitting.collect();
        (!fitting.is_empty()).then(|| fitting[pick % fitting.len()])
    }

    fn any(&self, pick: Pick) -> Option<usize> {
        self.pick(pick, |_| true)
    }

    pub fn has_room_for(&self, shape: &[usize]) -> bool {
        shape.iter().product::<usize>() <= self.program.most_elements
    }

    pub fn put(&self, data: &Data, leaf: bool) -> Tensor {
        let host = HostTensor::f32(remat::Dims::new(&data.shape), values(data)).unwrap();
        let put = if leaf { self.runtime.put_leaf(host) } else { self.runtime.put(host) };
        put.map_err(alive).unwrap()
    }

    /// Result of a call, or `None` if the call was refused. Panics on any other error.
    pub fn accept<T>(&mut self, called: Result<T, Error>) -> Option<T> {
        match called {
            Ok(given) => {
                self.observed.accepted += 1;
                Some(given)
            }
            Err(Error::Op(_)) => {
                self.observed.refused += 1;
                None
            }
            Err(error) => panic!("a call fails with what is no fault of its operands: {error}"),
        }
    }

    /// Whether a result made from these tensors has several possible values.
    pub fn is_unknown(&self, sources: &[usize]) -> bool {
        sources.iter().any(|&i| !self.slots[i].is_known())
    }
}

impl Player<'_> {
    fn now(&mut self) -> Moment {
        self.reads += 1;
        Moment::Meanwhile(self.reads - 1)
    }

    fn failed(&mut self, heard: Heard, error: &Error) {
        let error = alive(error.clone());
        self.observed.failures.push(Failure { heard, error });
    }

    /// Reads a tensor once.
    fn get(&mut self, tensor: &Tensor) -> Result<Value, Error> {
        let value = self.runtime.get(tensor).map(Value::Is);
        value.inspect_err(|error| self.failed(Heard::Get(tensor.id()), error))
    }

    /// Reads a tensor. If the read fails, reads again, because the first error may report the
    /// failure of another tensor.
    fn read(&mut self, i: usize) -> Result<Value, Error> {
        let runtime = self.runtime;
        let slot = &self.slots[i];
        if self.is_oracle {
            let read = |tensor| runtime.get(tensor).expect("nothing fails here");
            return Ok(match &slot.others[..] {
                _ if slot.unknown => Value::Unknown,
                [] => Value::Is(read(&slot.tensor)),
                others => Value::OneOf(others.iter().chain([&slot.tensor]).map(read).collect()),
            });
        }
        let tensor = slot.tensor.clone();
        self.get(&tensor).or_else(|_| self.get(&tensor))
    }

    /// Waits for the oldest read in the background.
    fn wait(&mut self) {
        if let Some((moment, id, pending)) = self.pending.pop_front() {
            let value = pending.wait().map(Value::Is);
            let value = value.inspect_err(|error| self.failed(Heard::GetLater(id), error));
            self.observed.read.insert(moment, value);
        }
    }

    pub fn read_all(&mut self) {
        while !self.pending.is_empty() {
            self.wait();
        }
        self.observed.held = self.slots.iter().map(|slot| slot.tensor.id()).collect();
        for i in 0..self.slots.len() {
            let value = self.read(i);
            self.observed.read.insert(Moment::AtLast(i), value);
        }
    }

    /// Repeats the reads that failed, until none of them succeeds any more. Each handle is dropped
    /// when its value is known, so that memory is free for the other reads.
    pub fn read_again(&mut self) {
        let mut left: Vec<(usize, Slot)> = std::mem::take(&mut self.slots)
            .into_iter()
            .enumerate()
            .filter(|(i, _)| self.observed.read[&Moment::AtLast(*i)].is_err())
            .collect();
        let mut before = usize::MAX;
        while left.len() < before {
            before = left.len();
            left.retain(|(i, slot)| {
                let value = self.get(&slot.tensor);
                let fails = value.is_err();
                self.observed.read.insert(Moment::AtLast(*i), value);
                fails
            });
        }
    }
}

/// Values from -1 to 1, in some data mixed with NaN, infinities and other special numbers.
fn values(data: &Data) -> Vec<f32> {
    const WILD: [f32; 6] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-41, 3e38];
    let mut numbers = SplitMix64::new(data.seed);
    let mut next = || numbers.next();
    let is_wild = data.seed % 41 == 7;
    let number = |bits: u64| (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0;
    (0..data.shape.iter().product())
        .map(|_| match next() {
            bits if is_wild && bits % 16 == 0 => WILD[(bits >> 8) as usize % WILD.len()],
            bits => number(bits),
        })
        .collect()
}
