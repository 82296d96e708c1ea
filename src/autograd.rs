//! Gradients: a tape that records ops, and computes gradients backwards through them.
//!
//! A tape holds handles only to the tensors that the gradients of its ops read. All other
//! tensors may be freed at once. The engine rematerializes a freed tensor if another tensor has to
//! be recomputed from it.

mod tape;

pub use tape::{Gradients, Tape, Watch};
