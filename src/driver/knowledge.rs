//! A value with the knowledge of a program before it runs. `Driver::know` decides whether steps are
//! recognized; `learning.rs` decides whether steps are learned.

use crate::evict::Forecast;
use crate::step::KnownSteps;

/// Knowledge of a program's steps before the program begins: from an earlier run, or from a run on
/// a simulated device.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Knowledge {
    /// Known steps. `None`: steps are recognized from the first eviction on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub steps: Option<KnownSteps>,
    /// Forecasts, which say how the steps are best run.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub forecasts: Vec<Forecast>,
}
