//! Searches on a thread of their own, for a program that is running.

use super::Search;
use crate::engine::Settings;
use crate::evict::{Forecast, Learn, PolicyKind};
use crate::lab::{Placement, Replay};
use crate::program::{Learner, Turn};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::channel::{Receiver, Sender, unbounded};
use crate::sync::{Condvar, Mutex, lock, thread, wait};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Bytes that a command of a turn takes, with what is made of it: a search holds the turn several times over.
const COMMAND_BYTES: usize = 2 << 10;

/// A step in a budget.
type Key = (u64, u64);

/// Searches in the background. Dropped, it ends within a simulated run.
#[derive(Debug)]
pub(crate) struct Background {
    asked: Sender<Asked>,
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

/// What the thread is asked for.
#[derive(Debug)]
enum Asked {
    /// To begin with a turn and do so many simulated runs.
    Begin(Box<Turn>, u64),
    /// To go on until there are so many.
    Runs(Key, u64),
}

/// What both threads know.
#[derive(Debug, Default)]
struct Shared {
    progress: Mutex<FxHashMap<Key, Progress>>,
    more: Condvar,
    ends: AtomicBool,
}

/// How far the search on a step is.
#[derive(Debug, Default)]
struct Progress {
    runs: u64,
    /// No more will be done.
    is_over: bool,
    /// Forecasts, each better than the one before, and how many runs they took.
    found: Vec<(u64, Forecast)>,
    /// Of what is held for it.
    bytes: u64,
}

impl Background {
    /// Searches as far as `learn` says at the most, by an engine of these settings.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn new(
        learn: Learn,
        placement: Placement,
        settings: Settings,
        seed: u64,
    ) -> std::io::Result<Self> {
        let policy = PolicyKind::Learned(Learn::Ahead);
        let replay = Replay { placement, settings, seed, ..Replay::new(policy, 0) };
        let (asked, asks) = unbounded();
        let shared = Arc::new(Shared::default());
        let searcher =
            Searcher { learn, replay, asks, shared: Arc::clone(&shared), searches: Vec::new() };
        let thread =
            thread::Builder::new().name("remat-search".to_owned()).spawn(move || searcher.run())?;
        Ok(Self { asked, shared, thread: Some(thread) })
    }
}

impl Learner for Background {
    fn begin(&mut self, turn: Turn, runs: u64) {
        let key = (turn.step.key(), turn.budget);
        let bytes = (turn.program.commands().len() * COMMAND_BYTES) as u64;
        lock(&self.shared.progress).insert(key, Progress { bytes, ..Progress::default() });
        _ = self.asked.send(Asked::Begin(Box::new(turn), runs));
    }

    fn forecast(&mut self, step: u64, budget: u64, runs: u64, next: u64) -> Option<Forecast> {
        let key = (step, budget);
        _ = self.asked.send(Asked::Runs(key, next.max(runs)));
        let mut progress = lock(&self.shared.progress);
        loop {
            let of = progress.get(&key)?;
            if of.is_over || of.runs >= runs {
                let in_time = of.found.iter().rfind(|(done, _)| *done <= runs);
                return in_time.map(|(_, forecast)| forecast.clone());
            }
            progress = wait(&self.shared.more, progress);
        }
    }

    fn bytes(&self) -> u64 {
        lock(&self.shared.progress).values().map(|progress| progress.bytes).sum()
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Relaxed);
        // Without a sender, the thread ends.
        self.asked = unbounded().0;
        if let Some(thread) = self.thread.take() {
            // What it panicked with was told.
            _ = thread.join();
        }
    }
}

/// What the thread has.
struct Searcher {
    learn: Learn,
    replay: Replay,
    asks: Receiver<Asked>,
    shared: Arc<Shared>,
    searches: Vec<(Key, Search, u64)>,
}

impl Searcher {
    fn run(mut self) {
        step_aside();
        // However it ends, nobody waits for it.
        let _end = End(Arc::clone(&self.shared));
        while let Ok(asked) = self.asks.recv() {
            self.take(asked);
            while let Some(at) = self.searches.iter().position(|(_, s, runs)| s.runs() < *runs) {
                self.advance(at);
                // What is asked for now comes first.
                while let Ok(asked) = self.asks.try_recv() {
                    self.take(asked);
                }
                if self.shared.ends.load(Ordering::Relaxed) {
                    return;
                }
            }
        }
    }

    fn take(&mut self, asked: Asked) {
        match asked {
            Asked::Begin(turn, runs) => {
                let key = (turn.step.key(), turn.budget);
                match Search::of_turn(*turn, &self.replay, self.replay.seed) {
                    Ok(search) => self.searches.insert(0, (key, search, runs.min(self.most()))),
                    Err(_) => self.tell(key, |progress| progress.is_over = true),
                }
            }
            Asked::Runs(key, runs) => {
                if let Some(at) = self.searches.iter().position(|(of, ..)| *of == key) {
                    let mut search = self.searches.remove(at);
                    search.2 = runs.min(self.most()).max(search.2);
                    self.searches.insert(0, search);
                }
            }
        }
    }

    /// One more step of a search.
    fn advance(&mut self, at: usize) {
        let most = self.most();
        let (key, search, _) = &mut self.searches[at];
        let key = *key;
        let goes_on = search.advance().unwrap_or(false)
            && (self.learn != Learn::Portfolio || search.is_in_portfolio());
        let (runs, best) = (search.runs(), search.best().cloned());
        let is_over = !goes_on || runs >= most;
        if is_over {
            self.searches.remove(at);
        }
        self.tell(key, |progress| {
            let is_better = |best: &Forecast| {
                progress.found.last().is_none_or(|(_, last)| last.excess != best.excess)
            };
            progress.found.extend(best.filter(is_better).map(|best| (runs, best)));
            (progress.runs, progress.is_over) = (runs, is_over);
            if is_over {
                progress.bytes = 0;
            }
        });
    }

    fn most(&self) -> u64 {
        match self.learn {
            Learn::Ahead => 1,
            Learn::Portfolio => u64::MAX,
            Learn::Search { runs } => runs,
        }
    }

    fn tell(&self, key: Key, change: impl FnOnce(&mut Progress)) {
        lock(&self.shared.progress).entry(key).and_modify(change);
        self.shared.more.notify_all();
    }
}

/// Tells whoever waits that nothing more comes.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        lock(&self.0.progress).values_mut().for_each(|progress| progress.is_over = true);
        self.0.more.notify_all();
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
