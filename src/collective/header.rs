//! Header of a collective: what a rank is about to do, for comparison among the ranks.

use crate::layout::DType;
use remat_memory::ByteSize;
use rustc_hash::FxHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

/// Kind of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Sum,
    Mean,
    ReduceScatter,
    AllGather,
    Broadcast { root: u32 },
}

impl Kind {
    /// Numbers that stand for the kind in a header.
    const fn code(self) -> [u32; 2] {
        match self {
            Self::Sum => [0, 0],
            Self::Mean => [1, 0],
            Self::ReduceScatter => [2, 0],
            Self::AllGather => [3, 0],
            Self::Broadcast { root } => [4, root],
        }
    }

    const fn of([code, root]: [u32; 2]) -> Option<Self> {
        Some(match code {
            0 => Self::Sum,
            1 => Self::Mean,
            2 => Self::ReduceScatter,
            3 => Self::AllGather,
            4 => Self::Broadcast { root },
            _ => return None,
        })
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sum => f.write_str("an all-reduce as a sum"),
            Self::Mean => f.write_str("an all-reduce as a mean"),
            Self::ReduceScatter => f.write_str("a reduce-scatter"),
            Self::AllGather => f.write_str("an all-gather"),
            Self::Broadcast { root } => write!(f, "a broadcast from rank {root}"),
        }
    }
}

/// Description of a collective by one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Number of the collective, from 0.
    pub number: u64,
    pub kind: Kind,
    pub dtype: DType,
    /// Bytes of the input.
    pub bytes: u64,
    /// Hash of the tensor's name.
    pub tensor: u64,
}

/// State of a rank at the beginning of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    /// The rank takes part, and has a value of its own.
    Ready,
    /// The rank takes part with zeros.
    Empty,
    /// The rank skips the collective because of a failure.
    Failed,
}

/// Bytes of a header and a status on the wire.
pub(super) const BYTES: usize = 40;

impl Header {
    /// Header of a collective of `bytes` bytes on each rank. The header gets its number when the
    /// collective begins.
    pub fn new(name: &str, kind: Kind, dtype: DType, bytes: u64) -> Self {
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        Self { number: 0, kind, dtype, bytes, tensor: hasher.finish() }
    }

    /// Whether both headers are of the same collective. The types and bytes of their inputs may
    /// differ.
    pub fn is_like(&self, other: &Self) -> bool {
        let of = |header: &Self| (header.number, header.kind, header.tensor);
        of(self) == of(other)
    }

    /// Bytes on the wire. Numbers of a header are in little-endian order. Tensors are in the byte
    /// order of the machines, which all processes of a training share.
    pub fn encode(&self, status: Status) -> [u8; BYTES] {
        let [code, root] = self.kind.code();
        let dtype = DType::ALL.iter().position(|dtype| *dtype == self.dtype).unwrap_or_default();
        let parts: [[u8; 8]; 5] = [
            self.number.to_le_bytes(),
            (u64::from(code) | u64::from(root) << 32).to_le_bytes(),
            (dtype as u64 | (status as u64) << 32).to_le_bytes(),
            self.bytes.to_le_bytes(),
            self.tensor.to_le_bytes(),
        ];
        let mut bytes = [0; BYTES];
        for (to, from) in bytes.chunks_exact_mut(8).zip(parts) {
            to.copy_from_slice(&from);
        }
        bytes
    }

    /// Reads the bytes of a rank; `None` if another version of the program wrote them.
    pub fn decode(bytes: &[u8]) -> Option<(Self, Status)> {
        let mut words = bytes
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(word.try_into().unwrap_or_default()));
        let mut next = || words.next();
        let (number, kind, state, bytes, tensor) = (next()?, next()?, next()?, next()?, next()?);
        let kind = Kind::of([kind as u32, (kind >> 32) as u32])?;
        let dtype = *DType::ALL.get(state as u32 as usize)?;
        let status = match state >> 32 {
            0 => Status::Ready,
            1 => Status::Empty,
            2 => Status::Failed,
            _ => return None,
        };
        Some((Self { number, kind, dtype, bytes, tensor }, status))
    }
}

impl fmt::Display for Header {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, kind, dtype, bytes, .. } = self;
        write!(f, "collective {number} is {kind} of {} of {dtype}", ByteSize(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_read_as_they_were_written() {
        let kinds = [
            Kind::Sum,
            Kind::Mean,
            Kind::ReduceScatter,
            Kind::AllGather,
            Kind::Broadcast { root: 7 },
        ];
        for (number, kind) in kinds.into_iter().enumerate() {
            for dtype in DType::ALL {
                for status in [Status::Ready, Status::Empty, Status::Failed] {
                    let (number, bytes, tensor) = (number as u64, u64::MAX - 5, 1 << 63 | 3);
                    let header = Header { number, kind, dtype, bytes, tensor };
                    assert_eq!(Header::decode(&header.encode(status)), Some((header, status)));
                }
            }
        }
        assert_eq!(Header::decode(&[0xff; BYTES]), None);
        assert_eq!(Header::decode(&[]), None);
    }
}
