//! Lines of a recording.

use super::{Knowledge, Setting};
use crate::command::{RecordedCommand, TensorId, Window};
use crate::event::Cause;
use std::fmt;

/// One line of a recording: a command after it was executed, a setting that was changed, or what happened to memory
/// meanwhile.
///
/// What happens during a command or a change comes before it, unless it happens to what the command makes.
///
/// `used` is how many bytes are in use then: all that is resident. `None` in recordings of version 1 or 2.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
#[allow(clippy::large_enum_variant)] // Most are the large one, and few are held at a time.
pub enum Entry {
    /// The first entry.
    Begin {
        /// Version of the format: [`VERSION`].
        version: u32,
        /// Unit of the costs: the cost model's name.
        cost_model: String,
        /// Bytes the run may hold; `None` in recordings of version 1 or 2.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        budget: Option<u64>,
        /// Bytes above which the run evicts before each op, if there is such a threshold.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        eviction_threshold: Option<u64>,
        /// What is evicted, by name, as in [`Setting::Policy`]. `None` in recordings before version 5, too.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        policy: Option<String>,
        /// How far the evictor saw.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Window::is_default"))]
        window: Window,
        /// What the run knew of its steps.
        #[cfg_attr(feature = "serde", serde(flatten))]
        known: Knowledge,
    },
    /// A command was executed. An update that was skipped is a view of the old value.
    Did {
        /// Which, with what it cost.
        command: RecordedCommand,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
        /// With the end of a step: most bytes ever in use so far, workspaces included.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        peak: Option<u64>,
    },
    /// A setting was changed.
    Set {
        /// Which, and to what.
        #[cfg_attr(feature = "serde", serde(flatten))]
        setting: Setting,
        /// Whether that failed: then it is as it was, but something may have been evicted or brought back.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "std::ops::Not::not"))]
        failed: bool,
        /// Bytes in use.
        used: u64,
    },
    /// The bytes of a storage went.
    Evict {
        /// The number under which it was first known: of the tensor that it was made for, which may be deleted.
        tensor: TensorId,
        /// Its size.
        bytes: u64,
        /// Why they went.
        cause: Cause,
        /// Bytes in use.
        used: u64,
    },
    /// A storage was brought back.
    Regenerate {
        /// As in [`Entry::Evict`].
        tensor: TensorId,
        /// Its size.
        bytes: u64,
        /// Cost of the run that brought it back; 0 if that is told of another storage that the same run brought back.
        cost: f64,
        /// Bytes in use.
        used: u64,
    },
    /// The last entry, which [`Recorder::finish`] adds: without it, the recording was cut off.
    End,
}

/// Version of the format. From 2 on, a recording ends with [`Entry::End`]; from 3 on, it says how many bytes were in use
/// and what was evicted and brought back; from 4 on, it has each command as it was given, with its
/// ops' attributes; from 5 on, it has what is set while the run goes on, and the policy at its beginning.
pub const VERSION: u32 = 5;

/// Takes the entries of a recording. Called on the thread that executes the commands.
pub trait Recorder: Send + fmt::Debug {
    /// Records one entry. An error is kept for [`Recorder::finish`].
    fn record(&mut self, entry: &Entry);

    /// The run is over: writes out everything recorded.
    ///
    /// # Errors
    /// The first error, now or before.
    fn finish(&mut self) -> std::io::Result<()>;
}
