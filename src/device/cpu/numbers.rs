//! Checks of labels and indices.

use crate::device::DeviceError;

/// Checks that all `numbers` are in `0..limit`. The error names the first number that is out of
/// range.
pub fn check_all_below(numbers: &[i32], limit: usize, what: &str) -> Result<(), DeviceError> {
    check_all_below_but(numbers, limit, None, what)
}

/// Like [`check_all_below`], but the number `but` is also allowed.
pub fn check_all_below_but(
    numbers: &[i32],
    limit: usize,
    but: Option<i32>,
    what: &str,
) -> Result<(), DeviceError> {
    // A negative number becomes at least 2^31 when it is converted to `u32`, and `bound` is at most
    // 2^31. One comparison therefore finds both negative numbers and numbers that are too large.
    let bound = limit.min(1 << 31) as u32;
    match numbers.iter().position(|&n| n as u32 >= bound && Some(n) != but) {
        None => Ok(()),
        Some(at) => Err(DeviceError::new(format!(
            "{what} {} at position {at} is out of range, expected 0..{limit}",
            numbers[at]
        ))),
    }
}
