//! Commands for the worker.

use crate::engine::Stats;
use crate::error::Error;
use crate::evict::Evictor;
use crate::memory::Snapshot;
use crate::op::{Operation, Outputs};
use crate::ops::Ids;
use crossbeam_channel::Sender;
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::Arc;

/// A command, and the handles that were dropped before it was sent.
pub(crate) struct Message<O: Operation, H> {
    pub deleted: Ids,
    pub command: Command<O, H>,
}

/// An op, with its tensors by number.
pub(crate) struct Call<O> {
    pub op: O,
    pub inputs: Ids,
    pub consumed: Consumed,
    pub outputs: Outputs,
    /// Numbers of its outputs, in order.
    pub made: Range<u64>,
}

/// The inputs that may be updated in place, because their last handles were given away.
#[derive(Clone, Debug, Default)]
pub(crate) struct Consumed(SmallVec<[u64; 1]>);

impl Consumed {
    /// Adds input number `input`.
    pub fn insert(&mut self, input: usize) {
        let word = input / u64::BITS as usize;
        if word >= self.0.len() {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (input % u64::BITS as usize);
    }

    pub fn contains(&self, input: usize) -> bool {
        let word = self.0.get(input / u64::BITS as usize);
        word.is_some_and(|word| word >> (input % u64::BITS as usize) & 1 == 1)
    }
}

#[allow(clippy::large_enum_variant)] // The large one is by far the most frequent; boxing it costs more.
pub(crate) enum Command<O: Operation, H> {
    Put {
        id: u64,
        host: Arc<H>,
        /// Whether it must never be evicted.
        leaf: bool,
    },
    Apply(Call<O>),
    UpdateAll(Vec<Call<O>>),
    Replace {
        target: u64,
        /// Whether its last handle was given away.
        consumed: bool,
        value: u64,
        made: u64,
    },
    Confirm,
    Get {
        id: u64,
        reply: Sender<Result<H, Error>>,
    },
    Drop {
        id: u64,
    },
    Commit {
        id: u64,
    },
    Label {
        id: u64,
        label: String,
    },
    Step,
    Sync {
        reply: Sender<Result<(), Error>>,
    },
    Stats {
        reply: Sender<Result<Stats, Error>>,
    },
    Change {
        change: Change,
        reply: Sender<Result<(), Error>>,
    },
    Snapshot {
        reply: Sender<Result<Snapshot, Error>>,
    },
    Describe {
        what: Description,
        reply: Sender<Result<String, Error>>,
    },
    FinishRecording {
        reply: Sender<Result<(), Error>>,
    },
}

/// A setting that changes while the runtime works.
#[derive(Debug)]
pub(crate) enum Change {
    Budget(u64),
    EvictionThreshold(Option<u64>),
    Evictor(Box<dyn Evictor>),
    /// Whether history is kept.
    Enabled(bool),
}

/// Memory in words.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Description {
    /// A line of at most so many characters.
    Occupancy(usize),
    /// Chunk by chunk.
    Map,
}

impl<O: Operation, H> Command<O, H> {
    /// Its name, for spans, and what it is, for messages.
    const fn words(&self) -> [&'static str; 2] {
        match self {
            Self::Put { .. } => ["put", "a put"],
            Self::Apply(_) => ["apply", "an op"],
            Self::UpdateAll(_) => ["update_all", "an update of several tensors"],
            Self::Replace { .. } => ["replace", "a replacement"],
            Self::Confirm => ["confirm", "a replacement"],
            Self::Get { .. } => ["get", "a get"],
            Self::Drop { .. } => ["drop", "a drop"],
            Self::Commit { .. } => ["commit", "a commit"],
            Self::Label { .. } => ["label", "a label"],
            Self::Step => ["step", "the end of a step"],
            Self::Sync { .. } => ["sync", "a sync"],
            Self::Stats { .. } => ["stats", "a query of the counters"],
            Self::Change { .. } => ["change", "a change of settings"],
            Self::Snapshot { .. } => ["snapshot", "a look at the memory"],
            Self::Describe { .. } => ["describe", "a look at the memory"],
            Self::FinishRecording { .. } => ["finish_recording", "the end of a recording"],
        }
    }

    /// Its name, for spans.
    pub const fn name(&self) -> &'static str {
        self.words()[0]
    }

    /// What it is, for messages.
    pub const fn kind(&self) -> &'static str {
        self.words()[1]
    }

    /// The name of its op; of several updates, that of the first.
    pub fn op(&self) -> Option<&str> {
        match self {
            Self::Apply(call) => Some(call.op.name()),
            Self::UpdateAll(calls) => calls.first().map(|call| call.op.name()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_inputs_may_be_consumed() {
        let mut consumed = Consumed::default();
        let given = [0, 3, 63, 64, 65, 127, 128, 1000];
        given.iter().for_each(|&input| consumed.insert(input));
        let found: Vec<usize> = (0..2000).filter(|&input| consumed.contains(input)).collect();
        assert_eq!(found, given);
    }
}
