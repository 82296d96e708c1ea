//! Runs a program on a runtime and keeps what the program observes.

use super::journal::{Fate, Request};
use super::player::Player;
use super::program::Program;
use remat::unstable::program::TensorId;
use remat::{Error, HostTensor, Runtime, Stats};
use std::collections::HashMap;

/// Purpose of a run.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// Run under test: does all acts of the program.
    Subject,
    /// Run that gives the expected values. Nothing is evicted and nothing fails.
    ///
    /// With the fates of another run's requests, by thread, the oracle skips the requests that the
    /// other run skipped.
    Oracle(Option<&'a [Vec<Fate>]>),
}

/// Observations of a thread of a program.
#[derive(Debug, Default)]
pub struct Observed {
    /// Values read, or the errors instead.
    pub read: HashMap<Moment, Result<Value, Error>>,
    /// Numbers of the tensors held at the end.
    pub held: Vec<TensorId>,
    /// Updates and replacements requested.
    pub requests: Vec<Request>,
    /// Failures that were reported to the thread, in order.
    pub failures: Vec<Failure>,
    /// Number of reads whose result the thread never waited for. Failures of these reads are not
    /// reported.
    pub forgotten: usize,
    /// Number of refused calls, whose shapes do not match, and of accepted calls.
    pub refused: usize,
    pub accepted: usize,
}

/// Failure that was reported to a program.
#[derive(Clone, Debug)]
pub struct Failure {
    pub heard: Heard,
    pub error: Error,
}

/// Call that reported a failure, with the number of the tensor to be read.
#[derive(Clone, Copy, Debug)]
pub enum Heard {
    Sync,
    Get(TensorId),
    /// A read in the background. The worker may have answered long before the program waited.
    GetLater(TensorId),
}

/// Moment of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// While the program ran: the number of reads before.
    Meanwhile(usize),
    /// At the end: the position of the held tensor.
    AtLast(usize),
}

/// Result of a read.
#[derive(Debug, PartialEq)]
pub enum Value {
    Is(HostTensor),
    /// One of several values, each of which is right.
    OneOf(Vec<HostTensor>),
    /// A value that depends on a tensor with several possible values.
    Unknown,
}

/// Result of a program that ran to its end.
#[derive(Debug)]
pub struct Played {
    /// Observations of each thread.
    pub observed: Vec<Observed>,
    /// Statistics taken before the handles were dropped.
    pub stats: Stats,
}

/// Runs a program to its end and reads all tensors it holds then. `calm` is called once no more
/// acts follow.
///
/// Tensors that could not be read are read again after all other handles were dropped, so that more
/// memory is free.
///
/// # Panics
///
/// If the program leaves any tensor behind, or if the runtime no longer computes.
pub fn play(runtime: &Runtime, program: &Program, part: Part<'_>, calm: impl FnOnce()) -> Played {
    let mut players = vec![Player::new(runtime, program, part, 0)];
    if !program.beside.is_empty() {
        let mut second = Player::new(runtime, program, part, 1);
        players[0].share(&mut second);
        players.push(second);
    }
    // The first player runs on this thread, since most programs have only one.
    let (first, beside) = players.split_first_mut().expect("there is one");
    std::thread::scope(|scope| {
        for player in beside {
            scope.spawn(|| program.beside.iter().for_each(|act| player.act(act)));
        }
        program.acts.iter().for_each(|act| first.act(act));
    });
    players.iter_mut().for_each(Player::read_all);
    calm();
    players.iter_mut().for_each(Player::read_again);
    let stats = runtime.stats().expect("the worker is there");
    assert!(stats.peak_bytes <= stats.budget_bytes, "{stats:?}");
    let mut observed: Vec<Observed> = players.into_iter().map(Player::end).collect();
    observed[0].failures.extend(unheard(runtime));
    goes_on(runtime);
    Played { observed, stats }
}

/// Failures that were not reported yet.
fn unheard(runtime: &Runtime) -> Vec<Failure> {
    let failures: Vec<Failure> = std::iter::from_fn(|| runtime.sync().err())
        .map(|error| Failure { heard: Heard::Sync, error: alive(error) })
        .take(1000)
        .collect();
    assert!(failures.len() < 1000, "the same failure again and again: {}", failures[999].error);
    failures
}

/// Fails if a tensor of the program is left, or if the runtime no longer computes.
fn goes_on(runtime: &Runtime) {
    let left = runtime.stats().expect("the worker is there");
    let tables = (left.tensors, left.storages, left.paths);
    assert_eq!(tables, (0, 0, 0), "tensors, storages and paths outlive the handles");
    assert_eq!((left.used_bytes, left.host_bytes), (0, 0), "bytes outlive the handles");
    let x = runtime.put(HostTensor::f32([3], vec![1.0, -2.0, 3.0]).unwrap()).unwrap();
    let y = x.square().unwrap();
    let value = runtime.get(&y).expect("the runtime goes on");
    assert_eq!(value.as_f32(), Some(&[1.0, 4.0, 9.0][..]));
    runtime.sync().expect("the runtime goes on");
}

/// Returns the error. Panics if it says that the worker is gone.
pub(super) fn alive(error: Error) -> Error {
    assert!(!matches!(error, Error::Runtime(_)), "the worker is gone: {error}");
    error
}
