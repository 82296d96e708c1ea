//! What is known of a program before it runs.

use super::Driver;
use crate::device::Device;
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

impl<D: Device> Driver<D> {
    /// Recognizes steps from now on if the evictor goes by that: knowing this, if it says which there are, and otherwise
    /// from the first eviction on. For a driver that has executed nothing yet.
    pub fn know(&mut self, Knowledge { steps, forecasts }: Knowledge) {
        self.recognize_steps_once_short();
        if let Some(steps) = steps.filter(|_| self.engine.foresees()) {
            self.recognize_known_steps(steps);
        }
        forecasts.into_iter().for_each(|forecast| self.remember(forecast));
    }

    /// What is known by now.
    pub(super) fn knowledge(&self) -> Knowledge {
        Knowledge { steps: self.known_steps(), forecasts: self.remembered() }
    }
}
