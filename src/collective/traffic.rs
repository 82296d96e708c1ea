//! Messages and bytes of a collective, for predictions of its time.
//!
//! The counts are those of the calls in `op.rs`: each all-to-all and each all-gather is a message
//! to each other rank. A broadcast sends its messages along a tree. Before a collective, each rank
//! sends a header.

use super::header;
use super::ranks::BUFFER_BYTES;

/// Bytes of a number that is summed.
const FLOAT_BYTES: u64 = 4;

/// Pattern of the messages between ranks, whatever is computed from the values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pattern {
    AllReduce,
    ReduceScatter,
    AllGather,
    Broadcast,
}

/// Messages that a rank sends one after the other, and their bytes together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    pub messages: u64,
    pub bytes: u64,
}

impl Traffic {
    /// A message of `bytes` bytes to each other rank, `times` times.
    const fn to_others(ranks: u64, times: u64, bytes: u64) -> Self {
        Self { messages: times * (ranks - 1), bytes: bytes * (ranks - 1) }
    }

    const fn and(self, other: Self) -> Self {
        Self { messages: self.messages + other.messages, bytes: self.bytes + other.bytes }
    }
}

/// Name of the op that starts an all-reduce, which goes on while other ops run.
pub(crate) const START: &str = "all_reduce_start";

/// Name of the op that waits for the oldest all-reduce that was started.
pub(crate) const WAIT: &str = "all_reduce_wait";

impl Pattern {
    const ALL: [Self; 4] = [Self::AllReduce, Self::ReduceScatter, Self::AllGather, Self::Broadcast];

    /// Name of the ops of this pattern.
    pub const fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "all_reduce",
            Self::ReduceScatter => "reduce_scatter",
            Self::AllGather => "all_gather",
            Self::Broadcast => "broadcast_from",
        }
    }

    /// Pattern of an op; `None` if the name is not the name of a collective.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|pattern| pattern.name() == name)
    }

    /// Traffic of a collective with a buffer of the usual size. `bytes` is the size of the whole
    /// tensor: the result of an all-gather, and the input of the other kinds.
    pub fn traffic(self, bytes: u64, ranks: u64) -> Traffic {
        if ranks < 2 {
            return Traffic::default();
        }
        let header = Traffic::to_others(ranks, 1, header::BYTES as u64);
        header.and(self.of_values(bytes, ranks, BUFFER_BYTES as u64))
    }

    /// Traffic without the header. A tensor larger than `buffer` bytes is sent in several pieces.
    fn of_values(self, bytes: u64, ranks: u64, buffer: u64) -> Traffic {
        // Elements of each rank that pass through the buffer at once.
        let most = |element: u64| (buffer / ranks / element).max(1);
        let numbers = bytes / FLOAT_BYTES;
        match self {
            Self::AllReduce => {
                let (each, rest) = (numbers / ranks, u64::from(!numbers.is_multiple_of(ranks)));
                // Half of the buffer is for values that wait to be sent.
                let most = (buffer / 2 / ranks / FLOAT_BYTES).max(1);
                let times = each.div_ceil(most) + rest;
                let once = Traffic::to_others(ranks, times, (each + rest) * FLOAT_BYTES);
                once.and(once)
            }
            Self::ReduceScatter => {
                let each = numbers / ranks;
                Traffic::to_others(ranks, each.div_ceil(most(FLOAT_BYTES)), each * FLOAT_BYTES)
            }
            Self::AllGather => {
                let each = bytes / ranks;
                Traffic::to_others(ranks, each.div_ceil(most(1)), each)
            }
            Self::Broadcast => {
                let hops = u64::from(ranks.next_power_of_two().ilog2());
                Traffic { messages: hops * bytes.div_ceil(buffer), bytes: hops * bytes }
            }
        }
    }
}

#[cfg(test)]
mod tests;
