//! Windows: the number of commands that an evictor sees ahead.

use super::Command;

/// Number of commands admitted ahead of the current one, whose effects an evictor may know.
///
/// The window covers exactly the next `commands` commands. Deletions between these commands are
/// included, and do not count. The window ends early only for two reasons in the program, never
/// because of timing. One reason is a command or question whose answer the caller waits for. The
/// other reason is that the host values of the current and the waiting commands exceed `put_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    /// Number of commands after the current command. With 0, the default, no command waits for a
    /// later command.
    pub commands: usize,
    /// Limit on bytes of waiting host values.
    pub put_bytes: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Window {
    /// Default limit on host values, 64 MiB. Runtimes have the same limit on the host values that
    /// were sent to their worker thread and not yet uploaded.
    pub(crate) const PUT_BYTES: u64 = 64 << 20;

    /// A window of `commands` commands and 64 MiB.
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
    /// Whether this counts as a command: see [`Command::counts`].
    counts: bool,
    /// Whether the caller may wait for an answer.
    blocks: bool,
    /// Bytes of the host value; 0 if there is none.
    put_bytes: u64,
}

impl Waiting {
    /// A question to the engine, which is no command.
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

/// Counts waiting commands, the current one included, and tells when a window is complete. Meant
/// for a caller that drives a [`Driver`](crate::program::Driver) and admits commands ahead.
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
    /// A counter without waiting commands.
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

    /// Whether all commands that the evictor may see ahead of the current command have arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.commands > self.window.commands
            || self.blocking > 0
            || self.put_bytes > self.window.put_bytes
    }
}
