//! The sources of the kernels that NVRTC compiles, by family.

use super::launch::Kernel;

/// A file of kernels. The compiled text is `common.cuh` followed by this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Name in messages and in file names.
    pub(crate) name: &'static str,
    /// Text in CUDA C++.
    pub(crate) text: &'static str,
    /// Whether `WIDE` is defined. If `WIDE` is defined, kernels count their work in 64 bits.
    pub(crate) wide: bool,
}

/// Common beginning of all sources.
pub(crate) const COMMON: &str = include_str!("common.cuh");

/// Two versions of a source. The first version counts work in 31 bits. The second version counts
/// work in 64 bits; it is slower, and rarely needed.
#[derive(Debug)]
pub(crate) struct Family([Source; 2]);

impl Family {
    /// Makes a family of kernels from CUDA C++ text with `extern "C" __global__` functions. The
    /// crate's `common.cuh` is put in front of the text.
    #[must_use]
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self([Source { name, text, wide: false }, Source { name, text, wide: true }])
    }

    /// Name of the family.
    #[cfg(test)]
    pub(crate) const fn name(&self) -> &'static str {
        self.0[0].name
    }

    /// Kernel that never counts 2^31 or more units of work.
    pub(crate) const fn kernel(&self, name: &'static str) -> Kernel {
        Kernel { source: self.0[0], name }
    }

    /// Kernel whose threads count up to `units` units of work. From 2^31 units on, the function
    /// returns the version that counts in 64 bits.
    pub(crate) fn counting(&self, name: &'static str, units: u64) -> Kernel {
        let wide = units >= 1 << 31;
        #[cfg(test)]
        let wide = wide || tests::ALL_WIDE.get();
        Kernel { source: self.0[usize::from(wide)], name }
    }
}

#[cfg(test)]
mod tests {
    use super::Family;
    use crate::device::cuda::{compile, for_tests};
    use crate::ops::conformance::samples::{assert_same_bits, tasks};
    use crate::ops::conformance::{BYTES, Rig};
    use rayon::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// Whether launches of this thread use the kernels that count in 64 bits for any amount of
        /// work.
        pub(crate) static ALL_WIDE: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn kernels_for_a_lot_of_work_give_the_same_bits() {
        let Some(device) = for_tests(BYTES) else { return };
        let mut rig = Rig::of_gpu(device);
        assert_same_bits(tasks(&rig, 2), 2, |way, op, args| {
            ALL_WIDE.set(way == 1);
            rig.run(op, args)
        });
        ALL_WIDE.set(false);
    }

    /// This test needs NVRTC, but no device.
    #[test]
    fn all_kernels_compile_for_real_architectures() {
        if !compile::is_present() {
            println!("skipped: there is no NVRTC");
            return;
        }
        crate::ops::families().par_iter().flat_map_iter(|family| &family.0).for_each(|source| {
            for architecture in ["sm_80", "sm_90"] {
                let image = compile::compile(source, architecture).unwrap();
                assert!(!image.is_empty(), "{} for {architecture}", source.name);
            }
        });
        let example = include_str!("../../../examples/08_your_own_op.rs");
        let (_, example) = example.split_once("r#\"").unwrap();
        let family = Family::new("swish", example.split_once("\"#").unwrap().0);
        assert!(!compile::compile(&family.0[0], "sm_90").unwrap().is_empty());
        let known = compile::known().unwrap();
        assert!([80, 90].iter().all(|number| known.contains(number)), "{known:?}");
        let ptx = compile::compile(&crate::ops::families()[0].0[0], "compute_80").unwrap();
        assert_eq!(ptx.iter().position(|&byte| byte == 0), Some(ptx.len() - 1));
    }
}
