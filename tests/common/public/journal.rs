//! What the worker of a runtime did, in order: the events it records, and the failures it logs.
//!
//! A program cannot see whether an update that it requested was made or skipped. The recording says so; with that, the
//! value of every handle is known exactly, whatever failed.

use remat::trace::{Event, Recorder, Source};
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, Once};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

#[derive(Clone, Debug)]
pub enum Entry {
    Did(Event),
    /// Something failed. It belongs to the next event that is no deletion.
    Failed,
    /// A regeneration went by a schedule.
    Scheduled,
}

/// Written on the worker's thread. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Journal(Arc<Mutex<Vec<Entry>>>);

thread_local! {
    /// That of the worker whose thread this is.
    static HERE: RefCell<Option<Journal>> = const { RefCell::new(None) };
}

impl Journal {
    pub fn new() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(|| {
            tracing::subscriber::set_global_default(Listener).expect("nobody else listens");
        });
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
    fn record(&mut self, event: &Event) {
        if matches!(event, Event::Begin { .. }) {
            HERE.with_borrow_mut(|here| *here = Some(self.clone()));
        }
        self.push(Entry::Did(event.clone()));
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Passes on what a worker logs to its journal.
struct Listener;

#[derive(Default)]
struct Line {
    message: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.message = format!("{value:?}");
        }
    }
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "remat" && *metadata.level() <= Level::DEBUG
    }

    fn event(&self, event: &tracing::Event<'_>) {
        HERE.with_borrow(|here| {
            let Some(journal) = here else { return };
            let mut line = Line::default();
            event.record(&mut line);
            match line.message.as_str() {
                "op failed" => journal.push(Entry::Failed),
                "regenerates by a schedule" => journal.push(Entry::Scheduled),
                _ => {}
            }
        });
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
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
        if let Entry::Did(Event::Apply { inputs, outputs, .. }) = entry {
            for output in outputs {
                events.insert(output.tensor, (at, inputs, output.source));
            }
        }
    }
    // Whether something failed after this and before the next step.
    let fails_later = |at: usize| {
        let rest = entries[at + 1..].iter();
        rest.take_while(|entry| !matches!(entry, Entry::Did(Event::Step)))
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
            Entry::Did(Event::Del { .. }) | Entry::Scheduled => {}
            Entry::Did(Event::Put { tensor, .. }) => {
                if failed {
                    lost.insert(*tensor);
                }
                (failed, update_failed) = (false, false);
            }
            Entry::Did(Event::Apply { op, inputs, outputs, .. }) => {
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
