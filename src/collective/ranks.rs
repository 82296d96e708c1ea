//! One rank's view of all ranks: the numbers of its collectives, and the agreement at the beginning
//! of each.

use super::fabric::{Fabric, FabricError};
use super::header::{self, Header, Kind, Status};
use super::op::Collective;
use super::timed::Timed;
use crate::device::DeviceError;
use crate::layout::DType;
use crate::ops::Op;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, lock};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of the message by which a rank tells the others of a failure. Longer messages are cut.
const MESSAGE_BYTES: usize = 1024;

/// Bytes of a length on the wire.
const LENGTH_BYTES: usize = 8;

/// Default size of the buffer through which tensors pass.
const BUFFER_BYTES: usize = 1 << 20;

/// Smallest buffer: pieces of one element for a hundred ranks fit.
const LEAST_BUFFER_BYTES: usize = 1 << 10;

/// All ranks of a training, as one of them sees them. Clones are the same rank.
///
/// The methods make ops, which [`Runtime::update`](crate::Runtime::update) or
/// [`Tensor::apply`](crate::Tensor::apply) runs. All ranks must run the same collectives in the
/// same order. The name given to a collective is compared among the ranks.
#[derive(Clone)]
pub struct Ranks(Arc<Inner>);

struct Inner {
    fabric: Timed,
    buffer: usize,
    /// Locked during a collective: the fabric takes one call at a time.
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// Number of the next collective.
    next: u64,
    /// Error that ended all communication.
    broken: Option<String>,
}

impl Ranks {
    /// Takes over the fabric of a rank. The buffer of a collective has 1 MiB.
    #[must_use]
    pub fn new(fabric: impl Fabric) -> Self {
        Self::with_buffer(fabric, BUFFER_BYTES)
    }

    /// Like [`Ranks::new`], with a buffer of `bytes` bytes, or of 1 KiB if that is more. The size
    /// changes no bit of the results, and may differ among the ranks only if it is larger than the
    /// largest tensor.
    #[must_use]
    pub fn with_buffer(fabric: impl Fabric, bytes: usize) -> Self {
        let buffer = bytes.max(LEAST_BUFFER_BYTES);
        Self(Arc::new(Inner { fabric: Timed::new(fabric), buffer, state: Mutex::default() }))
    }

    /// Number of this rank, below [`Ranks::size`].
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.fabric.rank()
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.fabric.size()
    }

    /// Bytes of the buffer through which tensors pass.
    #[must_use]
    pub fn buffer(&self) -> usize {
        self.0.buffer
    }

    /// Op that sums a tensor over all ranks, in place.
    #[must_use]
    pub fn all_reduce(&self, name: &str) -> Op {
        Collective::new(self, name, Kind::Sum).into()
    }

    /// Op of a rank that has no tensor for an [`Ranks::all_reduce`]: takes part with zeros, which the
    /// caller provides. When the op has run, `any` says whether another rank has a tensor.
    pub(crate) fn all_reduce_nothing(&self, name: &str, any: &Arc<AtomicBool>) -> Op {
        Collective::new(self, name, Kind::Sum).empty(any).into()
    }

    /// Op that averages a tensor over all ranks, in place: the sum divided by the number of ranks.
    #[must_use]
    pub fn all_mean(&self, name: &str) -> Op {
        Collective::new(self, name, Kind::Mean).into()
    }

    /// Op that sums a tensor over all ranks, and returns a part of the sum on each rank: rank `r`
    /// gets part `r` of [`Ranks::size`] equal parts along the first dimension.
    #[must_use]
    pub fn reduce_scatter(&self, name: &str) -> Op {
        Collective::new(self, name, Kind::ReduceScatter).into()
    }

    /// Op that joins the tensors of all ranks along the first dimension, in the order of the ranks.
    #[must_use]
    pub fn all_gather(&self, name: &str) -> Op {
        Collective::new(self, name, Kind::AllGather).into()
    }

    /// Op that copies the tensor of rank `root` to all ranks, in place.
    ///
    /// # Panics
    /// Panics if there is no rank `root`.
    #[must_use]
    pub fn broadcast(&self, name: &str, root: usize) -> Op {
        assert!(root < self.size(), "there is no rank {root} among {}", self.size());
        Collective::new(self, name, Kind::Broadcast { root: root as u32 }).into()
    }

    /// Time that this rank has spent in collectives: it sent, received, or waited for other ranks.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.fabric.time()
    }

    /// Gives the bytes of each rank to all ranks. Programs compare their options by this call, or
    /// collect results. The lengths may differ. All ranks call with the same `name`.
    ///
    /// The call does not wait for ops that were issued before; call
    /// [`Runtime::sync`](crate::Runtime::sync) first, or the order of collectives may differ among
    /// the ranks.
    ///
    /// ```
    /// use remat::unstable::collective::{FabricError, Ranks, threads};
    ///
    /// let ranks = threads(2).into_iter().map(|fabric| {
    ///     std::thread::spawn(move || {
    ///         let ranks = Ranks::new(fabric);
    ///         ranks.exchange("budgets", &vec![7; 1 + ranks.rank()])
    ///     })
    /// });
    /// for rank in ranks.collect::<Vec<_>>() {
    ///     assert_eq!(rank.join().unwrap()?, [vec![7], vec![7, 7]]);
    /// }
    /// # Ok::<(), FabricError>(())
    /// ```
    ///
    /// # Errors
    /// If a rank is gone, has failed, or runs another collective.
    pub fn exchange(&self, name: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, FabricError> {
        // The lengths differ, so the header has none.
        let header = Header::new(name, Kind::AllGather, DType::U8, 0);
        let _turn = self.agree(header, Status::Ready, "", None).map_err(FabricError)?;
        let mut lengths = vec![0; LENGTH_BYTES * self.size()];
        self.fabric().all_gather(&(bytes.len() as u64).to_le_bytes(), &mut lengths)?;
        let length = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let lengths = lengths.chunks_exact(LENGTH_BYTES).map(|bytes| length(bytes) as usize);
        let lengths: Vec<usize> = lengths.collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let mut found: Vec<Vec<u8>> =
            lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        // Pieces of at most the size of the buffer, padded with zeros.
        let piece = most.min(self.buffer()).max(1);
        let (mut send, mut receive) = (vec![0; piece], vec![0; piece * self.size()]);
        for start in (0..most).step_by(piece) {
            let mine = bytes.get(start..bytes.len().min(start + piece)).unwrap_or_default();
            send[..mine.len()].copy_from_slice(mine);
            self.fabric().all_gather(&send, &mut receive)?;
            for (rank, part) in receive.chunks_exact(piece).enumerate() {
                let left = lengths[rank].saturating_sub(start).min(piece);
                found[rank].extend_from_slice(&part[..left]);
            }
        }
        Ok(found)
    }

    pub(super) fn fabric(&self) -> &dyn Fabric {
        &self.0.fabric
    }

    /// Begins the next collective: compares headers. `any` is set if a rank has a value of its own.
    /// The collective ends when the returned guard is dropped.
    ///
    /// # Errors
    /// The same error on all ranks, if the headers differ or a rank has failed.
    pub(super) fn begin(
        &self,
        header: Header,
        status: Status,
        any: Option<&AtomicBool>,
    ) -> Result<MutexGuard<'_, State>, DeviceError> {
        self.agree(header, status, "", any).map_err(DeviceError::new)
    }

    /// Takes part in the next collective as the rank that skips it for the failure `why`.
    pub(super) fn skip(&self, header: Header, why: &str) {
        // The failure is known here already. An error of the connection is told by the next
        // collective.
        drop(self.agree(header, Status::Failed, why, None));
    }

    fn agree(
        &self,
        mut header: Header,
        status: Status,
        why: &str,
        any: Option<&AtomicBool>,
    ) -> Result<MutexGuard<'_, State>, String> {
        let mut state = lock(&self.0.state);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        header.number = state.next;
        state.next += 1;
        match self.compare(&header, status, why) {
            Ok(Agreed::Run { has_value }) => {
                if let Some(any) = any {
                    any.store(has_value, Ordering::Release);
                }
                Ok(state)
            }
            Ok(Agreed::Failed(message)) => Err(message),
            Err(message) => {
                state.broken = Some(message.clone());
                Err(message)
            }
        }
    }

    /// Exchanges headers, and the message of a rank that has failed.
    ///
    /// # Errors
    /// An error that ends all communication.
    fn compare(&self, header: &Header, status: Status, why: &str) -> Result<Agreed, String> {
        let fabric = self.fabric();
        let lost = |error: FabricError| format!("{header}: {error}");
        let mut all = vec![0; header::BYTES * self.size()];
        fabric.all_gather(&header.encode(status), &mut all).map_err(lost)?;
        let of_rank = |bytes| {
            Header::decode(bytes)
                .ok_or_else(|| format!("{header}: another rank runs another version of remat"))
        };
        let ranks = all.chunks_exact(header::BYTES).map(of_rank).collect::<Result<Vec<_>, _>>()?;
        let (first, of_first) = ranks[0];
        let differs = |(other, status): &(Header, Status)| {
            // A rank that skips the collective does not know the bytes of its input.
            let skips = [of_first, *status].contains(&Status::Failed);
            if skips { !other.is_like(&first) } else { *other != first }
        };
        if let Some(rank) = ranks.iter().position(differs) {
            return Err(differ(&first, rank, &ranks[rank].0));
        }
        let has_value = ranks.iter().any(|(_, status)| *status == Status::Ready);
        let Some(failed) = ranks.iter().position(|(_, status)| *status == Status::Failed) else {
            return Ok(Agreed::Run { has_value });
        };
        let mut message = [0; MESSAGE_BYTES];
        if failed == self.rank() {
            let end = why.floor_char_boundary(MESSAGE_BYTES);
            message[..end].copy_from_slice(&why.as_bytes()[..end]);
        }
        fabric.broadcast(failed, &mut message).map_err(lost)?;
        let end = message.iter().position(|&byte| byte == 0).unwrap_or(MESSAGE_BYTES);
        let why = String::from_utf8_lossy(&message[..end]);
        Ok(Agreed::Failed(format!("rank {failed} failed: {why}")))
    }
}

/// Outcome of a comparison of headers.
enum Agreed {
    /// All ranks run the collective.
    Run {
        /// Whether a rank has a value of its own.
        has_value: bool,
    },
    /// A rank has failed, so no rank runs the collective. The message is the same on all ranks.
    Failed(String),
}

/// Message about two ranks whose headers differ.
fn differ(first: &Header, rank: usize, other: &Header) -> String {
    if (Header { tensor: first.tensor, ..*other }) == *first {
        return format!("{first}, but on rank 0 and rank {rank} of tensors with other names");
    }
    format!("ranks differ: on rank 0, {first}; on rank {rank}, {other}")
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0.fabric)
    }
}
