//! Gradients: a tape records ops, and computes gradients in a backward pass over these ops.
//!
//! A tape holds handles only to the tensors that the gradients of its ops read. All other tensors
//! may be freed at once. If a freed tensor is needed later to recompute another tensor, the engine
//! recomputes the freed tensor first.

mod tape;

pub use tape::{Gradients, Tape, Watch};
