//! Link of one rank to all ranks: the numbers of its collectives, and the agreement at the beginning
//! of each.

use super::fabric::{Fabric, FabricError};
use super::header::{self, Header, Kind, Status};
use super::sum;
use crate::device::DeviceError;
use crate::layout::DType;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use std::fmt;
use std::time::{Duration, Instant};

/// Bytes of the message by which a rank tells the other ranks of a failure. Longer messages are
/// cut.
const MESSAGE_BYTES: usize = 1024;

/// Bytes of a length on the wire.
const LENGTH_BYTES: usize = 8;

/// Link of a rank to all ranks.
pub(super) struct Link {
    fabric: Box<dyn Fabric>,
    /// Bytes of the buffer through which tensors pass.
    buffer: usize,
    /// Locked during a collective: the fabric takes one call at a time.
    state: Mutex<State>,
    /// Number of collectives that were started and have not ended.
    under_way: Mutex<usize>,
    /// Notified when no collective is under way.
    idle: Condvar,
    /// Buffer for the values of all ranks that are being summed.
    received: Mutex<Vec<f32>>,
    /// Time in which ops waited for collectives, in nanoseconds.
    waited: AtomicU64,
}

#[derive(Default)]
pub(super) struct State {
    /// Number of the next collective.
    next: u64,
    /// Error that ended all communication.
    broken: Option<String>,
    /// Failure of this rank that all ranks must learn of. After this failure, no collective runs.
    failed: Option<String>,
}

impl Link {
    pub fn new(fabric: impl Fabric, buffer: usize) -> Self {
        Self {
            fabric: Box::new(fabric),
            buffer,
            state: Mutex::default(),
            under_way: Mutex::default(),
            idle: Condvar::new(),
            received: Mutex::default(),
            waited: AtomicU64::new(0),
        }
    }

    pub fn fabric(&self) -> &dyn Fabric {
        &*self.fabric
    }

    pub fn rank(&self) -> usize {
        self.fabric.rank()
    }

    pub fn size(&self) -> usize {
        self.fabric.size()
    }

    pub const fn buffer(&self) -> usize {
        self.buffer
    }

    /// Replaces `values` by their sum over all ranks, by way of a buffer that this link keeps. At
    /// most `piece` values of each rank are sent at once.
    pub fn sum(&self, values: &mut [f32], piece: usize) -> Result<(), FabricError> {
        let mut received = lock(&self.received);
        received.resize(sum::workspace(values.len(), piece, self.size()), 0.0);
        sum::all_reduce(self.fabric(), Kind::Sum, values, piece, &mut received)
    }

    /// Time in which ops waited for collectives.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.waited.load(Ordering::Relaxed))
    }

    /// Does `work`, which waits for other ranks, and adds its time to the waiting time.
    pub fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        let start = Instant::now();
        let done = work();
        self.waited.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// Records that another thread has started a collective.
    pub fn start(&self) {
        *lock(&self.under_way) += 1;
    }

    /// Records that a collective of another thread has ended.
    pub fn end(&self) {
        let mut under_way = lock(&self.under_way);
        *under_way -= 1;
        if *under_way == 0 {
            self.idle.notify_all();
        }
    }

    /// Waits until no collective is under way, so that collectives run in the order of the ops.
    fn settle(&self) {
        let mut under_way = lock(&self.under_way);
        while *under_way > 0 {
            under_way = wait(&self.idle, under_way);
        }
    }

    /// Makes all later collectives fail on all ranks, because this rank alone has lost a value.
    pub fn fail(&self, why: &str) {
        lock(&self.state).failed.get_or_insert_with(|| why.to_owned());
    }

    /// See [`Ranks::exchange`](super::Ranks::exchange).
    pub fn exchange(&self, name: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, FabricError> {
        // The lengths differ between ranks, so the header has no length.
        self.settle();
        let header = Header::new(name, Kind::AllGather, DType::U8, 0);
        let _turn = self.agree(header, Status::Ready, "", None).map_err(FabricError)?;
        let mut lengths = vec![0; LENGTH_BYTES * self.size()];
        self.fabric.all_gather(&(bytes.len() as u64).to_le_bytes(), &mut lengths)?;
        let length = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let lengths = lengths.chunks_exact(LENGTH_BYTES).map(|bytes| length(bytes) as usize);
        let lengths: Vec<usize> = lengths.collect();
        let most = lengths.iter().copied().max().unwrap_or(0);
        let mut found: Vec<Vec<u8>> =
            lengths.iter().map(|&length| Vec::with_capacity(length)).collect();
        // The bytes are sent in pieces of at most the size of the buffer, padded with zeros.
        let piece = most.min(self.buffer).max(1);
        let (mut send, mut receive) = (vec![0; piece], vec![0; piece * self.size()]);
        for start in (0..most).step_by(piece) {
            let mine = bytes.get(start..bytes.len().min(start + piece)).unwrap_or_default();
            send[..mine.len()].copy_from_slice(mine);
            self.fabric.all_gather(&send, &mut receive)?;
            for (rank, part) in receive.chunks_exact(piece).enumerate() {
                let left = lengths[rank].saturating_sub(start).min(piece);
                found[rank].extend_from_slice(&part[..left]);
            }
        }
        Ok(found)
    }

    /// Begins the next collective by a comparison of headers. `any` is set if a rank has a value of
    /// its own. The collective ends when the returned guard is dropped.
    ///
    /// # Errors
    /// An error that is the same on all ranks, if the headers differ or a rank has failed.
    pub fn begin(
        &self,
        header: Header,
        status: Status,
        any: Option<&AtomicBool>,
    ) -> Result<MutexGuard<'_, State>, DeviceError> {
        self.settle();
        self.agree(header, status, "", any).map_err(DeviceError::new)
    }

    /// Takes part in the next collective as a rank that skips the collective because of the failure
    /// `why`.
    pub fn skip(&self, header: Header, why: &str) {
        // The caller knows the failure already. The next collective reports an error of the
        // connection.
        self.settle();
        drop(self.agree(header, Status::Failed, why, None));
    }

    /// Begins the next collective, without a wait for collectives that are under way.
    pub fn agree(
        &self,
        mut header: Header,
        status: Status,
        why: &str,
        any: Option<&AtomicBool>,
    ) -> Result<MutexGuard<'_, State>, String> {
        let mut state = lock(&self.state);
        if let Some(broken) = &state.broken {
            return Err(broken.clone());
        }
        let failed = state.failed.clone();
        let (status, why) = failed.as_deref().map_or((status, why), |why| (Status::Failed, why));
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

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fabric.fmt(f)
    }
}
