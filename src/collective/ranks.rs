//! One rank's view of all ranks.

use super::fabric::{Fabric, FabricError};
use super::header::Kind;
use super::later::{Queue, Start};
use super::link::Link;
use super::op::Collective;
use crate::layout::Layout;
use crate::ops::Op;
use crate::sync::OnceLock;
use crate::sync::atomic::AtomicBool;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Default size of the buffer through which tensors pass.
pub(super) const BUFFER_BYTES: usize = 1 << 20;

/// Smallest buffer, in which pieces of one element for a hundred ranks fit.
const LEAST_BUFFER_BYTES: usize = 1 << 10;

/// All ranks of a training, as one rank sees them. A clone stands for the same rank.
///
/// The methods make ops, which [`Runtime::update`](crate::Runtime::update) or
/// [`Tensor::apply`](crate::Tensor::apply) runs. All ranks must run the same collectives in the
/// same order. The name given to a collective is compared among the ranks.
#[derive(Clone)]
pub struct Ranks(Arc<Inner>);

struct Inner {
    link: Arc<Link>,
    /// Thread that runs collectives beside other ops; made when it is first needed.
    queue: OnceLock<Queue>,
}

impl Ranks {
    /// Takes over the fabric of a rank. The buffer of a collective has 1 MiB.
    #[must_use]
    pub fn new(fabric: impl Fabric) -> Self {
        Self::with_buffer(fabric, BUFFER_BYTES)
    }

    /// Like [`Ranks::new`], with a buffer of `bytes` bytes, or of 1 KiB if that is more. The size
    /// changes no bit of the results. All ranks must have the same size.
    #[must_use]
    pub fn with_buffer(fabric: impl Fabric, bytes: usize) -> Self {
        let link = Arc::new(Link::new(fabric, bytes.max(LEAST_BUFFER_BYTES)));
        Self(Arc::new(Inner { link, queue: OnceLock::new() }))
    }

    /// Number of this rank, below [`Ranks::size`].
    #[must_use]
    pub fn rank(&self) -> usize {
        self.0.link.rank()
    }

    /// Number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.0.link.size()
    }

    /// Bytes of the buffer through which tensors pass.
    #[must_use]
    pub fn buffer(&self) -> usize {
        self.0.link.buffer()
    }

    /// Time in which ops of this rank waited for collectives.
    #[must_use]
    pub fn waited(&self) -> Duration {
        self.0.link.waited()
    }

    /// Op that sums a tensor over all ranks, in place.
    #[must_use]
    pub fn all_reduce(&self, name: &str) -> Op {
        Collective::new(&self.0.link, name, Kind::Sum).into()
    }

    /// Op that averages a tensor over all ranks, in place: the sum divided by the number of ranks.
    #[must_use]
    pub fn all_mean(&self, name: &str) -> Op {
        Collective::new(&self.0.link, name, Kind::Mean).into()
    }

    /// Op that sums a tensor over all ranks, and returns a part of the sum on each rank: rank `r`
    /// gets part `r` of [`Ranks::size`] equal parts along the first dimension.
    #[must_use]
    pub fn reduce_scatter(&self, name: &str) -> Op {
        Collective::new(&self.0.link, name, Kind::ReduceScatter).into()
    }

    /// Op that joins the tensors of all ranks along the first dimension, in the order of the ranks.
    #[must_use]
    pub fn all_gather(&self, name: &str) -> Op {
        Collective::new(&self.0.link, name, Kind::AllGather).into()
    }

    /// Op that copies the tensor of rank `root` to all ranks, in place.
    ///
    /// # Panics
    /// Panics if there is no rank `root`.
    #[must_use]
    pub fn broadcast(&self, name: &str, root: usize) -> Op {
        assert!(root < self.size(), "there is no rank {root} among {}", self.size());
        Collective::new(&self.0.link, name, Kind::Broadcast { root: root as u32 }).into()
    }

    /// Op that sums a tensor over all ranks, in place, through the buffer of
    /// [`Ranks::all_reduce_later`] instead of a workspace.
    pub(crate) fn all_reduce_now(&self, name: &str, room: usize) -> Op {
        Collective::new(&self.0.link, name, Kind::Sum).reserved(room).into()
    }

    /// Op of a rank that has no tensor for a sum: the op takes part with zeros, which the caller
    /// provides. When the op has run, `any` says whether another rank has a tensor.
    pub(crate) fn all_reduce_nothing(&self, name: &str, room: usize, any: &Arc<AtomicBool>) -> Op {
        Collective::new(&self.0.link, name, Kind::Sum).reserved(room).empty(any).into()
    }

    /// Two ops that sum a tensor over all ranks. The first op takes the tensor, and leaves it
    /// unchanged. The second op returns the sum. Ops between these two ops run while the sum is
    /// made. The tensor has the layout `layout`. Until the sum is returned, a copy of the tensor
    /// counts towards the buffer of `room` bytes.
    ///
    /// This rank alone has lost the sum if the second op is skipped. With `is_agreed`, all ranks
    /// agree later whether to use the sums. Without `is_agreed`, all later collectives then fail.
    pub(crate) fn all_reduce_later(
        &self,
        name: &str,
        layout: Layout,
        room: usize,
        is_agreed: bool,
    ) -> [Op; 2] {
        let (start, wait) = Start::new(self, name, layout, room, is_agreed);
        [Op::from(start), Op::from(wait)]
    }

    /// Gives the bytes of each rank to all ranks. Programs compare their options by this call, or
    /// collect results. The ranks may give different numbers of bytes. All ranks call with the same
    /// `name`.
    ///
    /// The call does not wait for ops that were issued before. Call
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
    /// An error if a rank is gone, has failed, or runs another collective.
    pub fn exchange(&self, name: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, FabricError> {
        self.0.link.exchange(name, bytes)
    }

    pub(super) fn link(&self) -> &Arc<Link> {
        &self.0.link
    }

    /// Thread that runs collectives beside other ops.
    pub(super) fn queue(&self) -> &Queue {
        self.0.queue.get_or_init(|| Queue::new(&self.0.link))
    }
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.link.fmt(f)
    }
}
