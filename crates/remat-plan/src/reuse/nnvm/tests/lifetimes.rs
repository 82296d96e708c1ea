//! Checks of plans for lifetimes without a graph.

use std::path::Path;

use proptest::prelude::*;

use super::super::{MatchRange, Nnvm};
use crate::{Buffer, Lifetimes, Limits, Planner};

fn nnvm(name: &str) -> Nnvm {
    name.parse().unwrap()
}

fn plan(name: &str, buffers: &[(u64, u64, u64)]) -> (Vec<u64>, u64) {
    let buffers = buffers.iter().map(|&(lower, upper, size)| Buffer::new(lower, upper, size));
    let lifetimes = Lifetimes::new(buffers).unwrap();
    let planned = nnvm(name).plan(&lifetimes, &Limits::none()).unwrap();
    (planned.placement.offsets().to_vec(), planned.placement.bytes())
}

#[test]
fn names_are_read_and_written() {
    for (name, range) in [
        ("nnvm:16", MatchRange::Times(16)),
        ("nnvm:0", MatchRange::Times(0)),
        ("nnvm:3", MatchRange::Times(3)),
        ("nnvm:auto", MatchRange::Auto),
    ] {
        assert_eq!(nnvm(name).range, range);
        assert_eq!(nnvm(name).name(), name);
    }
    assert_eq!(nnvm("nnvm"), Nnvm::default());
    for wrong in ["nnvm:", "nnvm16", "nnvm:-1", "nnvm:auto ", "max-block", ""] {
        assert!(wrong.parse::<Nnvm>().is_err(), "{wrong}");
    }
}

#[test]
fn nothing_takes_nothing() {
    assert_eq!(plan("nnvm", &[]), (vec![], 0));
    assert_eq!(plan("nnvm:auto", &[(0, 2, 0), (1, 3, 0)]).1, 0);
}

#[test]
fn the_smallest_that_is_large_enough_comes_first() {
    // Storages of 30, 100 and 60 bytes are free when 50 bytes are requested. The storage of 60
    // bytes, at address 100, is the smallest that is large enough.
    let buffers = [(0, 1, 30), (0, 1, 100), (0, 1, 60), (1, 2, 50)];
    assert_eq!(plan("nnvm:16", &buffers), (vec![160, 0, 100, 100], 190));
}

#[test]
fn else_the_largest_of_the_smaller_grows() {
    // Of the free storages of 30 and 60 bytes, the larger one grows to 70. The storage above the
    // grown storage moves up.
    let buffers = [(0, 1, 30), (0, 1, 60), (1, 2, 70)];
    assert_eq!(plan("nnvm:16", &buffers), (vec![70, 0, 0], 100));
}

#[test]
fn only_what_is_within_the_range_is_used_again() {
    let larger = [(0, 1, 160), (1, 2, 10)];
    assert_eq!(plan("nnvm:16", &larger).1, 160);
    assert_eq!(plan("nnvm:15", &larger).1, 170);
    let smaller = [(0, 1, 10), (1, 2, 160)];
    assert_eq!(plan("nnvm:16", &smaller).1, 160);
    // The least size, which is the request divided by the range, is rounded down.
    assert_eq!(plan("nnvm:15", &smaller).1, 160);
    assert_eq!(plan("nnvm:14", &smaller).1, 170);
    assert_eq!(plan("nnvm:1", &[(0, 1, 10), (1, 2, 10), (2, 3, 11)]).1, 21);
    assert_eq!(plan("nnvm:0", &[(0, 1, 10), (1, 2, 10)]).1, 20);
    // The range may be so large that a product with the range overflows.
    assert_eq!(plan(&format!("nnvm:{}", u64::MAX), &[(0, 1, 1), (1, 2, 1 << 40)]).1, 1 << 40);
}

#[test]
fn of_equal_storages_the_one_free_for_longest_is_taken_as_it_is_and_the_newest_to_grow() {
    // The storages of buffers 0, 1 and 2 are released in the order 1, 2, 0.
    let free = [(0, 3, 50), (0, 1, 50), (0, 2, 50)];
    assert_eq!(plan("nnvm", &[&free[..], &[(3, 4, 40)]].concat()).0, [0, 50, 100, 50]);
    assert_eq!(plan("nnvm", &[&free[..], &[(3, 4, 60)]].concat()).0, [0, 60, 110, 0]);
}

#[test]
fn at_one_instant_ends_come_first_then_the_largest() {
    // The buffer of 60 bytes requests a storage before the buffer of 50 bytes, and gets the only
    // free storage.
    assert_eq!(plan("nnvm", &[(0, 1, 60), (1, 2, 50), (1, 2, 60)]).0, [0, 60, 0]);
    // Buffers that begin at different instants request storages in order of time, not of size.
    assert_eq!(plan("nnvm", &[(0, 1, 60), (1, 3, 50), (2, 3, 60)]).0, [0, 0, 60]);
}

#[test]
fn colours_share_nothing() {
    let one = Buffer::new(0, 1, 10);
    let buffers = [one, Buffer { lower: 1, upper: 2, colour: 1, ..one }];
    let lifetimes = Lifetimes::new(buffers).unwrap();
    let planned = Nnvm::default().plan(&lifetimes, &Limits::none()).unwrap();
    assert_eq!(planned.placement.offsets(), [0, 10]);
    assert!(!planned.proven);
}

#[test]
fn a_storage_is_aligned_for_all_its_buffers() {
    let buffers = [Buffer::new(0, 9, 3), Buffer::new(0, 1, 2), Buffer::new(1, 2, 2).aligned(64)];
    let lifetimes = Lifetimes::new(buffers).unwrap();
    let planned = Nnvm::default().plan(&lifetimes, &Limits::none()).unwrap();
    assert_eq!(planned.placement.offsets(), [0, 64, 64]);
}

#[test]
fn auto_is_the_smallest_of_its_ranges() {
    // With a range of 2, the small buffer does not take the large storage, so the next large buffer
    // can take it.
    let buffers = [(0, 1, 100), (1, 9, 10), (2, 3, 100)];
    assert_eq!(plan("nnvm:16", &buffers).1, 200);
    assert_eq!(plan("nnvm:2", &buffers).1, 110);
    assert_eq!(plan("nnvm:auto", &buffers).1, 110);
}

/// Storage of each buffer and bytes of each storage, by a naive version of the rules that scans all
/// free storages.
fn naive(buffers: &[Buffer], range: u64) -> (Vec<usize>, Vec<u64>) {
    let mut homes = vec![None; buffers.len()];
    let mut bytes: Vec<u64> = Vec::new();
    // Free storages with their colours, in the order of their release.
    let mut free: Vec<(usize, u32)> = Vec::new();
    for now in 0..=buffers.iter().map(|buffer| buffer.upper).max().unwrap_or(0) {
        for (i, buffer) in buffers.iter().enumerate() {
            if buffer.upper == now {
                free.push((homes[i].unwrap(), buffer.colour));
            }
        }
        let mut begin: Vec<_> = (0..buffers.len()).filter(|&i| buffers[i].lower == now).collect();
        begin.sort_by_key(|&i| (u64::MAX - buffers[i].size, i));
        for i in begin {
            let Buffer { size, colour, .. } = buffers[i];
            let mut best: Option<usize> = None;
            for (at, &(storage, its)) in free.iter().enumerate() {
                let has = bytes[storage];
                let near = range > 0 && has <= size * range && has >= size / range;
                if its != colour || !near {
                    continue;
                }
                let better = best.is_none_or(|best| {
                    let best = bytes[free[best].0];
                    match (has >= size, best >= size) {
                        (true, true) => has < best,
                        (false, false) => has >= best,
                        (large, _) => large,
                    }
                });
                if better {
                    best = Some(at);
                }
            }
            homes[i] = Some(match best {
                Some(at) => free.remove(at).0,
                None => {
                    bytes.push(0);
                    bytes.len() - 1
                }
            });
            let home = &mut bytes[homes[i].unwrap()];
            *home = size.max(*home);
        }
    }
    (homes.into_iter().flatten().collect(), bytes)
}

fn buffer() -> impl Strategy<Value = Buffer> {
    (0..20_u64, 1..10_u64, 0..40_u64, 0..4_u32, 0..2_u32).prop_map(
        |(lower, life, size, align, colour)| Buffer {
            colour,
            ..Buffer::new(lower, lower + life, size).aligned(1 << align)
        },
    )
}

proptest! {
    #[test]
    fn every_plan_is_valid_and_follows_the_rules(
        buffers in prop::collection::vec(buffer(), 0..40),
        range in prop::sample::select(vec![0, 1, 2, 3, 16]),
    ) {
        let lifetimes = Lifetimes::new(buffers.clone()).unwrap();
        let planned = Nnvm { range: MatchRange::Times(range) }
            .plan(&lifetimes, &Limits::none())
            .unwrap();
        let (homes, bytes) = naive(&buffers, range);
        let offsets = planned.placement.offsets();
        let mut end = 0;
        for (i, (a, at)) in buffers.iter().zip(offsets).enumerate() {
            end = end.max(at + a.size);
            for (j, (b, other)) in buffers.iter().zip(offsets).enumerate().take(i) {
                let share = at < &(other + b.size) && other < &(at + a.size);
                prop_assert!(!(share && a.size > 0 && b.size > 0 && (a.meets(b) || a.colour != b.colour)));
                prop_assert!(homes[i] != homes[j] || at == other);
            }
        }
        prop_assert_eq!(planned.placement.bytes(), end);
        // Alignment may waste at most 7 bytes before each storage.
        let least: u64 = bytes.iter().sum();
        prop_assert!(end >= least && end <= least + 7 * bytes.len() as u64);
        prop_assert_eq!(planned.proven, end == lifetimes.load());
        if range == 0 {
            prop_assert_eq!(bytes.iter().sum::<u64>(), lifetimes.total());
        }
    }

    #[test]
    fn auto_is_no_worse_than_any_of_its_ranges(buffers in prop::collection::vec(buffer(), 0..40)) {
        let lifetimes = Lifetimes::new(buffers).unwrap();
        let bytes = |range| {
            Nnvm { range }.plan(&lifetimes, &Limits::none()).unwrap().placement.bytes()
        };
        let best = [1, 2, 4, 8, 16].map(|times| bytes(MatchRange::Times(times))).into_iter().min();
        prop_assert_eq!(Some(bytes(MatchRange::Auto)), best);
    }
}

fn read(path: &Path) -> Lifetimes {
    let text = std::fs::read_to_string(path).unwrap();
    let buffers = text.lines().skip(1).map(|line| {
        let numbers: Vec<u64> =
            line.split(',').map(|field| field.trim().parse().unwrap()).collect();
        Buffer::new(numbers[1], numbers[2], numbers[3])
    });
    Lifetimes::new(buffers).unwrap()
}

/// Ratios of bytes to load, as computed by earlier scripts of this project.
#[test]
fn given_instances_come_out_as_expected() {
    let data = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared")).join("data");
    if !data.exists() {
        println!("skipped: there is no {}", data.display());
        return;
    }
    for (file, default, auto) in [
        ("planning/resnet50.csv", Some(1.090), 1.046),
        ("planning/G_1.csv", Some(1.033), 1.022),
        ("planning/S_1.csv", Some(1.698), 1.673),
        ("minimalloc/A.1048576.csv", None, 2.04),
        ("minimalloc/B.1048576.csv", None, 2.03),
        ("minimalloc/C.1048576.csv", None, 2.14),
        ("minimalloc/D.1048576.csv", None, 1.65),
        ("minimalloc/E.1048576.csv", None, 2.50),
        ("minimalloc/F.1048576.csv", None, 1.28),
    ] {
        let lifetimes = read(&data.join(file));
        let ratio = |name| {
            let planned = nnvm(name).plan(&lifetimes, &Limits::none()).unwrap();
            let ratio = planned.placement.bytes() as f64 / lifetimes.load() as f64;
            println!("{file} {name} {ratio:.4}");
            ratio
        };
        for (name, wanted) in [("nnvm:16", default), ("nnvm:auto", Some(auto))] {
            let ratio = ratio(name);
            assert!(ratio >= 1.0);
            assert!(
                wanted.is_none_or(|wanted| (ratio - wanted).abs() < 0.01),
                "{file} {name} {ratio}"
            );
        }
    }
}
