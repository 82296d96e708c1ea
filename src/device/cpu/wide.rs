//! Loops that are also compiled for wide vector instructions, which only some machines have.
//!
//! A loop gives the same bits for any vector width, because Rust neither reorders nor fuses float
//! operations.

/// Runs a short loop, compiled for the widest vectors of this machine. Only code that the compiler
/// inlines into `work` uses the wide vectors.
#[inline(always)]
pub fn widest<R>(work: impl FnOnce() -> R) -> R {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") && has!("avx512vl") && has!("avx512dq") && has!("avx512bw") {
            // SAFETY: the checks above guarantee that this machine has all features that `avx512`
            // is compiled for.
            return unsafe { x86::avx512(work) };
        }
        if has!("avx2") {
            // SAFETY: the check above guarantees that this machine has AVX2, which `avx2` is
            // compiled for.
            return unsafe { x86::avx2(work) };
        }
    }
    work()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw")]
    pub(super) fn avx512<R>(work: impl FnOnce() -> R) -> R {
        work()
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn avx2<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::cpu::math::{exp, tanh};

    #[inline(always)]
    fn compute(out: &mut [f32], x: &[f32]) {
        for (out, &x) in out.iter_mut().zip(x) {
            *out = exp(x) * 0.3 + tanh(x) * x;
        }
    }

    #[test]
    fn bits_do_not_depend_on_the_width() {
        let x: Vec<f32> = (0..1000).map(|i| (i as f32 - 500.0) / 37.0).collect();
        let (mut narrow, mut wide) = (vec![0.0; 1000], vec![0.0; 1000]);
        compute(&mut narrow, &x);
        widest(
            #[inline(always)]
            || compute(&mut wide, &x),
        );
        assert_eq!(
            bytemuck::cast_slice::<f32, u32>(&narrow),
            bytemuck::cast_slice::<f32, u32>(&wide)
        );
    }
}
