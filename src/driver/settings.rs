//! Settings that change while a driver works. A recording has them, so that a replay makes them, too.

use super::{Driver, Entry, Learners};
use crate::device::Device;
use crate::engine::Engine;
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

/// Settings. Each is changed between two commands, and recorded.
impl<D: Device> Driver<D> {
    /// Sets the hard limit: see [`Engine::set_budget`].
    ///
    /// # Errors
    /// As there.
    pub fn set_budget(&mut self, bytes: u64) -> Result<(), Error> {
        self.change(Setting::Budget(bytes), |engine| engine.set_budget(bytes))
    }

    /// Sets the eviction threshold, or takes it away: see [`Engine::set_eviction_threshold`].
    ///
    /// # Errors
    /// As there.
    pub fn set_eviction_threshold(&mut self, threshold: Option<u64>) -> Result<(), Error> {
        let setting = Setting::EvictionThreshold(threshold);
        self.change(setting, |engine| engine.set_eviction_threshold(threshold))
    }

    /// Lets another evictor decide from now on: see [`Engine::set_evictor`]. If it goes by what is foreseen, steps are
    /// recognized for it, as [`Driver::recognize_steps_once_short`] says.
    ///
    /// # Errors
    /// As there.
    pub fn set_evictor(&mut self, evictor: Box<dyn Evictor>) -> Result<(), Error> {
        let setting = Setting::Policy(name_of(&*evictor));
        self.change(setting, |engine| engine.set_evictor(evictor))?;
        self.recognize_steps_once_short();
        Ok(())
    }

    /// Keeps history again: see [`Engine::enable`].
    ///
    /// # Errors
    /// Never, for now.
    pub fn enable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(true), |engine| {
            engine.enable();
            Ok(())
        })
    }

    /// Keeps no history any more: see [`Engine::disable`].
    ///
    /// # Errors
    /// As there.
    pub fn disable(&mut self) -> Result<(), Error> {
        self.change(Setting::Enabled(false), Engine::disable)
    }

    fn change(
        &mut self,
        setting: Setting,
        with: impl FnOnce(&mut Engine<D>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.forget_plan();
        let done = with(&mut self.engine);
        let failed = done.is_err();
        // On its way to one of these, something may have been evicted or brought back.
        if !failed || matches!(setting, Setting::Budget(_) | Setting::Enabled(_)) {
            self.record_entry(|engine| Entry::Set { setting, failed, used: engine.used_bytes() });
        }
        done
    }
}

/// The name that a replay finds the same policy by.
pub(super) fn name_of(evictor: &dyn Evictor) -> Option<String> {
    let kind = evictor.kind()?;
    let name = kind.to_string();
    // No number that is one, such as NaN, can be read again.
    (name.parse() == Ok(kind.canonical())).then_some(name)
}
