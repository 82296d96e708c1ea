//! Settings that change during a run. A recording lists the changes, and a replay makes the same
//! changes.

use super::Replay;
use crate::driver::{Change, Setting};
use crate::error::{Error, RuntimeError};
use crate::evict::PolicyKind;
use std::ops::Range;

/// The settings of a recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// Budget in bytes at the beginning; `None` in recordings of version 1 or 2.
    pub budget: Option<u64>,
    /// Eviction threshold in bytes at the beginning; `None` without a threshold.
    pub eviction_threshold: Option<u64>,
    /// Name of the policy at the beginning. `None` if the user wrote the policy, and in recordings
    /// of versions before 5.
    pub policy: Option<String>,
    /// Changes during the run, in order.
    pub changes: Vec<Changed>,
}

/// A change of a setting during a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Number of commands executed before the change.
    pub after: usize,
    /// Setting and its new value.
    pub setting: Setting,
    /// Whether the change failed. A failed change does not change the setting.
    pub failed: bool,
}

impl RunSettings {
    /// The policy at the beginning, then each later policy.
    ///
    /// # Errors
    /// [`RuntimeError::Settings`] if a policy has no name, or its name is unknown. The message
    /// identifies the policy.
    pub fn policies(&self) -> Result<Vec<PolicyKind>, Error> {
        let first = policy_of(self.policy.as_deref(), 0);
        let later = self.changes.iter().filter_map(|change| match &change.setting {
            Setting::Policy(name) => Some(policy_of(name.as_deref(), change.after)),
            _ => None,
        });
        std::iter::once(first).chain(later).collect()
    }

    /// Moves and repeats the changes along with the commands of the program, which `moves` lists.
    /// Each change stays directly after the command that it followed in the run.
    pub(super) fn repeated(mut self, moves: &[(Range<usize>, usize)]) -> Self {
        let (first, later): (Vec<_>, Vec<_>) =
            self.changes.into_iter().partition(|change| change.after == 0);
        self.changes = first;
        for (commands, now) in moves {
            let moved = later.iter().filter(|change| commands.contains(&(change.after - 1)));
            self.changes.extend(moved.map(|change| Changed {
                after: change.after - commands.start + now,
                ..change.clone()
            }));
        }
        self
    }
}

impl Changed {
    /// Converts the change to a change of the engine's settings in a replay.
    pub(super) fn of_replay(&self, replay: &Replay) -> Result<Change, Error> {
        Ok(match &self.setting {
            &Setting::Budget(bytes) => Change::Budget(bytes),
            &Setting::EvictionThreshold(threshold) => Change::EvictionThreshold(threshold),
            Setting::Policy(name) => {
                let policy = policy_of(name.as_deref(), self.after)?;
                let sampling = replay.sqrt_sampling.then_some(replay.seed);
                Change::Evictor(policy.evictor(replay.seed, sampling), policy.learn())
            }
            &Setting::Enabled(enabled) => Change::Enabled(enabled),
        })
    }
}

/// Parses the name of the policy that the run uses after `after` commands.
fn policy_of(name: Option<&str>, after: usize) -> Result<PolicyKind, Error> {
    let what = match name.map(|name| (name, name.parse())) {
        Some((_, Ok(policy))) => return Ok(policy),
        Some((name, Err(_))) => format!("the policy `{name}`, which this program does not know"),
        None => "its own evictor, which a replay does not have".to_owned(),
    };
    Err(RuntimeError::Settings(format!(
        "from instruction {} on, the recorded run has {what}; choose a policy for the whole replay",
        after + 1
    ))
    .into())
}

#[cfg(test)]
mod tests;
