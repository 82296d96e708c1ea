//! Planners that let buffers share memory, one file each, faithful to their sources.

pub mod nnvm;
