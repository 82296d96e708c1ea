//! Recording a run: every command with its sizes and costs, so that the lab can replay it; and what was evicted and
//! brought back meanwhile, so that its memory can be drawn.
//!
//! With the feature `serde`, `JsonLines` writes one JSON object a line, to a file or to anything else.

use crate::event::Cause;
use std::fmt;

/// One line of a recording: a command after it was executed, or what happened to memory while one was.
///
/// What happens during a command comes before that command, unless it happens to what the command makes.
///
/// `used` is how many bytes are in use then: all that is resident. `None` in traces of version 1 or 2.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Entry {
    /// The first entry of a trace.
    Begin {
        /// Version of the format: [`VERSION`].
        version: u32,
        /// Unit of the costs: the cost model's name.
        cost_model: String,
        /// Bytes the run may hold; `None` in traces of version 1 or 2.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        budget: Option<u64>,
        /// Bytes above which the run evicts before each op, if there is such a threshold.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        eviction_threshold: Option<u64>,
    },
    /// A value from the host.
    Put {
        /// Its number.
        tensor: u64,
        /// Its size.
        bytes: u64,
        /// Cost of the upload.
        cost: f64,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// An op.
    Apply {
        /// Its name.
        op: String,
        /// Numbers of its inputs, repeats included.
        inputs: Vec<u64>,
        /// What it made.
        outputs: Vec<OutputEntry>,
        /// Scratch bytes it used.
        workspace: u64,
        /// Cost of the run; 0 for views.
        cost: f64,
        /// Floating-point operations of the run, estimated; `None` in traces of earlier programs.
        #[cfg_attr(feature = "serde", serde(default))]
        flops: Option<f64>,
        /// Whether it may run again.
        rematerializable: bool,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// A value was read by the host.
    Get {
        /// Which.
        tensor: u64,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// The last handle went.
    Del {
        /// Which.
        tensor: u64,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// The user evicted it.
    Drop {
        /// Which.
        tensor: u64,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// It became a leaf.
    Commit {
        /// Which.
        tensor: u64,
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
    },
    /// The end of a step.
    Step {
        /// Bytes in use.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        used: Option<u64>,
        /// Most bytes ever in use so far, workspaces included.
        #[cfg_attr(feature = "serde", serde(default, skip_serializing_if = "Option::is_none"))]
        peak: Option<u64>,
    },
    /// The bytes of a storage went.
    Evict {
        /// The number under which it was first known: of the tensor that it was made for, which may be deleted.
        tensor: u64,
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
        tensor: u64,
        /// Its size.
        bytes: u64,
        /// Cost of the run that brought it back; 0 if that is told of another storage that the same run brought back.
        cost: f64,
        /// Bytes in use.
        used: u64,
    },
    /// The last entry of a trace, which [`Recorder::finish`] adds: without it, the trace was cut off.
    End,
}

impl Entry {
    /// Whether this is what happened to memory, and not a command: who replays commands leaves it out.
    #[must_use]
    pub const fn is_about_memory(&self) -> bool {
        matches!(self, Self::Evict { .. } | Self::Regenerate { .. })
    }
}

/// Version of the trace format. From 2 on, a trace ends with [`Entry::End`]; from 3 on, it says how many bytes were in use
/// and what was evicted and brought back.
pub const VERSION: u32 = 3;

/// One output of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutputEntry {
    /// Its number.
    pub tensor: u64,
    /// Its size.
    pub bytes: u64,
    /// What it is made of.
    #[cfg_attr(feature = "serde", serde(flatten))]
    pub source: Source,
}

/// What an output is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "source", rename_all = "snake_case"))]
pub enum Source {
    /// A storage of its own.
    Fresh,
    /// The storage of an input.
    View {
        /// Position among the inputs.
        input: usize,
    },
    /// The updated value of an input.
    InPlace {
        /// Position among the inputs.
        input: usize,
        /// Whether the caller gave its last handle away, so that the storage may be taken over.
        consumed: bool,
    },
}

/// Takes the entries of a recording. Called on the worker thread.
pub trait Recorder: Send + fmt::Debug {
    /// Records one entry. An error is kept for [`Recorder::finish`].
    fn record(&mut self, entry: &Entry);

    /// The run is over: writes out everything recorded.
    ///
    /// # Errors
    /// The first error, now or before.
    fn finish(&mut self) -> std::io::Result<()>;
}

#[cfg(feature = "serde")]
mod json_lines;
#[cfg(feature = "serde")]
mod whole_file;
#[cfg(feature = "serde")]
pub use {json_lines::JsonLines, whole_file::WholeFile};
