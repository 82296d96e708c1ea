//! Settings that change while a driver works. A recording has them, so that a replay makes them, too.

use super::{Driver, Learners};
use crate::device::Device;
use crate::error::Error;
use crate::evict::{Evictor, Learn};

/// A setting, and what it is from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Setting {
    /// Bytes the run may hold.
    Budget(u64),
    /// Bytes above which it evicts before each op, if there is such a threshold.
    EvictionThreshold(Option<u64>),
    /// What is evicted, as [`PolicyKind`](crate::PolicyKind) prints and parses. `None`: an evictor of somebody's own,
    /// which has no name.
    Policy(Option<String>),
    /// Whether history is kept.
    Enabled(bool),
}

/// A setting that is to change.
#[derive(Debug)]
pub(crate) enum Change {
    Budget(u64),
    EvictionThreshold(Option<u64>),
    /// And how much is found out for it.
    Evictor(Box<dyn Evictor>, Learn),
    /// Whether history is kept.
    Enabled(bool),
}

impl Change {
    /// Makes it, in order with the commands.
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

/// The name that a replay finds the same policy by.
pub(super) fn name_of(evictor: &dyn Evictor) -> Option<String> {
    let kind = evictor.kind()?;
    let name = kind.to_string();
    // No number that is one, such as NaN, can be read again.
    (name.parse() == Ok(kind.canonical())).then_some(name)
}
