//! What the worker of a runtime did, in order: the commands it records, and the failures it tells of.
//!
//! A program cannot see whether an update that it requested was made or skipped. The recording says so; with that, the
//! value of every handle is known exactly, whatever failed.

use remat::Listener;
use remat::event::Event;
use remat::evict::View;
use remat::trace::{self, Recorder, Source};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
pub enum Entry {
    Did(trace::Entry),
    /// Something failed. It belongs to the next command that is no deletion.
    Failed,
    /// A regeneration went by a schedule.
    Scheduled,
}

/// Written on the worker's thread. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Entry>>>);

impl Journal {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn take(&self) -> Vec<Entry> {
        std::mem::take(&mut self.0.lock().unwrap())
    }

    fn push(&self, entry: Entry) {
        self.0.lock().unwrap().push(entry);
    }
}

impl Recorder for Journal {
    fn record(&mut self, entry: &trace::Entry) {
        if !entry.is_about_memory() {
            self.push(Entry::Did(entry.clone()));
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Listener for Journal {
    fn on(&mut self, event: &Event, _: View<'_>) {
        match event {
            Event::DidFail { .. } => self.push(Entry::Failed),
            Event::DidSchedule { .. } => self.push(Entry::Scheduled),
            _ => {}
        }
    }
}

/// A request to let a handle stand for a new value.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// An update in place. Those with the same group are all made or none.
    Update {
        made: u64,
        group: usize,
    },
    Replace {
        old: u64,
        value: u64,
        made: u64,
    },
    /// The call returned an error: the shapes do not go together.
    Refused,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Made,
    /// The handle stands for the old value.
    Skipped,
    /// A replacement that was taken back if something failed before the step was confirmed, which is not recorded.
    Either,
    Refused,
}

/// The fates of requests, in the same order.
pub fn fates(entries: &[Entry], requests: &[Request]) -> Vec<Fate> {
    let mut events = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Entry::Did(trace::Entry::Apply { inputs, outputs, .. }) = entry {
            for output in outputs {
                events.insert(output.tensor, (at, inputs, output.source));
            }
        }
    }
    // Whether something failed after this and before the next step.
    let fails_later = |at: usize| {
        let rest = entries[at + 1..].iter();
        rest.take_while(|entry| !matches!(entry, Entry::Did(trace::Entry::Step { .. })))
            .any(|entry| matches!(entry, Entry::Failed))
    };
    let fate = |request: &Request| match *request {
        Request::Refused => Fate::Refused,
        Request::Update { made, .. } => match events[&made].2 {
            Source::InPlace { .. } => Fate::Made,
            Source::View { .. } => Fate::Skipped,
            Source::Fresh => panic!("an update in place made something new"),
        },
        Request::Replace { value, made, .. } => {
            let (at, inputs, _) = events[&made];
            match inputs[0] == value {
                false => Fate::Skipped,
                true if fails_later(at) => Fate::Either,
                true => Fate::Made,
            }
        }
    };
    requests.iter().map(fate).collect()
}

/// The tensors that may be lost: what failed to be made, and all that was made from that.
pub fn lost(entries: &[Entry], requests: &[Request]) -> HashSet<u64> {
    let mut replaced = HashMap::new();
    for request in requests {
        if let Request::Replace { old, made, .. } = *request {
            replaced.insert(made, old);
        }
    }
    let mut lost = HashSet::new();
    // Something failed since the last event; and also of an update, of which several may have been given as one.
    let (mut failed, mut update_failed) = (false, false);
    for entry in entries {
        match entry {
            Entry::Failed => failed = true,
            Entry::Did(trace::Entry::Del { .. }) | Entry::Scheduled => {}
            Entry::Did(trace::Entry::Put { tensor, .. }) => {
                if failed {
                    lost.insert(*tensor);
                }
                (failed, update_failed) = (false, false);
            }
            Entry::Did(trace::Entry::Apply { op, inputs, outputs, .. }) => {
                let updates = op == "accumulate" || op == "sgd_momentum";
                update_failed = updates && (failed || update_failed);
                for output in outputs {
                    let is_lost = |input: &u64| lost.contains(input);
                    let goes = match output.source {
                        Source::Fresh => failed || inputs.iter().any(is_lost),
                        Source::InPlace { .. } => false,
                        // A view, or an update that was skipped, or a replacement.
                        Source::View { input } => {
                            update_failed
                                || is_lost(&inputs[input])
                                || replaced.get(&output.tensor).is_some_and(is_lost)
                        }
                    };
                    if goes {
                        lost.insert(output.tensor);
                    }
                }
                failed = false;
            }
            Entry::Did(_) => (failed, update_failed) = (false, false),
        }
    }
    lost
}
