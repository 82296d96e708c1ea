//! The order of the program.

use super::{Order, OrderError, Reach, Scheduler};
use crate::{Capture, Limits};

/// `program`: the order of the program itself, with which all other orders are compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AsWritten;

impl Scheduler for AsWritten {
    fn name(&self) -> &'static str {
        "program"
    }

    fn order<'a>(
        &self,
        capture: &'a Capture,
        _reach: Reach,
        _limits: &Limits,
    ) -> Result<Order<'a>, OrderError> {
        Ok(capture.program())
    }
}
