//! Checks of the search against an exhaustive search, and on hard instances.

use super::super::tests::shared;
use super::super::{Gaps, Pushdown};
use super::Exact;
use super::preorder::Preorder;
use super::search::{Answer, Search};
use super::sections::Sections;
use super::state::{Rules, State};
use crate::{Buffer, Gap, Lifetimes, Limits, Planned, Planner};
use remat_rng::SplitMix64;
use std::thread;

/// At most `most` buffers with random lives, sizes and alignments up to 2^`align`.
fn tiny(seed: u64, most: usize, align: u64) -> Lifetimes {
    let mut rng = SplitMix64::new(seed);
    let mut below = |end: u64| rng.next() % end;
    let (times, largest) = (2 + below(8), 1 + below(12));
    let buffers: Vec<_> = (0..1 + below(most as u64))
        .map(|_| {
            let lower = below(times);
            let upper = lower + 1 + below(times - lower);
            Buffer::new(lower, upper, below(largest + 1)).aligned(1 << below(align + 1))
        })
        .collect();
    Lifetimes::new(buffers).unwrap()
}

/// Buffers of [`tiny`]. About half of the buffers with long lives have one or two gaps.
fn tiny_with_gaps(seed: u64, most: usize, align: u64) -> Lifetimes {
    let mut rng = SplitMix64::new(!seed);
    let mut lifetimes = tiny(seed, most, align);
    for (number, buffer) in lifetimes.buffers().to_vec().into_iter().enumerate() {
        let Buffer { lower, upper, .. } = buffer;
        if upper - lower < 3 || rng.below(2) == 0 {
            continue;
        }
        let middle = lower + 1 + rng.below((upper - lower) as usize - 2) as u64;
        let mut gaps = vec![Gap::new(middle, middle + 1)];
        // A gap may begin when the buffer begins, so that the buffer takes memory only at the end
        // of its life.
        gaps.extend((rng.below(3) == 0).then(|| Gap::new(lower, middle)));
        lifetimes = lifetimes.with_gaps(number, gaps).unwrap();
    }
    lifetimes
}

/// Whether two buffers take memory at the same instant, found by checking every instant.
fn meet(lifetimes: &Lifetimes, a: usize, b: usize) -> bool {
    let takes = |number: usize, now: u64| {
        let Buffer { lower, upper, .. } = lifetimes.buffers()[number];
        let mut gaps = lifetimes.gaps(number).iter();
        (lower..upper).contains(&now) && !gaps.any(|gap| (gap.lower..gap.upper).contains(&now))
    };
    let end = lifetimes.buffers()[a].upper;
    (0..end).any(|now| takes(a, now) && takes(b, now))
}

/// Size of the smallest placement, found by trying all orders. In each order, every buffer is
/// placed as low as the buffers before it allow. One of these orders gives the smallest placement:
/// the order of the buffers' addresses in that placement.
fn least(lifetimes: &Lifetimes) -> u64 {
    struct All<'a> {
        buffers: &'a [Buffer],
        left: Vec<usize>,
        meet: Vec<Vec<bool>>,
        placed: Vec<(usize, u64)>,
        least: u64,
    }
    impl All<'_> {
        fn place(&mut self, top: u64) {
            if top >= self.least {
                return;
            }
            if self.left.is_empty() {
                self.least = top;
            }
            for at in 0..self.left.len() {
                let i = self.left.swap_remove(at);
                let met = self.placed.iter().filter(|&&(other, _)| self.meet[i][other]);
                let end = met.map(|&(other, at)| at + self.buffers[other].size).max().unwrap_or(0);
                let offset = end.next_multiple_of(self.buffers[i].align);
                self.placed.push((i, offset));
                self.place(top.max(offset + self.buffers[i].size));
                self.placed.pop();
                self.left.push(i);
                let last = self.left.len() - 1;
                self.left.swap(at, last);
            }
        }
    }
    let buffers = lifetimes.buffers();
    let count = buffers.len();
    let meets = |i: usize| (0..count).map(|j| meet(lifetimes, i, j)).collect();
    let meet: Vec<Vec<bool>> = (0..count).map(meets).collect();
    let left = (0..count).filter(|&i| buffers[i].size > 0 && meet[i][i]).collect();
    let mut all = All { buffers, left, meet, placed: Vec::new(), least: u64::MAX };
    all.place(0);
    all.least
}

/// Sets of rules: all rules, no rule, and each set of all rules but one.
fn rules() -> Vec<Rules> {
    let none = Rules {
        dominance: false,
        lifting: false,
        symmetry: false,
        splitting: false,
        memory: false,
    };
    vec![
        Rules::ALL,
        none,
        Rules { dominance: false, ..Rules::ALL },
        Rules { lifting: false, ..Rules::ALL },
        Rules { symmetry: false, ..Rules::ALL },
        Rules { splitting: false, ..Rules::ALL },
        Rules { memory: false, ..Rules::ALL },
    ]
}

/// Size of a placement, after a naive check that no two buffers alive at the same time share a
/// byte.
fn check(lifetimes: &Lifetimes, planned: &Planned) -> u64 {
    let offsets = planned.placement.offsets();
    let buffers = lifetimes.buffers();
    let mut high = 0;
    for (i, (a, &at)) in buffers.iter().zip(offsets).enumerate() {
        assert_eq!(at % a.align, 0);
        let takes_room = lifetimes.parts().iter().any(|part| part.buffer == i);
        high = high.max(if takes_room { at + a.size } else { 0 });
        for (j, (b, &other)) in buffers.iter().zip(offsets).take(i).enumerate() {
            // The quick conditions come first, because `meet` checks every instant and can take
            // long.
            let apart = at + a.size <= other || other + b.size <= at;
            assert!(apart || !a.meets(b) || !meet(lifetimes, i, j));
        }
    }
    high
}

#[test]
fn nothing_is_better() {
    let mut above_load = 0;
    for seed in 0..600 {
        let lifetimes = tiny(seed, 8, seed % 4);
        let planned = Exact::default().plan(&lifetimes, &Limits::none()).unwrap();
        assert!(planned.proven, "seed {seed}");
        assert_eq!(planned.placement.bytes(), check(&lifetimes, &planned), "seed {seed}");
        assert_eq!(planned.placement.bytes(), least(&lifetimes), "seed {seed}");
        above_load += u32::from(planned.placement.bytes() > lifetimes.load());
    }
    // The test needs answers above the load, because an answer that equals the load is proven
    // without a search.
    assert!(above_load > 20, "{above_load}");
}

#[test]
fn nothing_is_better_where_there_are_gaps() {
    let (mut above_load, mut by_gaps) = (0, 0);
    for seed in 0..600 {
        let lifetimes = tiny_with_gaps(seed, 8, seed % 4);
        let planned = Exact::default().plan(&lifetimes, &Limits::none()).unwrap();
        assert!(planned.proven, "seed {seed}");
        assert_eq!(planned.placement.bytes(), check(&lifetimes, &planned), "seed {seed}");
        let least = least(&lifetimes);
        assert_eq!(planned.placement.bytes(), least, "seed {seed}");
        above_load += u32::from(planned.placement.bytes() > lifetimes.load());
        let whole = Lifetimes::new(lifetimes.buffers().to_vec()).unwrap();
        by_gaps += u32::from(lifetimes.load() < whole.load());
    }
    assert!(above_load > 20 && by_gaps > 50, "{above_load} {by_gaps}");
}

#[test]
fn alignments_of_all_kinds_are_kept_exactly() {
    for seed in 0..200 {
        let mut rng = SplitMix64::new(seed);
        let mut buffers = tiny(seed, 7, 0).buffers().to_vec();
        for buffer in &mut buffers {
            buffer.size *= [1, 4, 6][seed as usize % 3];
            *buffer = buffer.aligned(1 + rng.below(12) as u64);
        }
        let lifetimes = Lifetimes::new(buffers).unwrap();
        let planned = Exact::default().plan(&lifetimes, &Limits::none()).unwrap();
        assert!(planned.proven);
        assert_eq!(check(&lifetimes, &planned), least(&lifetimes), "seed {seed}");
    }
}

#[test]
fn each_order_and_rule_tells_what_fits() {
    for seed in 0..500 {
        let tiny = if seed % 2 == 0 { tiny } else { tiny_with_gaps };
        let lifetimes = tiny(seed / 2, 7, seed / 2 % 3);
        let Sections { unit, parts } = Sections::new(&lifetimes);
        let [part] = &parts[..] else { continue };
        let least = least(&lifetimes) / unit;
        for rules in rules() {
            for order in Preorder::ALL {
                let mut search = Search::new(part, order.sort(part), rules);
                // Capacities rise and fall, to check that states remembered at one capacity do not
                // spoil a search at another capacity.
                for capacity in [least, least - 1, least + 1, least.saturating_sub(2), least] {
                    let mut nodes = 1_000_000;
                    let answer = search.fits(capacity, &mut nodes, &Limits::none());
                    let fits = if capacity < least { Answer::Never } else { Answer::Placed };
                    assert_eq!(answer, fits, "seed {seed}, {rules:?}, {order:?}, {capacity}");
                    if fits == Answer::Placed {
                        assert!(search.state.placement().1 <= capacity);
                    }
                }
            }
        }
    }
}

/// Buffers that fit into a known capacity, because they are the pieces of a rectangle of time and
/// bytes. About one of every `hole` pieces is left out.
fn cut(seed: u64, pieces: usize, hole: usize) -> (Lifetimes, u64) {
    let mut rng = SplitMix64::new(seed);
    let mut whole = vec![(0, 4 + rng.below(20) as u64, 4 + rng.below(60) as u64)];
    let capacity = whole[0].2;
    for _ in 0..pieces {
        let at = rng.below(whole.len());
        let (lower, upper, size) = whole[at];
        if rng.below(2) == 0 && size > 1 {
            let low = 1 + rng.below(size as usize - 1) as u64;
            whole[at].2 = low;
            whole.push((lower, upper, size - low));
        } else if upper - lower > 1 {
            let middle = lower + 1 + rng.below((upper - lower) as usize - 1) as u64;
            whole[at].1 = middle;
            whole.push((middle, upper, size));
        }
    }
    whole.retain(|_| rng.below(hole) > 0);
    let buffers = whole.into_iter().map(|(lower, upper, size)| Buffer::new(lower, upper, size));
    (Lifetimes::new(buffers).unwrap(), capacity)
}

#[test]
fn instances_that_fit_are_never_said_not_to_fit() {
    let mut placed = 0;
    for seed in 0..1_500 {
        let pieces = 6 + seed as usize % 20;
        let (lifetimes, capacity) = cut(seed, pieces, [4, 8, 1_000][seed as usize % 3]);
        let Sections { unit, parts } = Sections::new(&lifetimes);
        for part in &parts {
            for order in Preorder::ALL {
                let mut search = Search::new(part, order.sort(part), Rules::ALL);
                // The second call reuses the failed states that the first call remembered.
                for mut nodes in [100, 2_000] {
                    let answer = search.fits(capacity / unit, &mut nodes, &Limits::none());
                    assert_ne!(answer, Answer::Never, "seed {seed}, {order:?}");
                    placed += u32::from(answer == Answer::Placed);
                }
            }
        }
    }
    assert!(placed > 3_000, "{placed}");
}

/// The bounds never exclude a placement that exists. The test leads the search to a random
/// placement in which each buffer lies at address 0 or on another buffer. The capacity is the
/// height of this placement. At no step may a bound say that the buffers cannot fit.
#[test]
fn no_placement_is_lost_on_the_way_to_it() {
    let mut passed_over = 0;
    for seed in 0..1_500 {
        let tiny = if seed % 2 == 0 { tiny } else { tiny_with_gaps };
        let lifetimes = tiny(seed, 8 + seed as usize % 12, seed % 3);
        let Sections { parts, .. } = Sections::new(&lifetimes);
        let [part] = &parts[..] else { continue };
        // The placement is random: in a random order, each buffer is placed on top of the buffers
        // before it.
        let mut order: Vec<usize> = (0..part.items.len()).collect();
        let mut rng = SplitMix64::new(!seed);
        (1..order.len()).for_each(|i| order.swap(i, rng.below(i + 1)));
        let meets = |a: usize, b: usize| {
            let pairs = part.items[a]
                .sections
                .iter()
                .flat_map(|a| part.items[b].sections.iter().map(move |b| (a, b)));
            pairs.into_iter().any(|(a, b)| a.start < b.end && b.start < a.end)
        };
        let mut offsets = vec![0; order.len()];
        let mut height = 0;
        for (at, &i) in order.iter().enumerate() {
            let below = order[..at].iter().filter(|&&other| meets(i, other));
            let end = below.map(|&other| offsets[other] + part.items[other].size).max();
            offsets[i] = end.unwrap_or(0).next_multiple_of(part.items[i].align);
            height = height.max(offsets[i] + part.items[i].size);
        }
        for preorder in Preorder::ALL {
            let ranks = preorder.sort(part);
            let rules = Rules { dominance: false, symmetry: false, ..Rules::ALL };
            let mut state = State::new(part, ranks.clone(), rules);
            state.capacity = height;
            let mut rest: Vec<u32> = (0..ranks.len() as u32).collect();
            let mut way = rest.clone();
            way.sort_by_key(|&rank| (offsets[ranks[rank as usize]], rank));
            let mut last = (0, 0);
            for rank in way {
                assert!(state.look(&rest, last).is_some(), "seed {seed}, {preorder:?}");
                let mut tries = Vec::new();
                state.candidates(&rest, &mut tries);
                assert!(tries.contains(&rank), "seed {seed}, {preorder:?}");
                passed_over += rest.len() - tries.len();
                last = (state.least[rank as usize], rank);
                assert_eq!(last.0, offsets[ranks[rank as usize]]);
                state.place(rank);
                rest.retain(|&other| other != rank);
            }
        }
    }
    assert!(passed_over > 1_000, "{passed_over}");
}

#[test]
fn rules_agree_where_trying_everything_takes_too_long() {
    for seed in 0..60 {
        let tiny = if seed % 2 == 0 { tiny } else { tiny_with_gaps };
        let lifetimes = tiny(seed, 14, 0);
        let pushed = Gaps::default().plan(&lifetimes, &Limits::none()).unwrap();
        let best = |rules| {
            let exact = Exact { nodes: 3_000_000 };
            exact.search(&lifetimes, pushed.clone(), &Limits::none(), rules).unwrap()
        };
        let all = best(Rules::ALL);
        for rules in rules() {
            let planned = best(rules);
            if planned.proven && all.proven {
                assert_eq!(
                    planned.placement.bytes(),
                    all.placement.bytes(),
                    "seed {seed}, {rules:?}"
                );
            }
        }
        assert!(all.proven, "seed {seed}");
    }
}

#[test]
fn few_nodes_give_the_best_so_far_and_always_the_same() {
    for seed in 0..20 {
        let lifetimes = tiny(seed, 60, 2);
        let pushed = Pushdown.plan(&lifetimes, &Limits::none()).unwrap();
        let mut last = u64::MAX;
        for nodes in [0, 1, 10, 1_000, 20_000] {
            let planned = Exact { nodes }.plan(&lifetimes, &Limits::none()).unwrap();
            let again = Exact { nodes }.plan(&lifetimes, &Limits::none()).unwrap();
            assert_eq!(planned.placement, again.placement);
            assert_eq!(planned.placement.bytes(), check(&lifetimes, &planned));
            assert!(planned.placement.bytes() <= pushed.placement.bytes().min(last));
            last = planned.placement.bytes();
        }
    }
}

#[test]
fn a_time_limit_that_is_over_gives_what_there_is() {
    let lifetimes = tiny(3, 60, 2);
    let planned = Exact::default().plan(&lifetimes, &Limits::within(std::time::Duration::ZERO));
    check(&lifetimes, &planned.unwrap());
}

#[test]
fn only_buffers_linked_in_time_count_towards_the_limit() {
    // A chain of linked buffers, at most two of which are alive at any instant.
    let chain = |count: u64| {
        let buffers = (0..count).map(|i| Buffer::new(i, i + 2, 1 + i % 7));
        Lifetimes::new(buffers).unwrap()
    };
    let most = Exact::LIMIT as u64;
    assert!(Exact::default().plan(&chain(most), &Limits::none()).unwrap().proven);
    let error = Exact::default().plan(&chain(most + 1), &Limits::none()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "exact places at most 2000 buffers, but there are 2001: use another planner, such as pushdown"
    );
    // The limit applies to each group of linked buffers, so many buffers that are not linked are
    // allowed.
    let apart = (0..3 * most).map(|i| Buffer::new(i, i + 1, 1));
    let apart = Lifetimes::new(apart).unwrap();
    assert!(Exact::default().plan(&apart, &Limits::none()).unwrap().proven);
}

#[test]
fn a_path_of_as_many_as_there_may_be_needs_no_deep_stack() {
    let mut rng = SplitMix64::new(5);
    let buffers = (0..Exact::LIMIT as u64).map(|i| {
        let (life, size) = (1 + rng.below(300) as u64, 1 + rng.below(1000) as u64);
        Buffer::new(i / 2, i / 2 + 1 + life, size)
    });
    let lifetimes = Lifetimes::new(buffers).unwrap();
    let [part] = &Sections::new(&lifetimes).parts[..] else { panic!("it is linked") };
    let mut search = Search::new(part, Preorder::Wat.sort(part), Rules::ALL);
    let small = thread::Builder::new().stack_size(128 << 10);
    thread::scope(|scope| {
        let search = &mut search;
        let run = move || search.fits(2 * part.load(), &mut 10_000, &Limits::none());
        let thread = small.spawn_scoped(scope, run).unwrap();
        assert_eq!(thread.join().unwrap(), Answer::Placed);
    });
    assert_eq!(search.state.deepest, Exact::LIMIT);
}

#[test]
fn each_of_many_parts_is_lowered() {
    // The instance has many copies of one part, and each copy must be lowered.
    for seed in 0..40 {
        let one = tiny(seed, 8, 0);
        let least = least(&one);
        let many = (0..30).flat_map(|k| {
            let shift = move |b: &Buffer| Buffer::new(b.lower + 100 * k, b.upper + 100 * k, b.size);
            one.buffers().iter().map(shift)
        });
        let many = Lifetimes::new(many.collect::<Vec<_>>()).unwrap();
        let planned = Exact::default().plan(&many, &Limits::none()).unwrap();
        assert!(planned.proven);
        assert_eq!(planned.placement.bytes(), if least == u64::MAX { 0 } else { least });
    }
}

/// Checks that the search reaches the load without a time limit.
fn reaches_the_load(names: &[&str]) {
    for name in names {
        let Some(lifetimes) = shared(name) else { continue };
        let start = std::time::Instant::now();
        let planned = Exact::default().plan(&lifetimes, &Limits::none()).unwrap();
        println!("{name}: {} in {:?}", planned.placement.bytes(), start.elapsed());
        assert!(planned.proven);
        assert_eq!(planned.placement.bytes(), lifetimes.load());
        assert_eq!(check(&lifetimes, &planned), lifetimes.load());
    }
}

#[test]
fn instances_are_solved() {
    reaches_the_load(&["minimalloc/B.1048576", "minimalloc/C.1048576", "planning/resnet50"]);
}

#[test]
#[ignore = "takes seconds"]
fn harder_instances_are_solved() {
    reaches_the_load(&["minimalloc/A.1048576", "minimalloc/E.1048576", "minimalloc/F.1048576"]);
    reaches_the_load(&["planning/G_1"]);
}

/// Runs on instance D. It is unknown whether a placement of D can reach the load.
#[test]
#[ignore = "takes a minute"]
fn the_hardest_instance_comes_below_what_was_known() {
    let Some(lifetimes) = shared("minimalloc/D.1048576") else { return };
    let limits = Limits::within(std::time::Duration::from_secs(60));
    let planned = Exact::default().plan(&lifetimes, &limits).unwrap();
    println!("D: {}", planned.placement.bytes());
    assert!(check(&lifetimes, &planned) <= 1_031_168);
}
