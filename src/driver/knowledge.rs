//! Knowledge about a program from before it runs. `Driver::know` decides whether steps are
//! recognized; `learning.rs` decides whether steps are learned.

use crate::evict::{Forecast, Learn};
use crate::step::KnownSteps;

/// Knowledge of a program's steps before the program begins: from an earlier run, or from a run on
/// a simulated device.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Knowledge {
    /// Steps that are known before the program begins. With known steps, the driver recognizes
    /// steps from the first command on; with `None`, from the first eviction on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub steps: Option<KnownSteps>,
    /// Forecasts: the best way found to run each step.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub forecasts: Vec<Forecast>,
    /// Whether the search for forecasts is complete. After a complete search, a policy that
    /// searches tries only the portfolio, and only for steps without a forecast.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
    pub searched: bool,
}

impl Knowledge {
    /// Effort to spend on further learning, for a policy whose setting is `learn`.
    pub(crate) const fn learn(&self, learn: Learn) -> Learn {
        match learn {
            Learn::Search { .. } if self.searched => Learn::Portfolio,
            learn => learn,
        }
    }
}
