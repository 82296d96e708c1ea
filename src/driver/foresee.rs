//! A known step, followed by a driver while it runs.

use super::Driver;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::error::Error;
use crate::evict::Foresight;
use smallvec::SmallVec;
use std::sync::Arc;

impl<D: Device> Driver<D> {
    /// The commands to come are those of a known step, from its first on: from now on each command that is executed, and
    /// is no deletion, is taken for the next of them, and what it makes for what that one makes. The evictor may go by
    /// it; nothing else does. `None`: nothing is known any more.
    ///
    /// Who foresees must notice where the program goes another way, and say so: by [`Driver::seek`], or by `None`. A
    /// wrong forecast costs time, and nothing else.
    ///
    /// # Errors
    /// If the evictor panics.
    pub fn foresee(&mut self, foresight: Option<Arc<Foresight>>) -> Result<(), Error> {
        self.engine.foresee(foresight)
    }

    /// The next command is the one at this position of the known step: commands in between do not come, or come again.
    /// A command that is not in the step is executed between two calls of this.
    pub fn seek(&mut self, position: u32) {
        self.engine.future_mut().seek(position);
    }

    /// A tensor holds a value of the known step: one that it carries over from before.
    ///
    /// # Errors
    /// If the number means nothing.
    pub fn bind(&mut self, tensor: TensorId, ordinal: u32) -> Result<(), Error> {
        let key = self.key(tensor)?;
        if let Some(&info) = self.engine.graph().tensor(key) {
            self.engine.future_mut().bind(info.storage, ordinal);
        }
        Ok(())
    }

    /// What a command makes, if it is one of a known step.
    #[inline(always)]
    pub(super) fn to_bind(&self, command: &Command<D::Op, D::Host>) -> SmallVec<[TensorId; 2]> {
        match self.engine.graph().future().foreseen() {
            Some(_) => made_by(command),
            None => SmallVec::new(),
        }
    }

    /// The command at hand ran and made these.
    #[inline(always)]
    pub(super) fn bind_made(&mut self, made: &[TensorId]) {
        if !made.is_empty() {
            self.bind_outputs(made);
        }
    }

    #[inline(never)]
    fn bind_outputs(&mut self, made: &[TensorId]) {
        for (output, &tensor) in made.iter().enumerate() {
            let ordinal = self.engine.graph().future().foreseen_outputs().get(output).copied();
            if let Some(ordinal) = ordinal {
                // What could not be made has no storage.
                _ = self.bind(tensor, ordinal);
            }
        }
    }
}

#[inline(never)]
fn made_by<O, H>(command: &Command<O, H>) -> SmallVec<[TensorId; 2]> {
    let mut made = SmallVec::new();
    if command.is_position() {
        command.makes(|tensor| made.push(tensor));
    }
    made
}
