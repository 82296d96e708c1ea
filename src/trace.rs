//! Recording a run: every command with its sizes and costs, so that the lab can replay it.
//!
//! With the feature `serde`, `JsonLines` writes one JSON object a line, to a file or to anything else.

use std::fmt;

/// One command, after it was executed.
#[derive(Clone, Debug, PartialEq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(tag = "event", rename_all = "snake_case"))]
#[non_exhaustive]
pub enum Event {
    /// The first event of a trace.
    Begin {
        /// Version of the format: [`VERSION`].
        version: u32,
        /// Unit of the costs: the cost model's name.
        cost_model: String,
    },
    /// A value from the host.
    Put {
        /// Its number.
        tensor: u64,
        /// Its size.
        bytes: u64,
        /// Cost of the upload.
        cost: f64,
    },
    /// An op.
    Apply {
        /// Its name.
        op: String,
        /// Numbers of its inputs, repeats included.
        inputs: Vec<u64>,
        /// What it made.
        outputs: Vec<OutputEvent>,
        /// Scratch bytes it used.
        workspace: u64,
        /// Cost of the run; 0 for views.
        cost: f64,
        /// Floating-point operations of the run, estimated; `None` in traces of earlier programs.
        #[cfg_attr(feature = "serde", serde(default))]
        flops: Option<f64>,
        /// Whether it may run again.
        rematerializable: bool,
    },
    /// A value was read by the host.
    Get {
        /// Which.
        tensor: u64,
    },
    /// The last handle went.
    Del {
        /// Which.
        tensor: u64,
    },
    /// The user evicted it.
    Drop {
        /// Which.
        tensor: u64,
    },
    /// It became a leaf.
    Commit {
        /// Which.
        tensor: u64,
    },
    /// The end of a step.
    Step,
    /// The last event of a trace, which [`Recorder::finish`] adds: without it, the trace was cut off.
    End,
}

/// Version of the trace format. From 2 on, a trace ends with [`Event::End`].
pub const VERSION: u32 = 2;

/// One output of an op.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct OutputEvent {
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

/// Takes the events of a run. Called on the worker thread.
pub trait Recorder: Send + fmt::Debug {
    /// Records one event. An error is kept for [`Recorder::finish`].
    fn record(&mut self, event: &Event);

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
