//! Settings that change while a driver works. A recording contains each change, so that a replay
//! can repeat it.

use super::{Driver, Learners};
use crate::device::Device;
use crate::error::Error;
use crate::evict::{Evictor, Learn};

/// A setting with its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Setting {
    /// Budget in bytes.
    Budget(u64),
    /// Eviction threshold in bytes; `None` if no threshold is set.
    EvictionThreshold(Option<u64>),
    /// The eviction policy, as [`PolicyKind`](crate::PolicyKind) prints and parses it. `None` for a
    /// custom evictor, which has no name.
    Policy(Option<String>),
    /// Whether history is kept.
    Enabled(bool),
}

/// A change of a setting, with all values that the change needs.
#[derive(Debug)]
pub(crate) enum Change {
    Budget(u64),
    EvictionThreshold(Option<u64>),
    /// A new evictor, and the effort to learn for it.
    Evictor(Box<dyn Evictor>, Learn),
    /// Whether history is kept.
    Enabled(bool),
}

impl Change {
    /// Makes the change on a driver, in order with the commands.
    pub fn make<D: Device>(self, driver: &mut Driver<D>, learners: &Learners) -> Result<(), Error> {
        match self {
            Self::Budget(bytes) => driver.set_budget(bytes),
            Self::EvictionThreshold(threshold) => driver.set_eviction_threshold(threshold),
            Self::Evictor(evictor, learn) => {
                driver.set_evictor(evictor)?;
                learners.set(driver, learn);
                Ok(())
            }
            Self::Enabled(true) => driver.enable(),
            Self::Enabled(false) => driver.disable(),
        }
    }
}

/// The name of a policy, from which a replay can make the policy again; `None` if the policy has no
/// name.
pub(super) fn name_of(evictor: &dyn Evictor) -> Option<String> {
    let kind = evictor.kind()?;
    let name = kind.to_string();
    // The comparison is false for a policy with a `NaN` parameter, because `NaN` is not equal to
    // itself.
    (name.parse() == Ok(kind.canonical())).then_some(name)
}
