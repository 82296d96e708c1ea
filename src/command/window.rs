//! Windows. A window is the number of waiting commands that an evictor may read.

use super::Command;

/// Number of later commands that are admitted before the current command runs. An evictor may read
/// the effects of admitted commands.
///
/// The window covers exactly the next `commands` commands. Deletions between the commands are
/// included, but do not count. Timing never shortens the window. A command or question for which
/// the caller waits ends the window early. The window also ends early when the host values of the
/// current and the waiting commands exceed `put_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    /// Number of commands after the current command. With 0, which is the default, no command waits
    /// for a later command.
    pub commands: usize,
    /// Limit on the bytes of waiting host values.
    pub put_bytes: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Window {
    /// Default limit on waiting host values, 64 MiB. A runtime has the same limit on host values
    /// that were sent to its worker thread and are not uploaded yet.
    pub(crate) const PUT_BYTES: u64 = 64 << 20;

    /// Makes a window of `commands` commands and 64 MiB.
    #[must_use]
    pub const fn of(commands: usize) -> Self {
        Self { commands, put_bytes: Self::PUT_BYTES }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// Properties of a waiting command or question, for [`Ahead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Whether the command or question counts towards the length of the window: see
    /// [`Command::counts`].
    counts: bool,
    /// Whether the caller may wait for an answer.
    blocks: bool,
    /// Bytes of the host value; 0 if the command has no host value.
    put_bytes: u64,
}

impl Waiting {
    /// A question to the engine, which is not a command.
    pub const QUESTION: Self = Self { counts: true, blocks: true, put_bytes: 0 };

    /// Properties of a command. `bytes` gives the size of a host value.
    #[must_use]
    pub fn of<O, H>(command: &Command<O, H>, bytes: impl FnOnce(&H) -> u64) -> Self {
        Self {
            counts: command.counts(),
            blocks: matches!(command, Command::Get(_) | Command::Sync),
            put_bytes: if let Command::Put { host, .. } = command { bytes(host) } else { 0 },
        }
    }
}

/// Counts waiting commands, the current command included, and shows when a window is complete.
/// `Ahead` is for callers that drive a [`Driver`](crate::program::Driver) and admit commands in
/// advance.
///
/// ```
/// use remat::unstable::program::{Ahead, Command, TensorId, Waiting, Window};
///
/// let waiting = |command: Command<(), ()>| Waiting::of(&command, |()| 0);
/// let mut ahead = Ahead::new(Window::of(1));
/// ahead.push(waiting(Command::Step));
/// assert!(!ahead.is_complete(), "one that is at hand, and none after it");
/// ahead.push(waiting(Command::Get(TensorId(0))));
/// assert!(ahead.is_complete(), "whoever sent it waits");
/// ```
#[derive(Debug, Default)]
pub struct Ahead {
    window: Window,
    commands: usize,
    blocking: usize,
    put_bytes: u64,
}

impl Ahead {
    /// Makes a counter without waiting commands.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self { window, ..Self::default() }
    }

    /// Adds a waiting command.
    pub fn push(&mut self, waiting: Waiting) {
        self.commands += usize::from(waiting.counts);
        self.blocking += usize::from(waiting.blocks);
        self.put_bytes = self.put_bytes.saturating_add(waiting.put_bytes);
    }

    /// Removes the current command when it is done.
    pub fn pop(&mut self, waiting: Waiting) {
        self.commands -= usize::from(waiting.counts);
        self.blocking -= usize::from(waiting.blocks);
        self.put_bytes = self.put_bytes.saturating_sub(waiting.put_bytes);
    }

    /// Whether all later commands that the evictor may read have arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.commands > self.window.commands
            || self.blocking > 0
            || self.put_bytes > self.window.put_bytes
    }
}
