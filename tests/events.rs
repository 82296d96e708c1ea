//! Events of an engine: all of them occur, in the documented order, and agree with the counters.

use crate::common::heard::{Heard, storage};
use crate::common::toy::{
    Broken, Bytes, GRANULE, Toy, ToyDevice, ToyEngine, mix, settings, update,
};
use remat::evict::{Evictor, Victim, View, Want};
use remat::unstable::engine::Engine;
use remat::unstable::engine::Settings;
use remat::unstable::event::{Cause, Event, Hears};
use remat::unstable::graph::{PathKey, StorageKey};
use remat::{CostModel, CostModelKind, Dead, PolicyKind, Run, Stats};
use remat_rng::SplitMix64;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// Storage that an event is about.
fn subject(event: &Event) -> Option<StorageKey> {
    match *event {
        Event::WillEvict { storage, .. }
        | Event::DidEvict { storage, .. }
        | Event::WillRegenerate { storage, .. }
        | Event::DidRegenerate { storage, .. }
        | Event::DidUse { storage }
        | Event::DidCommit { storage }
        | Event::WillForget { storage }
        | Event::DidDelete { storage }
        | Event::DidKeepLeaf { storage, .. }
        | Event::KeepsHistory { storage } => Some(storage),
        _ => None,
    }
}

/// Panics if the events of a whole run are not in the documented order.
fn check_order(events: &[Event]) {
    // Evicted storages with their sizes, and deleted storages.
    let mut evicted: HashMap<StorageKey, u64> = HashMap::new();
    let mut deleted: HashSet<StorageKey> = HashSet::new();
    let mut leaves: HashSet<StorageKey> = HashSet::new();
    let mut last_run: Option<(Option<PathKey>, bool, f64)> = None;
    let mut ran: HashSet<PathKey> = HashSet::new();
    let (mut steps, mut thrashed, mut once) = (0, None, BTreeSet::new());
    for (at, event) in events.iter().enumerate() {
        let before = at.checked_sub(1).map(|at| events[at]);
        let next = events.get(at + 1);
        let what = || format!("{event:?} at {at}, after {before:?}");
        if let Some(storage) = subject(event) {
            assert!(!deleted.contains(&storage), "deleted before: {}", what());
        }
        match *event {
            Event::WillEvict { storage, .. } => {
                let goes = |e: &Event| {
                    matches!(e, Event::DidEvict { storage: gone, cause: Cause::Room | Cause::Threshold, .. }
                        if *gone == storage)
                };
                assert!(next.is_some_and(goes), "{}, before {next:?}", what());
            }
            Event::DidEvict { storage, bytes, cause } => {
                let announced = matches!(before, Some(Event::WillEvict { storage: goes, .. }) if goes == storage);
                let chosen = matches!(cause, Cause::Room | Cause::Threshold);
                assert_eq!(announced, chosen, "{}", what());
                assert!(!leaves.contains(&storage), "{}", what());
                assert_eq!(evicted.insert(storage, bytes), None, "evicted twice: {}", what());
            }
            Event::WillRegenerate { storage, depth } => {
                assert!(evicted.contains_key(&storage) && depth > 0, "{}", what());
            }
            Event::DidRegenerate { storage, bytes, cost } => {
                assert_eq!(evicted.remove(&storage), Some(bytes), "{}", what());
                let of_run = matches!(
                    before,
                    Some(Event::DidRun { .. } | Event::DidRegenerate { .. } | Event::Thrash { .. })
                );
                assert!(of_run, "{}", what());
                assert_eq!(last_run.map(|(_, _, cost)| cost), Some(cost), "{}", what());
            }
            Event::DidRun { path, again, cost, .. } => {
                if let Some(path) = path {
                    assert_eq!(!ran.insert(path), again, "{}", what());
                } else {
                    assert!(!again, "{}", what());
                }
                last_run = Some((path, again, cost));
            }
            Event::DidChangeCost { path } => {
                let of_run = last_run.is_some_and(|(ran, again, _)| ran == Some(path) && again);
                assert!(of_run, "{}", what());
            }
            Event::DidCommit { storage } => {
                assert!(!evicted.contains_key(&storage), "{}", what());
                leaves.insert(storage);
            }
            Event::WillForget { storage } => {
                assert!(evicted.remove(&storage).is_some(), "{}", what());
            }
            Event::DidDelete { storage } => {
                assert!(!evicted.contains_key(&storage), "not announced: {}", what());
                deleted.insert(storage);
            }
            Event::DidStep { step, .. } => {
                steps += 1;
                assert_eq!(step, steps, "{}", what());
            }
            Event::Thrash { step, path, times, .. } => {
                // Runs at the end of a step count for the next step.
                assert!(step == steps + 1 || step == steps + 2, "{}", what());
                assert_eq!(
                    last_run.map(|(path, again, _)| (path, again)),
                    Some((Some(path), true))
                );
                assert!(times >= 4.0 && thrashed.replace(step) != Some(step), "{}", what());
            }
            Event::AboveThreshold { threshold, kept } => {
                assert!(kept > threshold && once.insert("threshold"), "{}", what());
            }
            Event::HistoryGrows { storages, tensors } => {
                assert!(storages > tensors && once.insert("history"), "{}", what());
            }
            Event::DidMove { moves, bytes, wanted } => {
                assert!(moves > 0 && bytes > 0 && wanted > 0, "{}", what());
            }
            Event::DidSchedule { runs, paths } => assert!(runs > 0 && paths > 0, "{}", what()),
            Event::DidSetBudget { bytes } => assert!(bytes > 0, "{}", what()),
            Event::DidKeepLeaf { storage, .. } => {
                assert!(!evicted.contains_key(&storage), "{}", what());
            }
            Event::DidUse { .. } | Event::KeepsHistory { .. } | Event::DidFail { .. } => {}
            _ => panic!("an event that is not known here: {}", what()),
        }
    }
}

/// Panics if the counters are not the sums over all events.
fn check_sums(events: &[Event], stats: Stats) {
    let mut sums = Stats::default();
    for event in events {
        match *event {
            Event::DidEvict {
                bytes, cause: Cause::Room | Cause::Threshold | Cause::Wish, ..
            } => {
                sums.evictions += 1;
                sums.evicted_bytes += bytes;
            }
            Event::DidEvict { cause: Cause::Unheld, .. } => sums.fake_deletes += 1,
            Event::DidRun { again: false, cost, .. } => {
                sums.ops += 1;
                sums.base_cost += cost;
            }
            Event::DidRun { again: true, bytes, cost, .. } => {
                sums.recomputed_ops += 1;
                sums.recomputed_bytes += bytes;
                sums.recompute_cost += cost;
            }
            Event::DidMove { bytes, .. } => {
                sums.compactions += 1;
                sums.moved_bytes += bytes;
            }
            Event::WillRegenerate { depth, .. } => {
                sums.max_regeneration_depth = sums.max_regeneration_depth.max(depth);
            }
            Event::DidStep { .. } => sums.steps += 1,
            Event::Thrash { .. } => sums.thrashed_steps += 1,
            _ => {}
        }
    }
    let figures = |stats: &Stats| {
        let counts = [
            stats.evictions,
            stats.evicted_bytes,
            stats.fake_deletes,
            stats.ops,
            stats.recomputed_ops,
            stats.recomputed_bytes,
            stats.compactions,
            stats.moved_bytes,
            stats.max_regeneration_depth as u64,
            stats.steps,
            stats.thrashed_steps,
        ];
        (counts, stats.base_cost, stats.recompute_cost)
    };
    assert_eq!(figures(&sums), figures(&stats));
}

/// Names of an enum's variants, read from the source, so that the tests miss no new variant.
fn variants(of: &str) -> BTreeSet<String> {
    let source = include_str!("../src/event.rs");
    let (_, body) = source.split_once(&format!("pub enum {of} {{\n")).unwrap();
    let (body, _) = body.split_once("\n}\n").unwrap();
    let names = body.lines().filter_map(|line| line.strip_prefix("    "));
    let names = names.filter(|name| name.starts_with(char::is_uppercase));
    names.map(|name| name.trim_end_matches([',', ' ', '{']).to_owned()).collect()
}

/// Events and causes of evictions that all programs together produced.
#[derive(Default)]
struct Told {
    events: BTreeSet<String>,
    causes: BTreeSet<String>,
}

impl Told {
    /// Runs `work` on an engine, and checks all its events.
    fn check(&mut self, engine: ToyEngine, work: impl FnOnce(&mut ToyEngine)) -> Vec<Event> {
        let mut engine = engine;
        let heard = Heard::of(&mut engine);
        work(&mut engine);
        let events = heard.take();
        check_order(&events);
        check_sums(&events, engine.stats());
        for event in &events {
            let text = format!("{event:?}");
            self.events.insert(text.split(' ').next().unwrap().to_owned());
            if let Event::DidEvict { cause, .. } = event {
                self.causes.insert(format!("{cause:?}"));
            }
        }
        events
    }
}

/// Cost model whose costs differ each time.
#[derive(Debug, Default)]
struct Restless(f64);

impl CostModel for Restless {
    fn name(&self) -> &str {
        "restless"
    }

    fn cost(&mut self, _: Run<'_>) -> f64 {
        self.0 += 1.0;
        self.0
    }
}

fn engine(
    bytes: u64,
    settings: Settings,
    policy: PolicyKind,
    costs: Box<dyn CostModel>,
) -> ToyEngine {
    Engine::new(ToyDevice::new(bytes), settings, policy.build(3), costs).unwrap()
}

fn lru(bytes: u64) -> ToyEngine {
    engine(bytes, settings(), PolicyKind::Lru, CostModelKind::Flops.build())
}

/// Runs commands of all kinds, some of which fail.
fn anything(engine: &mut ToyEngine, seed: u64) {
    let mut dice = SplitMix64::new(seed);
    let mut held = vec![engine.put(Bytes::of(32, seed))];
    for i in 0..250 {
        let bytes = 16 * (1 + dice.below(4));
        let pick = |dice: &mut SplitMix64, held: &[_]| held[dice.below(held.len())];
        let (a, b) = (pick(&mut dice, &held), pick(&mut dice, &held));
        match dice.below(20) {
            0 => held.push(engine.put(Bytes::of(bytes, i))),
            1..8 => held.extend(engine.apply(mix(bytes, i), &[a, b]).unwrap_or_default()),
            8 => {
                let op = Toy::Split { bytes: vec![bytes, 16, 48], salt: i };
                held.extend(engine.apply(op, &[a]).unwrap_or_default());
            }
            9 => {
                if let Ok(made) = engine.apply(update(i), &[a]) {
                    held.retain(|&key| key != a);
                    held.extend(made);
                }
            }
            10 => {
                let op = Toy::Break { bytes: vec![bytes, 16], salt: i, run: 2, how: Broken::Fails };
                held.extend(engine.apply(op, &[a]).unwrap_or_default());
            }
            11 => drop(engine.drop_now(a)),
            12 => drop(engine.commit(a)),
            13 => engine.step(),
            14 | 15 => drop(engine.get(a)),
            _ if held.len() > 6 => {
                held.retain(|&key| key != a);
                engine.del(a);
            }
            _ => drop(engine.get(b)),
        }
        if held.is_empty() {
            held.push(engine.put(Bytes::of(16, i)));
        }
    }
    held.into_iter().for_each(|key| engine.del(key));
}

#[test]
fn every_event_is_told_in_order_and_counted() {
    let mut told = Told::default();
    let policies = PolicyKind::all().chain([PolicyKind::None]);
    for (number, policy) in policies.enumerate() {
        for dead in [Dead::Linger, Dead::Drop, Dead::Keep] {
            for (budget, threshold) in [(1 << 16, None), (512, None), (256, None), (512, Some(200))]
            {
                for restless in [false, true] {
                    let mut settings = settings();
                    (settings.dead, settings.eviction_threshold) = (dead, threshold);
                    let costs: Box<dyn CostModel> = match restless {
                        true => Box::new(Restless::default()),
                        false => CostModelKind::Bytes.build(),
                    };
                    let seed = (number * 16) as u64 + budget;
                    let engine = engine(budget, settings, policy, costs);
                    told.check(engine, |engine| anything(engine, seed));
                }
            }
        }
    }
    put_off(&mut told);
    half_written(&mut told);
    above_the_threshold(&mut told);
    thrashing(&mut told);
    history_that_cannot_be_cut(&mut told);
    history_that_grows(&mut told);
    a_schedule(&mut told);
    settings_that_change(&mut told);
    // Only a driver that runs a step by plan sends this event; `tests/plans.rs` tests it.
    told.events.insert("DidReplay".to_owned());
    assert_eq!(told.events, variants("Event"));
    // Only a new evictor receives events about storages that were evicted before it was set.
    told.causes.insert("Before".to_owned());
    assert_eq!(told.causes, variants("Cause"));
}

fn put_off(told: &mut Told) {
    told.check(lru(64), |engine| {
        let leaf = engine.put_leaf(Bytes::of(64, 1));
        let x = engine.put(Bytes::of(16, 2));
        engine.del(leaf);
        engine.get(x).unwrap();
        assert_eq!(engine.stats().ops, 2);
    });
}

fn half_written(told: &mut Told) {
    let events = told.check(lru(256), |engine| {
        let op = Toy::Break { bytes: vec![16, 16], salt: 1, run: 2, how: Broken::Panics };
        let made = engine.apply(op, &[]).unwrap();
        engine.drop_now(made[0]).unwrap();
        engine.get(made[0]).unwrap_err();
        engine.get(made[0]).unwrap();
    });
    let causes = events.iter().filter_map(|event| match event {
        Event::DidEvict { cause, .. } => Some(*cause),
        _ => None,
    });
    assert!(causes.eq([Cause::Wish, Cause::Failed]), "{events:?}");
}

fn above_the_threshold(told: &mut Told) {
    let mut settings = settings();
    settings.eviction_threshold = Some(64);
    let costs = CostModelKind::Flops.build();
    told.check(engine(256, settings, PolicyKind::Lru, costs), |engine| {
        let leaf = engine.put_leaf(Bytes::of(80, 1));
        for salt in 0..3 {
            engine.apply(mix(16, salt), &[leaf]).unwrap();
        }
        assert!(!engine.drop_now(leaf).unwrap());
    });
}

fn thrashing(told: &mut Told) {
    told.check(lru(4 * GRANULE), |engine| {
        let mut chain = vec![engine.put(Bytes::of(16, 1))];
        for i in 0..40 {
            chain.push(engine.apply(mix(16, i), &[chain[i as usize]]).unwrap()[0]);
        }
        for step in 1..=2 {
            while engine.stats().thrashed_steps < step {
                chain.iter().for_each(|&key| drop(engine.get(key).unwrap()));
            }
            engine.step();
        }
    });
}

fn history_that_cannot_be_cut(told: &mut Told) {
    let mut of_y = None;
    let events = told.check(lru(64), |engine| {
        let x = engine.put(Bytes::of(16, 1));
        engine.step();
        let y = engine.apply(mix(32, 2), &[x]).unwrap()[0];
        of_y = Some(storage(engine, y));
        engine.del(x);
        engine.drop_now(y).unwrap();
        let leaf = engine.put_leaf(Bytes::of(48, 2));
        engine.step();
        engine.step();
        engine.del(leaf);
        engine.step();
    });
    let keeps = |event: &&Event| matches!(event, Event::KeepsHistory { .. });
    let kept: Vec<_> = events.iter().filter(keeps).collect();
    assert_eq!(kept, [&Event::KeepsHistory { storage: of_y.unwrap() }], "told once");
}

fn history_that_grows(told: &mut Told) {
    told.check(lru(1 << 20), |engine| {
        let mut state = engine.put(Bytes::of(1, 1));
        for i in 0..20_000 {
            let next = engine.apply(mix(1, i), &[state]).unwrap()[0];
            engine.del(state);
            state = next;
        }
    });
}

fn settings_that_change(told: &mut Told) {
    let events = told.check(lru(256), |engine| {
        let keys: Vec<_> = (0..8).map(|seed| engine.put(Bytes::of(32, seed))).collect();
        engine.set_budget(100).unwrap();
        engine.set_evictor(PolicyKind::DtrEq.build(0)).unwrap();
        keys.iter().for_each(|&key| drop(engine.get(key).unwrap()));
        engine.set_budget(256).unwrap();
    });
    let set = events.iter().filter(|event| matches!(event, Event::DidSetBudget { .. }));
    assert!(set.eq(&[100, 256].map(|bytes| Event::DidSetBudget { bytes })));
}

/// Each value is made from the two previous values, and only the last value is held. Regenerating
/// the last value needs a schedule.
fn a_schedule(told: &mut Told) {
    told.check(lru(5 * GRANULE), |engine| {
        let mut rungs = vec![engine.put(Bytes::of(16, 1)), engine.put(Bytes::of(16, 2))];
        for i in 2..60 {
            let next = engine.apply(mix(16, i), &[rungs[i as usize - 2], rungs[i as usize - 1]]);
            rungs.push(next.unwrap()[0]);
        }
        let last = rungs.pop().unwrap();
        engine.drop_now(last).unwrap();
        rungs.into_iter().for_each(|key| engine.del(key));
        let _ = engine.get(last);
    });
}

/// Evictor that evicts by `lru`, and keeps the events that it selects.
#[derive(Debug)]
struct Choosy {
    lru: Box<dyn Evictor>,
    hears: Hears,
    heard: Arc<Mutex<Vec<Event>>>,
}

impl Choosy {
    fn boxed(hears: Hears, heard: &Arc<Mutex<Vec<Event>>>) -> Box<Self> {
        Box::new(Self { lru: PolicyKind::Lru.build(0), hears, heard: Arc::clone(heard) })
    }
}

impl Evictor for Choosy {
    fn next(&mut self, want: Want, view: View<'_>) -> Option<Victim> {
        self.lru.next(want, view)
    }

    fn on(&mut self, event: &Event, _: View<'_>) {
        self.heard.lock().unwrap().push(*event);
    }

    fn hears(&self) -> Hears {
        self.hears
    }
}

fn kind_of(event: &Event) -> Hears {
    match event {
        Event::DidUse { .. } => Hears::USES,
        Event::DidRun { .. } => Hears::RUNS,
        Event::DidEvict { .. } | Event::DidRegenerate { .. } | Event::WillForget { .. } => {
            Hears::EVICTIONS
        }
        Event::WillEvict { .. } | Event::WillRegenerate { .. } => Hears::CHOICES,
        Event::DidDelete { .. } => Hears::DELETIONS,
        _ => Hears::RARE,
    }
}

#[test]
fn an_evictor_hears_what_it_wants_and_nothing_else() {
    let kinds =
        [Hears::USES, Hears::RUNS, Hears::EVICTIONS, Hears::CHOICES, Hears::DELETIONS, Hears::RARE];
    for chosen in 0..1 << kinds.len() {
        let chosen = || (0..kinds.len()).filter(|kind| chosen >> kind & 1 == 1).map(|i| kinds[i]);
        let hears = chosen().fold(Hears::NOTHING, Hears::and);
        let told = Arc::<Mutex<Vec<Event>>>::default();
        let costs = Box::new(Restless::default());
        let evictor = Choosy::boxed(hears, &told);
        let mut engine = Engine::new(ToyDevice::new(512), settings(), evictor, costs).unwrap();
        let all = Heard::of(&mut engine);
        anything(&mut engine, 5);
        let mut all = all.take();
        assert!(kinds.iter().all(|&kind| all.iter().any(|event| kind_of(event) == kind)));
        all.retain(|event| chosen().any(|kind| kind == kind_of(event)));
        assert_eq!(std::mem::take(&mut *told.lock().unwrap()), all, "{hears:?}");
        // A new evictor also receives the storages that were evicted before it was set.
        let x = engine.put(Bytes::of(16, 1));
        engine.drop_now(x).unwrap();
        told.lock().unwrap().clear();
        engine.set_evictor(Choosy::boxed(hears, &told)).unwrap();
        let wants = chosen().any(|kind| kind == Hears::EVICTIONS);
        assert_eq!(told.lock().unwrap().len(), usize::from(wants), "{hears:?}");
    }
    assert_eq!(kinds.into_iter().fold(Hears::NOTHING, Hears::and), Hears::ALL);
}
