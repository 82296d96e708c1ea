//! Searches on a thread of their own, for a program that is running.

use super::Search;
use crate::driver::{Learner, Turn};
use crate::evict::{Forecast, Learn};
use crate::sync::{Condvar, Mutex, lock, thread, wait};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Bytes that a command of a turn takes, with what is made of it: a search holds the turn several times over.
const COMMAND_BYTES: usize = 2 << 10;

/// A step in a budget.
type Key = (u64, u64);

/// Searches in the background. Dropped, it ends within a simulated run.
///
/// A search finds in so many simulated ops what depends on nothing but the turn: so it does not matter which thread does them.
/// Its own thread does them ahead, at a low priority; whoever asks before they are done does the rest.
#[derive(Debug)]
struct Background {
    work: Arc<Work>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// How far searches go, and the seed of what they try.
#[derive(Debug)]
struct Work {
    learn: Learn,
    seed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// A run is over, or there is something to do.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    searches: BTreeMap<Key, Progress>,
    /// Somebody waits: the thread leaves what he waits for to him.
    wanted: Option<Key>,
    ends: bool,
}

/// How far the search on a step is.
#[derive(Debug)]
struct Progress {
    at: At,
    /// Simulated ops so far, and how many will be asked for.
    ops: u64,
    ahead: u64,
    /// Forecasts, each better than the one before, and how many ops they took.
    found: Vec<(u64, Forecast)>,
    /// Of what is held for it.
    bytes: u64,
}

#[derive(Debug)]
enum At {
    /// Not yet begun.
    New(Box<Turn>),
    Begun(Box<Search>),
    /// A thread has it.
    Taken,
    /// There is no use in more.
    Over,
}

impl Background {
    /// Searches as far as `learn` says at the most.
    ///
    /// # Errors
    /// If there is no thread to be had.
    fn new(learn: Learn, seed: u64) -> std::io::Result<Self> {
        let (work, shared) = (Arc::new(Work { learn, seed }), Arc::<Shared>::default());
        let (of_thread, at) = (Arc::clone(&work), Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("remat-search".to_owned())
            .spawn(move || of_thread.go_ahead(&at))?;
        Ok(Self { work, shared, thread: Some(thread) })
    }
}

/// Searches on a thread of its own, for [`Driver::learn_by`](crate::program::Driver::learn_by): as far as wanted, which may be
/// not at all. How it searches depends on nothing but the seed, and on which turns it is given.
#[must_use]
pub fn learner(learn: Learn, seed: u64) -> Option<Box<dyn Learner>> {
    if learn == Learn::Ahead {
        return None;
    }
    match Background::new(learn, seed) {
        Ok(background) => Some(Box::new(background)),
        Err(error) => {
            tracing::warn!(target: "remat", %error, "no thread for the search of forecasts");
            None
        }
    }
}

impl Learner for Background {
    fn begin(&mut self, turn: Turn) {
        let key = (turn.step.key(), turn.budget);
        let bytes = (turn.program.commands().len() * COMMAND_BYTES) as u64;
        let at = At::New(Box::new(turn));
        let progress = Progress { at, ops: 0, ahead: 0, found: Vec::new(), bytes };
        lock(&self.shared.state).searches.insert(key, progress);
    }

    fn prepare(&mut self, step: u64, budget: u64, ops: u64) {
        if let Some(progress) = lock(&self.shared.state).searches.get_mut(&(step, budget)) {
            progress.ahead = progress.ahead.max(ops);
        }
        self.shared.changed.notify_all();
    }

    fn improves(&self) -> bool {
        // The portfolio is the same in each run.
        matches!(self.work.learn, Learn::Search { .. })
    }

    fn forecast(&mut self, step: u64, budget: u64, ops: u64) -> Option<Forecast> {
        let key = (step, budget);
        lock(&self.shared.state).wanted = Some(key);
        while self.work.advance(&self.shared, Some(key), ops) {}
        let mut state = lock(&self.shared.state);
        state.wanted = None;
        let progress = state.searches.get(&key)?;
        let in_time = progress.found.iter().rfind(|(done, _)| *done <= ops);
        let found = in_time.map(|(_, forecast)| forecast.clone());
        drop(state);
        self.shared.changed.notify_all();
        found
    }

    fn bytes(&self) -> u64 {
        lock(&self.shared.state).searches.values().map(|progress| progress.bytes).sum()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        lock(&self.shared.state).ends = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // What it panicked with was told.
            _ = thread.join();
        }
    }
}

impl Work {
    /// Does what is to be done before anybody asks.
    fn go_ahead(&self, shared: &Shared) {
        step_aside();
        while self.advance(shared, None, 0) {}
    }

    /// Goes on with a search by a few runs, unless `ops` are done; without a key, with any that is not as far ahead
    /// as it should be, once there is one. False: that is done, or all ends.
    fn advance(&self, shared: &Shared, key: Option<Key>, ops: u64) -> bool {
        let mut state = lock(&shared.state);
        let (key, at) = loop {
            if state.ends {
                return false;
            }
            let State { searches, wanted, .. } = &mut *state;
            let due = match key {
                Some(key) => match searches.get_mut(&key) {
                    Some(of) if of.ops < ops && !matches!(of.at, At::Over) => Some((key, of)),
                    _ => return false,
                },
                None => searches
                    .iter_mut()
                    .map(|(key, of)| (*key, of))
                    .find(|(key, of)| *wanted != Some(*key) && of.is_due()),
            };
            match due {
                Some((key, of)) if !matches!(of.at, At::Taken) => {
                    break (key, std::mem::replace(&mut of.at, At::Taken));
                }
                _ => state = wait(&shared.changed, state),
            }
        };
        drop(state);
        // If it panics, the search is over for whoever waits.
        let mut taken = Back { shared, key, at: At::Over, ops: 0, best: None };
        taken.go_on(self, at);
        true
    }
}

impl Progress {
    const fn is_due(&self) -> bool {
        self.ops < self.ahead && matches!(self.at, At::New(_) | At::Begun(_))
    }
}

/// Gives a search back that a thread has taken.
struct Back<'a> {
    shared: &'a Shared,
    key: Key,
    at: At,
    ops: u64,
    best: Option<Forecast>,
}

impl Back<'_> {
    fn go_on(&mut self, work: &Work, at: At) {
        let begun = match at {
            At::New(turn) => Search::of_turn(*turn, work.seed).map(Box::new),
            At::Begun(search) => Ok(search),
            At::Taken | At::Over => return,
        };
        let Ok(mut search) = begun else { return };
        let mut allowance = search.allowance(work.learn);
        let goes_on = search.advance(&mut allowance).unwrap_or(false);
        let goes_on = goes_on && !search.is_done(work.learn);
        (self.ops, self.best) = (search.ops(), search.best().cloned());
        if goes_on {
            self.at = At::Begun(search);
        }
    }
}

impl Drop for Back<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        if let Some(of) = state.searches.get_mut(&self.key) {
            of.at = std::mem::replace(&mut self.at, At::Over);
            of.ops = of.ops.max(self.ops);
            let best = self
                .best
                .take()
                .filter(|best| of.found.last().is_none_or(|(_, last)| last.excess != best.excess));
            of.found.extend(best.map(|best| (self.ops, best)));
            if matches!(of.at, At::Over) {
                of.bytes = 0;
            }
        }
        drop(state);
        self.shared.changed.notify_all();
    }
}

/// Whoever computes comes first.
fn step_aside() {
    // The priority is that of a thread on Linux, and of the whole process elsewhere.
    #[cfg(target_os = "linux")]
    {
        // Where it may not, the search has its share of the time as any thread.
        _ = rustix::process::setpriority_process(None, 19);
    }
}
