//! Counters of the benefit of plans, compared with the calls that the device got.

use crate::common::toy::{Bytes, GRANULE, Toy, ToyDevice, Watch, update};
use remat::{CostModelKind, Error, Plan, PolicyKind, Runtime, Stats, Tensor};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

const STEPS: u64 = 40;

/// Sizes of the values held between steps, in bytes.
const STATE: [usize; 4] = [64, 16, 128, 32];

/// Program with several kinds of steps. The state of the program stays in memory all the time, with
/// holes between its tensors.
struct Program {
    runtime: Runtime<Toy, Bytes>,
    watch: Arc<Watch>,
    state: Vec<Tensor>,
    /// Ranges of the state in memory.
    before: Vec<Range<u64>>,
}

impl Program {
    fn new(plan: Plan, budget: u64) -> Result<Self, Error> {
        let watch = Arc::<Watch>::default();
        let device = ToyDevice::watched(budget, Arc::clone(&watch)).with_granularity(GRANULE);
        let runtime = Runtime::builder()
            .budget(budget)
            .min_evict_bytes(0)
            .policy(PolicyKind::DtrEq)
            .cost_model(CostModelKind::Flops)
            .plan(plan)
            .device(|_| Ok(device))?;
        let bytes = |n| Bytes((0..n).map(|i| i as u8).collect());
        *watch.written.lock().unwrap() = Some(vec![]);
        let (mut state, mut between) = (vec![], vec![]);
        for (number, size) in STATE.into_iter().enumerate() {
            state.push(runtime.put_leaf(bytes(size))?);
            runtime.stats()?;
            between.push(runtime.put_leaf(bytes(48 << number))?);
        }
        runtime.stats()?;
        let before = watch.written.lock().unwrap().replace(vec![]).expect("it is asked for");
        let before = before.into_iter().step_by(2).collect();
        drop(between);
        runtime.step()?;
        Ok(Self { runtime, watch, state, before })
    }

    /// Runs a forward pass, a backward pass and updates, over `layers` layers. With `twist`, the
    /// step has one more op at the end.
    fn step(&mut self, number: u64, layers: usize, twist: bool) -> Result<(), Error> {
        let seed = Bytes((0..96).map(|i| (i + number) as u8).collect());
        let mut passed = vec![self.runtime.put(seed)?];
        let mix = |bytes, salt, inputs: &[&Tensor]| {
            let op = Toy::Mix { bytes, salt, scratch: 3 * GRANULE };
            Ok::<_, Error>(self.runtime.apply(op, inputs)?.swap_remove(0))
        };
        for layer in 0..layers {
            let state = &self.state[layer % STATE.len()];
            let bytes = [160, 96, 224][layer % 3];
            passed.push(mix(bytes, layer as u64, &[&passed[layer], state])?);
        }
        let mut gradient = mix(80, 1000, &[&passed[layers]])?;
        let mut of_state = BTreeMap::new();
        for layer in (0..layers).rev() {
            gradient = mix(112, 2000 + layer as u64, &[&gradient, &passed[layer]])?;
            of_state.insert(layer % STATE.len(), mix(64, 3000, &[&gradient])?);
            passed.pop();
        }
        for (number, state) in self.state.iter_mut().enumerate() {
            if let Some(gradient) = of_state.get(&number) {
                self.runtime.update(update(5), &mut [state], &[gradient])?;
            }
        }
        if twist {
            mix(16, 7, &[&gradient])?;
        }
        self.runtime.get(&gradient)?;
        drop((passed, gradient, of_state));
        self.runtime.step()
    }

    /// Ranges written since the last call, and the counters.
    fn look(&self) -> Result<(Vec<Range<u64>>, Stats), Error> {
        let stats = self.runtime.stats()?;
        Ok((self.watch.written.lock().unwrap().replace(vec![]).unwrap_or_default(), stats))
    }

    /// Bytes from the first to the last byte that a step wrote, without the state.
    fn spread(&self, written: &[Range<u64>]) -> u64 {
        let own = || written.iter().filter(|range| !self.before.contains(range));
        let start = own().map(|range| range.start).min().unwrap_or_default();
        let end = own().map(|range| range.end).max().unwrap_or_default();
        let taken = |at| self.before.iter().any(|before| before.contains(&at));
        (start..end).filter(|&at| !taken(at)).count() as u64
    }
}

/// Layers of each kind of step, in the order in which the kinds come.
const KINDS: [&[usize]; 4] = [&[6], &[2], &[6, 2], &[6, 6, 2, 4]];

#[derive(Debug, Default)]
struct Sums {
    planned: u64,
    evicting: u64,
    spared: u64,
    left: u64,
    spread: u64,
    smaller: u64,
}

#[test]
fn counters_of_plans_match_the_steps_without_them() -> Result<(), Error> {
    let mut sums = Sums::default();
    for kinds in KINDS {
        for twisted in [u64::MAX, 7, 20] {
            for budget in (1280..2048).step_by(32).chain([1 << 14]) {
                check(kinds, twisted, budget, &mut sums)?;
            }
        }
    }
    println!("{sums:?}");
    let Sums { planned, evicting, spared, left, spread, smaller } = sums;
    assert!(planned > 1000 && evicting > 100 && spared > 50 && left > 100, "{sums:?}");
    assert!(spread > 100 && smaller > 100, "{sums:?}");
    Ok(())
}

/// Compares the counters after each step. One of every `twisted` steps differs.
fn check(kinds: &[usize], twisted: u64, budget: u64, sums: &mut Sums) -> Result<(), Error> {
    let case = format!("{kinds:?}, each {twisted}th is another, in {budget} bytes");
    let mut program = Program::new(Plan::Auto, budget)?;
    let mut last = Stats::default();
    // Spread and evictions of each step without a plan, by kind; and the evictions of the last step
    // before the plan was recorded.
    let (mut unplanned, mut without) = (BTreeMap::<_, Vec<(u64, u64)>>::new(), None::<u64>);
    for number in 0..STEPS {
        let layers = kinds[number as usize % kinds.len()];
        let is_twisted = number % twisted == twisted - 1;
        program.step(number, layers, is_twisted)?;
        let (written, stats) = program.look()?;
        let say = || format!("{case}, step {number}: {stats:?}, before {last:?}");
        // Steps by plan take time, and so did the steps they are compared with.
        let ran = stats.planned_steps - last.planned_steps;
        assert_eq!(stats.planned_seconds > last.planned_seconds, ran > 0, "{}", say());
        assert_eq!(stats.unplanned_seconds > last.unplanned_seconds, ran > 0, "{}", say());
        assert!(stats.planned_seconds >= last.planned_seconds);
        let is_changed = stats.left_plans > last.left_plans || stats.plan_bytes > last.plan_bytes;
        assert!(!is_changed || stats.planning_seconds > last.planning_seconds, "{}", say());
        // A plan is compared with the last step of its kind without a plan, or with the step before
        // it, if another step ran while the plan was made.
        let latest: Vec<_> = unplanned.values().flat_map(|of| of.iter().rev().take(2)).collect();
        if stats.plan_bytes > last.plan_bytes {
            // The state keeps its addresses unless blocks were moved.
            if stats.compactions == 0 {
                let is_one = latest.iter().any(|(spread, _)| *spread == stats.unplanned_bytes);
                assert!(is_one, "{latest:?}, {}", say());
                sums.spread += 1;
            }
            if latest.iter().all(|(_, evicted)| *evicted == 0) {
                assert!(stats.plan_bytes <= stats.unplanned_bytes, "{}", say());
                sums.smaller += u64::from(stats.plan_bytes < stats.unplanned_bytes);
            }
            let before_tape = unplanned.values().find_map(|of| of.iter().rev().nth(2));
            without = without.or(before_tape.map(|(_, evicted)| *evicted));
        }
        let evicted = stats.evictions - last.evictions;
        let spared = stats.spared_evictions - last.spared_evictions;
        assert!(ran > 0 || spared == 0, "{}", say());
        if let (Some(without), [_], u64::MAX) = (without, kinds, twisted) {
            assert_eq!(ran, 1, "{}", say());
            assert_eq!(spared, without.saturating_sub(evicted), "{}", say());
        }
        if ran == 0 {
            let of = unplanned.entry((layers, is_twisted)).or_default();
            of.push((program.spread(&written), evicted));
        }
        last = stats;
    }
    // The counters of past steps stay, even if the plans are dropped.
    program.runtime.set_budget(budget - GRANULE)?;
    let (_, stats) = program.look()?;
    assert_eq!((stats.plan_bytes, stats.unplanned_bytes), (0, 0), "{case}");
    let of =
        |stats: Stats| (stats.planned_seconds, stats.unplanned_seconds, stats.spared_evictions);
    assert_eq!(of(stats), of(last), "{case}");
    sums.planned += stats.planned_steps;
    sums.evicting += stats.planned_steps_evicting;
    sums.spared += stats.spared_evictions;
    sums.left += stats.left_plans;
    Ok(())
}

#[test]
fn without_plans_nothing_is_said_of_them() -> Result<(), Error> {
    for budget in [1 << 14, 1792] {
        let mut program = Program::new(Plan::Off, budget)?;
        (0..STEPS).try_for_each(|number| program.step(number, 6, false))?;
        let (_, stats) = program.look()?;
        let Stats { planned_seconds, unplanned_seconds, planning_seconds, .. } = stats;
        assert_eq!([planned_seconds, unplanned_seconds, planning_seconds], [0.0; 3]);
        assert_eq!((stats.unplanned_bytes, stats.spared_evictions), (0, 0));
    }
    Ok(())
}
