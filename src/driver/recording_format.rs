//! Lines of a recording.

use super::{Knowledge, Setting};
use crate::command::{RecordedCommand, TensorId, Window};
use crate::event::Cause;
use std::fmt;

/// One line of a recording: an executed command, a changed setting, or a memory event.
///
/// Memory events during a command, or during the change of a setting, come before the entry of the
/// command or change. Memory events of the storages that the command itself makes come after the
/// command's entry.
///
/// The field `used` is the number of resident bytes after the entry, and `None` in recordings of
/// version 1 or 2.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(clippy::large_enum_variant)] // Most are large, and few are held at a time.
pub enum Entry {
    /// The first entry of every recording.
    Begin {
        /// Version of the format: [`VERSION`].
        version: u32,
        /// Unit of the costs: the cost model's name.
        cost_model: String,
        /// Budget in bytes; `None` in recordings of version 1 or 2.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        budget: Option<u64>,
        /// Eviction threshold in bytes; `None` if no threshold is set.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        eviction_threshold: Option<u64>,
        /// Name of the eviction policy, as in [`Setting::Policy`]. `policy` is also `None` in
        /// recordings of versions before 5.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        policy: Option<String>,
        /// Number of waiting commands that the evictor could read.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Window::is_default"))]
        window: Window,
        /// Knowledge of the steps when the recording began.
        #[cfg_attr(feature = "serde", serde(flatten))]
        known: Knowledge,
    },
    /// A command that was executed. A skipped update is recorded as a view of the old value.
    Did {
        /// The command, with its measured cost.
        command: RecordedCommand,
        /// Bytes in use after the entry.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
        /// Highest number of bytes in use until now, workspaces included. `None` for an entry other
        /// than the end of a step.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        peak: Option<u64>,
    },
    /// A change of a setting.
    Set {
        /// The setting with its new value.
        #[cfg_attr(feature = "serde", serde(flatten))]
        setting: Setting,
        /// Whether the change failed. A failed change leaves the setting unchanged, but storages
        /// may have been evicted or restored.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        failed: bool,
        /// Bytes in use after the entry.
        used: u64,
    },
    /// An eviction of a storage.
    Evict {
        /// Number of the first tensor of the storage. The tensor may be deleted by now.
        tensor: TensorId,
        /// Size in bytes.
        bytes: u64,
        /// Reason of the eviction.
        cause: Cause,
        /// Bytes in use after the entry.
        used: u64,
    },
    /// A storage that was restored.
    Regenerate {
        /// Number of the first tensor of the storage, as in [`Entry::Evict`].
        tensor: TensorId,
        /// Size in bytes.
        bytes: u64,
        /// Cost of the run that restored the storage. If one run restored several storages, the
        /// entry of the first storage has the cost, and the other entries have 0.
        cost: f64,
        /// Bytes in use after the entry.
        used: u64,
    },
    /// The last entry, added by [`Recorder::finish`]. A recording without an `End` was cut off.
    End,
}

/// Version of the format. Additions by version:
///
/// - 2: the last entry is [`Entry::End`].
/// - 3: bytes in use, evictions, and restored storages.
/// - 4: each command as the program gave it, with the attributes of its ops.
/// - 5: settings that change during the run, and the policy at the beginning of the run.
pub const VERSION: u32 = 5;

/// Takes the entries of a recording, on the thread that executes the commands.
pub trait Recorder: Send + fmt::Debug {
    /// Records one entry. An error is kept for [`Recorder::finish`].
    fn record(&mut self, entry: &Entry);

    /// Writes out all entries, at the end of the run.
    ///
    /// # Errors
    /// The first error of this call or of an earlier [`Recorder::record`].
    fn finish(&mut self) -> std::io::Result<()>;
}
