//! Checks of buffers with gaps, alignments of all kinds and hints, at every instant.

use super::{Buffer, KINDS, planners};
use crate::{Exact, Gaps, Portfolio};
use crate::{Gap, Lifetimes, Limits, Placement, PlanError, Planned, Planner};
use remat_rng::SplitMix64;
use std::time::Duration;

/// Planners without support for gaps. The listed planners return an error for buffers with gaps.
const REFUSE: [&str; 9] = [
    "best-fit",
    "pushdown",
    "nnvm:16",
    "nnvm:auto",
    "max-block",
    "max-block:oldest",
    "binary-block",
    "binary-block:oldest",
    "two-level:1",
];

/// Planners that support gaps, but not bytes kept in gaps.
const REFUSE_KEPT: [&str; 4] = ["two-level", "two-level:3", "interval-move", "exact:500"];

/// Random gaps of a buffer: at its ends, next to each other, or over its whole life. If `keeps` is
/// set, some of the gaps keep bytes.
fn gaps(rng: &mut SplitMix64, buffer: &Buffer, keeps: bool) -> Vec<Gap> {
    let mut gaps = Vec::new();
    let mut now = buffer.lower;
    while now < buffer.upper && gaps.len() < 4 {
        let left = (buffer.upper - now).min(40) as usize;
        let lower = now + rng.below(left) as u64 * rng.below(2) as u64;
        let most = (buffer.upper - lower).min(40) as usize;
        let upper =
            if rng.below(8) == 0 { buffer.upper } else { lower + 1 + rng.below(most) as u64 };
        let mut gap = Gap::new(lower, upper);
        if keeps && rng.below(2) == 0 && buffer.size > 0 {
            let start = rng.next() % buffer.size;
            gap.kept = start..start + 1 + rng.next() % (buffer.size - start);
        }
        gaps.push(gap);
        now = upper;
    }
    // Gaps may be given in any order.
    if rng.below(2) == 0 {
        gaps.reverse();
    }
    gaps
}

fn instances() -> impl Iterator<Item = Lifetimes> {
    let mut rng = SplitMix64::new(11);
    (0..400).map(move |round| {
        let count = 1 + round / KINDS.len() % 25;
        let mut buffers = KINDS[round % KINDS.len()](&mut rng, count);
        for buffer in &mut buffers {
            let align = [1, 1 << rng.below(7), 1 + rng.below(9)][round % 3];
            *buffer = buffer.aligned(align as u64);
        }
        let mut lifetimes = Lifetimes::new(buffers).unwrap();
        for number in 0..lifetimes.len() {
            let buffer = lifetimes.buffers()[number];
            if rng.below(3) > 0 {
                let gaps = gaps(&mut rng, &buffer, round % 2 == 0);
                lifetimes = lifetimes.with_gaps(number, gaps).unwrap();
            }
            if round % 5 == 0 && rng.below(3) > 0 {
                lifetimes = lifetimes.with_hint(number, rng.next() % 2000);
            }
        }
        lifetimes
    })
}

/// Ranges of bytes in use, with their buffers, for each instant at which a buffer begins or ends to
/// take memory.
fn held(lifetimes: &Lifetimes) -> Vec<Vec<(usize, u64, u64)>> {
    let buffers = lifetimes.buffers();
    let mut instants: Vec<u64> = buffers.iter().map(|it| it.lower).collect();
    instants.extend((0..buffers.len()).flat_map(|i| {
        lifetimes.gaps(i).iter().flat_map(|gap| [gap.lower, gap.upper]).collect::<Vec<_>>()
    }));
    let at = |now: u64| {
        let of = |number: usize| {
            let Buffer { lower, upper, size, .. } = buffers[number];
            let gap = lifetimes.gaps(number).iter().find(|it| it.lower <= now && now < it.upper);
            match gap {
                _ if now < lower || upper <= now => (number, 0, 0),
                Some(gap) => (number, gap.kept.start, gap.kept.end),
                None => (number, 0, size),
            }
        };
        (0..buffers.len()).map(of).filter(|(_, begin, end)| begin < end).collect()
    };
    instants.into_iter().map(at).collect()
}

fn naive_load(lifetimes: &Lifetimes) -> u64 {
    let bytes =
        |held: &Vec<(usize, u64, u64)>| held.iter().map(|(_, begin, end)| end - begin).sum();
    held(lifetimes).iter().map(bytes).max().unwrap_or(0)
}

fn check(name: &str, lifetimes: &Lifetimes, planned: &Planned) {
    let offsets = planned.placement.offsets();
    for (buffer, offset) in lifetimes.buffers().iter().zip(offsets) {
        assert_eq!(offset % buffer.align, 0, "{name}");
    }
    // A buffer of size 0 also has an address, which counts for the size of the placement.
    let empty = |&number: &usize| {
        lifetimes.buffers()[number].size == 0 && lifetimes.gaps(number).is_empty()
    };
    let mut high = (0..offsets.len()).filter(empty).map(|it| offsets[it]).max().unwrap_or(0);
    for held in held(lifetimes) {
        let mut ranges: Vec<(u64, u64)> =
            held.iter().map(|&(i, begin, end)| (offsets[i] + begin, offsets[i] + end)).collect();
        ranges.sort_unstable();
        assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{name}: {lifetimes:?}");
        high = ranges.iter().map(|range| range.1).fold(high, u64::max);
    }
    assert_eq!(planned.placement.bytes(), high, "{name}");
    assert!(planned.placement.bytes() >= lifetimes.load(), "{name}");
}

#[test]
fn gaps_are_kept_or_refused_by_name() {
    let mut shared = 0;
    for lifetimes in instances() {
        assert_eq!(lifetimes.load(), naive_load(&lifetimes));
        let whole = Lifetimes::new(lifetimes.buffers().to_vec()).unwrap();
        for planner in planners() {
            let name = planner.name();
            match planner.plan(&lifetimes, &Limits::none()) {
                Ok(planned) => {
                    check(&name, &lifetimes, &planned);
                    let knows = !REFUSE.contains(&&*name) || !lifetimes.has_gaps();
                    assert!(knows, "{name}");
                    shared += u32::from(planned.placement.bytes() < whole.load());
                }
                Err(PlanError::Unknown { planner, what: "gaps" }) => {
                    assert!(planner == name && REFUSE.contains(&&*name), "{name}");
                }
                Err(PlanError::Unknown { planner, what: "bytes that are kept in gaps" }) => {
                    assert!(planner == name && REFUSE_KEPT.contains(&&*name), "{name}");
                    assert!(lifetimes.has_kept_bytes());
                }
                // The alignments have a common multiple that is too large, or the sizes are huge.
                Err(PlanError::TooLarge) => {
                    assert!(lifetimes.buffers().iter().any(|it| it.size > 1 << 60));
                }
                Err(PlanError::Unknown { what: "2^53 bytes or more", .. }) => {
                    assert!(lifetimes.total() > 1 << 52);
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
    assert!(shared > 200, "{shared}");
}

#[test]
fn overlaps_in_a_placement_are_found() {
    let mut broken = 0;
    for (round, lifetimes) in instances().enumerate() {
        let mut rng = SplitMix64::new(round as u64);
        let planned = Gaps::default().plan(&lifetimes, &Limits::none()).unwrap();
        let mut offsets = planned.placement.offsets().to_vec();
        let (moved, to) = (rng.below(offsets.len()), rng.below(offsets.len()));
        offsets[moved] =
            offsets[to] / lifetimes.buffers()[moved].align * lifetimes.buffers()[moved].align;
        let overlaps = held(&lifetimes).iter().any(|held| {
            let mut ranges: Vec<(u64, u64)> = held
                .iter()
                .map(|&(i, begin, end)| (offsets[i] + begin, offsets[i] + end))
                .collect();
            ranges.sort_unstable();
            ranges.windows(2).any(|pair| pair[0].1 > pair[1].0)
        });
        assert_eq!(Placement::new(&lifetimes, offsets).is_err(), overlaps, "{round}");
        broken += u32::from(overlaps);
    }
    assert!(broken > 50, "{broken}");
}

#[test]
fn gaps_that_no_buffer_can_have_are_refused() {
    let one = Lifetimes::new([Buffer::new(10, 20, 100)]).unwrap();
    let kept = |lower, upper, kept| Gap { kept, ..Gap::new(lower, upper) };
    #[expect(clippy::reversed_empty_ranges, reason = "this is what is refused")]
    let backwards = kept(12, 13, 5..4);
    for (gaps, why) in [
        (vec![Gap::new(12, 12)], "buffer 0 has a gap from 12 to 12, which is empty"),
        (vec![Gap::new(13, 12)], "a gap from 13 to 12, which is empty"),
        (vec![Gap::new(9, 12)], "a gap from 9 to 12, which is not within the life of the buffer"),
        (vec![Gap::new(12, 21)], "a gap from 12 to 21, which is not within the life of the buffer"),
        (vec![Gap::new(14, 16), Gap::new(12, 15)], "from 14 to 16, which overlaps another gap"),
        (
            vec![kept(12, 13, 0..101)],
            "from 12 to 13, which keeps bytes that the buffer does not have",
        ),
        (vec![backwards], "which keeps bytes that the buffer does not have"),
    ] {
        let error = one.clone().with_gaps(0, gaps).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let whole = one.with_gaps(0, [Gap::new(15, 20), Gap::new(10, 15)]).unwrap();
    assert_eq!((whole.load(), whole.parts().len()), (0, 0));
}

/// Hints never make the result worse. If the hints are a valid placement, the result is at least as
/// good as this placement.
#[test]
fn a_search_begins_where_the_hints_say() {
    let mut better = 0;
    for seed in 0..60 {
        let mut rng = SplitMix64::new(seed);
        let buffers = KINDS[0](&mut rng, 12 + seed as usize);
        let lifetimes = Lifetimes::new(buffers).unwrap();
        let found = Portfolio { exact: Exact { nodes: 20_000 } };
        let found = found.plan(&lifetimes, &Limits::none()).unwrap();
        let mut hinted = lifetimes.clone();
        for (number, &offset) in found.placement.offsets().iter().enumerate() {
            hinted = hinted.with_hint(number, offset);
        }
        for nodes in [0, 1] {
            let exact = Exact { nodes };
            let portfolio = Portfolio { exact };
            for planner in [&exact as &dyn Planner, &portfolio] {
                let without = planner.plan(&lifetimes, &Limits::none()).unwrap().placement.bytes();
                let with = planner.plan(&hinted, &Limits::none()).unwrap();
                check(&planner.name(), &hinted, &with);
                assert!(with.placement.bytes() <= found.placement.bytes());
                better += u32::from(with.placement.bytes() < without);
            }
        }
        // A search can also begin with hints that overlap, or that only a few buffers have.
        for number in (0..lifetimes.len()).step_by(2) {
            hinted = hinted.with_hint(number, 7);
        }
        let planned =
            Portfolio { exact: Exact { nodes: 10 } }.plan(&hinted, &Limits::none()).unwrap();
        check("portfolio", &hinted, &planned);
    }
    assert!(better > 10, "{better}");
}

#[test]
fn who_looks_long_stops_in_time() {
    let mut rng = SplitMix64::new(1);
    let buffers: Vec<Buffer> = (0..1200)
        .map(|_| {
            let lower = rng.below(100_000) as u64;
            Buffer::new(
                lower,
                lower + 1 + rng.below(300) as u64,
                512 + 512 * rng.below(100_000) as u64,
            )
        })
        .collect();
    let lifetimes = Lifetimes::new(buffers).unwrap();
    for name in ["two-level", "two-level:3", "two-level:9", "gaps-size", "gaps-birth"] {
        let planner = crate::named(name).unwrap();
        let error = planner.plan(&lifetimes, &Limits::within(Duration::ZERO)).unwrap_err();
        assert!(matches!(error, PlanError::TooLong { .. }), "{error}");
        assert!(error.to_string().starts_with(&format!("{name} ran out of time")), "{error}");
        assert!(planner.plan(&lifetimes, &Limits::none()).is_ok());
    }
    let few = Lifetimes::new(lifetimes.buffers()[..600].to_vec()).unwrap();
    let mover = crate::named("interval-move").unwrap();
    assert!(matches!(
        mover.plan(&few, &Limits::within(Duration::ZERO)),
        Err(PlanError::TooLong { .. })
    ));
    // When the time is up, the portfolio returns the placement of a quicker planner.
    let planned = Portfolio::default().plan(&lifetimes, &Limits::within(Duration::ZERO)).unwrap();
    check("portfolio", &lifetimes, &planned);
    // If buffers have gaps, the placement is that of a planner that supports gaps.
    let first = few.buffers()[0].lower;
    let gapped = few.with_gaps(0, [Gap::new(first, first + 1)]).unwrap();
    let planned = Portfolio::default().plan(&gapped, &Limits::within(Duration::ZERO)).unwrap();
    check("portfolio", &gapped, &planned);
}
