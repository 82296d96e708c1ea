//! Tests that cached records equal the results of plain walks.

use super::Learned;
use super::known::Known;
use crate::Layout;
use crate::command::{Command, RecordedOp, RecordedProgram, RecordedValue, TensorId};
use crate::engine::{Dead, RecomputeLimit, Stats};
use crate::event::{Event, Hears};
use crate::evict::candidates::Tier;
use crate::evict::{
    ByScore, ByStep, Evictor, Foresight, Formula, Learn, Policy, PolicyKind, Victim, View, Want,
};
use crate::graph::StorageKey;
use crate::lab::{Replay, Trace};
use crate::op::Outputs;
use crate::step::NEVER;
use crate::sync::{Mutex, lock};
use remat_rng::SplitMix64;
use std::collections::HashSet;
use std::sync::Arc;

/// The learned policy, with all scores computed at each choice, and all needs compared with plain
/// walks.
#[derive(Debug)]
struct Checked {
    learned: Learned,
    /// Whether to keep storages without a handle even if no evicted storage needs them.
    keeps_all: bool,
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    scores: u64,
    /// Number of candidates that were needed to restore an evicted storage before the candidate's
    /// own next use.
    below: u64,
    /// Number of storages without a handle that were needed.
    kept: u64,
    /// Number of storages without a handle that were not needed.
    let_go: u64,
}

impl Policy for Checked {
    fn score(&mut self, candidate: StorageKey, view: View<'_>) -> f64 {
        let score = self.learned.score(candidate, view);
        let known = self.learned.known.as_mut().expect("the step is known");
        let below = plain_need_below(candidate, view);
        assert_eq!(known.need_below(candidate, view), below, "{candidate:?} at {}", view.now);
        let mut counts = lock(&self.counts);
        counts.scores += 1;
        counts.below += u64::from(below < Known::own_need(candidate, view));
        score
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.learned.on(event, view);
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        Some(self)
    }

    fn hears(&self) -> Hears {
        self.learned.hears()
    }
}

impl ByStep for Checked {
    fn foresee(&mut self, foresight: Option<Arc<Foresight>>) {
        self.learned.foresee(foresight);
    }

    fn keeps_unheld(&mut self) -> bool {
        self.learned.keeps_unheld()
    }

    fn keeps(&mut self, storage: StorageKey, view: View<'_>) -> bool {
        let keeps = self.learned.keeps(storage, view);
        assert_eq!(keeps, plain_need_below(storage, view) != NEVER, "{storage:?} at {}", view.now);
        let mut counts = lock(&self.counts);
        *(if keeps { &mut counts.kept } else { &mut counts.let_go }) += 1;
        keeps || self.keeps_all
    }
}

/// Earliest next use of any evicted storage made from a candidate through evicted storages, found
/// by a plain walk.
fn plain_need_below(candidate: StorageKey, view: View<'_>) -> u32 {
    let mut met = HashSet::new();
    let mut down = vec![candidate];
    let mut need = NEVER;
    while let Some(key) = down.pop() {
        for below in view.graph.dependents(key).filter(|&below| view.graph.is_evicted(below)) {
            if met.insert(below) {
                need = need.min(Known::own_need(below, view));
                down.push(below);
            }
        }
    }
    need
}

/// Random program: each op reads up to three live values and makes up to two. Some values are
/// deleted in between. The remaining values are read at the end, in random order.
fn random(rng: &mut SplitMix64, ops: usize) -> RecordedProgram {
    let mut program = RecordedProgram::default();
    let mut alive: Vec<TensorId> =
        (0..2).map(|_| program.put(RecordedValue::constant(1)).unwrap()).collect();
    let constants = alive.len();
    for _ in 0..ops {
        let recent = |rng: &mut SplitMix64, alive: &[TensorId]| {
            // Mostly choose recent values, so that histories are deep.
            let back = if rng.unit() < 0.6 {
                rng.below(alive.len().min(3))
            } else {
                rng.below(alive.len())
            };
            alive[alive.len() - 1 - back]
        };
        let inputs: Vec<_> = (0..1 + rng.below(3)).map(|_| recent(rng, &alive)).collect();
        let outputs = 1 + rng.below(2);
        let op = RecordedOp::new("op", 1.0 + rng.below(5) as f64);
        let layouts = (0..outputs).map(|_| Layout::raw(1 + rng.below(4)));
        let made = program.apply(op, &inputs, Outputs::fresh(layouts)).unwrap();
        alive.extend((0..outputs).map(|output| made.plus(output)));
        if alive.len() > constants + 4 && rng.unit() < 0.4 {
            let gone = alive.remove(constants + rng.below(alive.len() - constants));
            program.push(Command::Del(gone)).unwrap();
        }
    }
    while alive.len() > constants {
        let read = alive.remove(constants + rng.below(alive.len() - constants));
        program.push(Command::Get(read)).unwrap();
        program.push(Command::Del(read)).unwrap();
    }
    program
}

const LEARNED: PolicyKind = PolicyKind::Learned(Learn::Ahead);

/// A small log repeated twice, and random programs, each with its peak bytes.
fn programs() -> Vec<(RecordedProgram, u64)> {
    let mut rng = SplitMix64::new(15);
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/small.log");
    let small = Trace::open(path).unwrap().repeat_step(2).unwrap();
    let mut programs = vec![small.program().clone()];
    programs.extend((0..150).map(|_| random(&mut rng, 40)));
    let with_peak = |program| {
        let peak = Replay::new(LEARNED, u64::MAX).unbudgeted(&program).unwrap().peak_bytes;
        (program, peak)
    };
    programs.into_iter().map(with_peak).collect()
}

fn run(program: &RecordedProgram, budget: u64, dead: Dead, checked: Checked) -> Stats {
    let mut replay = Replay::new(LEARNED, budget);
    replay.settings.dead = dead;
    replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(10.0));
    replay.run_by(program, Box::new(ByScore::new(checked))).unwrap().stats
}

#[test]
fn needs_are_those_that_a_plain_walk_finds() {
    let counts = Arc::default();
    let mut evictions = 0;
    for (program, peak) in &programs() {
        for percent in (30..100).step_by(10) {
            for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
                let (learned, counts) = (Learned::new(), Arc::clone(&counts));
                let checked = Checked { learned, keeps_all: false, counts };
                evictions += run(program, peak * percent / 100, dead, checked).evictions;
            }
        }
    }
    let counts = lock(&counts);
    assert!(evictions > 5_000, "{evictions} evictions, {counts:?}");
    assert!(counts.below * 20 > counts.scores, "{counts:?}");
    assert!(counts.kept > 500 && counts.let_go > 5_000, "{counts:?}");
}

/// Evictor that chooses by floors (lower bounds of scores), and checks whether any other score is
/// lower.
#[derive(Debug)]
struct Compared<P> {
    by_floors: ByScore,
    plain: P,
    /// Number of choices, and number of choices that missed a lower score.
    choices: Arc<Mutex<(u64, u64)>>,
}

impl<P: Policy> Evictor for Compared<P> {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        // A request that any candidate meets, so that no candidate is left out as needless.
        let victim = self.by_floors.next(Want { bytes: 1, ..want }, view)?;
        let score = self.plain.score(victim.storage, view);
        let candidates = view.candidates;
        let mut free = (0..candidates.keys().len()).filter(|&at| candidates.tier(at) == Tier::Free);
        // Allow for rounding: scores are rounded, while floors compare ranks.
        let lower =
            |at| self.plain.score(candidates.keys()[at], view) < score - score.abs() * 1e-12;
        let mut choices = lock(&self.choices);
        choices.0 += 1;
        choices.1 += u64::from(free.any(lower));
        Some(victim)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.by_floors.on(event, view);
        self.plain.on(event, view);
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        Some(self)
    }
}

impl<P: Policy> ByStep for Compared<P> {
    fn foresee(&mut self, foresight: Option<Arc<Foresight>>) {
        let both = [self.by_floors.by_step(), self.plain.by_step()];
        both.into_iter().flatten().for_each(|part| part.foresee(foresight.clone()));
    }

    fn keeps_unheld(&mut self) -> bool {
        self.plain.by_step().is_some_and(|part| part.keeps_unheld())
    }

    fn keeps(&mut self, storage: StorageKey, view: View<'_>) -> bool {
        self.by_floors.by_step().is_some_and(|part| part.keeps(storage, view))
    }
}

/// Number of choices, and number of choices that missed a lower score.
fn missed<P: Policy + 'static>(policy: fn() -> P) -> (u64, u64) {
    let choices = Arc::default();
    for (program, peak) in &programs() {
        for percent in (30..100).step_by(10) {
            let mut replay = Replay::new(LEARNED, peak * percent / 100);
            replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(10.0));
            let by_floors = ByScore::new(policy());
            let compared = Compared { by_floors, plain: policy(), choices: Arc::clone(&choices) };
            replay.run_by(program, Box::new(compared)).unwrap();
        }
    }
    *lock(&choices)
}

/// Floors (lower bounds of scores) nearly always find the lowest score. Floors may miss the lowest
/// score, because some fallen scores are reported only once per command. A score that falls because
/// an evicted storage loses a handle is never reported.
#[test]
fn floors_find_the_lowest_score_nearly_always() {
    let (choices, learned) = missed(Learned::new);
    assert!(choices > 5_000 && learned * 20 < choices, "{learned} of {choices}");
    let (choices, ancestors) = missed(|| Formula::ANCESTORS.policy());
    assert!(choices > 5_000 && ancestors * 50 < choices, "{ancestors} of {choices}");
}

/// Evictor that counts requests for which a victim was evicted in vain.
#[derive(Debug)]
struct Frugal {
    learned: ByScore,
    /// Size of each victim for the current request, and the bytes that were missing at its choice.
    /// Victims that cost nothing to restore are left out.
    victims: Vec<(u64, u64)>,
    /// Number of requests that took several victims, and how many of them had a needless victim.
    requests: Arc<Mutex<(u64, u64)>>,
}

impl Evictor for Frugal {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        let victim = self.learned.next(want, view)?;
        let bytes = view.graph.storage(victim.storage).bytes;
        if victim.score.is_some_and(|score| score > 0.0) {
            self.victims.push((bytes, want.bytes));
        }
        if let Some(spare) = bytes.checked_sub(want.bytes) {
            let victims = std::mem::take(&mut self.victims);
            let mut requests = lock(&self.requests);
            requests.0 += u64::from(victims.len() > 1);
            let is_needless =
                |&(bytes, missing): &(u64, u64)| bytes <= spare && 2 * bytes <= missing;
            requests.1 += u64::from(victims.iter().any(is_needless));
        }
        Some(victim)
    }

    fn on(&mut self, event: &Event, view: View<'_>) {
        self.learned.on(event, view);
    }

    fn by_step(&mut self) -> Option<&mut dyn ByStep> {
        self.learned.by_step()
    }
}

/// A small victim is rarely needless. Scores change with each eviction, so a later choice may make an
/// earlier one needless.
#[test]
fn hardly_a_small_victim_is_needless() {
    let requests = Arc::default();
    for (program, peak) in &programs() {
        for percent in (30..100).step_by(10) {
            let mut replay = Replay::new(LEARNED, peak * percent / 100);
            replay.settings.recompute_limit = Some(RecomputeLimit::Multiple(10.0));
            let learned = ByScore::new(Learned::new());
            let requests = Arc::clone(&requests);
            let frugal = Frugal { learned, victims: Vec::new(), requests };
            replay.run_by(program, Box::new(frugal)).unwrap();
        }
    }
    let (several, needless) = *lock(&requests);
    assert!(several > 1_000 && needless * 20 < several, "{needless} of {several}");
}

#[test]
fn freeing_unheld_storages_that_nothing_evicted_needs_recomputes_no_more() {
    let (mut runs, mut recomputed, mut evictions) = (0, 0, [0; 2]);
    for (program, peak) in &programs() {
        for percent in (30..100).step_by(10) {
            let of = |keeps_all| {
                let checked =
                    Checked { learned: Learned::new(), keeps_all, counts: Arc::default() };
                run(program, peak * percent / 100, Dead::Linger, checked)
            };
            let (goes, stays) = (of(false), of(true));
            assert_eq!(goes.recompute_cost, stays.recompute_cost, "in {percent} %");
            runs += 1;
            recomputed += goes.recomputed_ops;
            evictions[0] += goes.evictions;
            evictions[1] += stays.evictions;
        }
    }
    assert!(runs > 1_000 && recomputed > 10_000, "{recomputed} in {runs} runs");
    assert!(evictions[0] * 4 < evictions[1] * 3, "{evictions:?}");
}
