//! Recorded steps as values that planners take, and back.

mod reader;
mod writer;

pub use reader::CapturedProgram;
