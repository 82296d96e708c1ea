//! Regeneration: restores evicted storages by running their compute paths again, deepest path
//! first.
//!
//! There is no recursion. Paths that wait for their inputs are on an explicit stack of frames. A
//! deep chain therefore uses heap memory and not the call stack.
//!
//! Before a path is put on the stack, the engine finds all paths that must run for it. The engine
//! thus knows, for each storage, how many of the remaining runs read it. A storage that a remaining
//! run reads is *awaited*, and is not dropped between two runs. If awaited storages were dropped,
//! each block of a residual network would run twice for each run of the next block. The cost of a
//! chain of residual blocks would grow as two to the power of its depth.

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

/// Path that waits until its inputs are resident. The lowest frame on the stack is the command
/// itself.
pub(super) struct Frame {
    /// Path that runs once the inputs are resident; `None` for the command.
    path: Option<PathKey>,
    inputs: StorageKeys,
    /// Pins of the inputs. `held[i]` is `No` exactly if the frame has not pinned `inputs[i]`. A
    /// pinned input is resident.
    held: SmallVec<[Hold; 4]>,
}

/// State of one input of a waiting path (frame): pinned or not.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hold {
    No,
    /// Pinned. The input was resident when the frame first checked its inputs.
    Found,
    /// Pinned. The input was restored while the frame waited.
    Made,
}

impl Frame {
    fn new(path: Option<PathKey>, inputs: StorageKeys) -> Self {
        let held = SmallVec::from_elem(Hold::No, inputs.len());
        Self { path, inputs, held }
    }

    /// Inputs that the waiting path (frame) has pinned.
    fn pinned(&self) -> impl Iterator<Item = StorageKey> {
        self.inputs
            .iter()
            .zip(&self.held)
            .filter(|(_, held)| **held != Hold::No)
            .map(|(key, _)| *key)
    }
}

/// Limit on how often one command may release the pins of waiting frames without running a new path
/// in between. Beyond the limit, the command fails, because its regeneration makes no progress.
const MAX_YIELDS: u32 = 64;

/// First value of `Cascade::patience`: number of repeated runs that every regeneration is allowed,
/// in addition to a quarter of its first runs.
const MANY_REPEATS: usize = 16;

/// Limit on the number of runs of one regeneration, as a multiple of its limit for costs. Runs may
/// have a cost of 0, so a limit on costs alone would not bound their number.
const RUNS_PER_COST: f64 = 100.0;

/// State of the regeneration (*cascade*) of one command's inputs. The state is empty between
/// commands, and kept only so that its allocations are reused.
#[derive(Default)]
pub(super) struct Cascade {
    frames: Vec<Frame>,
    /// Known paths that still have to run.
    pending: FxHashSet<PathKey>,
    /// All paths that ran in the regeneration, or still have to run.
    paths: FxHashMap<PathKey, Planned>,
    /// Cost of running each path of the regeneration once.
    needed_cost: f64,
    /// Sum of the planned costs of all runs so far. Planned costs are used because a measured time
    /// may be long only because the machine was busy.
    spent_cost: f64,
    /// Number of runs so far.
    spent_runs: usize,
    /// Number of runs that were the first of their path in the regeneration.
    first_runs: usize,
    /// Number of repeated runs allowed in addition to a quarter of the first runs. After more
    /// repeated runs, the engine searches for a schedule.
    patience: usize,
}

/// Path that a regeneration ran or has to run.
#[derive(Clone, Copy)]
struct Planned {
    /// Cost of the path when the regeneration first found the path.
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
    /// Makes storages resident and pins each once. On failure, no storage is pinned.
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

    /// Does the work of [`Engine::ensure`] when some of the storages are not resident.
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

    /// Number of runs so far, both first and repeated runs.
    fn runs(&self) -> u64 {
        self.stats.ops + self.stats.recomputed_ops
    }

    /// Names of the storages in `wanted` that are not resident.
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

    /// Releases the pins of [`Engine::ensure`].
    pub(super) fn release_pins(&mut self, wanted: &[StorageKey]) {
        for &key in wanted {
            self.release_pin(key);
        }
    }

    /// Releases the pins of waiting frames, and clears the marks of awaited inputs.
    fn abandon(&mut self, cascade: &mut Cascade) {
        for path in cascade.pending.drain() {
            self.store.stop_awaiting_inputs(path);
        }
        while let Some(frame) = cascade.frames.pop() {
            self.release_frame(&frame);
        }
    }

    /// Runs the paths on the stack, and all paths needed for their inputs, until all inputs of the
    /// lowest frame are resident.
    fn regenerate(&mut self, cascade: &mut Cascade, wanted: &[StorageKey]) -> Result<(), Error> {
        let mut yields = 0;
        // Paths run since the first yield.
        let mut ran = FxHashSet::default();
        loop {
            // Pin the inputs of the top frame that have become resident.
            let top = cascade.frames.last_mut().expect("the command waits below");
            for i in 0..top.inputs.len() {
                let key = top.inputs[i];
                if top.held[i] == Hold::No && self.store.graph.held(key).is_some() {
                    self.store.pin(key);
                    top.held[i] = Hold::Found;
                }
            }
            let (path, missing) = (top.path, self.next_missing(&top.inputs));
            // Push a frame for the path of the first missing input.
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
                // All inputs of the command are resident. Their pins now belong to the command.
                cascade.frames.pop();
                return Ok(());
            };
            // Run the top path. If memory does not suffice for the run, waiting frames give up
            // pins. If giving up pins is not enough, a schedule is tried.
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
                        // Search for a schedule again only after as many further repeated runs as
                        // there were runs so far.
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

    /// Counts a run.
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

    /// Finishes a regeneration by a schedule. Returns `None`, with nothing changed, if no schedule
    /// was found.
    fn start_over_by_schedule(
        &mut self,
        cascade: &mut Cascade,
        wanted: &[StorageKey],
    ) -> Option<Result<(), Error>> {
        // Unpin the inputs, but drop no dead storage: the schedule may need it.
        for key in cascade.frames.iter().flat_map(Frame::pinned) {
            self.store.unpin(key);
        }
        let limit = self.settings.regeneration_limit;
        // Costs may be 0, and infinity times 0 is NaN.
        let most = match limit.is_finite() {
            true => limit * cascade.needed_cost - cascade.spent_cost,
            false => f64::INFINITY,
        };
        // A schedule that exceeds the recompute limit is of no use.
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
        // The pins of the frames are already released.
        cascade.frames.clear();
        self.abandon(cascade);
        Some(self.follow(&schedule, wanted))
    }

    /// Fails if the cost of the regeneration, or of all recomputation so far, exceeds its limit.
    fn check_limits(&mut self, cascade: &Cascade) -> Result<(), Error> {
        self.repeats.need(cascade.paths.len());
        self.check_recompute_limits()?;
        let limit = self.settings.regeneration_limit;
        let Cascade { needed_cost, spent_cost, spent_runs, first_runs, .. } = *cascade;
        if spent_runs == first_runs {
            // Running each path once is always allowed, whatever rounding does to the cost.
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

    /// Fails with [`RegenerationError::Cancelled`] if the command is to be cancelled.
    pub(crate) fn check_interrupt(&self) -> Result<(), Error> {
        if self.interrupt.as_ref().is_some_and(|wanted| wanted()) {
            return Err(RegenerationError::Cancelled.into());
        }
        Ok(())
    }

    /// Input to restore next: the first missing input.
    ///
    /// On traces of networks, the order of restoring inputs hardly matters if dead storages are
    /// evicted at once or before other storages. If dead storages stay until the evictor chooses
    /// them, the other orders that were tried are worse. Beginning with inputs that take several
    /// runs makes regenerations of recurrent networks nine times as deep.
    fn next_missing(&self, inputs: &[StorageKey]) -> Option<StorageKey> {
        inputs.iter().copied().find(|&key| self.store.graph.held(key).is_none())
    }

    /// Finds all paths to run for `path`, itself included, given the resident storages.
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

    /// Finishes a run. The frame below on the stack pins its inputs that are now resident. Only
    /// then may storages that became dead be dropped.
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

    /// Releases pins of waiting frames on storages with a producer, when too little memory is left
    /// for the deepest run. A frame that lost pins checks its inputs again when it is back on top
    /// of the stack, and regenerates missing inputs. Returns false if no further bytes became
    /// evictable.
    ///
    /// A deep regeneration that released no pins could exhaust memory with its own pins, and a
    /// feasible program would fail. Storages restored for a frame are unpinned only if unpinning
    /// all others is not enough. Unpinned sooner, two restored storages could evict each other in
    /// turn without end.
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

    /// Notes a use of the storages `inputs`, whose reader runs next.
    ///
    /// All inputs of a run count as used at one moment, before evicted inputs are restored. If each
    /// input counted as used when restored, inputs that took longest to restore would seem most
    /// recently used. On the DTR paper's traces, counting that way would increase recomputation by
    /// up to a half.
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

    /// Drops a dead storage at once, or lets it linger, as [`Dead`] says. A storage is dead if it
    /// was regenerated only to restore other storages, and no later run of the regeneration reads
    /// it.
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

    /// Whether a storage is dead: evictable, not held, and not awaited by a later run.
    pub(super) fn is_dead(&self, key: StorageKey) -> bool {
        let storage = self.store.graph.storage(key);
        storage.handles == 0 && storage.awaited == 0 && self.store.graph.is_evictable(key)
    }
}
