//! The program's own order.

use super::super::{Capture, Limits};
use super::{Order, OrderError, Reach, Scheduler};

/// `program`: the order as written, against which all others are measured.
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
