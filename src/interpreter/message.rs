//! Messages to the worker.

use crate::command::{Command, Ids, TensorId};
use crate::driver::Change;
use crate::engine::Stats;
use crate::error::Error;
use crate::evict::Forecast;
use crate::op::Operation;
use crate::step::KnownSteps;
use crate::sync::channel::Sender;
use remat_memory::Snapshot;

/// A command or a question, with the handles dropped since the previous message.
pub(crate) struct Message<O, H> {
    pub deleted: Ids,
    pub what: What<O, H>,
}

// A message is moved six times between sender and engine. In a message larger than 256 bytes, each
// memcpy takes twice as many instructions.
const _: () = assert!(size_of::<Message<crate::Op, crate::HostTensor>>() <= 256);

#[allow(clippy::large_enum_variant)] // Boxing the large, most frequent variant costs more.
pub(crate) enum What<O, H> {
    Do(Command<O, H>),
    Ask(Question<H>),
}

/// A request with an answer.
pub(crate) enum Question<H> {
    Get { tensor: TensorId, reply: Sender<Result<H, Error>> },
    Sync { reply: Sender<Result<(), Error>> },
    Stats { reply: Sender<Result<Stats, Error>> },
    Change { change: Change, reply: Sender<Result<(), Error>> },
    Snapshot { reply: Sender<Result<Snapshot, Error>> },
    Describe { what: Description, reply: Sender<Result<String, Error>> },
    FinishRecording { reply: Sender<Result<(), Error>> },
    Forecasts { turns: Option<u64>, reply: Sender<Result<Vec<Forecast>, Error>> },
    KnownSteps { reply: Sender<Result<Option<KnownSteps>, Error>> },
}

/// Forms of a text that describes memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Description {
    /// One line of at most as many characters as the field says.
    Occupancy(usize),
    /// One line for each chunk of memory.
    Map,
}

impl<O: Operation, H> What<O, H> {
    /// Name for spans, and description for messages.
    pub const fn words(&self) -> [&'static str; 2] {
        match self {
            Self::Do(command) => [command.name(), command.kind()],
            Self::Ask(question) => question.words(),
        }
    }

    /// Name of the op, or of the first op of several updates.
    pub fn op(&self) -> Option<&str> {
        match self {
            Self::Do(command) => command.op(),
            Self::Ask(_) => None,
        }
    }
}

impl<H> Question<H> {
    const fn words(&self) -> [&'static str; 2] {
        match self {
            Self::Get { .. } => ["get", "a get"],
            Self::Sync { .. } => ["sync", "a sync"],
            Self::Stats { .. } => ["stats", "a query of statistics"],
            Self::Change { .. } => ["change", "a change of settings"],
            Self::Snapshot { .. } => ["snapshot", "a look at the memory"],
            Self::Describe { .. } => ["describe", "a look at the memory"],
            Self::FinishRecording { .. } => ["finish_recording", "the end of a recording"],
            Self::Forecasts { .. } => ["forecasts", "a query of the forecasts"],
            Self::KnownSteps { .. } => ["known_steps", "a query of the known steps"],
        }
    }
}
