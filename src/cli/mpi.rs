//! Ranks of an MPI job. In a program built without the feature `mpi`, `no_mpi.rs` replaces this
//! module.

use super::failure::Failure;
use super::ranks::World;
use super::ranks_args::RanksArgs;
use super::terminal::tell;
use remat::unstable::collective::Job;

/// Runs the work of this process as a rank of its job. If the rank fails while other ranks may wait
/// for it, the whole job is aborted.
pub fn run(
    args: &RanksArgs,
    work: impl FnOnce(&World) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Job::run(args.patience(), |job| {
        let world = World::of(job.fabric(), args);
        match work(&world) {
            Err(failure) if !world.ends() => Err(failure),
            // At this point, every rank ends without another exchange. The failure is printed
            // before other ranks may exit, because the launcher ends the job at the first exit code
            // that is not 0.
            ended => Ok(ended.map_err(tell)),
        }
    })?
}
