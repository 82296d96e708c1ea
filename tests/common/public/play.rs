//! Gives a program to a runtime and keeps what it observes.

use super::journal::{Fate, Request};
use super::player::Player;
use super::program::Program;
use remat::program::TensorId;
use remat::{Error, HostTensor, Runtime, Stats};
use std::collections::HashMap;

/// What a run is for.
#[derive(Clone, Copy, Debug)]
pub enum Part<'a> {
    /// It is tested: everything is done as the program says.
    Subject,
    /// It gives the expected values: nothing is evicted, and nothing fails. With the fates of another run's requests
    /// (by thread), those that were skipped there are skipped here.
    Oracle(Option<&'a [Vec<Fate>]>),
}

/// What one thread of a program observed.
#[derive(Debug, Default)]
pub struct Observed {
    /// The values that it read.
    pub read: HashMap<Moment, Result<Value, Error>>,
    /// Numbers of the tensors that it held in the end.
    pub held: Vec<TensorId>,
    /// Its updates and replacements.
    pub requests: Vec<Request>,
    /// All failures that it heard of, in that order.
    pub failures: Vec<Failure>,
    /// Answers that it did not wait for. They take their failures with them.
    pub forgotten: usize,
    /// Calls that were refused, for the shapes do not go together, and those that were not.
    pub refused: usize,
    pub accepted: usize,
}

/// A failure that a program heard of.
#[derive(Clone, Debug)]
pub struct Failure {
    pub heard: Heard,
    pub error: Error,
}

/// The answer that a failure came by: of a tensor with this number, if it was to be read.
#[derive(Clone, Copy, Debug)]
pub enum Heard {
    Sync,
    Get(TensorId),
    /// The worker may have given it long before.
    GetLater(TensorId),
}

/// When a value was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Moment {
    /// On the way, so many reads after the first one.
    Meanwhile(usize),
    /// What it held in the end, at this position.
    AtLast(usize),
}

/// A value that was read.
#[derive(Debug, PartialEq)]
pub enum Value {
    Is(HostTensor),
    /// One of these.
    OneOf(Vec<HostTensor>),
    /// It depends on a value of which there are several that it may be.
    Unknown,
}

/// A program that was played to its end.
#[derive(Debug)]
pub struct Played {
    /// By its threads.
    pub observed: Vec<Observed>,
    /// Before the handles went.
    pub stats: Stats,
}

/// Plays a program to the end and reads all that it holds then. `calm` is called when nothing more of the program is
/// to come: what could not be read is read again after that, in the room that the rest leaves. Fails if anything is
/// left of the program then, or if the runtime does not go on.
pub fn play(runtime: &Runtime, program: &Program, part: Part<'_>, calm: impl FnOnce()) -> Played {
    let mut players = vec![Player::new(runtime, program, part, 0)];
    if !program.beside.is_empty() {
        let mut second = Player::new(runtime, program, part, 1);
        players[0].share(&mut second);
        players.push(second);
    }
    // The first one on this thread, for that is all there is in most programs.
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

/// The failures that nobody has heard of so far.
fn unheard(runtime: &Runtime) -> Vec<Failure> {
    let failures: Vec<Failure> = std::iter::from_fn(|| runtime.sync().err())
        .map(|error| Failure { heard: Heard::Sync, error: alive(error) })
        .take(1000)
        .collect();
    assert!(failures.len() < 1000, "the same failure again and again: {}", failures[999].error);
    failures
}

/// Nothing is left of a program whose handles are gone, and there may be another one.
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

/// An error that a worker that is still there gives.
pub(super) fn alive(error: Error) -> Error {
    assert!(!matches!(error, Error::Runtime(_)), "the worker is gone: {error}");
    error
}
