//! Panics of devices, ops, cost models and policies, turned into errors.

use crate::device::DeviceError;
use crate::error::{CallbackError, DeviceFault, Error};
use crate::layout::Layout;
use crate::op::{OpError, Operation, Outputs};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the device on behalf of `op`. A panic becomes an ordinary error of the op. The worker then
/// continues, and only values that depend on the op are lost.
pub(crate) fn guarded<T>(
    op: &str,
    call: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, Error> {
    // A panic may leave an output of the op incomplete on the device. The engine evicts or frees
    // that output.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(fault(op, &error)),
        Err(panic) => Err(fault(op, &DeviceError::new(format!("panicked: {}", words(&*panic))))),
    }
}

#[cold]
fn fault(op: &str, error: &DeviceError) -> Error {
    DeviceFault::of(op, error).into()
}

/// Calls code that a user may have written, and that does not change the engine. A panic becomes an
/// error that names the code as `what` says.
pub(crate) fn caught<T>(
    what: impl FnOnce() -> String,
    call: impl FnOnce() -> T,
) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| panicked(what(), &*panic))
}

#[cold]
fn panicked(what: String, panic: &(dyn Any + Send)) -> Error {
    CallbackError::Panicked { what, message: words(panic) }.into()
}

/// Outputs of `op`, as the op infers them.
pub(crate) fn inferred<O: Operation>(
    op: &O,
    inputs: &[Layout],
) -> Result<Result<Outputs, OpError>, Error> {
    caught(|| format!("{}: its outputs", op.name()), || op.infer(inputs))
}

/// Message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_that_names_the_op() {
        let error = guarded::<()>("get", || panic!("page {} is gone", 7)).unwrap_err();
        assert_eq!(error.to_string(), "get failed on the device: panicked: page 7 is gone");
        assert_eq!(guarded("get", || Ok(3)).unwrap(), 3);
    }

    #[test]
    fn a_panic_is_an_error_that_names_the_callback() {
        let error = caught::<()>(|| "the policy".to_owned(), || panic!("no idea")).unwrap_err();
        assert_eq!(error.to_string(), "the policy panicked: no idea");
        assert_eq!(caught(String::new, || 3).unwrap(), 3);
    }
}
