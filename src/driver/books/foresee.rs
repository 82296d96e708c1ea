//! Progress in a known step: its current position, and binding of tensors to its values.

use super::Books;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::error::Error;

impl<D: Device> Books<D> {
    /// Binds the storage of a tensor to a value of the known step.
    ///
    /// # Errors
    /// [`HandleError::Unknown`](crate::error::HandleError::Unknown) if the number names no tensor.
    pub fn bind(&mut self, tensor: TensorId, ordinal: u32) -> Result<(), Error> {
        let key = self.key(tensor)?;
        if let Some(&info) = self.engine.graph().tensor(key) {
            self.engine.future_mut().bind(info.storage, ordinal);
        }
        Ok(())
    }

    /// Moves to the position of a command in the known step, just before the command runs. Notes
    /// the outputs, which are bound after the run. Does nothing if no step is foreseen.
    #[inline(always)]
    pub fn advance_foreseen(&mut self, command: &Command<D::Op, D::Host>) {
        if self.engine.graph().future().foreseen().is_some() {
            self.advance_to(command);
        }
    }

    #[inline(never)]
    fn advance_to(&mut self, command: &Command<D::Op, D::Host>) {
        if command.is_position() {
            command.makes(|tensor| self.to_bind.push(tensor));
            self.engine.future_mut().advance_foreseen();
        }
    }

    /// Binds the outputs of the current command, after it ran.
    #[inline(always)]
    pub fn bind_made(&mut self) {
        if !self.to_bind.is_empty() {
            self.bind_outputs();
        }
    }

    #[inline(never)]
    fn bind_outputs(&mut self) {
        for (output, tensor) in std::mem::take(&mut self.to_bind).into_iter().enumerate() {
            let ordinal = self.engine.graph().future().foreseen_outputs().get(output).copied();
            if let Some(ordinal) = ordinal {
                // Binding fails for a tensor that could not be made, because the tensor has no
                // storage.
                _ = self.bind(tensor, ordinal);
            }
        }
    }
}
