//! Gradients: a tape that records ops, and computes gradients backwards through them.
//!
//! For each op, a tape holds handles only to the tensors that the op's gradient reads. All others
//! may be freed at once; the engine rematerializes them if something else has to be recomputed from
//! them.

mod tape;

pub use tape::{Gradients, Tape, Watch};
