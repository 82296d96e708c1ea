//! Knowledge of a program before it runs, as a value. Whether steps are recognized is decided by `Driver::know`, and whether
//! they are learned in `learning.rs`.

use crate::evict::Forecast;
use crate::step::KnownSteps;

/// What is known of the steps of a program before it begins: from an earlier run, or from one on a simulated device.
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Knowledge {
    /// Which steps there are. `None`: they are recognized from the first eviction on.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
    pub steps: Option<KnownSteps>,
    /// How they are best run.
    #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Vec::is_empty"))]
    pub forecasts: Vec<Forecast>,
}
