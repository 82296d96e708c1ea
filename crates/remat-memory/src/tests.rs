use super::model::{MODES, Model, Operation};
use super::{
    ALIGNMENT, Arena, Block, Content, End, FreeNeighbors, Growth, Move, Pool, Region, RegionSource,
    SplitRule,
};
use remat_rng::SplitMix64;

/// Builds an exact-byte arena from a drawing. Each letter is 10 bytes of a block, pinned in lower
/// case and movable in upper case; `.` is 10 free bytes. The owner is the letter.
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

/// Compacts the drawn arena until `bytes` bytes fit, and returns the bytes copied and the new
/// drawing.
fn compacted(line: &str, bytes: u64) -> Option<(u64, String)> {
    let (mut arena, _) = drawn(line);
    let moves = arena.plan_compaction(bytes, |owner| (owner as u8).is_ascii_uppercase())?;
    arena.apply_moves(&moves);
    arena.check();
    assert!(arena.largest_free() >= bytes);
    Some((moves.iter().map(|m| m.bytes).sum(), draw(&arena)))
}

/// Applies random operations in all modes, and compares the arena with the model after each. There
/// are 50,000 operations, or as many as the environment variable `REMAT_ARENA_OPERATIONS` says. A
/// run has 400 operations (the arena ends half empty) to 3,200 (mostly full).
#[test]
fn behaves_as_the_brute_force_model() {
    let total: u64 = std::env::var("REMAT_ARENA_OPERATIONS")
        .map_or(50_000, |text| text.parse().expect("REMAT_ARENA_OPERATIONS is a number"));
    let (mut done, mut seed) = (0, 0);
    while done < total {
        for mode in MODES {
            let mut random = SplitMix64::new(seed);
            let mut model = Model::new(mode);
            let run = 400 << (seed % 4);
            for _ in 0..run {
                model.apply(Operation::from_word(random.next(), &mode));
            }
            done += run;
        }
        seed += 1;
    }
}

/// Makes many holes of nearly one size, so that bins become trees, and of exactly one size, so that
/// heaps grow deep. Afterwards, the test leaves few holes, so that trees become lists again.
#[test]
fn crowded_bins_stay_exact() {
    for (base, spread) in [(4096, 64), (3, 1), (4096, 1)] {
        let mut arena = Arena::with_granularity(1 << 40, 1);
        let mut random = SplitMix64::new(7);
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
    let mut random = SplitMix64::new(1);
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
    assert_eq!((arena.reserved(), arena.granularity()), (768, ALIGNMENT));
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
    // Moving A and B is cheaper than moving C. All holes beside A and B are needed.
    assert_eq!(compacted("..A..B..CCC..", 60), Some((20, "AB......CCC..".into())));
    // Two of the three holes suffice, so the leftmost hole stays.
    assert_eq!(compacted(".AA..B..", 40), Some((10, ".AAB....".into())));
    // The arena already has a hole of 20 bytes.
    assert_eq!(compacted(".A..", 20), Some((0, ".A..".into())));
    // Too few bytes are free.
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
    // Sliding would have to move BBB too. Moving only A to another hole also frees the bytes of A.
    assert_eq!(compacted("...A..BBB..cc", 60), Some((10, "......BBBA.cc".into())));
    // Evacuating a block makes a hole that sliding cannot make.
    assert_eq!(compacted(".A.b.", 30), Some((10, "...bA".into())));
    // A fits into no other hole.
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
    let mut random = SplitMix64::new(3);
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
1 regions, 1.00 MiB at most; peak reserved / peak live 1.000
5 taken, 1 freed, 0 moved; the largest took 293.00 KiB
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
    let snapshot = arena.snapshot(|owner| format!("tensor {}", char::from(owner as u8)));
    let value = serde_json::to_value(&snapshot).unwrap();
    assert_eq!((&value["stats"]["reserved"], &value["granularity"]), (&60.into(), &1.into()));
    assert_eq!(value["chunks"].as_array().unwrap().len(), 4);
    assert_eq!(value["chunks"][1], serde_json::json!({ "offset": 10, "size": 10 }));
    assert_eq!(value["chunks"][2]["holder"]["name"], "tensor b");
    assert_eq!(serde_json::from_value::<super::Snapshot>(value).unwrap(), snapshot);
    let report = arena.report();
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<super::Report>(&text).unwrap(), report);
}

/// Source of the address space from 0 to a limit, whose regions may join.
struct Upward {
    next: u64,
    limit: u64,
    joins: bool,
}

impl RegionSource for Upward {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        let region = Region { start: self.next, bytes };
        (region.end() <= self.limit).then(|| {
            self.next = region.end();
            region
        })
    }
    fn give_back(&mut self, region: Region) {
        if region.end() == self.next {
            self.next = region.start;
        }
    }
    fn may_join(&self, _: Region, _: Region) -> bool {
        self.joins
    }
}

const MIB: u64 = 1 << 20;

fn pool(memory_limit: u64, source_limit: u64, joins: bool) -> Pool<Upward> {
    let growth = Growth { memory_limit, allow_growth: true, garbage_collection: true };
    Pool::new(Upward { next: 0, limit: source_limit, joins }, growth, ALIGNMENT, SplitRule::Exact)
}

#[test]
fn regions_double_as_the_pool_grows() {
    let mut pool = pool(100 * MIB, u64::MAX, false);
    let lengths =
        |pool: &Pool<Upward>| pool.arena().regions().map(|r| r.bytes / MIB).collect::<Vec<_>>();
    let _first = pool.alloc(1, 0).unwrap();
    assert_eq!(lengths(&pool), [2]);
    // The block is too large for the next region of 4 MiB, so this region and the following region
    // have 8 MiB.
    let _second = pool.alloc(5 * MIB, 0).unwrap();
    assert_eq!((lengths(&pool), pool.next_region() / MIB), (vec![2, 8], 8));
    let _third = pool.alloc(8 * MIB, 0).unwrap();
    assert_eq!((lengths(&pool), pool.next_region() / MIB), (vec![2, 8, 8], 16));
    // No region and no block may exceed the limit.
    assert_eq!(pool.alloc(83 * MIB, 0), None);
    let _fourth = pool.alloc(81 * MIB, 0).unwrap();
    assert_eq!(lengths(&pool), [2, 8, 8, 82]);
    assert_eq!(pool.arena().stats().regions, 4);
}

/// Regression test: the fuzz target found that the size of the next region doubled beyond 2^64.
#[test]
fn regions_may_come_and_go_for_ever() {
    let mut pool = pool(8 * MIB, u64::MAX, false);
    for _ in 0..100 {
        let block = pool.alloc(1, 0).unwrap();
        pool.free(block);
        assert!(pool.release_free_regions() > 0);
    }
    assert_eq!(pool.next_region(), 8 * MIB);
}

#[test]
fn a_source_that_runs_short_is_asked_for_nine_tenths_until_it_gives() {
    /// Source that records all requests, and gives nothing above a limit.
    struct Stingy(Vec<u64>, u64);
    impl RegionSource for Stingy {
        fn take(&mut self, bytes: u64) -> Option<Region> {
            self.0.push(bytes);
            (bytes <= self.1).then_some(Region { start: 0, bytes })
        }
        fn give_back(&mut self, _: Region) {}
    }
    let growth = Growth { memory_limit: 20 * 256, allow_growth: false, garbage_collection: false };
    let granules =
        |pool: &Pool<Stingy>| pool.source().0.iter().map(|b| b / 256).collect::<Vec<_>>();
    let mut lucky = Pool::new(Stingy(vec![], 6 * 256), growth, 256, SplitRule::Exact);
    assert!(lucky.alloc(700, 0).is_some());
    // Nine tenths of nine granules round up to nine granules, so the next request is for one
    // granule less.
    assert_eq!(granules(&lucky), [20, 18, 17, 16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6]);
    let mut unlucky = Pool::new(Stingy(vec![], 0), growth, 256, SplitRule::Exact);
    assert!(unlucky.alloc(18 * 256, 0).is_none());
    assert_eq!(granules(&unlucky), [20, 18]);
    assert!(unlucky.alloc(21 * 256, 0).is_none());
    assert_eq!(granules(&unlucky).len(), 2, "beyond the limit, nobody is asked");
}

#[test]
fn blocks_lie_across_regions_only_where_these_join() {
    for joins in [false, true] {
        let mut pool = pool(64 * MIB, 64 * MIB, joins);
        let first = pool.alloc(MIB, 0).unwrap();
        let second = pool.alloc(3 * MIB, 0).unwrap();
        let stats = pool.arena().stats();
        // Regions of 2 MiB and 4 MiB: if they join, the second block starts in the first region.
        assert_eq!((stats.reserved, stats.regions), (6 * MIB, if joins { 1 } else { 2 }));
        assert_eq!(pool.arena().offset(second), if joins { MIB } else { 2 * MIB });
        pool.free(first);
        let free = pool.arena().free_neighbors(second);
        assert_eq!(free.left, if joins { MIB } else { 0 });
        assert_eq!(pool.release_free_regions(), if joins { 0 } else { 2 * MIB });
        pool.arena().check();
    }
}

#[test]
fn free_regions_go_back_to_make_room_for_a_larger_one() {
    let mut pool = pool(8 * MIB, u64::MAX, false);
    let small = pool.alloc(2 * MIB, 0).unwrap();
    pool.free(small);
    let large = pool.alloc(7 * MIB, 0).unwrap();
    assert_eq!(pool.arena().regions().collect::<Vec<_>>(), [Region { start: 0, bytes: 8 * MIB }]);
    assert_eq!(pool.arena().stats().peak_reserved, 8 * MIB);
    pool.free(large);
    assert_eq!((pool.release_free_regions(), pool.arena().occupancy(10).len()), (8 * MIB, 0));
    assert_eq!(pool.dump(1, |_| String::new()).lines().count(), 2);
}

#[test]
fn the_split_rule_hands_out_what_would_be_too_little_to_keep() {
    let mut arena =
        Arena::with_rule(1000, 1, SplitRule::TensorFlow { max_internal_fragmentation: 150 });
    let size = |arena: &Arena, block: Option<Block>| arena.size(block.unwrap());
    let walls = [200, 1, 320, 1, 478]
        .map(|bytes| arena.alloc_at(0, bytes, 0).or_else(|| arena.alloc(bytes, 0)));
    for hole in [0, 2, 4] {
        arena.free(walls[hole].unwrap());
    }
    // The hole of 200 bytes is less than twice 101, and the rest of 99 is below 150: the block
    // takes the whole hole.
    let block = arena.alloc(101, 0);
    assert_eq!(size(&arena, block), 200);
    arena.free(block.unwrap());
    // The hole of 200 bytes is twice the block of 100, so the rest stays a hole.
    let block = arena.alloc(100, 0);
    assert_eq!(size(&arena, block), 100);
    // The rest, 320 - 170, is 150: at the limit, so it stays a hole.
    let block = arena.alloc(170, 0);
    assert_eq!(size(&arena, block), 170);
    let stats = arena.stats();
    assert_eq!((stats.used, stats.live), (272, 272));
    assert_eq!(arena.stats().largest_allocation, 478);
}

#[test]
fn the_fraction_says_how_much_may_go_with_a_block() {
    let most = |bytes| SplitRule::TensorFlow { max_internal_fragmentation: bytes };
    assert_eq!(SplitRule::tensorflow(), most(128 * MIB));
    assert_eq!(SplitRule::tensorflow_with_fraction(0.25, 100), most(25));
    for none in [0.0, -1.0, f64::NAN] {
        assert_eq!(SplitRule::tensorflow_with_fraction(none, 100), most(128 * MIB));
    }
}

#[test]
fn aligned_blocks_leave_what_they_skip_as_a_hole() {
    let (mut arena, _) = drawn("a...............");
    let block = arena.alloc_aligned(20, 64, 1).unwrap();
    assert_eq!((arena.offset(block), arena.holes()), (64, 2));
    // The block takes the smallest hole that can hold it at an aligned offset. A smaller hole is
    // long enough, but has no aligned offset with 50 bytes after it.
    let block = arena.alloc_aligned(50, 32, 1).unwrap();
    assert_eq!(arena.offset(block), 96);
    let block = arena.alloc_aligned(20, 16, 1).unwrap();
    assert_eq!(arena.offset(block), 16);
    assert_eq!(arena.alloc_aligned(1, 1 << 63, 1), None);
}

/// Takes short-lived blocks from the low end and long-lived blocks from the high end, in random
/// order. No short-lived block is ever above a long-lived block.
#[test]
fn two_kinds_of_blocks_stay_apart() {
    let mut arena = Arena::with_granularity(100_000, 1);
    let mut random = SplitMix64::new(5);
    let mut live: [Vec<Block>; 2] = [vec![], vec![]];
    for _ in 0..5000 {
        let kind = (random.next() % 2) as usize;
        let end = [End::Low, End::High][kind];
        if live[kind].len() == 80 || (!live[kind].is_empty() && random.next().is_multiple_of(3)) {
            let at = random.next() as usize % live[kind].len();
            arena.free(live[kind].swap_remove(at));
        } else {
            let bytes = 1 << (random.next() % 10);
            live[kind].push(arena.alloc_apart(bytes, end, kind as u64).unwrap());
        }
        let owners = arena.chunks().filter_map(|chunk| match chunk.content {
            Content::Used { owner, .. } => Some(owner),
            Content::Free => None,
        });
        assert!(owners.is_sorted());
    }
}

#[test]
fn both_fragmentation_figures() {
    let mut arena = Arena::with_granularity(1000, 1);
    assert_eq!((arena.fragmentation(), arena.expansion()), (0.0, 1.0));
    let [a, _b, c] = [100, 100, 200].map(|bytes| arena.alloc(bytes, 0).unwrap());
    arena.free(a);
    // 400 bytes fit into no hole below: the highest end is 800, and 700 bytes are live.
    let _d = arena.alloc(400, 0).unwrap();
    assert_eq!(arena.expansion(), 800.0 / 700.0);
    assert_eq!(arena.fragmentation(), 100.0 / 300.0);
    arena.free(c);
    arena.reset_peak();
    assert_eq!((arena.high_water(), arena.expansion()), (800, 800.0 / 500.0));
}

#[test]
fn the_dump_shows_bins_chunks_and_sizes() {
    let mut arena = Arena::new(MIB);
    let [_a, b, _c] = [300, 1000, 300].map(|bytes| arena.alloc(bytes, bytes).unwrap());
    arena.free(b);
    let dump = arena.dump(900, |owner| format!("t{owner}"));
    for line in [
        "Bin (512): Total Chunks: 2, Chunks in use: 2. 1.00 KiB allocated for chunks. 1.00 KiB in use \
         in bin. 600 B client-requested in use in bin.",
        "Bin (1024): Total Chunks: 1, Chunks in use: 0. 1.00 KiB allocated for chunks. 0 B in use in \
         bin. 0 B client-requested in use in bin.",
        "Bin for 900 B was 1.00 KiB, free chunks in it:\n  Free  at 0x200 of size 1024\nRegion",
        "Region at 0x0 of size 1048576\n  InUse at 0x0 of size 512 (300 requested) by t300 next 0x200",
        "  2 chunks of size 512 totalling 1.00 KiB",
    ] {
        assert!(dump.contains(line), "`{line}` is not in\n{dump}");
    }
    assert_eq!(dump.lines().filter(|line| line.starts_with("Bin (")).count(), 21);
    assert_eq!(dump.lines().last().unwrap().len(), 100);
}
