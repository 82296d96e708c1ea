//! A recording in progress: each entry, preceded by the memory events since the previous entry.

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

/// A recorder, and the memory events since the last entry.
pub(super) struct Recording {
    recorder: Box<dyn Recorder>,
    told: Receiver<Told>,
    /// First tensor number of each storage. A storage has no entry until a recorded command gives
    /// it a number.
    numbers: SecondaryMap<StorageKey, TensorId>,
}

impl Recording {
    /// Starts listening to the engine. The listening ends with `finish`.
    pub fn new<D: Device>(recorder: Box<dyn Recorder>, engine: &mut Engine<D>) -> Self {
        let (to, told) = crate::sync::channel::unbounded();
        engine.listen(Box::new(Ear { to, run_cost: 0.0 }));
        Self { recorder, told, numbers: SecondaryMap::new() }
    }

    /// Records one entry. `storage_of` gives the storage of each tensor that the entry's command
    /// made.
    pub fn record(
        &mut self,
        entry: &Entry,
        storage_of: impl Fn(TensorId) -> Option<StorageKey>,
    ) -> Result<(), Error> {
        caught(recorder, || {
            let new = self.record_told();
            self.recorder.record(entry);
            let mut number = |tensor| {
                // A view or an update gives a second number to a storage. The table keeps the first
                // number of each storage.
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

    /// Records the received events of storages that have a number. Returns the events of storages
    /// without a number, which are outputs of the current command.
    fn record_told(&mut self) -> Vec<Told> {
        let mut new = Vec::new();
        while let Ok(told) = self.told.try_recv() {
            if !self.record_one(told) {
                new.push(told);
            }
        }
        new
    }

    /// Records one event. Returns false and records nothing if the storage has no number yet.
    fn record_one(&mut self, told: Told) -> bool {
        let Some(&tensor) = self.numbers.get(told.storage) else { return false };
        let Told { bytes, used, .. } = told;
        self.recorder.record(&match told.what {
            What::Evicted(cause) => Entry::Evict { tensor, bytes, cause, used },
            What::Regenerated(cost) => Entry::Regenerate { tensor, bytes, cost, used },
        });
        true
    }

    /// Records the last events, and writes out the recording.
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

/// A memory event of one storage.
#[derive(Clone, Copy, Debug)]
struct Told {
    storage: StorageKey,
    bytes: u64,
    /// Bytes in use after the event.
    used: u64,
    what: What,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Evicted(Cause),
    /// Restored by a run. The cost of the run is sent with the first storage that the run restored,
    /// and 0 with the others.
    Regenerated(f64),
}

/// A listener that sends the engine's memory events to the recording.
#[derive(Debug)]
struct Ear {
    to: Sender<Told>,
    /// Cost of the last run, until it is sent.
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
        // Sending fails once the recording is finished. A failed send is not an error.
        let _ = self.to.send(Told { storage, bytes, used: view.used_bytes(), what });
    }
}
