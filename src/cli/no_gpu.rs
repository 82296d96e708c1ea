//! Replaces `gpu.rs` in a program built without the feature `cuda`. Each call fails with an error
//! that says why no GPU can be used.

use super::failure::Failure;
use super::machine::Gpus;
use remat::tune::SimOf;
use remat::{Builder, Error, Runtime};
use std::fmt;

const REASON: &str =
    "this program was built without CUDA; build it with `cargo build --release --features cuda`";

/// A GPU. Without CUDA, no value of this type exists.
pub enum Gpu {}

impl Gpu {
    /// Fails with the reason why no GPU can be used.
    pub fn open(_number: usize, _tf32: bool) -> Result<Self, Failure> {
        Err(Failure::usage(REASON))
    }

    pub const fn sim(&self) -> SimOf {
        match *self {}
    }

    pub const fn available_bytes(&self) -> Result<u64, Failure> {
        match *self {}
    }

    pub const fn tf32(&self) -> bool {
        match *self {}
    }

    pub fn start(self, _builder: Builder) -> Result<Runtime, Error> {
        match self {}
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

/// Fails with the reason why no GPU can be used.
pub fn found() -> Result<Gpus, String> {
    Err(REASON.to_owned())
}
