use super::model::{Model, Operation};
use super::{ALIGNMENT, Arena, Block, Content, FreeNeighbors, Move};

/// SplitMix64: small, seeded, and good enough to make operations.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Blocks of 10 bytes of exact-byte arena, one for each letter: lower case pinned, upper case
/// movable; `.` is ten free bytes. The owner is the letter.
fn drawn(line: &str) -> (Arena, Vec<Block>) {
    let mut arena = Arena::with_granularity(10 * line.len() as u64, 1);
    let mut blocks = vec![];
    let bytes = line.as_bytes();
    let mut at = 0;
    for run in bytes.chunk_by(|a, b| a == b) {
        if run[0] != b'.' {
            let size = 10 * run.len() as u64;
            blocks.push(arena.alloc_at(at, size, run[0].into()).unwrap());
        }
        at += 10 * run.len() as u64;
    }
    (arena, blocks)
}

fn draw(arena: &Arena) -> String {
    let mut line = String::new();
    for chunk in arena.chunks() {
        let letter = match chunk.content {
            Content::Free => b'.',
            Content::Used { owner, .. } => owner as u8,
        };
        line.extend(std::iter::repeat_n(char::from(letter), (chunk.size / 10) as usize));
    }
    line
}

/// Makes room for `bytes` in the arena drawn, and returns the bytes copied and the new drawing.
fn compacted(line: &str, bytes: u64) -> Option<(u64, String)> {
    let (mut arena, _) = drawn(line);
    let moves = arena.plan_compaction(bytes, |owner| (owner as u8).is_ascii_uppercase())?;
    arena.apply_moves(&moves);
    arena.check();
    assert!(arena.largest_free() >= bytes);
    Some((moves.iter().map(|m| m.bytes).sum(), draw(&arena)))
}

#[test]
fn behaves_as_the_brute_force_model() {
    // Room for ten blocks or for a hundred, exact bytes or granules, and sizes from all to tiny.
    for (capacity, granularity, scale) in [
        (64, 1, 4),
        (300, 1, 8),
        (256 * 16, 256, 3),
        (256 * 250, 256, 5),
        (16 * 200, 16, 2),
        (0, 1, 2),
    ] {
        for seed in 0..40 {
            let mut random = Random(seed);
            let mut model = Model::new(capacity, granularity);
            for _ in 0..400 {
                model.apply(Operation::from_word(random.next(), granularity, scale));
            }
        }
    }
}

/// Enough holes of nearly one size that bins become trees, and enough of exactly one size that heaps
/// grow deep; then few enough that trees become lists again.
#[test]
fn crowded_bins_stay_exact() {
    for (base, spread) in [(4096, 64), (3, 1), (4096, 1)] {
        let mut arena = Arena::with_granularity(1 << 40, 1);
        let mut random = Random(7);
        let mut size = |_| base + random.next() % spread;
        let mut blocks: Vec<_> = (0..1000).map(|i| arena.alloc(size(i), i).unwrap()).collect();
        for i in (0..500).rev() {
            arena.free(blocks.swap_remove(2 * i));
        }
        arena.check();
        assert_eq!(arena.holes(), 501);
        for i in 0..500 {
            let bytes = size(i);
            let best = arena
                .chunks()
                .filter(|chunk| chunk.is_free() && chunk.size >= bytes)
                .min_by_key(|chunk| (chunk.size, chunk.offset))
                .unwrap();
            let block = arena.alloc(bytes, i).unwrap();
            assert_eq!(arena.offset(block), best.offset);
            blocks.push(block);
        }
        arena.check();
        for block in blocks {
            arena.free(block);
        }
        assert_eq!((arena.holes(), arena.largest_free()), (1, 1 << 40));
    }
}

#[test]
fn ten_thousand_blocks_in_a_debug_build() {
    let mut arena = Arena::new(1 << 34);
    let mut random = Random(1);
    let mut live = vec![];
    for i in 0..30_000 {
        let full = live.len() == 10_000;
        if full || (random.next().is_multiple_of(4) && !live.is_empty()) {
            arena.free(live.swap_remove(random.next() as usize % live.len()));
        } else {
            live.push(arena.alloc(256 << (random.next() % 12), i).unwrap());
        }
    }
    arena.check();
    assert_eq!(arena.blocks(), live.len());
}

#[test]
fn every_block_has_bytes_of_its_own() {
    let mut arena = Arena::new(1000);
    assert_eq!((arena.capacity(), arena.granularity()), (768, ALIGNMENT));
    let [a, b, c] = [0, 1, 256].map(|bytes| arena.alloc(bytes, bytes).unwrap());
    assert_eq!([a, b, c].map(|block| arena.offset(block)), [0, 256, 512]);
    assert_eq!([a, b, c].map(|block| arena.size(block)), [256; 3]);
    assert_eq!([a, b, c].map(|block| arena.requested(block)), [0, 1, 256]);
    assert_eq!([a, b, c].map(|block| arena.owner(block)), [0, 1, 256]);
    assert_eq!(arena.alloc(0, 0), None);
    assert_eq!(arena.fragmentation(), 0.0);
}

#[test]
fn sizes_beyond_reason_do_not_fit() {
    for capacity in [0, 4096, u64::MAX] {
        let mut arena = Arena::new(capacity);
        assert_eq!(arena.alloc(u64::MAX, 0), None);
        assert_eq!(arena.alloc_high(u64::MAX - 254, 0), None);
        assert_eq!(arena.alloc_at(u64::MAX - 255, 1, 0), None);
        assert_eq!(arena.alloc_at(256, u64::MAX - 256, 0), None);
        assert_eq!(arena.plan_compaction(u64::MAX, |_| true), None);
    }
    let mut arena = Arena::with_granularity(u64::MAX, 1);
    let all = arena.alloc(u64::MAX, 0).unwrap();
    assert_eq!((arena.used(), arena.free_bytes(), arena.largest_free()), (u64::MAX, 0, 0));
    arena.free(all);
    arena.check();
}

#[test]
fn best_fit_takes_the_smallest_then_the_lowest() {
    let (mut arena, _) = drawn("....a...b..c..d");
    let at = |arena: &Arena, block: Option<Block>| arena.offset(block.unwrap());
    let block = arena.alloc(20, 1);
    assert_eq!(at(&arena, block), 90);
    let block = arena.alloc_high(15, 2);
    assert_eq!(at(&arena, block), 125);
    let block = arena.alloc_high(25, 3);
    assert_eq!(at(&arena, block), 55);
    assert_eq!(arena.alloc_at(40, 5, 4), None);
    let block = arena.alloc_at(10, 5, 4);
    assert_eq!(at(&arena, block), 10);
    assert_eq!(arena.holes(), 4);
}

#[test]
fn counts_peaks_and_high_water() {
    let mut arena = Arena::with_granularity(100, 1);
    let a = arena.alloc(30, 0).unwrap();
    let b = arena.alloc(40, 0).unwrap();
    arena.free(a);
    assert_eq!((arena.used(), arena.peak(), arena.high_water()), (40, 70, 70));
    assert_eq!(arena.free_neighbors(b), FreeNeighbors { left: 30, right: 30 });
    assert_eq!(arena.free_neighbors(b).total(), 60);
    assert_eq!(arena.fragmentation(), 0.5);
    arena.reset_peak();
    assert_eq!((arena.peak(), arena.allocations(), arena.frees()), (40, 2, 1));
}

#[test]
fn a_handle_is_eight_bytes_and_prints_short() {
    assert_eq!(size_of::<Option<Block>>(), 8);
    let block = Arena::new(256).alloc(1, 0).unwrap();
    assert_eq!(format!("{block:?}"), "Block(1v1)");
}

#[test]
#[should_panic(expected = "Block(1v1) is stale: it was freed, and its slot is at generation 2")]
fn freeing_twice_is_noticed() {
    let mut arena = Arena::new(1024);
    let block = arena.alloc(1024, 0).unwrap();
    arena.free(block);
    arena.free(block);
}

#[test]
#[should_panic(expected = "is stale")]
fn a_reused_slot_is_not_the_old_block() {
    let mut arena = Arena::new(256);
    let old = arena.alloc(1, 0).unwrap();
    arena.free(old);
    let _new = arena.alloc(1, 0).unwrap();
    let _ = arena.offset(old);
}

#[test]
#[should_panic(expected = "not of this arena")]
fn a_foreign_handle_is_noticed() {
    let mut large = Arena::new(1024);
    let blocks = [1, 2, 3].map(|owner| large.alloc(1, owner).unwrap());
    Arena::new(1024).free(blocks[2]);
}

#[test]
#[should_panic(expected = "not a power of two")]
fn granularity_is_a_power_of_two() {
    let _ = Arena::with_granularity(1024, 100);
}

#[test]
fn sliding_packs_the_cheapest_run() {
    // A and B are cheaper than C; both holes beside each are needed.
    assert_eq!(compacted("..A..B..CCC..", 60), Some((20, "AB......CCC..".into())));
    // Three holes would do, two suffice, and the left one is not touched.
    assert_eq!(compacted(".AA..B..", 40), Some((10, ".AAB....".into())));
    // Nothing to do.
    assert_eq!(compacted(".A..", 20), Some((0, ".A..".into())));
    // Not enough in all.
    assert_eq!(compacted(".A..", 40), None);
}

#[test]
fn sliding_stops_at_unmovable_blocks() {
    assert_eq!(compacted("..A..b..", 40), Some((10, "A....b..".into())));
    assert_eq!(compacted("..AA..b.C.", 50), None);
    assert_eq!(compacted(".a.b.", 20), None);
}

#[test]
fn a_block_between_holes_moves_into_another_hole_when_that_is_cheaper() {
    // Sliding would have to move BBB too; A alone, put elsewhere, frees its own bytes as well.
    assert_eq!(compacted("...A..BBB..cc", 60), Some((10, "......BBBA.cc".into())));
    // It also works where sliding does not at all.
    assert_eq!(compacted(".A.b.", 30), Some((10, "...bA".into())));
    // No other hole takes A.
    assert_eq!(compacted("..AA..BBB.ccc", 50), Some((50, "AABBB.....ccc".into())));
}

#[test]
fn a_move_counts_towards_the_high_water() {
    let (mut arena, blocks) = drawn("..A.b...");
    assert_eq!(arena.high_water(), 50);
    let moves = arena.plan_compaction(40, |owner| owner == u64::from(b'A')).unwrap();
    assert_eq!(moves, [Move { block: blocks[0], from: 20, to: 50, bytes: 10 }]);
    arena.apply_moves(&moves);
    assert_eq!((draw(&arena).as_str(), arena.high_water()), ("....bA..", 60));
}

#[test]
fn chunks_from_both_ends_meet_once() {
    let (arena, blocks) = drawn(".a.b.");
    let mut chunks = arena.chunks();
    let offsets = std::iter::from_fn(|| Some([chunks.next()?.offset, chunks.next_back()?.offset]));
    assert_eq!(offsets.collect::<Vec<_>>(), [[0, 40], [10, 30]]);
    assert_eq!((chunks.next(), chunks.next_back()), (None, None));
    let mut below = arena.chunks_before(blocks[1]);
    assert_eq!(below.next().map(|chunk| (chunk.offset, chunk.end())), Some((20, 30)));
    assert_eq!(below.next_back().map(|chunk| chunk.offset), Some(0));
    assert_eq!(below.count(), 1);
}

#[test]
fn everything_movable_always_leaves_one_hole() {
    let mut random = Random(3);
    for _ in 0..200 {
        let mut arena = Arena::with_granularity(1000, 1);
        let blocks: Vec<_> =
            std::iter::from_fn(|| arena.alloc(random.next() % 40 + 1, 0)).collect();
        for block in blocks {
            if random.next().is_multiple_of(2) {
                arena.free(block);
            }
        }
        let all = arena.free_bytes();
        let moves = arena.plan_compaction(all, |_| true).unwrap();
        arena.apply_moves(&moves);
        assert_eq!((arena.largest_free(), arena.fragmentation()), (all, 0.0));
        assert_eq!(arena.moves(), moves.len() as u64);
    }
}

#[test]
#[should_panic(expected = "not free")]
fn an_outdated_move_is_noticed() {
    let (mut arena, blocks) = drawn("A.B.");
    arena.apply_moves(&[Move { block: blocks[1], from: 20, to: 0, bytes: 10 }]);
}

#[test]
fn the_report_reads_well() {
    let mut arena = Arena::new(1 << 20);
    let _weights = arena.alloc(300_000, 7).unwrap();
    let hole = arena.alloc(100_000, 8).unwrap();
    let _scratch = [1, 200, 300].map(|bytes| arena.alloc(bytes, 9).unwrap());
    arena.free(hole);
    assert_eq!(arena.occupancy(20), "******______________");
    let expected = "\
294.00 KiB of 1.00 MiB used in 4 blocks (293.46 KiB asked for), peak 391.75 KiB, highest end 391.75 KiB
730.00 KiB free in 2 holes, the largest 632.25 KiB; fragmentation 13.4 %
5 taken, 1 freed, 0 moved
largest holders:
   293.00 KiB in 1 block of owner 7
     1.00 KiB in 3 blocks of owner 9
    size from   blocks       bytes    holes       bytes
        256 B        2       512 B        0         0 B
        512 B        1       512 B        0         0 B
    64.00 KiB        0         0 B        1   97.75 KiB
   256.00 KiB        1  293.00 KiB        0         0 B
   512.00 KiB        0         0 B        1  632.25 KiB
";
    assert_eq!(arena.report().to_string(), expected);
}

#[test]
fn the_occupancy_line_is_as_wide_as_asked() {
    assert_eq!(Arena::new(0).occupancy(10), "");
    assert_eq!(Arena::new(1024).occupancy(0), "");
    assert_eq!(Arena::new(1024).occupancy(100), "____");
    assert_eq!(Arena::new(1 << 40).occupancy(7), "_______");
    let (arena, _) = drawn("a.bb......");
    assert_eq!(arena.occupancy(5), "**___");
    assert_eq!(arena.occupancy(3), "*__");
}

#[cfg(feature = "serde")]
#[test]
fn snapshots_and_reports_are_plain_data() {
    let (arena, _) = drawn("a.bb..");
    let snapshot = serde_json::to_value(arena.snapshot()).unwrap();
    assert_eq!((&snapshot["capacity"], &snapshot["granularity"]), (&60.into(), &1.into()));
    assert_eq!(snapshot["chunks"].as_array().unwrap().len(), 4);
    assert_eq!(snapshot["chunks"][1]["content"], "free");
    assert_eq!(snapshot["chunks"][2]["content"]["used"]["owner"], b'b');
    let report = arena.report();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<super::Report>(&text).unwrap(), report);
}
