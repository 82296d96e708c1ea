//! Journal of a runtime's worker: the commands that it recorded and the failures that it reported,
//! in order.
//!
//! A program cannot see whether a requested update was made or skipped, but the recording says
//! which. With the recording, the value of every handle is therefore known exactly, whatever
//! failed.

use remat::Listener;
use remat::evict::View;
use remat::op::Outputs;
use remat::unstable::event::Event;
use remat::unstable::program::{self, Command, RecordedCommand, Recorder, TensorId};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // The large variant is by far the most frequent one.
pub enum Entry {
    Did(RecordedCommand),
    /// A failure, which belongs to the next command that is not a deletion.
    Failed,
    /// A regeneration that followed a schedule.
    Scheduled,
}

/// Entries written on the worker's thread. Clones share the list.
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
    fn record(&mut self, entry: &program::Entry) {
        if let program::Entry::Did { command, .. } = entry {
            self.push(Entry::Did(command.clone()));
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

/// Request to give a handle a new value.
#[derive(Clone, Copy, Debug)]
pub enum Request {
    /// Update in place. The updates of one group are all made, or none is.
    Update {
        made: TensorId,
        group: usize,
    },
    Replace {
        old: TensorId,
        value: TensorId,
        made: TensorId,
    },
    /// Call that returned an error, since the shapes do not match.
    Refused,
}

/// Outcome of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Made,
    /// The handle names the old value.
    Skipped,
    /// Either made or skipped. A replacement is reverted if a failure comes before its
    /// confirmation, and the recording does not show this.
    Either,
    Refused,
}

/// Fates of requests, in the order of the requests.
pub fn fates(entries: &[Entry], requests: &[Request]) -> Vec<Fate> {
    let mut makers = HashMap::new();
    for (at, entry) in entries.iter().enumerate() {
        if let Entry::Did(command) = entry {
            command.makes(|tensor| _ = makers.insert(tensor, (at, command)));
        }
    }
    // Whether a failure came after this entry and before the replacement was confirmed.
    let fails_later = |at: usize| {
        let is_end = |entry: &Entry| matches!(entry, Entry::Did(Command::Step | Command::Confirm));
        let rest = entries[at + 1..].iter();
        rest.take_while(|entry| !is_end(entry)).any(|entry| matches!(entry, Entry::Failed))
    };
    let is_made_by = |made: TensorId, command: &RecordedCommand| {
        let call = command.calls().iter().find(|call| call.outputs().any(|id| id == made));
        match &call.expect("an op makes it").outputs {
            Outputs::Updates { .. } | Outputs::Over => true,
            Outputs::Views(_) => false,
            Outputs::Fresh(_) => panic!("an update in place made something new"),
        }
    };
    let fate = |request: &Request| match *request {
        Request::Refused => Fate::Refused,
        Request::Update { made, .. } => match is_made_by(made, makers[&made].1) {
            true => Fate::Made,
            false => Fate::Skipped,
        },
        Request::Replace { old, value: wanted, made } => match makers[&made] {
            (at, &Command::Replace { target, value, .. }) => {
                assert_eq!((target, value), (old, wanted), "what was asked for");
                if fails_later(at) { Fate::Either } else { Fate::Made }
            }
            (_, Command::Apply(call)) => {
                assert_eq!((call.inputs[0], call.outputs.views().len()), (old, 1), "as it was");
                Fate::Skipped
            }
            (_, other) => panic!("a replacement is recorded as {other:?}"),
        },
    };
    requests.iter().map(fate).collect()
}

/// Tensors that may be lost: values that could not be made, and all values made from those.
pub fn lost(entries: &[Entry]) -> HashSet<TensorId> {
    let mut lost = HashSet::new();
    // `failed`: a failure came after the last command. `update_failed`: one update of a series
    // failed; the series may be a single command.
    let (mut failed, mut update_failed) = (false, false);
    let any_fails = entries.iter().any(|entry| matches!(entry, Entry::Failed));
    for entry in entries {
        let command = match entry {
            Entry::Failed => {
                failed = true;
                continue;
            }
            Entry::Scheduled => continue,
            Entry::Did(command) => command,
        };
        match command {
            // A failure before one of these commands belongs to a later command.
            Command::Del(_) | Command::Label { .. } | Command::Confirm | Command::Sync => continue,
            Command::Put { tensor, .. } if failed => _ = lost.insert(*tensor),
            // The replacement may be reverted later, and its handle is stale then.
            &Command::Replace { target, value, made, .. }
                if any_fails || lost.contains(&target) || lost.contains(&value) =>
            {
                lost.insert(made);
            }
            Command::Apply(_) | Command::UpdateAll(_) => {
                let is_update = |name: &str| ["accumulate", "lion", "sgd_momentum"].contains(&name);
                let updates = command.op().is_some_and(is_update);
                update_failed = updates && (failed || update_failed);
                for call in command.calls() {
                    for (i, tensor) in call.outputs().enumerate() {
                        let goes = match &call.outputs {
                            Outputs::Fresh(_) => {
                                failed || call.inputs.iter().any(|input| lost.contains(input))
                            }
                            Outputs::Updates { .. } | Outputs::Over => false,
                            // A view is lost with its input. The handle of a skipped update or
                            // replacement is stale until the failure was read, and values made from
                            // it are lost.
                            Outputs::Views(looks) => {
                                let is_skipped = updates || call.op.name.as_ref() == "replace";
                                is_skipped
                                    || update_failed
                                    || lost.contains(&call.inputs[looks[i].input])
                            }
                        };
                        if goes {
                            lost.insert(tensor);
                        }
                    }
                }
                failed = false;
                continue;
            }
            _ => {}
        }
        (failed, update_failed) = (false, false);
    }
    lost
}
