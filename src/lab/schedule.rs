//! Conversion of a replay into a fixed schedule: runs, reruns and evictions in order.

use super::replay::{Machine, Replay};
use crate::capture::CapturedProgram;
use crate::command::RecordedProgram;
use crate::engine::Listener;
use crate::error::Error;
use crate::event::Event;
use crate::evict::View;
use crate::graph::{PathKey, StorageKey};
use crate::sync::{Mutex, lock};
use remat_plan::schedule::{Action, RecomputeSchedule, ScheduleError};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Reason why a replay cannot be converted into a schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSchedule {
    /// The run failed.
    #[error("the replay failed at command {at}: {error}")]
    Failed {
        /// Position of the command.
        at: usize,
        /// Cause of the failure.
        error: Box<Error>,
    },
    /// The settings are invalid.
    #[error(transparent)]
    Settings(Box<Error>),
    /// The run contains an action that schedules do not have, such as a copy of the old value of an
    /// update.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// Event of a run that is converted to an action of the schedule.
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
    /// Runs a program and returns the run as a schedule: all runs of ops, including reruns, and all
    /// evictions, in order. `captured` is the same program as a
    /// [step](RecordedProgram::capture_whole).
    ///
    /// The schedule costs as much as the run. The schedule needs less memory than the run used,
    /// because a schedule frees a value after its last read.
    ///
    /// # Errors
    ///
    /// [`NoSchedule::Failed`] if the run fails, [`NoSchedule::Schedule`] if the run contains an
    /// action that schedules do not have.
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
            // For some commands, such as a read by the host, the engine reports no run. The
            // schedule contains a run for each op, also of commands for which the engine reports no
            // run.
            actions.extend(first.map(Action::Run));
        }
        Ok(RecomputeSchedule::new(&captured.capture, actions)?)
    }
}

#[cfg(test)]
mod tests;
