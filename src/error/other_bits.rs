//! Error of an op that gives other bits in a repeated run.

use crate::layout::{DType, Layout};
use half::{bf16, f16};
use std::fmt;
use std::ops::Range;

/// Difference between the bits of an op's first run and of a later run. The op's outputs cannot be
/// restored.
#[derive(Clone, Debug, PartialEq)]
pub struct OtherBits {
    /// Op that ran. `put` if the value was uploaded again.
    pub op: String,
    /// Layouts of the op's inputs.
    pub inputs: Vec<Layout>,
    /// Number of the first output that differs.
    pub output: usize,
    /// Layout of the output that differs.
    pub layout: Layout,
    /// Step in which the difference was found, counted from 1: the number of step marks so far,
    /// plus 1.
    pub step: u64,
    /// Range of elements that contains the first difference, counted in row-major order. If `bits`
    /// are known, the range is exactly one element.
    pub elements: Range<usize>,
    /// Bits of the element at the eviction, and after the repeated run.
    pub bits: Option<[u64; 2]>,
    /// Whether further elements are known to differ.
    pub more: bool,
}

impl std::error::Error for OtherBits {}

impl fmt::Display for OtherBits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { op, inputs, output, layout, step, elements, bits, more } = self;
        write!(f, "{op}(")?;
        for (number, input) in inputs.iter().enumerate() {
            let separator = if number == 0 { "" } else { ", " };
            write!(f, "{separator}{input}")?;
        }
        write!(
            f,
            ") gave other bits when it ran again in step {step}: in output {output}, {layout}, "
        )?;
        match bits {
            Some([was, is]) => {
                let [was, is] = [was, is].map(|&bits| Element { bits, dtype: layout.dtype() });
                write!(f, "element {} was {was} and is {is}", elements.start)?;
                if *more {
                    f.write_str(", and other elements differ, too")?;
                }
            }
            None => {
                let last = elements.end.saturating_sub(1);
                write!(f, "several of the elements {} to {last} differ", elements.start)?;
            }
        }
        f.write_str("; an op must give the same bits whenever it runs on the same inputs")
    }
}

/// An element, printed as a number and as bits.
struct Element {
    bits: u64,
    dtype: DType,
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let &Self { bits, dtype } = self;
        match dtype {
            DType::F64 => write!(f, "{}", f64::from_bits(bits))?,
            DType::F32 => write!(f, "{}", f32::from_bits(bits as u32))?,
            DType::F16 => write!(f, "{}", f16::from_bits(bits as u16))?,
            DType::BF16 => write!(f, "{}", bf16::from_bits(bits as u16))?,
            DType::I64 => write!(f, "{}", bits as i64)?,
            DType::I32 => write!(f, "{}", bits as u32 as i32)?,
            DType::U32 | DType::U8 | DType::Bool => write!(f, "{bits}")?,
        }
        write!(f, " (0x{bits:0width$x})", width = 2 * dtype.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(dtype: DType, bits: Option<[u64; 2]>, more: bool) -> String {
        let layout = Layout::contiguous(dtype, [8, 64]);
        let elements = if bits.is_some() { 37..38 } else { 256..512 };
        let (op, inputs) = ("swish".to_owned(), vec![layout]);
        OtherBits { op, inputs, output: 0, layout, step: 12, elements, bits, more }.to_string()
    }

    #[test]
    fn elements_are_named_with_their_bits() {
        for (dtype, bits, told) in [
            (
                DType::F32,
                [0x3f80_0000, 0x3f80_0001],
                "was 1 (0x3f800000) and is 1.0000001 (0x3f800001)",
            ),
            (DType::F32, [0, 0x8000_0000], "was 0 (0x00000000) and is -0 (0x80000000)"),
            (
                DType::F32,
                [0x7fc0_0000, 0x7fc0_0001],
                "was NaN (0x7fc00000) and is NaN (0x7fc00001)",
            ),
            (DType::BF16, [0x3f80, 0xbf80], "was 1 (0x3f80) and is -1 (0xbf80)"),
            (DType::I32, [7, 0xffff_ffff], "was 7 (0x00000007) and is -1 (0xffffffff)"),
            (DType::Bool, [0, 1], "was 0 (0x00) and is 1 (0x01)"),
        ] {
            let text = found(dtype, Some(bits), false);
            assert!(text.contains(&format!("element 37 {told};")), "{text}");
            let text = found(dtype, Some(bits), true);
            assert!(text.contains(", and other elements differ, too;"), "{text}");
        }
        assert_eq!(
            found(DType::F32, None, true),
            "swish(f32[8, 64]) gave other bits when it ran again in step 12: in output 0, f32[8, 64], several of \
             the elements 256 to 511 differ; an op must give the same bits whenever it runs on the same inputs"
        );
    }
}
