//! The sources of the kernels that NVRTC compiles, by family.

/// A file of kernels. `common.cuh` is put in front of each.
#[derive(Debug)]
pub(super) struct Source {
    /// For messages, and to know it by.
    pub name: &'static str,
    /// CUDA C++.
    pub text: &'static str,
}

/// What all sources begin with.
pub(super) const COMMON: &str = include_str!("kernels/common.cuh");

/// Windows of images as columns of a matrix, and back.
pub(super) static COLUMNS: Source =
    Source { name: "columns", text: include_str!("kernels/columns.cu") };
