use super::{Mode, Module, State};
use crate::error::Error;
use crate::ops::Tensor;

/// In training, zeroes each element with a probability and scales the others up; otherwise the identity. What is left out
/// is drawn from the runtime's seed, and is the same when it is computed again.
#[derive(Clone, Copy, Debug)]
pub struct Dropout {
    p: f32,
}

impl Dropout {
    /// `p` is the probability that an element is zeroed; one that is not between 0 and 1 is an error in training.
    #[must_use]
    pub const fn new(p: f32) -> Self {
        Self { p }
    }
}

impl Module for Dropout {
    fn forward(&mut self, x: &Tensor, mode: Mode) -> Result<Tensor, Error> {
        match mode {
            Mode::Train if self.p != 0.0 => x.dropout(self.p),
            _ => Ok(x.clone()),
        }
    }

    fn state<'a>(&'a mut self, _prefix: &str, _found: &mut Vec<(String, State<'a>)>) {}
}
