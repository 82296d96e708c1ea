//! Random operations on an arena, each compared with the brute-force model of the tests.
//!
//! The first byte of the input chooses the mode. Every eight bytes after it are an operation.

#![no_main]

use libfuzzer_sys::fuzz_target;
use remat::unstable::memory::{Block, Content, End, FreeNeighbors, Growth, Move, Pool, Region, RegionSource, SplitRule};

#[path = "../../crates/remat-memory/src/model.rs"]
mod model;

fuzz_target!(|input: &[u8]| {
    let Some((&mode, words)) = input.split_first() else { return };
    let mode = model::MODES[usize::from(mode) % model::MODES.len()];
    let mut model = model::Model::new(mode);
    for word in words.chunks_exact(8).take(512) {
        let word = u64::from_le_bytes(word.try_into().expect("it is a chunk of eight"));
        model.apply(model::Operation::from_word(word, &mode));
    }
});
