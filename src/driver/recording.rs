//! A recording that is being made: each entry, and before it what the engine told of memory meanwhile.

use super::{Entry, Recorder};
use crate::command::TensorId;
use crate::device::Device;
use crate::engine::{Engine, Listener};
use crate::error::{Error, RuntimeError};
use crate::event::{Cause, Event};
use crate::evict::View;
use crate::graph::StorageKey;
use crate::guard::caught;
use crate::sync::channel::{Receiver, Sender};
use slotmap::SecondaryMap;

/// Who records, and what was told since the last entry.
pub(super) struct Recording {
    recorder: Box<dyn Recorder>,
    told: Receiver<Told>,
    /// Number under which a storage was first known, for each that has one.
    numbers: SecondaryMap<StorageKey, TensorId>,
}

impl Recording {
    /// Listens from now on, until it is finished.
    pub fn new<D: Device>(recorder: Box<dyn Recorder>, engine: &mut Engine<D>) -> Self {
        let (to, told) = crate::sync::channel::unbounded();
        engine.listen(Box::new(Ear { to, run_cost: 0.0 }));
        Self { recorder, told, numbers: SecondaryMap::new() }
    }

    /// Records a command that was executed. `storage_of` knows the tensors that it made.
    pub fn record(
        &mut self,
        entry: &Entry,
        storage_of: impl Fn(TensorId) -> Option<StorageKey>,
    ) -> Result<(), Error> {
        caught(recorder, || {
            let new = self.record_told();
            self.recorder.record(entry);
            let mut number = |tensor| {
                // One that looks at a storage, or is its updated value, is not the first.
                if let Some(key) = storage_of(tensor).filter(|&key| !self.numbers.contains_key(key))
                {
                    self.numbers.insert(key, tensor);
                }
            };
            if let Entry::Did { command, .. } = entry {
                command.makes(&mut number);
            }
            new.into_iter().for_each(|told| _ = self.record_one(told));
        })
    }

    /// Records what was told of storages that have numbers. Returns the rest, which are about what the command at
    /// hand makes.
    fn record_told(&mut self) -> Vec<Told> {
        let mut new = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            if !self.record_one(told) {
                new.push(told);
            }
        }
        new
    }

    /// Whether the storage has a number.
    fn record_one(&mut self, told: Told) -> bool {
        let Some(&tensor) = self.numbers.get(told.storage) else { return false };
        let Told { bytes, used, .. } = told;
        self.recorder.record(&match told.what {
            What::Evicted(cause) => Entry::Evict { tensor, bytes, cause, used },
            What::Regenerated(cost) => Entry::Regenerate { tensor, bytes, cost, used },
        });
        true
    }

    /// Writes out all of it.
    pub fn finish(mut self) -> Result<(), Error> {
        let finished = caught(recorder, || {
            self.record_told();
            self.recorder.finish()
        });
        finished?.map_err(|error| RuntimeError::Recording(error).into())
    }
}

fn recorder() -> String {
    "the recorder".to_owned()
}

/// What happened to a storage.
#[derive(Clone, Copy, Debug)]
struct Told {
    storage: StorageKey,
    bytes: u64,
    /// Bytes in use then.
    used: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Evicted(Cause),
    /// The cost, with the first storage that a run brought back.
    Regenerated(f64),
}

/// Passes on what the engine tells.
#[derive(Debug)]
struct Ear {
    to: Sender<Told>,
    /// Of the last run, until it is told.
    run_cost: f64,
}

impl Listener for Ear {
    fn on(&mut self, event: &Event, view: View<'_>) {
        let (storage, bytes, what) = match *event {
            Event::DidRun { cost, .. } => {
                self.run_cost = cost;
                return;
            }
            Event::DidEvict { storage, bytes, cause } => (storage, bytes, What::Evicted(cause)),
            Event::DidRegenerate { storage, bytes, .. } => {
                let cost = std::mem::take(&mut self.run_cost);
                (storage, bytes, What::Regenerated(cost))
            }
            _ => return,
        };
        // Once the recording is finished, nobody is there.
        let _ = self.to.send(Told { storage, bytes, used: view.used_bytes(), what });
    }
}
