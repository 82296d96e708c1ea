//! Panics of a device, taken for errors.

use crate::device::DeviceError;
use crate::error::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls the device on behalf of `op`. A panic is an error of that op like any other: the worker goes on,
/// and only what depends on the op is lost.
pub(super) fn guarded<T>(
    op: &str,
    call: impl FnOnce() -> Result<T, DeviceError>,
) -> Result<T, Error> {
    // The device may be left with half an output; the engine gives that output up.
    let result = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|s| (*s).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "no message".to_owned());
        Err(DeviceError::new(format!("panicked: {text}")))
    });
    result.map_err(|error| Error::device(op, &error))
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
}
