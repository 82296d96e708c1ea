//! Conversion of recorded steps to captures, the input of planners, and back.

mod reader;
mod writer;

pub use reader::CapturedProgram;
