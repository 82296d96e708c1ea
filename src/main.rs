//! The `remat` program.

fn main() {}
