//! Time to find the free bytes beside a block, by the number of blocks.
//!
//! ```text
//! | block | hole | block | block | hole | block | ...     every block is asked, in random order
//! ```
//!
//! Some eviction scores need the free bytes beside every candidate. The arena links neighbours, so
//! it needs three look-ups for any number of blocks. With more blocks, more of these look-ups miss
//! the caches.
//!
//! The baseline also makes three look-ups, in a plain table with as many records as the arena has:
//! a random record, and the two records that this record names.

use remat::unstable::memory::{Arena, Block};
use remat_rng::SplitMix64;
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 7;
const QUERIES: usize = 1 << 20;

/// `count` blocks in random order, with holes among them.
fn blocks(count: usize) -> (Arena, Vec<Block>) {
    let mut random = SplitMix64::new(2);
    let mut arena = Arena::new(1 << 50);
    let mut take = || arena.alloc(256 * (1 + random.next() % 64), 0).expect("it is large enough");
    let mut all: Vec<_> = (0..count + count / 2).map(|_| take()).collect();
    for i in (1..all.len()).rev() {
        all.swap(i, random.below(i + 1));
    }
    for block in all.drain(count..) {
        arena.free(block);
    }
    (arena, all)
}

/// Nanoseconds per call of `ask`, in the best of several rounds.
fn time(mut ask: impl FnMut(usize) -> u64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        let mut sum = 0;
        for i in 0..QUERIES {
            sum += ask(i);
        }
        black_box(sum);
        best = best.min(start.elapsed().as_nanos() as f64 / QUERIES as f64);
    }
    best
}

pub fn print() {
    println!("free bytes beside a block, ns each");
    println!("  {:>10} {:>16} {:>28}", "blocks", "free_neighbors", "3 linked look-ups (baseline)");
    for count in [100, 1_000, 10_000, 100_000, 1_000_000] {
        let (arena, blocks) = blocks(count);
        let query = time(|i| arena.free_neighbors(blocks[i % count]).total());
        let mut random = SplitMix64::new(3);
        let mut any = || random.below(count + count / 2) as u32;
        let order: Vec<u32> = (0..count).map(|_| any()).collect();
        // A record takes half a cache line, like a record of the arena.
        let records: Vec<[u32; 8]> =
            (0..count + count / 2).map(|_| [any(), any(), 1, 1, 1, 1, 1, 1]).collect();
        let base = time(|i| {
            let [left, right, ..] = records[order[i % count] as usize];
            u64::from(records[left as usize][2]) + u64::from(records[right as usize][2])
        });
        println!("  {count:>10} {query:>16.1} {base:>28.1}");
    }
}
