//! Tests that run on every device of the machine. CI runs them on a pretend GPU too, and `.ci/gpu`
//! on a real one.

mod common;

mod custom_ops;
#[cfg(feature = "cli")]
mod devices;
mod gradients;
#[cfg(feature = "serde")]
mod pytorch;
mod training;
