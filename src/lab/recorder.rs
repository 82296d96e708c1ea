//! Recorder that keeps the program of a run in memory, for replays in the same process.

use super::writer::Writer;
use crate::command::{ProgramError, RecordedProgram, TensorId};
use crate::driver::{Entry, Recorder};
use crate::sync::{Mutex, lock};
use rustc_hash::FxHashMap;
use std::io;
use std::sync::Arc;

/// Recorder that keeps the program of a run. Clones share the program.
///
/// ```
/// use remat::unstable::lab::{InMemory, MemoryKind, Replay, Status};
/// use remat::prelude::*;
/// use remat::PolicyKind;
///
/// let recorder = InMemory::default();
/// let runtime = Runtime::builder().budget("1GiB").record(recorder.clone()).sim()?;
/// let x = runtime.ones(&[1024])?;
/// let y = x.exp()?.square()?.sum()?;
/// drop((x, y));
/// runtime.sync()?;
/// let program = recorder.take()?;
/// let mut replay = Replay::new(PolicyKind::Lru, 12 << 10);
/// replay.memory = MemoryKind::Arena;
/// assert!(matches!(replay.run(&program)?.status, Status::Done));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct InMemory(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    writer: Writer,
    /// Number in the run -> tensor of the program, for tensors that may still be used.
    tensors: FxHashMap<u64, TensorId>,
    /// Error of the first command that is not valid. Later commands are not kept.
    wrong: Option<ProgramError>,
}

impl InMemory {
    /// Takes the program recorded so far. The recording continues with an empty program, so only
    /// another run may be recorded afterwards.
    ///
    /// # Errors
    /// [`ProgramError`] if a command was not valid, for example because of a size that exceeds any
    /// memory.
    pub fn take(&self) -> Result<RecordedProgram, ProgramError> {
        let Recorded { writer, wrong, .. } = std::mem::take(&mut *lock(&self.0));
        wrong.map_or_else(|| Ok(writer.finish()), Err)
    }
}

impl Recorded {
    fn hear(&mut self, entry: &Entry) -> Result<(), ProgramError> {
        let Entry::Did { command, .. } = entry else { return Ok(()) };
        let mut made = Vec::new();
        command.makes(|tensor| made.push(tensor.0));
        let now = |tensor: TensorId| self.tensors.get(&tensor.0).copied();
        let renumbered = self.writer.renumbered(command.clone(), now);
        let next = self.writer.program().next();
        self.writer.push(renumbered)?;
        command.ends(|tensor| _ = self.tensors.remove(&tensor.0));
        self.tensors.extend(made.iter().copied().zip(next.and_next(made.len())));
        Ok(())
    }
}

impl Recorder for InMemory {
    fn record(&mut self, entry: &Entry) {
        let heard = &mut *lock(&self.0);
        if heard.wrong.is_none() {
            heard.wrong = heard.hear(entry).err();
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}
