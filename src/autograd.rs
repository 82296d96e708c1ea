//! Gradients: a tape records ops, and computes gradients in a backward pass over these ops.
//!
//! A tape holds handles only to the tensors that the gradients of its ops read. All other tensors
//! may be freed at once. If the engine later needs a freed tensor to recompute another tensor, it
//! rematerializes the freed tensor.

mod tape;

pub use tape::{Gradients, Tape, Watch};
