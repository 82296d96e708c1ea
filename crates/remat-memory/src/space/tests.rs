use super::model::{Model, Operation, modes};
use super::{Held, Space};
use crate::{Region, RegionSource, SplitRule};
use remat_rng::SplitMix64;

const MIB: u64 = 1 << 20;

/// Applies random operations in all modes, and compares the space with the model after each. There
/// are 60,000 operations, or as many as the environment variable `REMAT_ARENA_OPERATIONS` says, in
/// runs of 200 to 1,600.
#[test]
fn behaves_as_the_brute_force_model() {
    let total: u64 = std::env::var("REMAT_ARENA_OPERATIONS")
        .map_or(60_000, |text| text.parse().expect("REMAT_ARENA_OPERATIONS is a number"));
    let (mut done, mut seed) = (0, 0);
    while done < total {
        for mode in modes() {
            let mut random = SplitMix64::new(seed);
            let mut model = Model::new(mode);
            let run = 200 << (seed % 4);
            for _ in 0..run {
                model.apply(Operation::from_word(random.next(), &mode));
            }
            done += run;
        }
        seed += 1;
    }
}

#[test]
fn numbers_are_never_given_twice() {
    let mut space = Space::counted(100);
    let a = space.alloc(60, 0).unwrap();
    let first = space.offset(a);
    space.free(a);
    let [b, c] = [50, 50].map(|bytes| space.alloc(bytes, 0).unwrap());
    assert_eq!([first, space.offset(b), space.offset(c)], [1, 2, 3]);
    assert_eq!(space.alloc(1, 0), None);
    assert_eq!(size_of::<Option<Held>>(), 16);
}

/// Builds an exact-byte space from a drawing: each run of one letter is a block with one byte per
/// letter, and `.` is a free byte.
fn drawn(line: &str) -> (Space, Vec<Held>) {
    let mut space = Space::placed(line.len() as u64, 1, SplitRule::Exact);
    let all: Vec<_> = line
        .as_bytes()
        .chunk_by(|a, b| a == b)
        .map(|run| (run[0], space.alloc(run.len() as u64, run[0].into()).unwrap()))
        .collect();
    all.iter().filter(|(letter, _)| *letter == b'.').for_each(|(_, held)| space.free(*held));
    (space, all.into_iter().filter(|(letter, _)| *letter != b'.').map(|(_, held)| held).collect())
}

/// Lowers the limit to `bytes`, and returns the bytes copied and the new drawing.
fn shrunk(line: &str, bytes: u64) -> Option<(u64, String)> {
    let (mut space, _) = drawn(line);
    let moves = space.plan_shrink(bytes)?;
    moves.iter().for_each(|step| space.apply_move(step));
    space.set_limit(bytes);
    space.check();
    let chunks = space.snapshot(|owner| char::from(owner as u8).to_string()).chunks;
    let drawn = chunks.iter().map(|chunk| {
        chunk.holder.as_ref().map_or(".", |holder| &holder.name).repeat(chunk.size as usize)
    });
    Some((moves.iter().map(|m| m.bytes).sum(), drawn.collect()))
}

#[test]
fn shrinking_moves_little() {
    // No block is above the limit.
    assert_eq!(shrunk("aa.b...", 4), Some((0, "aa.b".into())));
    assert_eq!(shrunk("aa.b...", 7), Some((0, "aa.b...".into())));
    // The block above the limit moves into the best fit below; the other blocks stay.
    assert_eq!(shrunk("..aaa.b...c", 7), Some((1, "..aaacb".into())));
    assert_eq!(shrunk("...aaa..bbb.", 8), Some((3, "bbbaaa..".into())));
    // A block moves down over its own bytes; then another block moves into its old bytes.
    assert_eq!(shrunk("aa..bbbbb", 7), Some((5, "aabbbbb".into())));
    assert_eq!(shrunk("a..bbbb.c", 6), Some((5, "abbbbc".into())));
    // Once a block has moved, other blocks may use its old bytes below the limit.
    assert_eq!(shrunk("...aabbbcc", 7), Some((5, "bbbaacc".into())));
    // The block fits below the limit only if the free bytes become one hole, so the lower blocks
    // move as well.
    assert_eq!(shrunk(".a.b.cccd", 6), Some((6, "abcccd".into())));
    assert_eq!(shrunk(".a.b.cccd", 5), None);
    // The limit is lowered to 0, without and with a block.
    assert_eq!(shrunk("....", 0), Some((0, String::new())));
    assert_eq!(shrunk(".a..", 0), None);
}

#[test]
fn a_higher_limit_joins_the_hole_at_the_top() {
    let (mut space, blocks) = drawn("aabb......");
    space.set_limit(4);
    assert_eq!(space.alloc(1, 0), None);
    space.set_limit(9);
    assert_eq!((space.capacity(), space.free_bytes(), space.largest_free()), (9, 5, 5));
    space.free(blocks[1]);
    assert_eq!(space.alloc(7, 0).map(|held| space.offset(held)), Some(2));
    space.check();
}

#[test]
#[should_panic(expected = "a limit of 11 bytes is above the maximum of 10")]
fn no_limit_is_above_the_maximum() {
    drawn("..........").0.set_limit(11);
}

#[test]
#[should_panic(expected = "a block is above 5 bytes")]
fn no_limit_is_below_a_block() {
    drawn("....aa....").0.set_limit(5);
}

#[test]
#[should_panic(expected = "60 bytes are in use: more than a limit of 59")]
fn no_limit_is_below_what_is_counted() {
    let mut space = Space::counted(100);
    let _held = space.alloc(60, 0);
    space.set_limit(59);
}

/// Source that gives memory from 0 up to `all`.
struct Upward {
    given: u64,
    all: u64,
    asked: Vec<u64>,
}

impl Upward {
    fn new(all: u64) -> Self {
        Self { given: 0, all, asked: vec![] }
    }
}

impl RegionSource for Upward {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        self.asked.push(bytes);
        let region = Region { start: self.given, bytes };
        (region.end() <= self.all).then(|| {
            self.given = region.end();
            region
        })
    }
    fn give_back(&mut self, region: Region) {
        assert_eq!(region.end(), self.given);
        self.given = region.start;
    }
}

/// Allocates, and grows if that fails.
fn take(space: &mut Space, bytes: u64, source: &mut Upward) -> Option<Held> {
    space.alloc(bytes, 0).or_else(|| {
        space.grow(bytes, source);
        space.alloc(bytes, 0)
    })
}

#[test]
fn regions_double_up_to_the_limit_and_are_one() {
    let mut source = Upward::new(u64::MAX);
    let mut space = Space::growing(100 * MIB, 256, SplitRule::Exact);
    space.set_limit(40 * MIB);
    assert_eq!((space.free_bytes(), space.largest_free(), space.taken()), (40 * MIB, 40 * MIB, 0));
    // The hole at the top counts: a block of 5 MiB needs 4 MiB more, which is the size of the next
    // region.
    let blocks = [1, 5, 8].map(|mib| take(&mut space, mib * MIB, &mut source).unwrap());
    assert_eq!(source.asked, [2 * MIB, 4 * MIB, 8 * MIB]);
    assert_eq!(blocks.map(|held| space.offset(held) / MIB), [0, 1, 6]);
    // A block takes the rest of the limit, across the border of two regions.
    let large = take(&mut space, 26 * MIB, &mut source).unwrap();
    assert_eq!((source.given, space.free_bytes()), (40 * MIB, 0));
    assert!(take(&mut space, 1, &mut source).is_none());
    assert_eq!(source.asked.len(), 4, "at the limit, nobody is asked");

    // `trim` gives back memory above the highest block, also below the limit. The memory can be
    // taken again.
    space.free(large);
    space.set_limit(20 * MIB);
    assert_eq!((space.taken(), space.free_bytes()), (40 * MIB, 6 * MIB));
    assert_eq!(space.trim(&mut source), 26 * MIB);
    assert_eq!((source.given, space.taken(), space.free_bytes()), (14 * MIB, 14 * MIB, 6 * MIB));
    assert_eq!(space.trim(&mut source), 0);
    assert!(take(&mut space, 6 * MIB, &mut source).is_some());
    space.check();
}

#[test]
fn a_device_that_refuses_gives_what_it_has() {
    let mut source = Upward::new(10 * MIB);
    let mut space = Space::growing(64 * MIB, MIB, SplitRule::Exact);
    let first = take(&mut space, 2 * MIB, &mut source).unwrap();
    // The first request is for 16 of 62 MiB, and each further request for nine tenths of the last.
    // The source refuses exactly the wanted bytes, but gives 8 MiB.
    assert!(take(&mut space, 12 * MIB, &mut source).is_none());
    let asked: Vec<_> = source.asked.iter().map(|bytes| bytes / MIB).collect();
    assert_eq!(asked, [2, 16, 15, 14, 13, 12, 11, 10, 9, 8]);
    // Refused bytes are not free, and the space makes no further request.
    assert_eq!((space.capacity(), space.free_bytes()), (10 * MIB, 8 * MIB));
    assert!(take(&mut space, 9 * MIB, &mut source).is_none());
    assert_eq!(source.asked.len(), 10);
    // Freed bytes can be used.
    space.free(first);
    let all = take(&mut space, 10 * MIB, &mut source).unwrap();
    space.free(all);
    // The source may have more memory later.
    source.all = 30 * MIB;
    space.ask_again();
    assert!(take(&mut space, 30 * MIB, &mut source).is_some());
    space.check();
}

#[test]
fn a_block_takes_no_more_than_was_said() {
    let rules = [0, 1, 255, 256, 257, 1000, 1024, u64::MAX];
    let rules =
        rules.map(|bytes| SplitRule::TensorFlow { max_internal_fragmentation: bytes }).into_iter();
    for split in rules.chain([SplitRule::Exact]) {
        for bytes in [1, 256, 257, 1024, 1500] {
            let sizes = (1..40).filter_map(|granules| {
                Space::placed(256 * granules, 256, split).alloc(bytes, 0).map(|held| held.bytes)
            });
            // `at_most` is reached for some hole, and never exceeded.
            let most = Space::placed(256, 256, split).at_most(bytes);
            assert_eq!(sizes.max(), Some(most), "{bytes} bytes by {split:?}");
        }
    }
}
