//! Checks of CANN's planners: on the example of the article, and against naive versions of their
//! rules.

use std::collections::{BTreeMap, BTreeSet};

use super::super::{BinaryBlock, MaxBlock, TwoLevel};
use super::Take;
use crate::{Buffer, Lifetimes, Limits, Planned, Planner};
use remat_rng::SplitMix64;

fn plan(planner: &impl Planner, lifetimes: &Lifetimes) -> Planned {
    planner.plan(lifetimes, &Limits::none()).unwrap()
}

/// Buffers A to E of the article.
fn example() -> Lifetimes {
    let lives = [(1, 2, 1024), (2, 4, 2048), (3, 4, 1024), (4, 5, 512), (5, 6, 4096)];
    Lifetimes::new(lives.map(|(first, last, size)| Buffer::closed(first, last, size))).unwrap()
}

#[test]
fn the_articles_example_comes_out() {
    let lifetimes = example();
    assert_eq!((lifetimes.total(), lifetimes.load()), (8704, 4608));

    let oldest = MaxBlock { take: Take::Oldest, ..MaxBlock::default() };
    let planned = plan(&oldest, &lifetimes);
    assert_eq!(planned.placement.offsets(), [0, 4096, 0, 4096 + 2048, 0]);
    assert_eq!(planned.placement.bytes(), 6656);
    // The block of B is the block released last, so E gets this block.
    assert_eq!(plan(&MaxBlock::default(), &lifetimes).placement.bytes(), 1024 + 4096 + 512);

    for take in [Take::Newest, Take::Oldest] {
        let binary = BinaryBlock { take, ..BinaryBlock::default() };
        assert_eq!(binary.sizes(&lifetimes).unwrap(), [1024, 2048, 4096]);
        let planned = plan(&binary, &lifetimes);
        assert_eq!(planned.placement.offsets(), [0, 1024, 0, 3072, 3584]);
        assert_eq!(planned.placement.bytes(), 7680);
    }

    let one = plan(&TwoLevel::of(1), &lifetimes);
    assert_eq!(one.placement.offsets(), [0, 1024, 0, 3072, 3584]);
    assert_eq!(one.placement.bytes(), 7680);
    for levels in 2..5 {
        let planned = plan(&TwoLevel::of(levels), &lifetimes);
        assert_eq!(planned.placement.offsets(), [2048, 0, 2048, 4096, 0]);
        assert_eq!(planned.placement.bytes(), 4608);
        assert!(planned.proven);
    }
}

#[test]
fn blocks_are_rounded_and_aligned() {
    let buffers = [Buffer::new(0, 2, 1), Buffer::new(0, 1, 513), Buffer::new(1, 2, 600)];
    let lifetimes = Lifetimes::new(buffers).unwrap();
    for (round, offsets) in
        [(512, [0, 512, 512]), (1, [0, 1, 1]), (0, [0, 1, 1]), (100, [0, 100, 100])]
    {
        let planned = plan(&MaxBlock { round, ..MaxBlock::default() }, &lifetimes);
        assert_eq!(planned.placement.offsets(), offsets);
        // The placement ends with the last buffer of the last block, even if the block is larger.
        assert_eq!(planned.placement.bytes(), offsets[2] + 600);
    }
    let [a, b, c] = buffers;
    let lifetimes = Lifetimes::new([a, b.aligned(2048), c]).unwrap();
    let planned = plan(&BinaryBlock { round: 1000, ..BinaryBlock::default() }, &lifetimes);
    assert_eq!(planned.placement.offsets(), [0, 2048, 2048]);
}

#[test]
fn sizes_are_classed_by_powers_of_two() {
    const MIB: u64 = 1 << 20;
    let sizes = |sizes: &[u64]| {
        let buffers = sizes.iter().map(|&size| Buffer::new(0, 1, size));
        let lifetimes = Lifetimes::new(buffers).unwrap();
        BinaryBlock { round: 1, ..BinaryBlock::default() }.sizes(&lifetimes).unwrap()
    };
    assert!(sizes(&[]).is_empty());
    assert!(sizes(&[0, 0]).is_empty());
    assert_eq!(sizes(&[7]), [7]);
    // If no size is above 512 bytes, the first class goes up to twice the smallest size: classes go
    // up to 20, 40, 80, 160.
    assert_eq!(sizes(&[10, 20, 21, 40, 80, 160, 0]), [20, 40, 80, 160]);
    // If some size is above 512 bytes, the first class goes up to 1024, and the second up to 2048.
    assert_eq!(sizes(&[1, 2, 1024, 1025, 2048]), [1024, 2048]);
    // With three classes for seven buffers, a class needs two members.
    assert_eq!(sizes(&[600, 600, 600, 1100, 2100, 2100, 2100]), [600, 2100]);
    // The last class may have fewer members.
    assert_eq!(sizes(&[600, 600, 1100, 1100, 1100, 1100, 4096]), [600, 1100, 4096]);
    // A class of large buffers may have fewer members, but needs at least two.
    let small = [600; 60];
    let large = |more: &[u64]| sizes(&[&small[..], more].concat());
    assert_eq!(large(&[7 * MIB, 8 * MIB, 64 * MIB]), [600, 8 * MIB, 64 * MIB]);
    assert_eq!(large(&[6 * MIB, 7 * MIB, 64 * MIB]), [600, 64 * MIB]);
    assert_eq!(large(&[8 * MIB, 64 * MIB]), [600, 64 * MIB]);
}

/// Block of each buffer and size of each block, found by checking every block at every instant.
fn naive_chain(
    buffers: &[Buffer],
    class: impl Fn(u64) -> u64,
    take: Take,
) -> (Vec<usize>, Vec<u64>) {
    let mut homes = vec![usize::MAX; buffers.len()];
    let mut blocks: Vec<u64> = Vec::new();
    let mut used: Vec<Vec<usize>> = Vec::new();
    let instants: BTreeSet<u64> = buffers.iter().map(|buffer| buffer.lower).collect();
    for now in instants {
        for (i, buffer) in buffers.iter().enumerate() {
            if buffer.lower != now || buffer.size == 0 {
                continue;
            }
            let free = (0..blocks.len()).filter(|&block| {
                let mut users = used[block].iter().map(|&user| buffers[user]);
                users.all(|user| user.upper <= now && class(user.size) == class(buffer.size))
            });
            let released =
                |&block: &usize| used[block].iter().map(|&user| buffers[user].upper).max();
            let found = match take {
                Take::Oldest => free.min(),
                Take::Newest => free.max_by_key(|block| (released(block), *block)),
            };
            homes[i] = found.unwrap_or(blocks.len());
            if found.is_none() {
                blocks.push(0);
                used.push(Vec::new());
            }
            blocks[homes[i]] = blocks[homes[i]].max(buffer.size);
            used[homes[i]].push(i);
        }
    }
    (homes, blocks)
}

/// Offsets of the buffers by the rules of two levels, found by trying every address.
fn naive_two_level(buffers: &[Buffer]) -> Vec<u64> {
    let (homes, sizes) = naive_chain(buffers, |size| size, Take::Newest);
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|&block| (u64::MAX - sizes[block], block));
    let meet = |a: usize, b: usize| {
        let pairs = (0..buffers.len()).flat_map(|i| (0..buffers.len()).map(move |j| (i, j)));
        let mut pairs = pairs.filter(|&(i, j)| homes[i] == a && homes[j] == b);
        pairs.any(|(i, j)| buffers[i].meets(&buffers[j]))
    };
    // Block -> the outermost block that contains the block, and its address in the outermost block.
    let mut places: BTreeMap<usize, (usize, u64)> = BTreeMap::new();
    let mut outermost: Vec<usize> = Vec::new();
    for block in order {
        let fits = |root: usize, at: u64| {
            places.iter().all(|(&other, &(its, begin))| {
                let apart = at + sizes[block] <= begin || begin + sizes[other] <= at;
                its != root || apart || !meet(block, other)
            })
        };
        let found = outermost.iter().find_map(|&root| {
            let mut addresses = 0..=sizes[root] - sizes[block];
            addresses.find(|&at| fits(root, at)).map(|at| (root, at))
        });
        if found.is_none() {
            outermost.push(block);
        }
        places.insert(block, found.unwrap_or((block, 0)));
    }
    let begin =
        |root| outermost.iter().take_while(|&&it| it != root).map(|&it| sizes[it]).sum::<u64>();
    let offset = |(i, buffer): (usize, &Buffer)| match places.get(&homes[i]) {
        Some(&(root, at)) if buffer.size > 0 => begin(root) + at,
        _ => 0,
    };
    buffers.iter().enumerate().map(offset).collect()
}

fn random(rng: &mut SplitMix64) -> Vec<Buffer> {
    let (count, span, sizes) = (rng.below(30), 1 + rng.below(20), 2 + rng.below(30));
    let mut below = |end: usize| rng.below(end) as u64;
    (0..count)
        .map(|_| {
            let lower = below(span);
            Buffer::new(lower, lower + 1 + below(span), below(sizes))
        })
        .collect()
}

#[test]
fn random_lives_follow_the_rules() {
    let mut rng = SplitMix64::new(5);
    for _ in 0..1000 {
        let buffers = random(&mut rng);
        let lifetimes = Lifetimes::new(buffers.clone()).unwrap();
        let row = |(homes, blocks): (Vec<usize>, Vec<u64>)| -> Vec<u64> {
            let begin = |home: usize| blocks[..home.min(blocks.len())].iter().sum();
            let at =
                |(i, &home): (usize, &usize)| if buffers[i].size > 0 { begin(home) } else { 0 };
            homes.iter().enumerate().map(at).collect()
        };
        let check = |planner: &dyn Planner, offsets: Vec<u64>| {
            let planned = planner.plan(&lifetimes, &Limits::none()).unwrap();
            assert_eq!(planned.placement.offsets(), offsets, "{} {buffers:?}", planner.name());
        };
        for take in [Take::Newest, Take::Oldest] {
            check(&MaxBlock { take, round: 1 }, row(naive_chain(&buffers, |_| 0, take)));
            let binary = BinaryBlock { take, round: 1 };
            let classes = binary.sizes(&lifetimes).unwrap();
            let class =
                |size: u64| classes.iter().filter(|&&largest| largest < size).count() as u64;
            check(&binary, row(naive_chain(&buffers, class, take)));
        }
        let one = row(naive_chain(&buffers, |size| size, Take::Newest));
        check(&TwoLevel { levels: 1, round: 1 }, one);
        check(&TwoLevel { levels: 2, round: 1 }, naive_two_level(&buffers));
    }
}

#[test]
fn further_levels_take_the_innermost_that_has_room() {
    // The first block is large enough for B and C side by side, for D and E side by side, or for F.
    // Each of these three groups is alive at a different time.
    let lives = [(0, 100), (1, 40), (1, 30), (2, 20), (2, 10), (3, 5)];
    let buffers = lives.map(|(lower, size)| Buffer::new(lower, lower + 1, size));
    let lifetimes = Lifetimes::new(buffers).unwrap();
    for (levels, offsets) in [
        (2, [0, 0, 40, 0, 20, 0]),
        // D and E lie in C, which is smaller than B. F would fit into B or C, and lies in C.
        (3, [0, 0, 40, 40, 60, 40]),
        // F lies in E, the smallest block in C.
        (4, [0, 0, 40, 40, 60, 60]),
        (u32::MAX, [0, 0, 40, 40, 60, 60]),
    ] {
        let planned = plan(&TwoLevel { levels, round: 1 }, &lifetimes);
        assert_eq!(planned.placement.offsets(), offsets, "{levels}");
    }
}

#[test]
fn too_many_blocks_are_refused() {
    let count = TwoLevel::LIMIT + 1;
    let lives = |size: fn(u64) -> u64| {
        Lifetimes::new((0..count as u64).map(|i| Buffer::new(2 * i, 2 * i + 1, size(i)))).unwrap()
    };
    let all_differ = lives(|i| 512 * (i + 1));
    let error = TwoLevel::of(2).plan(&all_differ, &Limits::none()).unwrap_err();
    let text = format!(
        "two-level places at most {} buffers, but there are {count}: use another planner, such as pushdown",
        TwoLevel::LIMIT
    );
    assert_eq!(error.to_string(), text);
    assert_eq!(plan(&TwoLevel::of(1), &all_differ).placement.bytes(), all_differ.total());
    // All buffers share one block.
    assert_eq!(plan(&TwoLevel::of(2), &lives(|_| 512)).placement.bytes(), 512);
}
