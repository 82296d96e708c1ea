//! Windows: how many commands ahead an evictor sees.

use super::Command;

/// Number of commands admitted ahead of the current one, whose effects an evictor may know.
///
/// The window covers exactly the next `commands` commands; deletions in between are included and
/// not counted. It ends early only for reasons in the program, never for timing. One reason is a
/// command or question with an answer. The other is that waiting host values, that of the current
/// command included, exceed `put_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    /// Number of commands after the current one. 0, the default: no command waits for a later one.
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
    /// Default limit on host values, 64 MiB. Runtimes have the same limit on bytes of host values
    /// in flight to their worker.
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

/// The properties of a waiting command or question that [`Ahead`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Whether it counts as a command: see [`Command::counts`].
    counts: bool,
    /// Whether the caller may wait for an answer.
    blocks: bool,
    /// Bytes of the host value; 0 if there is none.
    put_bytes: u64,
}

impl Waiting {
    /// A question that is no command.
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
/// use remat::program::{Ahead, Command, TensorId, Waiting, Window};
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

    /// Whether everything that may be seen from the current command has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.commands > self.window.commands
            || self.blocking > 0
            || self.put_bytes > self.window.put_bytes
    }
}
