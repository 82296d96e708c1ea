//! Collectives: ops in which all ranks of one training take part.
//!
//! A rank is one of several runtimes that train one network, each on its own part of a batch, under
//! a budget of its own. The ranks are joined by a [`Fabric`], and [`Ranks`] makes ops over it:
//!
//! ```text
//! rank 0   all_reduce(g)  ── header ──┬── pieces ── sums ──  g = g0 + g1
//! rank 1   all_reduce(g)  ── header ──┘── pieces ── sums ──  g = g0 + g1
//! ```
//!
//! Each call of a collective runs exactly once on each rank, whatever the ranks evict and
//! recompute: a run on one rank alone would wait for ever. See
//! [`CustomOp::once`](crate::ops::CustomOp::once).
//!
//! # Sums
//!
//! A sum over ranks is made in the order of the ranks: `((g0 + g1) + g2) + g3`. The sum has the
//! bits of one rank that accumulates the gradients of the parts one after the other. Each rank owns
//! a piece of the tensor: an all-to-all brings the pieces of all ranks to their owners, and an
//! all-gather returns the sums. A ring all-reduce would send as many bytes.
//!
//! # Memory
//!
//! A tensor of any size passes through a buffer of fixed size, [`Ranks::buffer`], which is the
//! workspace of the op and counts towards the budget.
//!
//! # Failures
//!
//! Each collective begins with a header from each rank. If the headers differ, all ranks get the
//! same error in that collective, and in all later collectives. If a rank had to skip the
//! collective, because its input was lost or memory was short, all ranks get that rank's failure in
//! that collective. The output is then lost on all ranks, and an update that reads the output is
//! skipped on all ranks. An update itself may fail on one rank alone, for lack of memory. With
//! [`Optimizer::all_or_none`](crate::optim::Optimizer::all_or_none), all ranks agree before the
//! first update; otherwise, the other ranks keep their updates, and the job must end.
//!
//! ```
//! use remat::unstable::collective::{Ranks, threads};
//! use remat::prelude::*;
//!
//! let ranks = threads(2).into_iter().map(|fabric| {
//!     std::thread::spawn(move || -> Result<Vec<f32>, Error> {
//!         let ranks = Ranks::new(fabric);
//!         let runtime = Runtime::builder().budget("1MiB").cpu()?;
//!         let mut x = runtime.full(&[3], 1.0 + ranks.rank() as f32)?;
//!         runtime.update(ranks.all_reduce("x"), &mut [&mut x], &[])?;
//!         x.to_vec()
//!     })
//! });
//! let ranks: Vec<_> = ranks.collect();
//! for rank in ranks {
//!     assert_eq!(rank.join().unwrap()?, [3.0; 3]);
//! }
//! # Ok::<(), Error>(())
//! ```

mod fabric;
mod header;
mod later;
mod link;
#[cfg(feature = "mpi")]
mod mpi;
mod op;
mod ranks;
mod sum;
mod threads;
// Only the lab predicts traffic.
#[cfg_attr(not(feature = "lab"), allow(dead_code))]
mod traffic;

pub use fabric::{Fabric, FabricError};
#[cfg(feature = "mpi")]
pub use mpi::Job;
pub use ranks::Ranks;
pub use threads::{Threads, threads};
#[cfg(feature = "lab")]
pub(crate) use traffic::{Pattern, START, Traffic, WAIT};
