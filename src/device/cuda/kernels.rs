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
    /// The kernel that does so much work: a number that its threads count up to.
    pub(super) const fn kernel(&'static self, name: &'static str, units: u64) -> Kernel {
        Kernel { source: &self.0[(units >= 1 << 31) as usize], name }
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
    use crate::device::cuda::compile;

    #[test]
    fn all_kernels_compile_for_old_and_new_devices() {
        if !compile::is_present() {
            println!("skipped: there is no NVRTC");
            return;
        }
        for source in ALL.iter().flat_map(|family| &family.0) {
            for architecture in ["sm_70", "sm_90"] {
                let image = compile::compile(source, architecture);
                // Newer compilers have left the oldest devices behind.
                if architecture == "sm_90" {
                    assert!(!image.unwrap().is_empty());
                }
            }
        }
    }
}
