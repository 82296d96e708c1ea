//! Labels and indices.

use crate::device::DeviceError;

/// Fails with the first of `numbers` that is not in `0..limit`.
pub fn check_all_below(numbers: &[i32], limit: usize, what: &str) -> Result<(), DeviceError> {
    check_all_below_but(numbers, limit, None, what)
}

/// The same, but one number is allowed wherever it is.
pub fn check_all_below_but(
    numbers: &[i32],
    limit: usize,
    but: Option<i32>,
    what: &str,
) -> Result<(), DeviceError> {
    // As unsigned numbers, negative ones are above any of these.
    let bound = limit.min(1 << 31) as u32;
    match numbers.iter().position(|&n| n as u32 >= bound && Some(n) != but) {
        None => Ok(()),
        Some(at) => Err(DeviceError::new(format!(
            "{what} {} at position {at} is out of range, expected 0..{limit}",
            numbers[at]
        ))),
    }
}
