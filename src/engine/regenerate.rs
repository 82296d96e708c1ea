//! Bringing evicted storages back: by running their compute paths again, deepest first.
//!
//! No recursion: paths that wait for their inputs lie on a stack of frames, so a chain of any depth
//! costs heap, not call stack.
//!
//! Before a path is put on the stack, all paths that must run for it are found, so that it is known how
//! many runs are still to come that read a storage. What is awaited is not dropped between two of them.
//! Otherwise a chain of diamonds (residual blocks) would be run through twice at each diamond, and
//! cost grow with two to the power of the depth.

use super::settings::{Dead, RecomputeLimit};
use super::{Engine, Error, PathKey, StorageKey};
use crate::device::Device;
use crate::error::RegenerationError;
use crate::event::{Cause, Event};
use crate::graph::StorageKeys;
use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;
use std::fmt;
use tracing::field;

/// A path that waits until all it reads is there; the lowest frame is the command itself.
pub(super) struct Frame {
    /// What runs once the inputs are there; `None` for the command.
    path: Option<PathKey>,
    inputs: StorageKeys,
    /// `held[i]` is not `No` iff this frame has pinned `inputs[i]`, so that it is resident.
    held: SmallVec<[Hold; 4]>,
}

/// Whether a frame has pinned an input.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    /// It was there when the frame looked.
    Found,
    /// It was brought back while the frame waited.
    Made,
}

impl Frame {
    fn new(path: Option<PathKey>, inputs: StorageKeys) -> Self {
        let held = SmallVec::from_elem(Hold::No, inputs.len());
        Self { path, inputs, held }
    }

    /// The inputs that it has pinned.
    fn pinned(&self) -> impl Iterator<Item = StorageKey> {
        self.inputs
            .iter()
            .zip(&self.held)
            .filter(|(_, held)| **held != Hold::No)
            .map(|(key, _)| *key)
    }
}

/// How often one command may take the pins back from waiting frames, without running a path that it
/// had not run before, until it gives up: it goes round in circles then.
const MAX_YIELDS: u32 = 64;

/// A regeneration that has run so many paths again, beyond a quarter of those that it needs, repeats itself.
const MANY_REPEATS: usize = 16;

/// Runs may cost nothing. So a regeneration runs at most this many times the paths that its limit allows by
/// their cost.
const RUNS_PER_COST: f64 = 100.0;

/// All that bringing back the inputs of one command takes. Empty between commands; kept to reuse its memory.
#[derive(Default)]
pub(super) struct Cascade {
    frames: Vec<Frame>,
    /// Paths that are still to run, as far as is known.
    pending: FxHashSet<PathKey>,
    /// Every path that was or is to run.
    paths: FxHashMap<PathKey, Planned>,
    /// Of each path once.
    needed_cost: f64,
    /// Of all runs so far, by the costs as planned: a run that was measured to take long, because the machine was
    /// busy, is no repetition.
    spent_cost: f64,
    /// Number of runs so far.
    spent_runs: usize,
    /// Those of them that were the first of their path.
    first_runs: usize,
    /// How many repeats there may be, beside a quarter of the paths, before a schedule is looked for.
    patience: usize,
}

/// A path of a cascade.
#[derive(Clone, Copy)]
struct Planned {
    /// As it was when the cascade first came upon the path.
    cost: f64,
    ran: bool,
}

impl Cascade {
    fn clear(&mut self) {
        self.frames.clear();
        self.pending.clear();
        self.paths.clear();
        (self.needed_cost, self.spent_cost) = (0.0, 0.0);
        (self.spent_runs, self.first_runs, self.patience) = (0, 0, MANY_REPEATS);
    }

    fn repeats_itself(&self) -> bool {
        self.spent_runs - self.first_runs > self.patience + self.first_runs / 4
    }
}

impl<D: Device> Engine<D> {
    /// Makes storages resident and pins each once. If it fails, none of them is pinned.
    pub(super) fn ensure(&mut self, wanted: &[StorageKey]) -> Result<(), Error> {
        self.touch(wanted);
        if wanted.iter().all(|&key| self.store.graph.held(key).is_some()) {
            for &key in wanted {
                self.store.pin(key);
            }
            return Ok(());
        }
        self.bring_back(wanted)
    }

    /// The same where some of them are not there.
    #[inline(never)]
    fn bring_back(&mut self, wanted: &[StorageKey]) -> Result<(), Error> {
        let span = tracing::debug_span!(
            target: "remat", "regenerate", wanted = %self.missing(wanted), runs = field::Empty
        );
        let runs_before = self.runs();
        let mut cascade = std::mem::take(&mut self.cascade);
        cascade.clear();
        cascade.frames.push(Frame::new(None, wanted.into()));
        let result = span.in_scope(|| self.regenerate(&mut cascade, wanted));
        span.record("runs", self.runs() - runs_before);
        self.abandon(&mut cascade);
        self.cascade = cascade;
        if !self.leaves_to_be.is_empty() {
            self.make_leaves();
        }
        result
    }

    /// Runs so far, of all kinds.
    fn runs(&self) -> u64 {
        self.stats.ops + self.stats.recomputed_ops
    }

    /// Those of `wanted` that are not there, by name.
    fn missing<'a>(&'a self, wanted: &'a [StorageKey]) -> impl fmt::Display + 'a {
        fmt::from_fn(move |f| {
            let missing = wanted.iter().filter(|&&key| self.store.graph.held(key).is_none());
            for (i, &key) in missing.enumerate() {
                let separator = if i == 0 { "" } else { ", " };
                write!(f, "{separator}{}", self.store.tensor_name(key))?;
            }
            Ok(())
        })
    }

    /// Takes back the pins of [`Engine::ensure`].
    pub(super) fn release_pins(&mut self, wanted: &[StorageKey]) {
        for &key in wanted {
            self.release_pin(key);
        }
    }

    /// Takes back what waiting frames hold, and what runs to come await.
    fn abandon(&mut self, cascade: &mut Cascade) {
        for path in cascade.pending.drain() {
            self.store.stop_awaiting_inputs(path);
        }
        while let Some(frame) = cascade.frames.pop() {
            self.release_frame(&frame);
        }
    }

    /// Works the stack off until the lowest frame has all its inputs.
    fn regenerate(&mut self, cascade: &mut Cascade, wanted: &[StorageKey]) -> Result<(), Error> {
        let mut yields = 0;
        // Paths run since the first yield.
        let mut ran = FxHashSet::default();
        loop {
            let top = cascade.frames.last_mut().expect("the command waits below");
            for i in 0..top.inputs.len() {
                let key = top.inputs[i];
                if top.held[i] == Hold::No && self.store.graph.held(key).is_some() {
                    self.store.pin(key);
                    top.held[i] = Hold::Found;
                }
            }
            let (path, missing) = (top.path, self.next_missing(&top.inputs));
            if let Some(key) = missing {
                let path = self.store.graph.storage(key).producer.ok_or_else(|| self.lost(key))?;
                self.plan(path, cascade);
                let inputs = self.store.graph.inputs_of(path);
                self.touch(&inputs);
                let depth = cascade.frames.len();
                self.tell(Event::WillRegenerate { storage: key, depth });
                cascade.frames.push(Frame::new(Some(path), inputs));
                continue;
            }
            let Some(path) = path else {
                // The pins are the command's now.
                cascade.frames.pop();
                return Ok(());
            };
            self.check_interrupt()?;
            match self.run_path(path) {
                Ok(()) => {
                    if yields > 0 && ran.insert(path) {
                        yields = 1;
                    }
                    self.book(path, cascade);
                    let done = cascade.frames.pop().expect("it just ran");
                    self.finish(path, &done, &mut cascade.frames);
                    self.check_limits(cascade)?;
                    if cascade.repeats_itself() {
                        if let Some(done) = self.start_over_by_schedule(cascade, wanted) {
                            return done;
                        }
                        // Not again before as much was repeated once more.
                        cascade.patience += cascade.spent_runs;
                    }
                }
                Err(Error::OutOfMemory(_))
                    if yields < MAX_YIELDS && self.yield_pins(&mut cascade.frames) =>
                {
                    yields += 1;
                }
                Err(error @ Error::OutOfMemory(_)) => {
                    let done = self.start_over_by_schedule(cascade, wanted);
                    return done.unwrap_or(Err(error));
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes note of a run.
    fn book(&mut self, path: PathKey, cascade: &mut Cascade) {
        if cascade.pending.remove(&path) {
            self.store.stop_awaiting_inputs(path);
        }
        let planned = cascade.paths.get_mut(&path).expect("it was planned before it ran");
        cascade.spent_runs += 1;
        cascade.spent_cost += planned.cost;
        if !std::mem::replace(&mut planned.ran, true) {
            cascade.first_runs += 1;
        }
    }

    /// Does what is left of a cascade by a schedule. `None`: none was found, and nothing has changed.
    fn start_over_by_schedule(
        &mut self,
        cascade: &mut Cascade,
        wanted: &[StorageKey],
    ) -> Option<Result<(), Error>> {
        // Nothing is dropped as dead meanwhile: the schedule may need it.
        for key in cascade.frames.iter().flat_map(Frame::pinned) {
            self.store.unpin(key);
        }
        let limit = self.settings.regeneration_limit;
        // Costs may be 0, and no limit times 0 is no number.
        let most = match limit.is_finite() {
            true => limit * cascade.needed_cost - cascade.spent_cost,
            false => f64::INFINITY,
        };
        // One that costs more than may still be recomputed is of no use.
        let most = match self.settings.recompute_limit {
            Some(RecomputeLimit::Cost(all)) => most.min(all - self.stats.recompute_cost),
            _ => most,
        };
        let most_runs = (RUNS_PER_COST * limit * cascade.paths.len() as f64) as usize;
        let planned = |path| cascade.paths.get(&path).map(|planned| planned.cost);
        let Some(schedule) = self.schedule(wanted, planned, most, most_runs) else {
            for key in cascade.frames.iter().flat_map(Frame::pinned) {
                self.store.pin(key);
            }
            return None;
        };
        let (runs, paths) = (schedule.runs, cascade.paths.len());
        self.tell(Event::DidSchedule { runs, paths });
        // Their pins are taken back already.
        cascade.frames.clear();
        self.abandon(cascade);
        Some(self.follow(&schedule, wanted))
    }

    /// Fails if this cascade, or everything so far, costs more than it may.
    fn check_limits(&mut self, cascade: &Cascade) -> Result<(), Error> {
        self.repeats.need(cascade.paths.len());
        self.check_recompute_limits()?;
        let limit = self.settings.regeneration_limit;
        let Cascade { needed_cost, spent_cost, spent_runs, first_runs, .. } = *cascade;
        if spent_runs == first_runs {
            // To run each path once is always all right, whatever rounding makes of its cost.
            return Ok(());
        }
        let paths = cascade.paths.len();
        let too_many = spent_runs as f64 > RUNS_PER_COST * limit * paths as f64;
        if spent_cost > limit * needed_cost || too_many {
            return Err(
                RegenerationError::RegenerationLimit { runs: spent_runs, paths, limit }.into()
            );
        }
        Ok(())
    }

    /// Fails if somebody wants it to end.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        if self.interrupt.as_ref().is_some_and(|wanted| wanted()) {
            return Err(RegenerationError::Cancelled.into());
        }
        Ok(())
    }

    /// Which of the inputs to bring back first: the first. On traces of networks the order hardly matters where dead ones
    /// go first or at once; where they are kept until they are chosen, to begin with what takes several runs makes
    /// regenerations of recurrent networks nine times as deep.
    fn next_missing(&self, inputs: &[StorageKey]) -> Option<StorageKey> {
        inputs.iter().copied().find(|&key| self.store.graph.held(key).is_none())
    }

    /// Finds all paths that must run before and with `path`, as things are now.
    fn plan(&mut self, path: PathKey, cascade: &mut Cascade) {
        let mut stack: SmallVec<[PathKey; 8]> = SmallVec::from_elem(path, 1);
        while let Some(path) = stack.pop() {
            if cascade.pending.insert(path) {
                self.store.await_inputs(path);
                let cost = self.store.graph.path(path).cost;
                cascade.paths.entry(path).or_insert_with(|| {
                    cascade.needed_cost += cost;
                    Planned { cost, ran: false }
                });
                let inputs = self.store.graph.path(path).inputs.iter();
                let missing = inputs.filter(|e| self.store.graph.held(e.storage).is_none());
                stack.extend(missing.filter_map(|e| self.store.graph.storage(e.storage).producer));
            }
        }
    }

    /// After a run: the frame below takes hold of what it waited for; then what nobody holds may go.
    fn finish(&mut self, path: PathKey, done: &Frame, frames: &mut [Frame]) {
        let below = frames.last_mut().expect("somebody waited for this run");
        for i in 0..below.inputs.len() {
            if below.held[i] == Hold::No && self.store.graph.held(below.inputs[i]).is_some() {
                self.store.pin(below.inputs[i]);
                below.held[i] = Hold::Made;
            }
        }
        self.release_frame(done);
        for key in self.store.graph.outputs_of(path) {
            self.drop_if_dead(key);
        }
    }

    /// When the deepest run does not fit beside what the waiting frames hold: lets go of what can be
    /// evicted of it. The frames look again when their turn comes, and regenerate what is missing then.
    /// False if they held nothing that helps.
    ///
    /// Without this, a deep cascade could exhaust memory by its own pins: a feasibility hole. What was
    /// brought back for a frame is let go only when nothing else helps: to bring it back once more may
    /// evict what it was given up for, round and round.
    fn yield_pins(&mut self, frames: &mut [Frame]) -> bool {
        let before = self.store.evictable_bytes();
        let waiting = frames.len() - 1;
        for hold in [Hold::Found, Hold::Made] {
            for frame in &mut frames[..waiting] {
                for i in 0..frame.inputs.len() {
                    let key = frame.inputs[i];
                    if frame.held[i] == hold && self.store.graph.storage(key).producer.is_some() {
                        frame.held[i] = Hold::No;
                        self.store.unpin(key);
                    }
                }
            }
            if self.store.evictable_bytes() > before {
                return true;
            }
        }
        false
    }

    /// A run that reads these is the next thing to do. That is when they count as used: not only when all
    /// of them are there at last, for then what took longest to bring back would also look freshest.
    /// (Measured on the DTR paper's traces, the other way costs up to half as much recomputing again.)
    #[inline]
    pub(super) fn touch(&mut self, inputs: &[StorageKey]) {
        for &key in inputs {
            self.store.touch(key);
        }
        self.tell_use(inputs);
    }

    fn release_frame(&mut self, frame: &Frame) {
        for key in frame.pinned() {
            self.release_pin(key);
        }
    }

    pub(super) fn release_pin(&mut self, key: StorageKey) {
        if self.store.unpin(key) {
            self.drop_if_dead(key);
        }
    }

    /// A storage that was regenerated only as a step on the way, and that no run to come reads: it goes at once or first,
    /// as [`Dead`] says.
    pub(super) fn drop_if_dead(&mut self, key: StorageKey) {
        if self.settings.dead == Dead::Keep || !self.is_dead(key) || self.evictor_keeps(key) {
            return;
        }
        if self.settings.dead == Dead::Drop || !self.evicts {
            self.evict(key, Cause::Dead);
        } else {
            let storage = &mut self.store.graph.storages[key];
            if !std::mem::replace(&mut storage.lingers, true) {
                self.lingering.push_back(key);
            }
        }
    }

    /// Whether nobody holds a storage whose bytes could go, and no run to come reads it.
    pub(super) fn is_dead(&self, key: StorageKey) -> bool {
        let storage = self.store.graph.storage(key);
        storage.handles == 0 && storage.awaited == 0 && self.store.graph.is_evictable(key)
    }
}
