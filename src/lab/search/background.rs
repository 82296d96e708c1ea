//! Searches on a background thread, while a program runs.

use super::Search;
use crate::driver::{Learner, Turn};
use crate::evict::{Forecast, Learn};
use crate::sync::{Condvar, Mutex, lock, thread, wait};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Estimate of the bytes that a command of a turn takes in a search. A search holds several copies
/// of the turn.
const COMMAND_BYTES: usize = 2 << 10;

/// Key of a search: the key of a step, and a budget in bytes.
type Key = (u64, u64);

/// Searches in the background. Dropping a `Background` stops the thread after at most one more
/// simulated run.
///
/// The forecast found after a given number of simulated ops depends only on the turn, the effort
/// and the seed. Therefore, any thread may run a search. The background thread searches ahead, at a
/// low priority. A caller that requests a forecast too early runs the rest of the search on its own
/// thread.
#[derive(Debug)]
struct Background {
    work: Arc<Work>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// Effort of the searches, and the seed of their random changes.
#[derive(Debug)]
struct Work {
    learn: Learn,
    seed: u64,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified when a simulated run is over, or when a search has work to do.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    searches: BTreeMap<Key, Progress>,
    /// Search that a caller needs now. The background thread leaves this search to the caller.
    wanted: Option<Key>,
    ends: bool,
}

/// State of the search on a step.
#[derive(Debug)]
struct Progress {
    at: At,
    /// Number of simulated ops so far.
    ops: u64,
    /// Number of simulated ops up to which the background thread continues the search.
    ahead: u64,
    /// Forecasts, each better than the forecast before, with the number of ops after which each was
    /// found.
    found: Vec<(u64, Forecast)>,
    /// Estimate of the bytes held for the search.
    bytes: u64,
}

#[derive(Debug)]
enum At {
    /// The search has not begun.
    New(Box<Turn>),
    Begun(Box<Search>),
    /// A thread is working on the search.
    Taken,
    /// The search is over: more runs would not improve its forecast.
    Over,
}

impl Background {
    /// Starts the thread, for searches of at most the effort `learn`.
    ///
    /// # Errors
    /// An error of the system if the thread cannot be started.
    fn new(learn: Learn, seed: u64) -> std::io::Result<Self> {
        let (work, shared) = (Arc::new(Work { learn, seed }), Arc::<Shared>::default());
        let (of_thread, at) = (Arc::clone(&work), Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("remat-search".to_owned())
            .spawn(move || of_thread.go_ahead(&at))?;
        Ok(Self { work, shared, thread: Some(thread) })
    }
}

/// Learner for [`Driver::learn_by`](crate::program::Driver::learn_by) that searches on a thread of
/// its own, up to the effort `learn`. `None` if the effort `learn` needs no search, or if the
/// thread cannot be started. The results depend only on the effort, the seed and the given turns.
#[must_use]
pub fn learner(learn: Learn, seed: u64) -> Option<Box<dyn Learner>> {
    if learn == Learn::Ahead {
        return None;
    }
    match Background::new(learn, seed) {
        Ok(background) => Some(Box::new(background)),
        Err(error) => {
            tracing::warn!(
                target: "remat", %error,
                "the search for forecasts could not start its thread; steps run without new forecasts"
            );
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
        // The portfolio is the same in each run of a program, so only climbing can find better
        // forecasts than an earlier run of the program.
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
            // A panic of the thread was already reported when it happened.
            _ = thread.join();
        }
    }
}

impl Work {
    /// Continues searches on the background thread until the background work must end.
    fn go_ahead(&self, shared: &Shared) {
        step_aside();
        while self.advance(shared, None, 0) {}
    }

    /// Continues a search by a few simulated runs. With a key, continues the search of this key,
    /// until the search has `ops` simulated ops. Without a key, continues any search that has fewer
    /// ops than its `ahead`, or waits until such a search exists.
    ///
    /// Returns false if the search of the key has no work left, or if the background work must end.
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
        // The guard starts with `At::Over`: if the search panics, every waiting thread sees that
        // the search is over.
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

/// Guard for a search that a thread has taken. Dropping the guard makes the search available to
/// other threads again.
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

/// Lowers the priority of this thread, so that it does not slow down the program.
fn step_aside() {
    // On Linux, the call sets the priority of this thread only. On other systems, the call would
    // set the priority of the whole process.
    #[cfg(target_os = "linux")]
    {
        // If the system refuses, the thread keeps its normal priority.
        _ = rustix::process::setpriority_process(None, 19);
    }
}
