//! What travels to the worker.

use crate::engine::Stats;
use crate::error::Error;
use crate::op::{Op, Outputs};
use crossbeam_channel::Sender;
use smallvec::SmallVec;
use std::sync::Arc;

/// Tensor numbers: counted up by the runtime, never used twice.
pub(crate) type Ids = SmallVec<[u64; 4]>;

/// A command, and the handles that went before it was given.
pub(crate) struct Message<O: Op, H> {
    pub deleted: Ids,
    pub command: Command<O, H>,
}

#[allow(clippy::large_enum_variant)] // The large one is by far the most frequent; boxing it costs more.
pub(crate) enum Command<O: Op, H> {
    Put {
        id: u64,
        host: Arc<H>,
    },
    Apply {
        op: O,
        inputs: Ids,
        /// Bit `i`: input `i` may be updated in place, for its last handle was given away.
        consumed: u64,
        outputs: Outputs,
        made: SmallVec<[u64; 2]>,
    },
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
    FinishRecording {
        reply: Sender<Result<(), Error>>,
    },
}
