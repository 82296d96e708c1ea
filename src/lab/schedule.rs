//! A replay as a schedule: what it ran again and dropped, told once and for all.

use super::replay::{Machine, Replay};
use crate::command::RecordedProgram;
use crate::engine::Listener;
use crate::error::Error;
use crate::event::Event;
use crate::evict::View;
use crate::graph::{PathKey, StorageKey};
use crate::plan::CapturedProgram;
use crate::plan::schedule::{Action, RecomputeSchedule, ScheduleError};
use crate::sync::{Mutex, lock};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Why a replay is no schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSchedule {
    /// It did not get to the end.
    #[error("the replay failed at command {at}: {error}")]
    Failed {
        /// Position of the command.
        at: usize,
        /// Why.
        error: Box<Error>,
    },
    /// The settings make no sense.
    #[error(transparent)]
    Settings(Box<Error>),
    /// What it did is none, such as one that copies the old value of an update.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// What went, and what ran.
#[derive(Clone, Copy, Debug)]
enum Happened {
    Evicted(StorageKey),
    Ran { path: Option<PathKey>, again: bool },
}

#[derive(Debug, Default)]
struct Heard(Arc<Mutex<Vec<Happened>>>);

impl Listener for Heard {
    fn on(&mut self, event: &Event, _view: View<'_>) {
        let happened = match *event {
            Event::DidEvict { storage, .. } => Happened::Evicted(storage),
            Event::DidRun { path, again, .. } => Happened::Ran { path, again },
            _ => return,
        };
        lock(&self.0).push(happened);
    }
}

impl Replay {
    /// Runs a program, and tells the run as a schedule of it: each op when it ran, those that it ran again included, and what
    /// was evicted. `captured` is the same program as a [step](RecordedProgram::capture_whole).
    ///
    /// The schedule costs what the run did. It takes less memory than the run had in use: in a schedule what nobody will read
    /// again is gone.
    ///
    /// # Errors
    ///
    /// The run fails; or what it does is no schedule.
    pub fn schedule<'a>(
        &self,
        program: &RecordedProgram,
        captured: &'a CapturedProgram,
    ) -> Result<RecomputeSchedule<'a>, NoSchedule> {
        let settings = |error| NoSchedule::Settings(Box::new(error));
        let learned = self.learned(program).map_err(settings)?;
        let mut machine =
            Machine::new(learned.as_ref().unwrap_or(self), program).map_err(settings)?;
        let heard = Heard::default();
        let happened = Arc::clone(&heard.0);
        machine.listen(Box::new(heard));
        let mut actions = Vec::new();
        let mut paths: FxHashMap<PathKey, usize> = FxHashMap::default();
        let mut buffers: FxHashMap<StorageKey, usize> = FxHashMap::default();
        for (at, command) in program.commands().iter().enumerate() {
            let done = machine.execute(at);
            done.map_err(|error| NoSchedule::Failed { at, error: Box::new(error) })?;
            command.makes(|tensor| {
                if let Some(storage) = machine.storage(tensor) {
                    buffers.entry(storage).or_insert(captured.buffers[tensor.index()]);
                }
            });
            let mut first = captured.ops[at];
            for happened in lock(&happened).drain(..) {
                match happened {
                    Happened::Evicted(storage) => {
                        actions.extend(buffers.get(&storage).map(|&buffer| Action::Drop(buffer)));
                    }
                    Happened::Ran { path: Some(path), again: true } => {
                        actions.extend(paths.get(&path).map(|&op| Action::Run(op)));
                    }
                    Happened::Ran { path, .. } => {
                        if let Some(op) = first.take() {
                            actions.push(Action::Run(op));
                            paths.extend(path.map(|path| (path, op)));
                        }
                    }
                }
            }
            // One of which no run is told, such as a read by the host.
            actions.extend(first.map(Action::Run));
        }
        Ok(RecomputeSchedule::new(&captured.capture, actions)?)
    }
}

#[cfg(test)]
mod tests;
