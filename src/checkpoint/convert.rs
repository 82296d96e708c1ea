//! Conversion of floats between types.

use crate::host::{bf16, f16};
use crate::layout::DType;
use bytemuck::pod_read_unaligned;

/// Whether the type is a float type. All float types can be converted to each other.
pub const fn is_float(dtype: DType) -> bool {
    matches!(dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16)
}

/// Whether a conversion may round, because some numbers of type `from` do not exist in type `to`.
pub fn rounds(from: DType, to: DType) -> bool {
    let is_half = |dtype| matches!(dtype, DType::F16 | DType::BF16);
    from != to && (is_half(to) || from == DType::F64)
}

/// Converts elements, each to the nearest float of the new type.
///
/// # Errors
/// The first finite element that is too large for the new type.
pub fn convert(from: DType, bytes: &[u8], to: DType, out: &mut [u8]) -> Result<(), f64> {
    let elements = bytes.chunks_exact(from.bytes()).map(|element| match from {
        DType::F64 => pod_read_unaligned::<f64>(element),
        DType::F32 => pod_read_unaligned::<f32>(element).into(),
        DType::F16 => pod_read_unaligned::<f16>(element).to_f64(),
        _ => pod_read_unaligned::<bf16>(element).to_f64(),
    });
    for (x, out) in elements.zip(out.chunks_exact_mut(to.bytes())) {
        let is_lost = match to {
            DType::F64 => {
                out.copy_from_slice(&x.to_ne_bytes());
                false
            }
            DType::F32 => {
                out.copy_from_slice(&(x as f32).to_ne_bytes());
                (x as f32).is_infinite()
            }
            DType::F16 => {
                out.copy_from_slice(&f16::from_f64(x).to_ne_bytes());
                f16::from_f64(x).is_infinite()
            }
            _ => {
                out.copy_from_slice(&bf16::from_f64(x).to_ne_bytes());
                bf16::from_f64(x).is_infinite()
            }
        };
        if is_lost && x.is_finite() {
            return Err(x);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOATS: [DType; 4] = [DType::F64, DType::F32, DType::F16, DType::BF16];

    /// Stores a value as `from`, and converts it to `to`.
    fn through(x: f64, from: DType, to: DType) -> Result<f64, f64> {
        let mut stored = vec![0; from.bytes()];
        convert(DType::F64, &x.to_ne_bytes(), from, &mut stored)?;
        let mut converted = vec![0; to.bytes()];
        convert(from, &stored, to, &mut converted)?;
        let mut back = [0; 8];
        convert(to, &converted, DType::F64, &mut back)?;
        Ok(f64::from_ne_bytes(back))
    }

    #[test]
    fn exact_conversions_keep_the_bits_and_rounded_ones_are_near() {
        for from in FLOATS {
            for to in FLOATS {
                for x in [0.0, -0.0, 1.0, -1.5, 0.1, 1.0 / 3.0, 3e4, -6.1e-5, f64::INFINITY] {
                    let stored = through(x, DType::F64, from).unwrap();
                    let found = through(x, from, to).unwrap();
                    let is_near = (found - stored).abs() <= stored.abs() / 256.0 || found == stored;
                    assert!(is_near, "{x} from {from} to {to}: {found}");
                    assert!(rounds(from, to) || found.to_bits() == stored.to_bits(), "{from} {to}");
                }
                assert!(through(f64::NAN, from, to).unwrap().is_nan());
            }
        }
        assert!(rounds(DType::F32, DType::BF16) && rounds(DType::F16, DType::BF16));
        assert!(!rounds(DType::BF16, DType::F32) && !rounds(DType::F32, DType::F32));
    }

    #[test]
    fn a_number_too_large_for_its_type_is_an_error_and_no_infinity() {
        assert_eq!(through(1e300, DType::F64, DType::F32), Err(1e300));
        assert_eq!(through(-7e4, DType::F32, DType::F16), Err(f64::from(-7e4f32)));
        assert_eq!(through(1e39, DType::F64, DType::BF16), Err(1e39));
    }
}
