//! Finding out how the steps of a training are best run, beside the training.

use remat::Error;
use remat::device::Device;
use remat::evict::Learn;
use remat::program::{Driver, Learner};

/// Finds out as much for a driver, for [`Driver::learn_by`].
///
/// # Errors
/// If that takes a search, and this crate was built without.
#[cfg(feature = "lab")]
pub(crate) fn learner<D: Device>(
    driver: &Driver<D>,
    learn: Learn,
    seed: u64,
) -> Result<Option<Box<dyn Learner>>, Error> {
    Ok(remat::lab::learner(driver, learn, seed))
}

#[cfg(not(feature = "lab"))]
pub(crate) fn learner<D: Device>(
    _driver: &Driver<D>,
    learn: Learn,
    _seed: u64,
) -> Result<Option<Box<dyn Learner>>, Error> {
    if learn == Learn::Ahead {
        return Ok(None);
    }
    let policy = remat::PolicyKind::Learned(learn);
    let wrong = format!(
        "the policy {policy} searches: build remat-burn with its feature `lab`, or take `learned`"
    );
    Err(remat::error::RuntimeError::Settings(wrong).into())
}
