//! A step of a recording as a value that can be ordered and planned.

mod reader;
#[cfg(test)]
mod tests;
mod writer;

use self::reader::Reader;
use super::{Command, RecordedProgram};
use crate::plan::{Capture, CaptureError};
use std::ops::Range;

/// A whole program as one step, and what its commands and tensors are in it.
#[derive(Debug)]
pub struct CapturedProgram {
    /// The step.
    pub capture: Capture,
    /// Command -> its op; `None` for one that does nothing on a device.
    pub ops: Vec<Option<usize>>,
    /// Tensor -> its buffer.
    pub buffers: Vec<usize>,
}

impl RecordedProgram {
    /// The commands of each step: from after one end of a step up to and with the next. What comes before the first end
    /// belongs to the first step; what comes after the last is in none. O(commands).
    #[must_use]
    pub fn steps(&self) -> Vec<Range<usize>> {
        let ends = self.commands().iter().enumerate();
        let ends = ends.filter(|(_, command)| matches!(command, Command::Step));
        let mut begin = 0;
        ends.map(|(at, _)| std::mem::replace(&mut begin, at + 1)..at + 1).collect()
    }

    /// These commands as one step, where bytes are had in multiples of `granule`, a power of two, only. They are those
    /// between two ends of a step ([`steps`](Self::steps)), or all of a log of the DTR paper. Of a program that runs, a
    /// [`Turn`](super::Turn) is such a recording: its step begins at [`Turn::begin`](super::Turn::begin).
    ///
    /// Ops are ops, uploads (`put`) and reads by the host (`get`, for which it waits). Several updates at once are one op
    /// (`update_all`). A value that was there before the recording began is there before the step. Views are no ops, unless
    /// they cost something, as in the logs of the paper: then they are ops that read and make nothing, for what is looked at
    /// need not be there. An update is in place where the engine would have it so: nobody else holds the old value, which is
    /// all of its storage; otherwise it makes another buffer.
    ///
    /// Buffers are numbered as the ops name them; then come those that no op names, by what becomes of them and by size. So
    /// two steps that repeat have no [difference](Capture::difference).
    ///
    /// O(commands up to the end of the step).
    ///
    /// # Errors
    ///
    /// A granule that is no power of two; costs that are no numbers; 2^64 bytes or more.
    ///
    /// # Panics
    ///
    /// If the range is not within the commands, as with any slice.
    pub fn capture(&self, commands: Range<usize>, granule: u64) -> Result<Capture, CaptureError> {
        let mut reader = Reader::new(granule)?;
        self.commands()[..commands.start].iter().for_each(|command| reader.command(command));
        reader.begin();
        self.commands()[commands].iter().for_each(|command| reader.command(command));
        Ok(reader.finish()?.capture)
    }

    /// All commands as one step: see [`capture`](Self::capture).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn capture_whole(&self, granule: u64) -> Result<CapturedProgram, CaptureError> {
        let mut reader = Reader::new(granule)?;
        reader.begin();
        self.commands().iter().for_each(|command| reader.command(command));
        reader.finish()
    }
}
