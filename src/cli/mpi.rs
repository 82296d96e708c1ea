//! Ranks of an MPI job. In a program built without the feature `mpi`, `no_mpi.rs` replaces this
//! module.

use super::failure::Failure;
use super::ranks::{RanksArgs, World};
use remat::unstable::collective::Job;

/// Runs the work of this process as a rank of its job. If the rank fails while others may wait for
/// it, the whole job is aborted.
pub fn run(
    args: &RanksArgs,
    work: impl FnOnce(&World) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Job::run(args.patience(), |job| {
        let world = World::of(job.fabric(), args);
        let ended = work(&world);
        if ended.is_ok() || world.ends() { Ok(ended) } else { ended.map(Ok) }
    })?
}
