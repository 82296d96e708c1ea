//! How far ahead an evictor sees.

use super::Command;

/// How far ahead of the command at hand others are admitted, so that an evictor knows of them: exactly the next
/// `commands`, deletions not counted, with the deletions between them. Fewer only where the program says so, never
/// where time does: up to the next command or question that has an answer, and until values from the
/// host on their way, that of the command at hand included, are more than `put_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Window {
    /// Commands after the one at hand. 0, the default: nothing waits for a command to come.
    pub commands: usize,
    /// Bytes of values from the host.
    pub put_bytes: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self::of(0)
    }
}

impl Window {
    /// Values from the host: 64 MiB. Runtimes have no more on their way.
    pub(crate) const PUT_BYTES: u64 = 64 << 20;

    /// So many commands, and 64 MiB.
    #[must_use]
    pub const fn of(commands: usize) -> Self {
        Self { commands, put_bytes: Self::PUT_BYTES }
    }

    #[cfg(feature = "serde")]
    pub(crate) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What a command, or a question, is to [`Ahead`] while it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// See [`Command::counts`].
    counts: bool,
    /// Whether it has an answer, which the caller may wait for.
    blocks: bool,
    /// Size of a value from the host.
    put_bytes: u64,
}

impl Waiting {
    /// A question that is no command.
    pub const QUESTION: Self = Self { counts: true, blocks: true, put_bytes: 0 };

    /// A command, such as one of a program. `bytes` is asked for the size of a value from the host.
    #[must_use]
    pub fn of<O, H>(command: &Command<O, H>, bytes: impl FnOnce(&H) -> u64) -> Self {
        Self {
            counts: command.counts(),
            blocks: matches!(command, Command::Get(_) | Command::Sync),
            put_bytes: if let Command::Put { host, .. } = command { bytes(host) } else { 0 },
        }
    }
}

/// Counts what waits, the command at hand included, and says when its window is complete: for whoever drives a
/// [`Driver`](crate::program::Driver) and lets it look ahead.
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
    /// Nothing waits.
    #[must_use]
    pub fn new(window: Window) -> Self {
        Self { window, ..Self::default() }
    }

    /// One more waits.
    pub fn push(&mut self, waiting: Waiting) {
        self.commands += usize::from(waiting.counts);
        self.blocking += usize::from(waiting.blocks);
        self.put_bytes = self.put_bytes.saturating_add(waiting.put_bytes);
    }

    /// The one at hand is done.
    pub fn pop(&mut self, waiting: Waiting) {
        self.commands -= usize::from(waiting.counts);
        self.blocking -= usize::from(waiting.blocks);
        self.put_bytes = self.put_bytes.saturating_sub(waiting.put_bytes);
    }

    /// Whether all that may be seen from the command at hand is there.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.commands > self.window.commands
            || self.blocking > 0
            || self.put_bytes > self.window.put_bytes
    }
}
