//! The sources of the kernels that NVRTC compiles, by family.

use super::launch::Kernel;

/// A file of kernels. `common.cuh` is put in front of each.
#[derive(Debug)]
pub(super) struct Source {
    /// For messages, and to know it by.
    pub name: &'static str,
    /// CUDA C++.
    pub text: &'static str,
    /// Compiled with `WIDE`: kernels count their work in 64 bits.
    pub wide: bool,
}

/// What all sources begin with.
pub(super) const COMMON: &str = include_str!("kernels/common.cuh");

/// A source, and the same for more work than 31 bits count: that is slower and seldom there.
#[derive(Debug)]
pub(super) struct Family([Source; 2]);

impl Family {
    /// A kernel that counts nothing large.
    pub(super) const fn kernel(&'static self, name: &'static str) -> Kernel {
        Kernel { source: &self.0[0], name }
    }

    /// The kernel that does so much work: a number that its threads count up to.
    pub(super) fn counting(&'static self, name: &'static str, units: u64) -> Kernel {
        let wide = units >= 1 << 31;
        #[cfg(test)]
        let wide = wide || tests::ALL_WIDE.get();
        Kernel { source: &self.0[usize::from(wide)], name }
    }
}

macro_rules! families {
    ($($family:ident: $name:literal),* $(,)?) => {
        $(#[doc = concat!("`", $name, ".cu`.")]
        pub(super) static $family: Family = Family([
            Source { name: $name, text: include_str!(concat!("kernels/", $name, ".cu")), wide: false },
            Source {
                name: concat!($name, "_wide"),
                text: include_str!(concat!("kernels/", $name, ".cu")),
                wide: true,
            },
        ]);)*

        /// All of them.
        #[cfg(test)]
        pub(super) static ALL: &[&Family] = &[$(&$family),*];
    };
}

families! {
    COLUMNS: "columns",
    COPY: "copy",
    ELEMENTWISE: "elementwise",
    INDEX: "index",
    NORM: "norm",
    POOL: "pool",
    RANDOM: "random",
    REDUCE: "reduce",
    SOFTMAX: "softmax",
    UPDATE: "update",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::conformance::Rig;
    use crate::device::conformance::samples::{assert_same_bits, results};
    use crate::device::cuda::{compile, for_tests};
    use rayon::prelude::*;
    use std::cell::Cell;

    thread_local! {
        /// Whether launches of this thread take the kernels for a lot of work in any case.
        pub(super) static ALL_WIDE: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn kernels_for_a_lot_of_work_give_the_same_bits() {
        let Some(device) = for_tests() else { return };
        let mut rig = Rig::new(device);
        let usual = results(&mut rig);
        ALL_WIDE.set(true);
        let wide = results(&mut rig);
        ALL_WIDE.set(false);
        assert_same_bits(&usual, &wide);
    }

    /// Needs NVRTC, but no device.
    #[test]
    fn all_kernels_compile_for_real_architectures() {
        if !compile::is_present() {
            println!("skipped: there is no NVRTC");
            return;
        }
        ALL.par_iter().flat_map_iter(|family| &family.0).for_each(|source| {
            for architecture in ["sm_80", "sm_90"] {
                let image = compile::compile(source, architecture).unwrap();
                assert!(!image.is_empty(), "{} for {architecture}", source.name);
            }
        });
        let known = compile::known().unwrap();
        assert!([80, 90].iter().all(|number| known.contains(number)), "{known:?}");
        let ptx = compile::compile(&UPDATE.0[0], "compute_80").unwrap();
        assert_eq!(ptx.iter().position(|&byte| byte == 0), Some(ptx.len() - 1));
    }
}
