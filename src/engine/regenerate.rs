//! Bringing evicted storages back: by running their compute paths again, deepest first.
//!
//! No recursion: paths that wait for their inputs lie on a stack of frames, so a chain of any depth
//! costs heap, not call stack.
//!
//! Before a path is put on the stack, all paths that must run for it are found, so that it is known how
//! many runs are still to come that read a storage. What is awaited is not dropped between two of them.
//! Otherwise a chain of diamonds (residual blocks) would be run through twice at each diamond, and
//! cost grow with two to the power of the depth.

use super::apply::StorageKeys;
use super::settings::Dead;
use super::{Engine, Error, PathKey, StorageKey};
use crate::device::Device;
use rustc_hash::FxHashSet;
use smallvec::SmallVec;

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
}

/// How often one command may take the pins back from waiting frames, without running a path that it
/// had not run before, until it gives up: it goes round in circles then.
const MAX_YIELDS: u32 = 64;

impl<D: Device> Engine<D> {
    /// Makes storages resident and pins each once. If it fails, none of them is pinned.
    pub(super) fn ensure(&mut self, wanted: &[StorageKey]) -> Result<(), Error> {
        self.touch(wanted);
        if wanted.iter().all(|&key| self.table.held(key).is_some()) {
            for &key in wanted {
                self.table.pin(key);
            }
            return Ok(());
        }
        let mut frames = std::mem::take(&mut self.frames);
        let mut pending = std::mem::take(&mut self.pending);
        frames.push(Frame::new(None, wanted.into()));
        let result = self.regenerate(&mut frames, &mut pending);
        for path in pending.drain() {
            self.table.stop_awaiting_inputs(path);
        }
        if result.is_err() {
            for frame in frames.drain(..).rev() {
                self.release_frame(&frame);
            }
        }
        (self.frames, self.pending) = (frames, pending);
        result
    }

    /// Takes back the pins of [`Engine::ensure`].
    pub(super) fn release_pins(&mut self, wanted: &[StorageKey]) {
        for &key in wanted {
            self.release_pin(key);
        }
    }

    /// Works the stack off until the lowest frame has all its inputs.
    fn regenerate(
        &mut self,
        frames: &mut Vec<Frame>,
        pending: &mut FxHashSet<PathKey>,
    ) -> Result<(), Error> {
        let mut yields = 0;
        // Paths run since the first yield.
        let mut ran = FxHashSet::default();
        loop {
            self.stats.max_regeneration_depth =
                self.stats.max_regeneration_depth.max(frames.len() - 1);
            let top = frames.last_mut().expect("the command waits below");
            for i in 0..top.inputs.len() {
                let key = top.inputs[i];
                if top.held[i] == Hold::No && self.table.held(key).is_some() {
                    self.table.pin(key);
                    top.held[i] = Hold::Found;
                }
            }
            if let Some(key) = self.next_missing(&top.inputs) {
                let path = self.table.storage(key).producer.ok_or_else(|| self.lost(key))?;
                self.plan(path, pending);
                let inputs: StorageKeys =
                    self.table.path(path).inputs.iter().map(|e| e.storage).collect();
                self.touch(&inputs);
                tracing::trace!(
                    target: "remat", op = self.name_of(key), bytes = self.table.storage(key).bytes,
                    depth = frames.len(), "will regenerate"
                );
                frames.push(Frame::new(Some(path), inputs));
                continue;
            }
            let Some(path) = top.path else {
                frames.pop();
                return Ok(());
            };
            match self.run_path(path, true) {
                Ok(()) => {
                    if yields > 0 && ran.insert(path) {
                        yields = 1;
                    }
                    if pending.remove(&path) {
                        self.table.stop_awaiting_inputs(path);
                    }
                    let done = frames.pop().expect("it just ran");
                    self.finish(path, &done, frames);
                    self.check_recompute_limit()?;
                }
                Err(Error::OutOfMemory(_)) if yields < MAX_YIELDS && self.yield_pins(frames) => {
                    yields += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Which of the inputs to bring back first: one that takes several runs, if there is one. What
    /// takes a single run would only lie in the way meanwhile.
    fn next_missing(&self, inputs: &[StorageKey]) -> Option<StorageKey> {
        let is_absent = |&key: &StorageKey| self.table.held(key).is_none();
        let waits = |&key: &StorageKey| self.table.sources(key).any(|source| is_absent(&source));
        let missing = || inputs.iter().copied().filter(is_absent);
        missing().find(waits).or_else(|| missing().next())
    }

    /// Finds all paths that must run before and with `path`, as things are now.
    fn plan(&mut self, path: PathKey, pending: &mut FxHashSet<PathKey>) {
        let mut stack: SmallVec<[PathKey; 8]> = SmallVec::from_elem(path, 1);
        while let Some(path) = stack.pop() {
            if pending.insert(path) {
                self.table.await_inputs(path);
                let inputs = self.table.path(path).inputs.iter();
                let missing = inputs.filter(|e| self.table.held(e.storage).is_none());
                stack.extend(missing.filter_map(|e| self.table.storage(e.storage).producer));
            }
        }
    }

    /// After a run: the frame below takes hold of what it waited for; then what nobody holds may go.
    fn finish(&mut self, path: PathKey, done: &Frame, frames: &mut [Frame]) {
        let below = frames.last_mut().expect("somebody waited for this run");
        for i in 0..below.inputs.len() {
            if below.held[i] == Hold::No && self.table.held(below.inputs[i]).is_some() {
                self.table.pin(below.inputs[i]);
                below.held[i] = Hold::Made;
            }
        }
        self.release_frame(done);
        let outputs: StorageKeys =
            self.table.path(path).outputs.iter().flatten().copied().collect();
        for key in outputs {
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
        let before = self.table.evictable_bytes();
        let waiting = frames.len() - 1;
        for hold in [Hold::Found, Hold::Made] {
            for frame in &mut frames[..waiting] {
                for i in 0..frame.inputs.len() {
                    let key = frame.inputs[i];
                    if frame.held[i] == hold && self.table.storage(key).producer.is_some() {
                        frame.held[i] = Hold::No;
                        self.table.unpin(key);
                    }
                }
            }
            if self.table.evictable_bytes() > before {
                return true;
            }
        }
        false
    }

    /// Why a storage cannot be brought back.
    fn lost(&self, key: StorageKey) -> Error {
        self.reasons.get(key).cloned().unwrap_or(Error::UnknownTensor)
    }

    /// A run that reads these is the next thing to do. That is when they count as used: not only when all
    /// of them are there at last, for then what took longest to bring back would also look freshest.
    /// (Measured on the DTR paper's traces, the other way costs up to half as much recomputing again.)
    fn touch(&mut self, inputs: &[StorageKey]) {
        for &key in inputs {
            self.table.touch(key, self.now);
        }
    }

    fn release_frame(&mut self, frame: &Frame) {
        for (&key, _) in frame.inputs.iter().zip(&frame.held).filter(|(_, held)| **held != Hold::No)
        {
            self.release_pin(key);
        }
    }

    fn release_pin(&mut self, key: StorageKey) {
        if self.table.unpin(key) {
            self.drop_if_dead(key);
        }
    }

    /// With [`Dead::Drop`]: lets go of a storage that was regenerated only as a step on the way, and that
    /// no run to come reads.
    fn drop_if_dead(&mut self, key: StorageKey) {
        let storage = self.table.storage(key);
        let dead = storage.handles == 0 && storage.awaited == 0;
        if dead && self.settings.dead == Dead::Drop && self.table.is_evictable(key) {
            self.evict(key);
        }
    }
}
