//! Stands in for `mpi.rs` in a program built without the feature `mpi`.

use super::failure::Failure;
use super::ranks::World;
use super::ranks_args::RanksArgs;

/// Fails: there is no MPI in this program.
pub fn run(
    _args: &RanksArgs,
    _work: impl FnOnce(&World) -> Result<(), Failure>,
) -> Result<(), Failure> {
    Err(Failure::usage(
        "--distributed mpi: this program was built without MPI; install libopenmpi-dev and openmpi-bin (names of \
         Debian), then run cargo install remat --features mpi",
    ))
}
