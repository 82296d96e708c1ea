//! Conversion of recorded steps to captures and back. A capture describes a step by its ops and
//! buffers, and is the input of planners.

mod reader;
mod writer;

pub use reader::CapturedProgram;
