//! Binding of tensors to the values of a known step, while the step runs.

use super::Books;
use crate::command::{Command, TensorId};
use crate::device::Device;
use crate::error::Error;
use smallvec::SmallVec;

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

    /// Outputs of a command to bind to values of the known step; empty if no step is foreseen.
    #[inline(always)]
    pub fn to_bind(&self, command: &Command<D::Op, D::Host>) -> SmallVec<[TensorId; 2]> {
        match self.engine.graph().future().foreseen() {
            Some(_) => made_by(command),
            None => SmallVec::new(),
        }
    }

    /// Binds the outputs of the current command, after it ran.
    #[inline(always)]
    pub fn bind_made(&mut self, made: &[TensorId]) {
        if !made.is_empty() {
            self.bind_outputs(made);
        }
    }

    #[inline(never)]
    fn bind_outputs(&mut self, made: &[TensorId]) {
        for (output, &tensor) in made.iter().enumerate() {
            let ordinal = self.engine.graph().future().foreseen_outputs().get(output).copied();
            if let Some(ordinal) = ordinal {
                // Binding fails for a tensor that could not be made, because the tensor has no
                // storage.
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
