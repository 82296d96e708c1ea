//! Settings that change in mid-run: what a recording says of them, and how a replay makes them.

use super::Replay;
use crate::driver::{Change, Setting};
use crate::error::{Error, RuntimeError};
use crate::evict::PolicyKind;
use std::ops::Range;

/// The settings of a recorded run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RunSettings {
    /// Bytes it could hold at the beginning; `None` in recordings of version 1 or 2.
    pub budget: Option<u64>,
    /// Its eviction threshold at the beginning, if it had one.
    pub eviction_threshold: Option<u64>,
    /// Its policy at the beginning; `None` if that is one of its own, and in recordings before version 5.
    pub policy: Option<String>,
    /// What was set meanwhile, in order.
    pub changes: Vec<Changed>,
}

/// A setting that was changed in mid-run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// How many commands came before.
    pub after: usize,
    /// What was set, and to what.
    pub setting: Setting,
    /// Whether that failed, so that the setting stayed as it was.
    pub failed: bool,
}

impl RunSettings {
    /// The policy at the beginning, and each that was set later.
    ///
    /// # Errors
    /// If one is not known by name: which.
    pub fn policies(&self) -> Result<Vec<PolicyKind>, Error> {
        let first = policy_of(self.policy.as_deref(), 0);
        let later = self.changes.iter().filter_map(|change| match &change.setting {
            Setting::Policy(name) => Some(policy_of(name.as_deref(), change.after)),
            _ => None,
        });
        std::iter::once(first).chain(later).collect()
    }

    /// The same, where commands of the program were moved and repeated: each change is made after the command that it
    /// was made after.
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
    /// The same, to be made in a replay.
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

/// That of a run, after so many commands.
fn policy_of(name: Option<&str>, after: usize) -> Result<PolicyKind, Error> {
    let what = match name.map(|name| (name, name.parse())) {
        Some((_, Ok(policy))) => return Ok(policy),
        Some((name, Err(_))) => format!("`{name}`, which this program does not know"),
        None => "an evictor of its own, which no replay has".to_owned(),
    };
    Err(RuntimeError::Settings(format!(
        "from instruction {} on, the recorded run had {what}; choose a policy to replay all of it with",
        after + 1
    ))
    .into())
}

#[cfg(test)]
mod tests;
