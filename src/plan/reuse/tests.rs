//! What planners have in common: placements are valid, and how good they are.

use super::super::{Buffer, Lifetimes, Limits, Planner};
use super::{BestFit, Gaps, Pushdown};
use crate::rng::SplitMix64;

fn planners() -> Vec<Box<dyn Planner>> {
    let mut planners: Vec<Box<dyn Planner>> = vec![Box::new(BestFit), Box::new(Pushdown)];
    planners.extend(Gaps::ALL.map(|gaps| Box::new(gaps) as Box<dyn Planner>));
    planners
}

/// Random lives of random sizes, some of them empty or for ever.
fn random(seed: u64, count: usize) -> Lifetimes {
    let mut rng = SplitMix64::new(seed);
    let mut below = |end: u64| rng.next() % end;
    let buffers: Vec<_> = (0..count)
        .map(|_| {
            let lower = below(100);
            let (most, longest) = (1 << below(12), 1 + below(100));
            let size = below(most) * below(4).min(1);
            Buffer::new(lower, lower + 1 + below(longest), size).aligned(1 << below(7))
        })
        .collect();
    Lifetimes::new(buffers).unwrap()
}

#[test]
fn random_lives_are_placed() {
    for seed in 0..200 {
        let lifetimes = random(seed, 1 + seed as usize);
        for planner in planners() {
            let planned = planner.plan(&lifetimes, &Limits::none()).unwrap();
            // Nothing but the definition: no two that are alive at once share a byte.
            let offsets = planned.placement.offsets();
            let buffers = lifetimes.buffers();
            let mut high = 0;
            for (i, (a, &at)) in buffers.iter().zip(offsets).enumerate() {
                assert_eq!(at % a.align, 0);
                high = high.max(at + a.size);
                for (b, &other) in buffers.iter().zip(offsets).take(i) {
                    assert!(!a.meets(b) || at + a.size <= other || other + b.size <= at);
                }
            }
            assert_eq!(planned.placement.bytes(), high, "{}", planner.name());
            assert!(high >= lifetimes.load());
            assert_eq!(planned.proven, high == lifetimes.load());
        }
    }
}

#[test]
fn colours_are_refused() {
    let lifetimes = Lifetimes::new([
        Buffer { colour: 1, ..Buffer::new(0, 1, 1) },
        Buffer { colour: 2, ..Buffer::new(1, 2, 1) },
    ])
    .unwrap();
    for planner in planners() {
        let error = planner.plan(&lifetimes, &Limits::none()).unwrap_err();
        assert_eq!(error.to_string(), format!("{} does not know colours", planner.name()));
    }
}

/// Of the instances in `../shared/data`, what our own scripts found: within 0.01.
#[test]
fn ratios_are_those_of_the_sources() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../shared/data/planning");
    // Best fit, pushdown; gaps by size, area, life (not measured there) and birth.
    for (name, ratios) in [
        ("resnet50", [1.0065, 1.0019, 1.0101, 1.0038, 9.0, 1.0030]),
        ("G_1", [1.0060, 1.0018, 1.0028, 1.0028, 9.0, 1.0112]),
        ("S_1", [1.0836, 1.0045, 1.0352, 1.399, 9.0, 1.263]),
    ] {
        let Ok(text) = std::fs::read_to_string(format!("{shared}/{name}.csv")) else {
            println!("skipped: there is no {shared}/{name}.csv");
            continue;
        };
        let buffers = text.lines().skip(1).map(|line| {
            let mut numbers = line.split(',').skip(1).map(|number| number.parse().unwrap());
            let mut next = || numbers.next().unwrap();
            Buffer::new(next(), next(), next())
        });
        let lifetimes = Lifetimes::new(buffers).unwrap();
        for (planner, ratio) in planners().iter().zip(ratios) {
            let planned = planner.plan(&lifetimes, &Limits::none()).unwrap();
            let found = planned.placement.bytes() as f64 / lifetimes.load() as f64;
            println!("{name} {}: {found:.4}", planner.name());
            assert!(found <= ratio + 0.01, "{name} {}: {found:.4}", planner.name());
        }
    }
}
